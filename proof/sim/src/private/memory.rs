//! The memory and the disk of one host, as a driver keeps them.

use super::PrivateMistake;
use crate::small::Check;
use pagemesh_core::{At, Rights};
use pagemesh_seal::{PageSealer, SystemDice};
use pagemesh_wire::peer::{LentPage, PageSeal};
use pagemesh_wire::{NodeId, PAGE_SIZE, Version};
use std::collections::BTreeMap;

/// A page: its value in front, or sealed.
pub(super) type Bytes = Box<[u8; PAGE_SIZE]>;

pub(super) fn bytes_of(value: u64) -> Bytes {
    let mut bytes = Box::new([0; PAGE_SIZE]);
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes
}

pub(super) fn value_of(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |value| u64::from_le_bytes(*value))
}

/// A frame.
#[derive(Clone, Copy, Debug)]
struct Frame {
    value: u64,
    /// When it was filled.
    filled: u64,
    rights: Rights,
}

/// Everything a host keeps.
pub(super) struct Memory {
    frames: BTreeMap<At, Frame>,
    pub(super) stash: BTreeMap<At, Bytes>,
    disk: BTreeMap<At, u64>,
    sealer: PageSealer,
    pub(super) disk_is_full: bool,
    planted: Option<PrivateMistake>,
}

impl Memory {
    pub(super) fn new(planted: Option<PrivateMistake>) -> Self {
        Self {
            frames: BTreeMap::new(),
            stash: BTreeMap::new(),
            disk: BTreeMap::new(),
            sealer: PageSealer::new(&SystemDice::default()),
            disk_is_full: false,
            planted,
        }
    }

    /// The version that goes into a seal.
    fn sealed_as(&self, lent: LentPage) -> LentPage {
        let version = match self.planted {
            Some(PrivateMistake::VersionNotSealed) => Version(0),
            _ => lent.version,
        };
        LentPage { version, ..lent }
    }

    pub(super) fn seal(&mut self, lent: LentPage, bytes: &mut [u8]) -> PageSeal {
        let lent = self.sealed_as(lent);
        self.sealer.seal(lent, bytes)
    }

    pub(super) fn open(&mut self, lent: LentPage, seal: PageSeal, bytes: &mut [u8]) -> bool {
        let lent = self.sealed_as(lent);
        self.sealer.open(lent, seal, bytes)
    }

    pub(super) fn load(&self, at: At) -> Option<u64> {
        let frame = self.frames.get(&at)?;
        (frame.rights >= Rights::Read).then_some(frame.value)
    }

    /// Stores; false if the thread must fault first.
    pub(super) fn store(&mut self, at: At, value: u64) -> bool {
        let frame = self.frames.get_mut(&at);
        let frame = frame.filter(|frame| frame.rights == Rights::Write);
        frame.map(|frame| frame.value = value).is_some()
    }

    pub(super) fn fill(&mut self, at: At, value: u64) -> Check {
        let rights = Rights::None;
        let filled = value;
        let frame = Frame {
            value,
            filled,
            rights,
        };
        match self.frames.insert(at, frame) {
            None => Ok(()),
            Some(_) => Err(format!("{at:?} is filled, and has contents")),
        }
    }

    pub(super) fn read_disk(&self, at: At) -> Check<u64> {
        let value = self.disk.get(&at).copied();
        value.ok_or_else(|| format!("INV-private-kept: {at:?} is not on the disk"))
    }

    pub(super) fn map(&mut self, at: At, rights: Rights) -> Check {
        let frame = self.frames.get_mut(&at);
        let frame = frame.ok_or_else(|| format!("INV-fill-before-map: {at:?}"))?;
        frame.rights = frame.rights.max(rights);
        Ok(())
    }

    pub(super) fn evict(&mut self, at: At, keep: bool) -> Check {
        let frame = self.frames.remove(&at);
        let frame = frame.ok_or_else(|| format!("{at:?} is evicted, and has no frame"))?;
        let stale = self.planted == Some(PrivateMistake::StaleEvicted);
        let value = if stale { frame.filled } else { frame.value };
        if keep {
            self.stash.insert(at, bytes_of(value));
        }
        Ok(())
    }

    /// Writes a page to the disk; false if it is full.
    pub(super) fn store_on_disk(&mut self, at: At) -> Check<bool> {
        if self.disk_is_full {
            return Ok(false);
        }
        let bytes = self
            .stash
            .get(&at)
            .ok_or_else(|| format!("{at:?} is not in the stash"))?;
        if self.planted != Some(PrivateMistake::StoreForgotten) {
            self.disk.insert(at, value_of(&bytes[..]));
        }
        Ok(true)
    }

    pub(super) fn forget(&mut self, segment: pagemesh_wire::SegmentId) {
        self.frames.retain(|at, _| at.0 != segment);
        self.stash.retain(|at, _| at.0 != segment);
        self.disk.retain(|at, _| at.0 != segment);
    }

    /// Pages of this host's own segments in memory, and pages kept for others.
    pub(super) fn count(&self, me: NodeId) -> (usize, usize) {
        let own = |at: &&At| at.0.home() == me;
        let stashed = self.stash.keys().filter(own).count();
        (self.frames.len() + stashed, self.stash.len() - stashed)
    }

    /// A page that is both in its frame and in the stash.
    pub(super) fn twice(&self) -> Option<At> {
        self.frames
            .keys()
            .find(|at| self.stash.contains_key(*at))
            .copied()
    }
}
