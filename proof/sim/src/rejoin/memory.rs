//! The memory of one host as its program sees it: frames, rights, stash and lock words; and the
//! newest store to each page by anybody.

use pagemesh_core::{Rights, Time};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::{PageIndex, SegmentId, SyncKey};
use std::collections::BTreeMap;

/// One page.
pub(super) type Key = (SegmentId, PageIndex);

/// The word of a lock that is lent to the program of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The lock is free.
    Free,
    /// The program holds it; true if the daemon wants it back.
    Held(bool),
}

/// Frames, rights, stash and lock words of one host.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) frames: BTreeMap<Key, u64>,
    pub(super) rights: BTreeMap<Key, Rights>,
    pub(super) stash: BTreeMap<Key, u64>,
    pub(super) words: SortedMap<SyncKey, Word>,
}

impl Memory {
    pub(super) fn rights(&self, key: Key) -> Rights {
        self.rights.get(&key).copied().unwrap_or_default()
    }

    /// Takes away all rights of a program that is gone. Its locks are reported as broken.
    pub(super) fn program_gone(&mut self) -> Vec<SyncKey> {
        self.rights.clear();
        let held = |(key, word): (&SyncKey, &Word)| matches!(word, Word::Held(_)).then_some(*key);
        let broken: Vec<_> = self.words.iter().filter_map(held).collect();
        for key in &broken {
            self.words.remove(key);
        }
        broken
    }

    /// Drops all memory of a segment.
    pub(super) fn forget(&mut self, segment: SegmentId) {
        self.frames.retain(|(of, _), _| *of != segment);
        self.rights.retain(|(of, _), _| *of != segment);
        self.stash.retain(|(of, _), _| *of != segment);
        self.words.retain(|key, _| key.segment != segment);
    }
}

/// The newest store to a page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Newest {
    pub(super) value: u64,
    pub(super) at: Time,
    /// The host that stored it.
    pub(super) by: usize,
}
