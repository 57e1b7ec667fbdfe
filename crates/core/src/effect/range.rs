//! The pages and the mappings that an effect concerns, and the merging of effects on consecutive
//! pages.

use super::{Effect, Effects, Rights, Source};
use pagemesh_wire::{MappingId, PageIndex, SegmentId};
use serde::{Deserialize, Serialize};

/// Pages of an effect at most: other effects wait meanwhile, and contents that were copied into the
/// stash are to be sent before they have left the processor's caches.
const LONGEST: u32 = 64;

/// Consecutive pages of a segment, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageRange {
    /// The segment.
    pub segment: SegmentId,
    /// The first page.
    pub first: PageIndex,
    /// The number of pages.
    pub count: u32,
}

impl PageRange {
    /// Pages of a segment as ranges of neighbours, each for one effect.
    pub(crate) fn of(segment: SegmentId, pages: &[PageIndex]) -> Vec<Self> {
        let mut sorted = pages.to_vec();
        sorted.sort_unstable();
        let mut ranges: Vec<Self> = Vec::new();
        for page in sorted {
            let next = (segment, page).into();
            if !ranges.last_mut().is_some_and(|last| last.join(next)) {
                ranges.push(next);
            }
        }
        ranges
    }

    /// The pages in order.
    pub fn iter(self) -> impl Iterator<Item = (SegmentId, PageIndex)> {
        (0..self.count).map(move |step| (self.segment, PageIndex(self.first.0 + step)))
    }

    /// Whether a page is one of them.
    #[must_use]
    pub fn contains(self, (segment, page): (SegmentId, PageIndex)) -> bool {
        let step = page.0.checked_sub(self.first.0);
        segment == self.segment && step.is_some_and(|step| step < self.count)
    }

    /// Adds `next` if it follows directly; false if it does not, or if the range is full.
    fn join(&mut self, next: Self) -> bool {
        let follows = next.segment == self.segment
            && self.first.0.checked_add(self.count) == Some(next.first.0)
            && self.count + next.count <= LONGEST;
        self.count += if follows { next.count } else { 0 };
        follows
    }
}

/// A single page.
impl From<(SegmentId, PageIndex)> for PageRange {
    fn from((segment, first): (SegmentId, PageIndex)) -> Self {
        Self {
            segment,
            first,
            count: 1,
        }
    }
}

/// The mappings of a segment on this node whose rights an effect changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mappings {
    /// Every mapping.
    All,
    /// A single mapping.
    One(MappingId),
}

impl Mappings {
    /// Whether a mapping of the segment is concerned.
    #[must_use]
    pub fn contains(self, mapping: MappingId) -> bool {
        self == Self::All || self == Self::One(mapping)
    }
}

/// The effects that the next one may join: the last one that takes pages away, or the last ones
/// that place pages.
#[derive(Clone, Copy, Debug)]
pub(super) enum Open {
    /// A [`Effect::Protect`] or [`Effect::Evict`] at this index.
    Taken(usize),
    /// Pages that are filled, mapped or both.
    Placed {
        /// The index of the [`Effect::Fill`], and the number of the input whose payload fills its
        /// first page.
        fill: Option<(usize, u32)>,
        /// The index of the [`Effect::Map`].
        map: Option<usize>,
    },
}

impl Open {
    /// Whether all of its effects have indices below this one.
    pub(super) fn stands_before(self, start: usize) -> bool {
        let last = match self {
            Self::Taken(index) => Some(index),
            Self::Placed { fill, map } => map.max(fill.map(|(index, _)| index)),
        };
        last.is_none_or(|last| last < start)
    }
}

