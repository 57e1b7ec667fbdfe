//! A mapping of a segment in a process of this node, and its faults.

use crate::keeper::Whole;
use pagemesh_core::PageRange;
use pagemesh_os::memfd::PAGE;
use pagemesh_os::uffd::Uffd;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::{ByteLen, ByteOffset, ClientId, MappingId, PageIndex, SegmentId};

/// One mapping.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Through which its faults are served.
    pub(crate) uffd: Uffd,
    /// Of which segment.
    pub(crate) segment: SegmentId,
    /// In which process.
    pub(crate) client: ClientId,
    /// Shared and writable. Else private and read-only: then a page must never
    /// be *copied* in, since the copy would belong to the process alone.
    pub(crate) write: bool,
    /// Where in the process.
    pub(crate) place: Place,
}

impl Mapping {
    /// All that is known of it, for the keeper.
    pub(crate) fn whole(&self) -> Whole {
        let (address, length) = self.place.range();
        Whole {
            client: self.client,
            address,
            length,
            segment: self.segment,
            offset: self.place.offset(),
            write: self.write,
        }
    }

    /// A mapping of the previous daemon.
    pub(crate) fn restore(whole: Whole, uffd: Uffd) -> Result<Self, &'static str> {
        let (length, offset) = (ByteLen(whole.length), ByteOffset(whole.offset));
        let size = ByteLen(whole.offset.saturating_add(whole.length));
        Ok(Self {
            uffd,
            segment: whole.segment,
            client: whole.client,
            write: whole.write,
            place: Place::new(whole.address, length, offset, size)?,
        })
    }
}

/// Where a mapping lies in its process and in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    address: u64,
    first: u32,
    count: u32,
}

impl Place {
    /// Checks what a process says: whole pages, inside the segment.
    pub(crate) fn new(
        address: u64,
        length: ByteLen,
        offset: ByteOffset,
        size: ByteLen,
    ) -> Result<Self, &'static str> {
        let page = PAGE as u64;
        let whole = |bytes: u64| bytes.is_multiple_of(page);
        if !whole(address) || !whole(length.0) || !whole(offset.0) || length.0 == 0 {
            return Err("a mapping has whole pages at a page boundary");
        }
        let pages = size.pages().map_or(0, |pages| u64::from(pages.0));
        let (first, count) = (offset.0 / page, length.0 / page);
        if first.checked_add(count).is_none_or(|end| end > pages) {
            return Err("the mapping goes beyond the end of the segment");
        }
        if address.checked_add(length.0).is_none() {
            return Err("the mapping goes beyond the end of the address space");
        }
        // Both fit: segments have at most 2^32 - 1 pages.
        Ok(Self {
            address,
            first: first as u32,
            count: count as u32,
        })
    }

    /// Which page of the segment is at an address.
    pub(crate) fn page(&self, address: u64) -> Option<PageIndex> {
        let index = address.checked_sub(self.address)? / PAGE as u64;
        (index < u64::from(self.count)).then(|| PageIndex(self.first + index as u32))
    }

    /// At which address a page of the segment is, if it is mapped.
    pub(crate) fn address(&self, page: PageIndex) -> Option<u64> {
        let index = page.0.checked_sub(self.first)?;
        (index < self.count).then(|| self.address + u64::from(index) * PAGE as u64)
    }

    /// Address and length in bytes of the mapped part of some pages, if there is any.
    pub(crate) fn part(&self, pages: PageRange) -> Option<(u64, u64)> {
        let end = |first: u32, count: u32| u64::from(first) + u64::from(count);
        let first = pages.first.0.max(self.first);
        let end = end(pages.first.0, pages.count).min(end(self.first, self.count));
        let count = end.checked_sub(first.into()).filter(|count| *count > 0)?;
        Some((self.address(PageIndex(first))?, count * PAGE as u64))
    }

    /// The first byte of the segment that is mapped.
    pub(crate) fn offset(&self) -> u64 {
        PageIndex(self.first).offset().0
    }

    /// Address and length in bytes.
    pub(crate) fn range(&self) -> (u64, u64) {
        (self.address, u64::from(self.count) * PAGE as u64)
    }
}

/// All mappings on this node.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    by_id: SortedMap<MappingId, Mapping>,
    last: u64,
    /// Those of the daemon before of which it is not known yet whether the node
    /// knows them.
    doubtful: SortedMap<MappingId, Mapping>,
    missing: SortedMap<MappingId, ClientId>,
}

