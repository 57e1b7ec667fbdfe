//! Neighbouring pages that leave together. Who asked for many pages at once gets them
//! at once: the effects then stop stores to one page after the other, or take one
//! after the other away. The kernel does that for a whole run in the time it takes
//! for one or two pages, so the hands do it for the run where its first page stands.
//!
//! That is earlier than the effects say, and nobody can tell: between the first and
//! the last page of a run stand only effects that touch neither frames nor the stash,
//! or that send a page of the run whose turn has come.

use pagemesh_core::At;
use pagemesh_core::Effect;
use pagemesh_wire::PageIndex;

/// What is done to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Stores are stopped.
    Protect,
    /// Its pages are taken away, into the stash if they are to be kept.
    Evict {
        /// See [`Effect::Evict`].
        keep: bool,
    },
}

/// Pages, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: At,
    pub(crate) count: u32,
    pub(crate) what: What,
}

/// Pages of a run at most: everything else waits meanwhile, and what was read for the stash is
/// to be sent before it has left the nearest caches.
const MOST: u32 = 64;

impl Run {
    /// The run that begins at the first of these effects; none if a single page is
    /// concerned.
    pub(crate) fn at(effects: &[Effect]) -> Option<Self> {
        let (first, rest) = effects.split_first()?;
        let (first, what) = step(first)?;
        let mut run = Self {
            first,
            count: 1,
            what,
        };
        for effect in rest {
            match effect {
                Effect::Emit(_) | Effect::Send { page: None, .. } => {}
                Effect::Send {
                    page: Some((segment, page, _)),
                    ..
                } if run.has((*segment, *page)) => {}
                effect if run.count < MOST && step(effect) == Some((run.next(), what)) => {
                    run.count += 1;
                }
                _ => break,
            }
        }
        (run.count > 1).then_some(run)
    }

    /// Whether a page belongs to it.
    pub(crate) fn has(&self, (segment, page): At) -> bool {
        let at = page.0.checked_sub(self.first.1.0);
        segment == self.first.0 && at.is_some_and(|at| at < self.count)
    }

    /// Whether the effect is done with this run.
    pub(crate) fn covers(&self, effect: &Effect) -> bool {
        step(effect).is_some_and(|(at, what)| what == self.what && self.has(at))
    }

    /// Whether the effect is the first of this run.
    pub(crate) fn begins_at(&self, effect: &Effect) -> bool {
        step(effect) == Some((self.first, self.what))
    }

    /// Whether the effect is the last of this run.
    pub(crate) fn ends_at(&self, effect: &Effect) -> bool {
        step(effect).is_some_and(|(at, _)| self.has(at) && !self.has((at.0, PageIndex(at.1.0 + 1))))
    }

    /// Its pages.
    pub(crate) fn pages(&self) -> impl Iterator<Item = At> {
        let (segment, first) = self.first;
        (0..self.count).map(move |at| (segment, PageIndex(first.0 + at)))
    }

    fn next(&self) -> At {
        (self.first.0, PageIndex(self.first.1.0 + self.count))
    }
}

fn step(effect: &Effect) -> Option<(At, What)> {
    match *effect {
        Effect::Protect { segment, page } => Some(((segment, page), What::Protect)),
        Effect::Evict {
            segment,
            page,
            keep,
        } => Some(((segment, page), What::Evict { keep })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_core::{Event, Source};
    use pagemesh_wire::header::Header;
    use pagemesh_wire::peer::Message;
    use pagemesh_wire::{ClusterId, Incarnation, NodeId, SegmentId};

    const SEGMENT: SegmentId = SegmentId(7);

    fn protect(page: u32) -> Effect {
        Effect::Protect {
            segment: SEGMENT,
            page: PageIndex(page),
        }
    }

    fn evict(page: u32, keep: bool) -> Effect {
        Effect::Evict {
            segment: SEGMENT,
            page: PageIndex(page),
            keep,
        }
    }

    fn send(page: u32) -> Effect {
        Effect::Send {
            address: ([127, 0, 0, 1], 1).into(),
            header: Header {
                cluster: ClusterId(1),
                from: NodeId(1),
                to: NodeId(2),
                incarnation: Incarnation(1),
                body: 0,
            },
            message: Box::new(Message::Expelled),
            page: Some((SEGMENT, PageIndex(page), Source::Frame)),
        }
    }

    fn emit() -> Effect {
        Effect::Emit(Event::Malformed {})
    }

    #[test]
    fn neighbours_are_a_run_however_they_are_sent_in_between() {
        let effects = [protect(4), send(4), emit(), protect(5), send(5), protect(6)];
        let run = Run::at(&effects).unwrap();
        let pages: Vec<u32> = run.pages().map(|(_, page)| page.0).collect();
        assert_eq!((pages, run.what), (vec![4, 5, 6], What::Protect));
        assert!(run.covers(&protect(6)) && !run.covers(&protect(7)));
        assert!(!run.covers(&evict(5, true)) && !run.covers(&send(5)));
        assert!(run.begins_at(&protect(4)) && !run.begins_at(&protect(5)));
        assert!(run.ends_at(&protect(6)) && !run.ends_at(&protect(5)));
    }

    #[test]
    fn a_run_ends_where_something_else_could_tell() {
        let count = |effects: &[Effect]| Run::at(effects).map_or(0, |run| run.count);
        assert_eq!(count(&[protect(1), protect(3)]), 0, "no neighbours");
        assert_eq!(count(&[evict(1, true), evict(2, false)]), 0, "other ends");
        assert_eq!(count(&[evict(1, true), evict(2, true), protect(3)]), 2);
        let early = [evict(1, true), send(2), evict(2, true)];
        assert_eq!(count(&early), 0, "its frame is still to be read");
        let stash = Effect::DropStash {
            segment: SEGMENT,
            page: PageIndex(2),
        };
        assert_eq!(count(&[evict(1, true), stash, evict(2, true)]), 0);
        assert_eq!(count(&[send(1), protect(1), protect(2)]), 0);
        assert_eq!(count(&[]), 0);
    }
}
