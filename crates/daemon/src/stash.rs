//! Contents that left the memory of this node and may still be needed: until their receiver has
//! acknowledged them, no other node may have them. They lie in memory that outlives the daemon,
//! each under a label that names its page.

use pagemesh_os::memfd::{PAGE, PageBytes};
use pagemesh_os::region::{Region, Shape};
use pagemesh_sorted::LongMap;
use pagemesh_wire::{PageIndex, SegmentId};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Page contents by page.
#[derive(Debug)]
pub(crate) struct Stash {
    region: Region,
    slots: LongMap<(SegmentId, PageIndex), usize>,
    /// Slots without a page whose memory is there: giving a page away should
    /// not allocate.
    warm: Vec<usize>,
    /// Slots without a page whose memory goes back to the host, together with that of others.
    cooling: Vec<usize>,
    /// Slots without a page and without memory.
    cold: Vec<usize>,
    /// Slots never used yet: this one and all behind it.
    fresh: usize,
}

/// Pages kept at most: 16 GiB of them, each waiting for an acknowledgement.
const SLOTS: usize = 1 << 22;

/// Slots kept warm: who walks through memory and writes has this many under way.
const WARM: usize = 1024;

/// A donor's pages come and go: of the slots in use this part is kept warm besides. Giving memory back
/// and getting it again takes longer than copying a page.
const WARM_PART: usize = 8;

/// So many slots give their memory back together: neighbours in one call.
const COOLED: usize = 256;

/// A label has two words: the segment; the page and one, or zero if there is none.
const LABEL: usize = 2;

const SHAPE: Shape = Shape {
    words: SLOTS * LABEL,
    bytes: SLOTS * PAGE,
};

impl Stash {
    /// An empty stash.
    pub(crate) fn create() -> io::Result<Self> {
        Ok(Self::over(Region::create("pagemesh-stash", SHAPE)?))
    }

    /// The stash of a dead daemon.
    pub(crate) fn adopt(fd: OwnedFd) -> io::Result<Self> {
        let mut stash = Self::over(Region::map(fd, SHAPE)?);
        let mut slot = 0;
        // Slots are used from the front, so behind the last label comes nothing:
        // the first word of a used slot is never zero again.
        while slot < SLOTS && stash.label(slot).0 != 0 {
            let (segment, mark) = stash.label(slot);
            match u32::try_from(mark)
                .ok()
                .and_then(|mark| mark.checked_sub(1))
            {
                Some(page) => {
                    let at = (SegmentId(segment), PageIndex(page));
                    stash.slots.insert(at, slot);
                }
                None => stash.cold.push(slot),
            }
            slot += 1;
        }
        stash.fresh = slot;
        Ok(stash)
    }

    fn over(region: Region) -> Self {
        Self {
            region,
            slots: LongMap::new(),
            warm: Vec::with_capacity(WARM),
            cooling: Vec::new(),
            cold: Vec::new(),
            fresh: 0,
        }
    }

    /// Keeps a page, whose contents `fill` writes over the contents kept before.
    pub(crate) fn keep(
        &mut self,
        segment: SegmentId,
        page: PageIndex,
        fill: impl FnOnce(&mut PageBytes) -> io::Result<()>,
    ) -> io::Result<()> {
        let at = (segment, page);
        let known = self.slots.get(&at).copied();
        let slot = known
            .or_else(|| self.take())
            .ok_or(io::ErrorKind::StorageFull)?;
        let filled = fill(self.contents_mut(slot));
        if known.is_none() {
            if filled.is_ok() {
                self.write_label(slot, segment.0, u64::from(page.0) + 1);
                self.slots.insert(at, slot);
            } else {
                self.warm.push(slot);
            }
        }
        filled
    }

