//! This node's part of a segment: its memory, its lock words, its mappings.

use crate::blank::BLANK;
use crate::locks::Locks;
use anyhow::{Context as _, Result};
use pagemesh_os::memfd::{Memfd, PAGE, PageBytes};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::SegmentInfo;
use pagemesh_wire::{ClientId, MappingId, PageCount, PageIndex, SegmentId, SyncKey};
use std::collections::BTreeSet;
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;

/// One segment on this node.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Pages live here.
    pub(crate) memory: Memfd,
    /// Its lock words.
    pub(crate) locks: Locks,
    /// Mappings of it in processes of this node.
    pub(crate) mappings: Vec<MappingId>,
    /// Its owner, as far as that is known here.
    owner: Option<u32>,
}

/// All segments that have memory on this node.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    by_id: SortedMap<SegmentId, Segment>,
    /// Made, and not yet kept for the next daemon.
    fresh: Vec<SegmentId>,
    /// Segments without a page that no process here has open: their memory was given back, and
    /// reads as zeros.
    given_back: BTreeSet<SegmentId>,
}

/// The resources that a segment gave back when no process here has it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenBack {
    /// Its lock words. It has pages.
    Locks,
    /// Those, and its memory.
    All,
}

/// More than any segment has; memory of unknown size costs nothing extra.
const UNKNOWN: PageCount = PageCount(u32::MAX);

impl Segment {
    fn create(name: &str, pages: PageCount) -> Result<Self> {
        // The kernel's limit is 249 bytes.
        let short: String = name.chars().take(50).collect();
        let name = format!("pagemesh:{short}");
        Ok(Self {
            memory: Memfd::create(&name, pages.bytes().0).context("no memory for the segment")?,
            locks: Locks::create().context("no memory for the segment's locks")?,
            mappings: Vec::new(),
            owner: None,
        })
    }

    /// The descriptors a process needs to map it: its memory and its lock words.
    pub(crate) fn lend(&self, write: bool) -> io::Result<Vec<OwnedFd>> {
        Ok(vec![self.capability(write)?, self.locks.lend_area()?])
    }

    /// A descriptor of its memory: who shows it may open the segment.
    pub(crate) fn capability(&self, write: bool) -> io::Result<OwnedFd> {
        if write {
            self.memory.writable()
        } else {
            self.memory.readable()
        }
    }

    /// Whether a descriptor is one of its memory.
    pub(crate) fn is_behind(&self, fd: &OwnedFd) -> bool {
        self.memory.is_behind(fd).unwrap_or(false)
    }

    /// Reads a page's frame.
    pub(crate) fn read(&self, page: PageIndex, bytes: &mut PageBytes) -> io::Result<()> {
        self.memory.read(page.offset().0, bytes)
    }

    /// Reads the frames of neighbouring pages, from this one on.
    pub(crate) fn read_run(
        &self,
        first: PageIndex,
        rooms: &mut [IoSliceMut<'_>],
    ) -> io::Result<()> {
        self.memory.read_run(first.offset().0, rooms)
    }

    /// Appends the contents of a page's frame.
    pub(crate) fn append(&self, page: PageIndex, bytes: &mut Vec<u8>) -> io::Result<()> {
        self.memory.append(page.offset().0, bytes)
    }

    /// Overwrites a page's frame.
    pub(crate) fn write(&self, page: PageIndex, bytes: &PageBytes) -> io::Result<()> {
        self.memory.write(page.offset().0, bytes)
    }

    /// Overwrites some bytes of a page's frame, from `offset` in the page on; no
    /// others are touched.
    pub(crate) fn write_some(
        &self,
        page: PageIndex,
        offset: usize,
        bytes: &[u8],
    ) -> io::Result<()> {
        self.memory
            .write_some(page.offset().0 + offset as u64, bytes)
    }

    /// Whether a page's frame has memory, as the kernel sees it.
    pub(crate) fn has_memory(&self, page: PageIndex) -> bool {
        self.memory.has_data(page.offset().0).unwrap_or(false)
    }

    /// Whether a page's frame has contents.
    pub(crate) fn has(&self, page: PageIndex) -> bool {
        let mut bytes = [0; PAGE];
        self.has_memory(page) && self.read(page, &mut bytes).is_ok() && bytes != *BLANK
    }

    /// Empties a page's frame, out of every mapping.
    pub(crate) fn punch(&self, page: PageIndex) -> io::Result<()> {
        self.memory
            .punch(page.offset().0, pagemesh_wire::PAGE_SIZE as u64)
    }

    /// Empties the frames of so many pages, one behind the other.
    pub(crate) fn punch_run(&self, first: PageIndex, count: u32) -> io::Result<()> {
        self.memory
            .punch(first.offset().0, PageCount(count).bytes().0)
    }
}

impl Segments {
    /// The locks that a dead process held.
    pub(crate) fn locks_held_by(&self, client: ClientId) -> Vec<SyncKey> {
        let mut keys: Vec<_> = self
            .iter()
            .flat_map(|(id, segment)| {
                let numbers = segment.locks.held_by(client);
                numbers.into_iter().map(move |number| SyncKey {
                    segment: id,
                    number,
                })
            })
            .collect();
        keys.sort_unstable();
        keys
    }

