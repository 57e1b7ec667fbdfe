//! The pages that a node knows, in order, in blocks of neighbours: finding one of thousands touches
//! little memory outside the caches.

use super::page::{More, Page};
use pagemesh_sorted::LongMap;
use pagemesh_wire::PageIndex;
use serde::{Deserialize, Serialize};

/// Pages that were ever touched or requested here; other pages take no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Table {
    blocks: LongMap<u32, Block>,
}

/// Neighbouring pages: those that are known, without gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Block {
    known: u64,
    pages: Vec<Page>,
}

/// Pages of one block: the bits of a word.
const BLOCK: u32 = u64::BITS;

impl Block {
    fn knows(&self, offset: u32) -> bool {
        self.known & (1 << offset) != 0
    }

    /// How many known pages of the block come before this one.
    fn place(&self, offset: u32) -> usize {
        (self.known & ((1 << offset) - 1)).count_ones() as usize
    }

    fn offsets(&self) -> impl Iterator<Item = u32> {
        let known = self.known;
        (0..BLOCK).filter(move |offset| known & (1 << offset) != 0)
    }
}

impl Table {
    /// The page; made by `new` if it is not known yet.
    pub(super) fn page(&mut self, index: PageIndex, new: impl FnOnce() -> Page) -> &mut Page {
        let (number, offset) = split(index);
        let block = self.blocks.entry(number).or_default();
        let place = block.place(offset);
        if !block.knows(offset) {
            block.known |= 1 << offset;
            block.pages.insert(place, new());
        }
        &mut block.pages[place]
    }

    /// The page, if it is known.
    pub(super) fn get(&self, index: PageIndex) -> Option<&Page> {
        let (number, offset) = split(index);
        let block = self.blocks.get(&number)?;
        block
            .knows(offset)
            .then(|| &block.pages[block.place(offset)])
    }

    /// How many pages are known.
    pub(super) fn len(&self) -> usize {
        self.blocks.values().map(|block| block.pages.len()).sum()
    }

    /// All pages, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PageIndex, &Page)> {
        self.from(PageIndex(0))
    }

    /// All pages from this one on, in order.
    pub(super) fn from(&self, first: PageIndex) -> impl Iterator<Item = (PageIndex, &Page)> {
        self.blocks
            .range(split(first).0..)
            .flat_map(|(number, block)| {
                let offsets = block.offsets().zip(&block.pages);
                offsets.map(move |(offset, page)| (PageIndex(number * BLOCK + offset), page))
            })
            .skip_while(move |(index, _)| *index < first)
    }

    /// The pages of which this is true, in order.
    pub(super) fn those(&self, pick: impl Fn(&Page) -> bool) -> Vec<PageIndex> {
        let picked = self.iter().filter(|(_, page)| pick(page));
        picked.map(|(index, _)| index).collect()
    }

    /// The pages from `first` up to `end` that are known, in order.
    pub(super) fn between(
        &self,
        first: PageIndex,
        end: PageIndex,
    ) -> impl Iterator<Item = (PageIndex, &Page)> {
        self.from(first).take_while(move |(index, _)| *index < end)
    }

    /// Whether this node has requested the page.
    pub(super) fn wants(&self, index: PageIndex) -> bool {
        let page = self.get(index);
        page.is_some_and(|page| page.own.want().is_some())
    }

    /// The state of pages with requests under way, in the order of the pages.
    pub(super) fn under_way(&mut self) -> impl Iterator<Item = &mut More> {
        let busy = self.pages_mut().filter_map(|page| page.own.busy_if_any());
        busy.map(|busy| &mut busy.more)
    }

    /// All pages, in order.
    pub(super) fn pages_mut(&mut self) -> impl Iterator<Item = &mut Page> {
        self.blocks.values_mut().flat_map(|block| &mut block.pages)
    }
}

/// The number of the block, and the offset in it.
fn split(index: PageIndex) -> (u32, u32) {
    (index.0 / BLOCK, index.0 % BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::NodeId;

    #[test]
    fn keeps_pages_in_order_whatever_the_order_they_came_in() {
        let mut table = Table::default();
        let indices = [70, 5, u32::MAX, 0, 63, 64, 6];
        for index in indices {
            let page = table.page(PageIndex(index), || Page::new(NodeId(1)));
            page.own.version.0 = u64::from(index);
        }
        let again = table.page(PageIndex(5), || unreachable!("known"));
        assert_eq!(again.own.version.0, 5);
        let seen: Vec<_> = table
            .iter()
            .map(|(index, page)| (index.0, page.own.version.0))
            .collect();
        let sorted = [0, 5, 6, 63, 64, 70, u32::MAX].map(|index| (index, u64::from(index)));
        assert_eq!(seen, sorted);
        let later: Vec<_> = table.from(PageIndex(6)).map(|(index, _)| index.0).collect();
        assert_eq!(later, [6, 63, 64, 70, u32::MAX]);
        assert!(table.get(PageIndex(7)).is_none() && table.get(PageIndex(128)).is_none());
        assert_eq!((table.len(), table.pages_mut().count()), (7, 7));
    }
}