    /// Keeps neighbouring pages, of which nothing is kept yet: `fill` writes the
    /// contents of all of them at once, in order.
    ///
    /// # Errors
    /// If something is kept of one of them, there is no room, or `fill` fails; then
    /// nothing is kept.
    pub(crate) fn keep_run(
        &mut self,
        segment: SegmentId,
        first: PageIndex,
        count: u32,
        fill: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<()>,
    ) -> io::Result<()> {
        let page = |step| (segment, PageIndex(first.0 + step));
        let mut known = self.slots.range(page(0)..page(count));
        if known.next().is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mut slots: Vec<usize> = (0..count).map_while(|_| self.take()).collect();
        slots.sort_unstable();
        let filled = match slots.len() == count as usize {
            true => fill(&mut self.rooms(&slots)),
            false => Err(io::ErrorKind::StorageFull.into()),
        };
        if filled.is_err() {
            // The first of them is used next: slots are used from the front.
            self.warm.extend(slots.into_iter().rev());
            return filled;
        }
        for (step, slot) in (0..).zip(slots) {
            let (_, PageIndex(index)) = page(step);
            self.write_label(slot, segment.0, u64::from(index) + 1);
            self.slots.insert(page(step), slot);
        }
        Ok(())
    }

    /// The memory of some slots, which are in order.
    fn rooms(&mut self, slots: &[usize]) -> Vec<IoSliceMut<'_>> {
        let (mut pages, _) = self.region.bytes_mut().as_chunks_mut::<PAGE>();
        let mut before = 0;
        let mut rooms = Vec::with_capacity(slots.len());
        for slot in slots {
            let (room, rest) = pages[slot - before..]
                .split_first_mut()
                .expect("a slot has memory");
            rooms.push(IoSliceMut::new(room));
            (pages, before) = (rest, slot + 1);
        }
        rooms
    }

    /// The contents kept of a page.
    pub(crate) fn get(&self, segment: SegmentId, page: PageIndex) -> Option<&PageBytes> {
        let slot = *self.slots.get(&(segment, page))?;
        let (pages, _) = self.region.bytes().as_chunks::<PAGE>();
        pages.get(slot)
    }

    /// Keeps the page no more.
    pub(crate) fn drop(&mut self, segment: SegmentId, page: PageIndex) {
        if let Some(slot) = self.slots.remove(&(segment, page)) {
            self.release(slot, segment);
        }
    }

    /// Keeps no page of the segment any more.
    pub(crate) fn forget(&mut self, segment: SegmentId) {
        let pages = (segment, PageIndex(0))..=(segment, PageIndex(u32::MAX));
        let gone: Vec<_> = self
            .slots
            .range(pages)
            .map(|(at, slot)| (*at, *slot))
            .collect();
        for (at, slot) in gone {
            self.slots.remove(&at);
            self.release(slot, segment);
        }
    }

    /// How many pages are kept.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    fn take(&mut self) -> Option<usize> {
        let used = self.warm.pop().or_else(|| self.cooling.pop());
        let used = used.or_else(|| self.cold.pop());
        used.or_else(|| {
            let slot = self.fresh;
            self.fresh += 1;
            (slot < SLOTS).then_some(slot)
        })
    }

    fn release(&mut self, slot: usize, segment: SegmentId) {
        self.write_label(slot, segment.0, 0);
        self.warm.push(slot);
        // The fewer pages are left, the fewer slots stay warm.
        while self.warm.len() > WARM + self.slots.len() / WARM_PART {
            if let Some(slot) = self.warm.pop() {
                self.cool(slot);
            }
        }
    }

    /// Gives the memory of a slot back to the host, once there are enough of them.
    fn cool(&mut self, slot: usize) {
        self.cooling.push(slot);
        if self.cooling.len() < COOLED {
            return;
        }
        self.cooling.sort_unstable();
        for run in self.cooling.chunk_by(|slot, next| slot + 1 == *next) {
            let (first, end) = (run[0], run[0] + run.len());
            if let Err(error) = self.region.clear(first * PAGE..end * PAGE) {
                tracing::debug!(%error, "memory of the stash stays taken");
            }
        }
        self.cold.append(&mut self.cooling);
    }

    fn contents_mut(&mut self, slot: usize) -> &mut PageBytes {
        let (pages, _) = self.region.bytes_mut().as_chunks_mut::<PAGE>();
        &mut pages[slot]
    }

    fn label(&self, slot: usize) -> (u64, u64) {
        let word = |index| self.region.word(slot * LABEL + index);
        let mark = word(1).load(Ordering::Acquire);
        (word(0).load(Ordering::Acquire), mark)
    }

    /// Last of all, since it makes the contents believed.
    fn write_label(&self, slot: usize, segment: u64, mark: u64) {
        let word = |index| self.region.word(slot * LABEL + index);
        if mark != 0 {
            word(0).store(segment, Ordering::Release);
        }
        word(1).store(mark, Ordering::Release);
    }
}

