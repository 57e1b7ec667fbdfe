//! Datagrams that came together are handled in one turn: the node hears them all, then
//! the effects of all are carried out, in order. So pages that come one behind the
//! other are placed by one call of the kernel.

use crate::pages::Fresh;
use crate::payload::Payload;
use pagemesh_core::{At, Rights, Source};
use pagemesh_os::memfd::PageBytes;
use pagemesh_recorder::Heard;
use pagemesh_wire::header::HEADER_SIZE;
use pagemesh_wire::{MappingId, PAGE_SIZE, PageIndex};

/// What came behind the messages of the datagrams whose effects are carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payloads<'a> {
    /// That of a datagram alone.
    One(Payload<'a>),
    /// The pages of a turn.
    Turn {
        /// By number of datagram, each as far as it has a page.
        slots: &'a [PageBytes],
        /// Whose effects end where.
        heard: &'a [Heard],
    },
}

impl<'a> Payloads<'a> {
    /// No datagram.
    pub(crate) const NONE: Self = Self::One(Payload::NONE);

    /// What an effect means, by its number.
    pub(crate) fn of(self, effect: usize) -> Payload<'a> {
        match self {
            Self::One(payload) => payload,
            Self::Turn { slots, .. } => {
                let page = self.slot(effect).and_then(|slot| slots.get(slot));
                page.map_or(Payload::NONE, Payload::of_page)
            }
        }
    }

    /// The slot of that page, if it is one of a turn.
    pub(crate) fn slot(self, effect: usize) -> Option<usize> {
        let Self::Turn { heard, .. } = self else {
            return None;
        };
        let slot = heard.partition_point(|heard| heard.effects <= effect);
        let bytes = heard.get(slot)?.bytes;
        (bytes >= HEADER_SIZE + PAGE_SIZE).then_some(slot)
    }

    /// The pages of so many slots.
    pub(crate) fn slots(self, first: usize, count: usize) -> &'a [PageBytes] {
        match self {
            Self::Turn { slots, .. } => slots.get(first..first + count).unwrap_or_default(),
            Self::One(_) => &[],
        }
    }
}

/// Contents on their way into a frame. If a mapping wants them next, both are
/// done by one call of the kernel, straight from the receive buffer.
#[derive(Debug)]
pub(crate) struct Fill {
    pub(crate) at: At,
    pub(crate) fresh: Fresh,
    /// Which effect asked for it.
    pub(crate) index: usize,
}

/// Neighbouring pages that came with neighbouring datagrams and go into one mapping.
/// They are placed where the last of them stands: later than the effects say, and
/// nobody can tell, since only effects stand between that touch neither frames nor
/// mappings nor the stash, or that fill frames of other pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placing {
    pub(crate) mapping: MappingId,
    pub(crate) first: At,
    pub(crate) rights: Rights,
    pub(crate) slot: usize,
    pub(crate) count: usize,
    /// The first effect of all this.
    pub(crate) index: usize,
}

impl Placing {
    /// A page that just came with a datagram of a turn, and that a mapping gets next;
    /// the fill itself if it is no such page.
    pub(crate) fn of(
        mapping: MappingId,
        rights: Rights,
        fill: Option<Fill>,
        payloads: Payloads<'_>,
    ) -> Result<Self, Option<Fill>> {
        let Some(Fill {
            at: first,
            fresh: Fresh::From(Source::Payload),
            index,
        }) = fill
        else {
            return Err(fill);
        };
        let slot = payloads.slot(index).ok_or(fill)?;
        Ok(Self {
            mapping,
            first,
            rights,
            slot,
            count: 1,
            index,
        })
    }

    /// Takes one more page; false if it is none of these.
    pub(crate) fn takes(&mut self, next: &Self) -> bool {
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        let page = PageIndex(self.first.1.0.saturating_add(count));
        let behind = next.first == (self.first.0, page) && next.slot == self.slot + self.count;
        let alike = (next.mapping, next.rights) == (self.mapping, self.rights);
        self.count += usize::from(behind && alike);
        behind && alike
    }

    /// The page at a place of it.
    pub(crate) fn at(&self, step: usize) -> At {
        let step = u32::try_from(step).unwrap_or(u32::MAX);
        (self.first.0, PageIndex(self.first.1.0.saturating_add(step)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::SegmentId;

    fn placing(mapping: u64, page: u32, rights: Rights, slot: usize) -> Placing {
        Placing {
            mapping: MappingId(mapping),
            first: (SegmentId(1), PageIndex(page)),
            rights,
            slot,
            count: 1,
            index: 0,
        }
    }

    #[test]
    fn only_neighbours_are_placed_together() {
        let mut run = placing(1, 7, Rights::Read, 2);
        assert!(run.takes(&placing(1, 8, Rights::Read, 3)));
        assert!(run.takes(&placing(1, 9, Rights::Read, 4)));
        assert!(
            !run.takes(&placing(1, 11, Rights::Read, 5)),
            "a page is missing"
        );
        assert!(!run.takes(&placing(1, 10, Rights::Read, 6)), "other bytes");
        assert!(!run.takes(&placing(2, 10, Rights::Read, 5)), "other memory");
        assert!(
            !run.takes(&placing(1, 10, Rights::Write, 5)),
            "other rights"
        );
        assert_eq!((run.count, run.at(2).1), (3, PageIndex(9)));
    }
}
