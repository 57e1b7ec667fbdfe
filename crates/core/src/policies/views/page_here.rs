//! What this node has of a page, opened for the length of one input.

use super::arrivals::Arrivals;
use super::messages::{Body, Refresh, Run};
use super::page::{Page, Valid};
use super::{said, say};
use crate::effect::{Effect, Mappings, Rights, Source};
use crate::event::Event;
use crate::executor::At;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::local::View;
use pagemesh_wire::peer::{Message, Refusal, Subject};
use pagemesh_wire::{MappingId, NodeId, PAGE_SIZE, RequestId};

/// The frame of a page, the views that show it, and what this node knows of the page, with everything
/// needed to use it here, to give it away, and to ask others for it. What else of the segment changes
/// with it is a matter of the [`PageContext`](super::context::PageContext).
pub(super) struct PageHere<'a, 'b> {
    pub(super) cx: &'a mut Cx<'b>,
    pub(super) at: At,
    pub(super) page: &'a mut Page,
    /// What each mapping here shows.
    pub(super) mappings: &'a SortedMap<MappingId, View>,
    /// Publications that are arriving.
    pub(super) arriving: &'a mut Arrivals,
}

impl PageHere<'_, '_> {
    pub(super) fn timer(&self) -> Timer {
        let (segment, page) = self.at;
        Timer::Subject(Subject::Page { segment, page })
    }

    pub(super) fn home(&self) -> NodeId {
        self.cx.home(self.at.0)
    }

    pub(super) fn say(&mut self, to: NodeId, body: &Body) {
        say(self.cx, self.at.0, to, body);
    }

    /// Says it with the page behind it.
    pub(super) fn say_page(&mut self, to: NodeId, body: &Body, source: Source) {
        let (segment, page) = self.at;
        let message = Message::PolicyPage(said(segment, body));
        self.cx
            .send_page(to, message, Some((segment, page, source)));
    }

    /// Sends a copy of so many bytes; `whole` is where the page is.
    pub(super) fn send_refresh(
        &mut self,
        to: NodeId,
        (run, bytes): (Run, u16),
        answers: RequestId,
        whole: Source,
    ) {
        let refresh = Refresh {
            page: self.at.1,
            stamp: self.page.stamp,
            bytes,
            run,
            holder: self.page.hint_of(self.cx.me()),
            answers,
        };
        self.say_page(to, &Body::Refresh(refresh), part(bytes, whole));
    }

    pub(super) fn fill(&mut self, source: Source) {
        let pages = self.at.into();
        self.cx.push(Effect::Fill { pages, source });
    }

    /// Gives the holder's page a frame.
    pub(super) fn materialize(&mut self) {
        if self.page.holds && !self.page.filled {
            (self.page.filled, self.page.valid) = (true, Valid::Whole);
            self.fill(Source::Zero);
        }
    }

    pub(super) fn grant(&mut self, mapping: MappingId, view: View) {
        self.materialize();
        let rights = if view.consistent {
            Rights::Write
        } else {
            Rights::Read
        };
        let (mappings, pages) = (Mappings::One(mapping), self.at.into());
        self.cx.push(Effect::Map {
            mappings,
            pages,
            rights,
        });
    }

    /// Serves the threads that can be served.
    pub(super) fn grant_ready(&mut self) {
        let (segment, page) = self.at;
        let faults = core::mem::take(&mut self.page.faults).into_iter();
        let (ready, rest): (Vec<_>, Vec<_>) = faults.partition(|(_, view)| self.page.serves(*view));
        self.page.faults = rest;
        for (mapping, view) in ready {
            self.cx.emit(Event::Granted { segment, page });
            self.grant(mapping, view);
        }
    }

    /// Threads that wait for the page cannot be served.
    pub(super) fn refuse_all(&mut self, why: &Refusal) {
        for (mapping, _) in core::mem::take(&mut self.page.faults) {
            self.cx.fail(mapping, self.at, why.clone());
        }
    }

    pub(super) fn evict(&mut self, keep: bool) {
        let pages = self.at.into();
        self.cx.push(Effect::Evict { pages, keep });
    }

    pub(super) fn drop_stash(&mut self) {
        let (segment, page) = self.at;
        self.cx.push(Effect::DropStash { segment, page });
    }