    /// The segment, which a process here is about to use.
    pub(crate) fn open(&mut self, info: &SegmentInfo) -> Result<&mut Segment> {
        let pages = info.spec.size.pages().unwrap_or(UNKNOWN);
        self.create(info.id, &info.name, pages)?;
        let segment = self.by_id.get_mut(&info.id).expect("just made");
        segment.owner = Some(info.owner.0);
        if segment
            .locks
            .wake()
            .context("no memory for the segment's locks")?
        {
            self.fresh.push(info.id);
        }
        Ok(segment)
    }

    /// The segment, whose pages another node pressed on this one: it may have
    /// no process here that opened it.
    pub(crate) fn receive(&mut self, id: SegmentId) -> Result<&mut Segment> {
        self.create(id, &id.to_string(), UNKNOWN)
    }

    fn create(&mut self, id: SegmentId, name: &str, pages: PageCount) -> Result<&mut Segment> {
        use pagemesh_sorted::Entry;
        match self.by_id.entry(id) {
            Entry::Occupied(there) => Ok(there.into_mut()),
            Entry::Vacant(place) => {
                let segment = place.insert(Segment::create(name, pages)?);
                self.fresh.push(id);
                self.given_back.remove(&id);
                Ok(segment)
            }
        }
    }

    /// Gives back resources that a segment does not need while no process here has it open: the
    /// words of its locks, no token of which is lent, and its memory if it has no page.
    pub(crate) fn give_back(&mut self, id: SegmentId) -> Option<GivenBack> {
        let segment = self.by_id.get_mut(&id)?;
        if segment.memory.is_empty().unwrap_or(false) {
            self.by_id.remove(&id);
            self.fresh.retain(|fresh| *fresh != id);
            self.given_back.insert(id);
            return Some(GivenBack::All);
        }
        segment.locks.give_back();
        Some(GivenBack::Locks)
    }

    /// Segments that the daemon before knew. Those of which it kept no memory have given it back.
    pub(crate) fn known(&mut self, ids: impl Iterator<Item = SegmentId>) {
        self.given_back = ids.filter(|id| !self.by_id.contains_key(id)).collect();
    }

    /// Whether it has given its memory back, and is all zeros.
    pub(crate) fn is_given_back(&self, id: SegmentId) -> bool {
        self.given_back.contains(&id)
    }

    /// Descriptors of them all.
    pub(crate) fn descriptors(&self) -> u64 {
        // Most have both; it is a bound.
        2 * self.by_id.len() as u64
    }

    /// Descriptors of a user's segments.
    pub(crate) fn descriptors_of(&self, uid: u32) -> u64 {
        let of_user = self
            .by_id
            .values()
            .filter(|segment| segment.owner == Some(uid));
        of_user
            .map(|segment| 1 + u64::from(segment.locks.area().is_some()))
            .sum()
    }

    /// Locks that a user was first to use here.
    pub(crate) fn locks_of(&self, uid: u32) -> u32 {
        let locks = self.by_id.values().map(|segment| segment.locks.users());
        locks.filter_map(|users| users.get(&uid)).sum()
    }

    /// The same of all users.
    pub(crate) fn locks_by_user(&self) -> SortedMap<u32, u32> {
        let mut all = SortedMap::new();
        for segment in self.by_id.values() {
            for (uid, locks) in segment.locks.users() {
                *all.entry(*uid).or_default() += locks;
            }
        }
        all
    }

    /// The previous daemon's part of a segment. If no lock words were kept, no process has seen
    /// any: they are made anew.
    pub(crate) fn restore(
        &mut self,
        id: SegmentId,
        memory: Memfd,
        locks: Option<Locks>,
    ) -> io::Result<()> {
        let locks = match locks {
            Some(locks) => locks,
            None => {
                self.fresh.push(id);
                Locks::create()?
            }
        };
        let segment = Segment {
            memory,
            locks,
            mappings: Vec::new(),
            owner: None,
        };
        self.by_id.insert(id, segment);
        Ok(())
    }

    /// One that is not yet kept for the next daemon; it will be now.
    pub(crate) fn take_fresh(&mut self) -> Option<SegmentId> {
        self.fresh.pop()
    }

    /// The segment, if it has memory here.
    pub(crate) fn get(&self, id: SegmentId) -> Option<&Segment> {
        self.by_id.get(&id)
    }

    /// The segment, if it has memory here.
    pub(crate) fn get_mut(&mut self, id: SegmentId) -> Option<&mut Segment> {
        self.by_id.get_mut(&id)
    }

    /// Drops the segment's memory.
    pub(crate) fn forget(&mut self, id: SegmentId) -> Option<Segment> {
        self.given_back.remove(&id);
        self.by_id.remove(&id)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        self.by_id.iter().map(|(id, segment)| (*id, segment))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }
}
