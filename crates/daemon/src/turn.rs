//! Datagrams that came together are handled in one turn: the node hears them all, then
//! the effects of all are carried out, in order.

use crate::pages::Fresh;
use crate::payload::Payload;
use pagemesh_core::{At, PageRange};
use pagemesh_os::memfd::PageBytes;
use pagemesh_recorder::Heard;
use pagemesh_wire::header::HEADER_SIZE;
use pagemesh_wire::{PAGE_SIZE, PageIndex};

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
            Self::Turn { .. } => {
                let page = self.pages(effect, 1).first();
                page.map_or(Payload::NONE, Payload::of_page)
            }
        }
    }

    /// The pages that came with as many datagrams of a turn, of which the first caused this effect.
    pub(crate) fn pages(self, effect: usize, count: usize) -> &'a [PageBytes] {
        let Self::Turn { slots, heard } = self else {
            return &[];
        };
        let slot = heard.partition_point(|heard| heard.effects <= effect);
        let has_page = |heard: &Heard| heard.bytes >= HEADER_SIZE + PAGE_SIZE;
        match (heard.get(slot..slot + count), slots.get(slot..slot + count)) {
            (Some(heard), Some(pages)) if heard.iter().all(has_page) => pages,
            _ => &[],
        }
    }
}

/// Contents on their way into frames. If a mapping wants them next, both are
/// done by one call of the kernel, straight from the receive buffer.
#[derive(Debug)]
pub(crate) struct Fill {
    pub(crate) pages: PageRange,
    pub(crate) fresh: Fresh,
    /// Which effect asked for it.
    pub(crate) index: usize,
}

impl Fill {
    /// The page at a place of it.
    pub(crate) fn at(&self, step: usize) -> At {
        let step = u32::try_from(step).unwrap_or(u32::MAX);
        (
            self.pages.segment,
            PageIndex(self.pages.first.0.saturating_add(step)),
        )
    }

    /// The payloads of its pages, as far as they came with a turn.
    pub(crate) fn contents<'a>(&self, payloads: Payloads<'a>) -> &'a [PageBytes] {
        payloads.pages(self.index, self.pages.count as usize)
    }

    /// The payload of one of its pages.
    pub(crate) fn payload<'a>(&self, at: At, payloads: Payloads<'a>) -> Payload<'a> {
        let step = at.1.0.saturating_sub(self.pages.first.0) as usize;
        match self.contents(payloads).get(step) {
            Some(page) => Payload::of_page(page),
            None if step == 0 => payloads.of(self.index),
            None => Payload::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_core::Source;
    use pagemesh_os::memfd::PAGE;
    use pagemesh_wire::SegmentId;

    fn fill(index: usize, count: u32) -> Fill {
        Fill {
            pages: PageRange {
                segment: SegmentId(1),
                first: PageIndex(7),
                count,
            },
            fresh: Fresh::From(Source::Payload),
            index,
        }
    }

    #[test]
    fn pages_that_are_filled_together_came_with_successive_datagrams() {
        let slots = [[1; PAGE], [2; PAGE], [3; PAGE]];
        // The effects of the second and third datagram joined each other.
        let heard =
            [(40, 2), (5000, 4), (5000, 4)].map(|(bytes, effects)| Heard { bytes, effects });
        let payloads = Payloads::Turn {
            slots: &slots,
            heard: &heard,
        };
        let both = fill(2, 2);
        assert_eq!(both.contents(payloads), &slots[1..]);
        let page = |fill: &Fill, step| {
            fill.payload(fill.at(step), payloads)
                .page()
                .map(|page| page[0])
        };
        assert_eq!(
            [0, 1, 2].map(|step| page(&both, step)),
            [Some(2), Some(3), None]
        );
        assert_eq!(page(&fill(0, 1), 0), None, "the first datagram has no page");
        assert!(fill(2, 3).contents(payloads).is_empty(), "there are two");
        let behind = [9; HEADER_SIZE + PAGE];
        let one = Payloads::One(Payload::of(&behind));
        assert_eq!(
            fill(5, 1).payload(fill(5, 1).at(0), one).page(),
            Some(&[9; PAGE])
        );
    }
}