impl Mappings {
    /// Adds one, under a number never used before.
    pub(crate) fn insert(&mut self, mapping: Mapping) -> MappingId {
        self.last += 1;
        let id = MappingId(self.last);
        self.by_id.insert(id, mapping);
        id
    }

    /// A mapping of the daemon before; the node may not have heard of it.
    pub(crate) fn restore(&mut self, id: MappingId, mapping: Mapping) {
        self.skip_to(id.0);
        self.doubtful.insert(id, mapping);
    }

    /// The node knows it.
    pub(crate) fn confirm(&mut self, id: MappingId, client: ClientId) {
        self.skip_to(id.0);
        match self.doubtful.remove(&id) {
            Some(mapping) => drop(self.by_id.insert(id, mapping)),
            None if self.by_id.contains_key(&id) => {}
            None => drop(self.missing.insert(id, client)),
        }
    }

    /// The node knows it no more.
    pub(crate) fn forget(&mut self, id: MappingId) {
        self.by_id.remove(&id);
        self.missing.remove(&id);
    }

    /// The node knows none of a process any more.
    pub(crate) fn forget_all(&mut self, client: ClientId) {
        self.by_id.retain(|_, mapping| mapping.client != client);
        self.missing.retain(|_, of| *of != client);
    }

    /// A mapping that the node knows and that was not kept: stores through it would not be seen.
    pub(crate) fn missing(&self) -> Option<MappingId> {
        self.missing.keys().next().copied()
    }

    /// Drops those of which the node has not heard; their processes ask again.
    pub(crate) fn drop_doubtful(&mut self) {
        self.doubtful.clear();
    }

    /// The number given last.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Gives no number up to this one.
    pub(crate) fn skip_to(&mut self, last: u64) {
        self.last = self.last.max(last);
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (MappingId, &Mapping)> {
        self.by_id.iter().map(|(id, mapping)| (*id, mapping))
    }

    /// The mapping, if it is still there.
    pub(crate) fn get(&self, id: MappingId) -> Option<&Mapping> {
        self.by_id.get(&id)
    }

    /// Removes one.
    pub(crate) fn remove(&mut self, id: MappingId) -> Option<Mapping> {
        self.by_id.remove(&id)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x7000_0000_0000;

    fn place(address: u64, length: u64, offset: u64, size: u64) -> Result<Place, &'static str> {
        Place::new(address, ByteLen(length), ByteOffset(offset), ByteLen(size))
    }

    #[test]
    fn addresses_and_pages_correspond() {
        let place = place(BASE, 0x3000, 0x2000, 0x4001).unwrap();
        assert_eq!(place.page(BASE), Some(PageIndex(2)));
        assert_eq!(place.page(BASE + 0x2fff), Some(PageIndex(4)));
        assert_eq!(place.page(BASE + 0x3000), None);
        assert_eq!(place.page(BASE - 1), None);
        assert_eq!(place.address(PageIndex(4)), Some(BASE + 0x2000));
        assert_eq!(place.address(PageIndex(1)), None);
        assert_eq!(place.address(PageIndex(5)), None);
        assert_eq!(place.range(), (BASE, 0x3000));
    }

    #[test]
    fn a_part_of_a_range_is_mapped() {
        let place = place(BASE, 0x3000, 0x2000, 0x9000).unwrap();
        let part = |first, count| {
            place.part(PageRange {
                segment: SegmentId(1),
                first: PageIndex(first),
                count,
            })
        };
        assert_eq!(part(0, 9), Some((BASE, 0x3000)));
        assert_eq!(part(3, 1), Some((BASE + 0x1000, 0x1000)));
        assert_eq!(part(1, 2), Some((BASE, 0x1000)));
        assert_eq!(part(4, 4), Some((BASE + 0x2000, 0x1000)));
        assert_eq!([part(0, 2), part(5, 3)], [None, None]);
    }

    #[test]
    fn a_process_may_say_anything() {
        assert!(place(BASE + 1, 0x1000, 0, 0x1000).is_err());
        assert!(place(BASE, 0x1001, 0, 0x2000).is_err());
        assert!(place(BASE, 0x1000, 1, 0x2000).is_err());
        assert!(place(BASE, 0, 0, 0x2000).is_err());
        assert!(place(BASE, 0x2000, 0x1000, 0x2000).is_err());
        assert!(place(BASE, 0x1000, !0xfff, 0x2000).is_err());
        assert!(place(!0xfff, 0x2000, 0, 0x2000).is_err());
    }
}