    /// Gives up what has come of publications with this page.
    pub(super) fn drop_arriving(&mut self) {
        let (segment, page) = self.at;
        self.arriving.drop_with(self.cx, segment, page);
    }

    /// Takes the page out of all mappings; its contents stay.
    pub(super) fn unmap(&mut self) {
        self.drop_arriving();
        self.evict(true);
        self.fill(Source::Stash);
        // While the page is passed on, the stash has the same contents, and is needed.
        if self.page.passing.is_none() {
            self.drop_stash();
        }
    }

    /// Takes a page that is here out of the views of whole pages; those of short ones show it on. All
    /// have one frame, so it leaves all views first.
    pub(super) fn unmap_supersets(&mut self) {
        let mappings = self.mappings;
        if !self.page.filled || mappings.values().all(|view| view.short) {
            return;
        }
        self.unmap();
        for (mapping, view) in mappings {
            if view.short && self.page.serves(*view) {
                self.grant(*mapping, *view);
            }
        }
    }

    /// This node is no member any more: what it has of the page is nobody's.
    pub(super) fn expelled(&mut self) {
        self.page.want = None;
        self.refuse_all(&Refusal::NotMember);
        self.drop_arriving();
        if self.page.passing.take().is_some() {
            self.drop_stash();
        }
        if self.page.valid > Valid::Nothing {
            self.evict(false);
        }
    }
}

/// The source of so many bytes of a page; `whole` if that is all of it.
pub(super) fn part(bytes: u16, whole: Source) -> Source {
    if usize::from(bytes) == PAGE_SIZE {
        whole
    } else {
        Source::Prefix(bytes)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;
    use pagemesh_wire::{PageIndex, SegmentId};

    pub(in super::super) const HOME: NodeId = NodeId(1);
    const SHORT: View = View {
        short: true,
        ..View::INCONSISTENT
    };

    /// Works on a page that a whole view and a short one show. Returns the effects.
    pub(in super::super) fn at(
        me: NodeId,
        page: &mut Page,
        work: impl FnOnce(&mut PageHere<'_, '_>),
    ) -> Vec<Effect> {
        let mut effects = Effects::default();
        let mut cx = Cx {
            now: Time(0),
            shell: &mut Shell::of_four(me),
            effects: &mut effects,
        };
        let views = [(MappingId(1), View::INCONSISTENT), (MappingId(2), SHORT)];
        work(&mut PageHere {
            cx: &mut cx,
            at: (SegmentId::new(HOME, 1), PageIndex(7)),
            page,
            mappings: &views.into_iter().collect(),
            arriving: &mut Arrivals::default(),
        });
        effects.drain().collect()
    }

    #[test]
    fn only_a_holder_makes_a_frame_of_zeros_and_only_once() {
        let mut page = Page::new(HOME, false);
        assert!(at(NodeId(2), &mut page, |here| here.materialize()).is_empty());
        page.holds = true;
        let effects = at(HOME, &mut page, |here| {
            here.materialize();
            here.grant(MappingId(1), View::INCONSISTENT);
        });
        assert_eq!(effects.len(), 2, "{effects:?}");
        assert_eq!((page.filled, page.valid), (true, Valid::Whole));
    }

    #[test]
    fn a_page_out_of_whole_views_stays_in_short_ones() {
        let mut page = Page::new(HOME, true);
        (page.filled, page.valid) = (true, Valid::Whole);
        let effects = at(HOME, &mut page, |here| here.unmap_supersets());
        let maps = effects.iter().filter_map(|effect| match effect {
            Effect::Map { mappings, .. } => Some(*mappings),
            _ => None,
        });
        assert_eq!(maps.collect::<Vec<_>>(), [Mappings::One(MappingId(2))]);
    }

    #[test]
    fn threads_whose_views_are_served_wait_no_more() {
        let mut page = Page::new(HOME, false);
        page.valid = Valid::Prefix;
        page.faults = vec![(MappingId(1), View::INCONSISTENT), (MappingId(2), SHORT)];
        at(NodeId(2), &mut page, |here| here.grant_ready());
        assert_eq!(page.faults, [(MappingId(1), View::INCONSISTENT)]);
        let refused = at(NodeId(2), &mut page, |here| here.expelled());
        assert!(page.faults.is_empty());
        let evicts = |effect: &Effect| matches!(effect, Effect::Evict { keep: false, .. });
        assert!(refused.iter().any(evicts), "{refused:?}");
    }
}