impl AsFd for Stash {
    /// The descriptor to keep for the next daemon.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.region.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(stash: &mut Stash, segment: u64, page: u32, byte: u8) {
        let fill = |room: &mut PageBytes| {
            *room = [byte; PAGE];
            Ok(())
        };
        stash
            .keep(SegmentId(segment), PageIndex(page), fill)
            .unwrap();
    }

    fn kept(stash: &Stash, segment: u64, page: u32) -> Option<u8> {
        let bytes = stash.get(SegmentId(segment), PageIndex(page))?;
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        Some(bytes[0])
    }

    #[test]
    fn keeps_until_told_otherwise() {
        let mut stash = Stash::create().unwrap();
        keep(&mut stash, 1, 2, 7);
        assert_eq!(kept(&stash, 1, 2), Some(7));
        keep(&mut stash, 1, 2, 8);
        assert_eq!((kept(&stash, 1, 2), stash.len()), (Some(8), 1));
        stash.drop(SegmentId(1), PageIndex(2));
        assert_eq!(kept(&stash, 1, 2), None);
        keep(&mut stash, 1, 2, 1);
        keep(&mut stash, 2, 2, 2);
        stash.forget(SegmentId(1));
        assert_eq!((stash.len(), kept(&stash, 2, 2)), (1, Some(2)));
    }

    #[test]
    fn neighbours_are_kept_together_or_not_at_all() {
        let mut stash = Stash::create().unwrap();
        for page in 0..9 {
            keep(&mut stash, 1, page, 0);
        }
        for page in [7, 2, 5] {
            stash.drop(SegmentId(1), PageIndex(page));
        }
        let number = |rooms: &mut [IoSliceMut<'_>]| {
            assert_eq!(rooms.len(), 4);
            (1..).zip(rooms).for_each(|(byte, room)| room.fill(byte));
            Ok(())
        };
        stash
            .keep_run(SegmentId(2), PageIndex(6), 4, number)
            .unwrap();
        for (page, byte) in (6..).zip(1..=4) {
            assert_eq!(kept(&stash, 2, page), Some(byte), "page {page}");
        }
        assert_eq!(stash.len(), 6 + 4);
        let mut refused = |segment, first, fill: &dyn Fn() -> io::Result<()>| {
            let kept = stash.keep_run(SegmentId(segment), PageIndex(first), 3, |_| fill());
            assert!(kept.is_err() && stash.len() == 10);
        };
        refused(2, 4, &|| Ok(()));
        refused(3, 0, &|| Err(io::ErrorKind::Other.into()));
        for page in 6..10 {
            assert_eq!(kept(&stash, 2, page), Some(page as u8 - 5));
        }
        stash.forget(SegmentId(2));
        keep(&mut stash, 4, 1, 9);
        assert_eq!((kept(&stash, 4, 1), stash.len()), (Some(9), 7));
    }

    #[test]
    fn the_next_daemon_finds_what_was_kept() {
        let mut stash = Stash::create().unwrap();
        let pages = 2 * WARM as u32;
        for page in 0..pages {
            keep(&mut stash, 5, page, page as u8);
        }
        for page in (0..pages).filter(|page| page % 3 != 0) {
            stash.drop(SegmentId(5), PageIndex(page));
        }
        let failed = stash.keep(SegmentId(6), PageIndex(0), |_| {
            Err(io::ErrorKind::Other.into())
        });
        assert!(failed.is_err());
        let fd = stash.as_fd().try_clone_to_owned().unwrap();
        drop(stash);
        let mut stash = Stash::adopt(fd).unwrap();
        for page in 0..pages {
            let expected = (page % 3 == 0).then_some(page as u8);
            assert_eq!(kept(&stash, 5, page), expected, "page {page}");
        }
        assert_eq!(kept(&stash, 6, 0), None);
        keep(&mut stash, 6, 0, 3);
        assert_eq!(stash.fresh, pages as usize, "old slots are used again");
    }
}