impl Effects {
    /// Appends an effect. On pages that follow directly on those of an effect of the same kind, the
    /// earlier effect is extended instead: a driver then needs one system call for all of the pages.
    ///
    /// The later pages are then protected, evicted, filled or mapped earlier than appended. No node
    /// and no program can tell: in between stand only events, datagrams without a page, datagrams
    /// with a page of the range, and, when pages are placed, the same effects on other pages and
    /// stashes that are dropped.
    pub fn push(&mut self, effect: Effect) {
        let index = self.all.len();
        match &effect {
            Effect::Emit(_) | Effect::Send { page: None, .. } => {}
            Effect::Send {
                page: Some((segment, page, _)),
                ..
            } if self.takes((*segment, *page)) => {}
            // The stash is no source of a payload.
            Effect::DropStash { .. } if matches!(self.open, Some(Open::Placed { .. })) => {}
            Effect::Protect { .. } | Effect::Evict { .. } => {
                if self.join_taken(&effect) {
                    return;
                }
                self.open = Some(Open::Taken(index));
            }
            Effect::Fill { pages, source } => {
                let payload = (*source == Source::Payload).then_some(self.inputs);
                if payload.is_some_and(|payload| self.join_fill(*pages, payload)) {
                    return;
                }
                self.open = payload.map(|payload| Open::Placed {
                    fill: Some((index, payload)),
                    map: None,
                });
            }
            Effect::Map {
                mappings,
                pages,
                rights,
            } => {
                if self.join_map(*mappings, *pages, *rights) {
                    return;
                }
                let fill = self.filled(*pages);
                let map = Some(index);
                self.open = Some(Open::Placed { fill, map });
            }
            _ => self.open = None,
        }
        self.all.push(effect);
    }

    /// Whether the open effect takes this page away.
    fn takes(&self, at: (SegmentId, PageIndex)) -> bool {
        let Some(Open::Taken(index)) = self.open else {
            return false;
        };
        match &self.all[index] {
            Effect::Protect { pages, .. } | Effect::Evict { pages, .. } => pages.contains(at),
            _ => false,
        }
    }

    fn join_taken(&mut self, effect: &Effect) -> bool {
        let Some(Open::Taken(index)) = self.open else {
            return false;
        };
        match (&mut self.all[index], effect) {
            (
                Effect::Protect { pages, mappings },
                Effect::Protect {
                    pages: next,
                    mappings: of,
                },
            ) if mappings == of => pages.join(*next),
            (
                Effect::Evict { pages, keep },
                Effect::Evict {
                    pages: next,
                    keep: kept,
                },
            ) if keep == kept => pages.join(*next),
            _ => false,
        }
    }

    /// Extends a fill whose pages are all mapped, by a page whose contents came with the next
    /// datagram.
    fn join_fill(&mut self, next: PageRange, payload: u32) -> bool {
        let Some(Open::Placed {
            fill: Some((index, first)),
            map: Some(map),
        }) = self.open
        else {
            return false;
        };
        let mapped = self.mapped(map);
        match &mut self.all[index] {
            Effect::Fill { pages, .. } => {
                mapped == Some(*pages) && payload == first + pages.count && pages.join(next)
            }
            _ => false,
        }
    }

    fn mapped(&self, index: usize) -> Option<PageRange> {
        match self.all.get(index)? {
            Effect::Map { pages, .. } => Some(*pages),
            _ => None,
        }
    }

    /// Extends a map by pages that are filled with the others, or that are in their frames already.
    fn join_map(&mut self, mappings: Mappings, next: PageRange, rights: Rights) -> bool {
        let Some(Open::Placed {
            fill,
            map: Some(index),
        }) = self.open
        else {
            return false;
        };
        let filled = fill.is_none() || self.filled(next).is_some();
        match &mut self.all[index] {
            Effect::Map {
                mappings: of,
                pages,
                rights: had,
            } => filled && (*of, *had) == (mappings, rights) && pages.join(next),
            _ => false,
        }
    }

    /// The open fill, if it fills the first of these pages.
    fn filled(&self, pages: PageRange) -> Option<(usize, u32)> {
        let Some(Open::Placed {
            fill: Some((index, payload)),
            ..
        }) = self.open
        else {
            return None;
        };
        let fills = |filled: &PageRange| filled.contains((pages.segment, pages.first));
        match &self.all[index] {
            Effect::Fill { pages, .. } if fills(pages) => Some((index, payload)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
