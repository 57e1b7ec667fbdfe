//! A ledger that outlives the hosts of those who write to it: each entry has two words on pages far
//! apart. Its lock's holder stores a number to the first, and then to the second.
//!
//! A host may die between any two stores. Memory that goes on from a state which some instant really
//! had (causally closed) has the second word only with the first, under any policy.

use crate::dice::Dice;
use pagemesh::{Error, Mapping, PAGE_SIZE};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Entries of the ledger, and the locks that they share.
pub const ENTRIES: usize = 64;
const LOCKS: usize = 8;

/// Pages of each of both columns; entries share pages, so that several hosts store to each.
const COLUMN: usize = 16;

/// Pages of the ledger.
pub const PAGES: usize = 2 * COLUMN;

/// Longer than any death holds a lock up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The numbers of one entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The number that the holder of the lock stores first.
    pub first: u64,
    /// The number that the holder stores after it, on another page.
    pub second: u64,
}

/// A ledger in memory.
#[derive(Debug)]
pub struct Ledger {
    memory: Mapping,
}

impl Ledger {
    /// The ledger in this memory.
    #[must_use]
    pub fn new(memory: Mapping) -> Self {
        Self { memory }
    }

    /// Writes to an entry at random. `look` is given the entry as it was found and as it is left,
    /// under its lock.
    ///
    /// # Errors
    /// If the lock cannot be had. An entry that no instant can have had is an error of the memory.
    pub fn write(
        &self,
        dice: &mut Dice,
        mut look: impl FnMut(usize, Entry, Entry),
    ) -> Result<(), Error> {
        let number = dice.below(ENTRIES);
        let lock = self.memory.segment().lock((number % LOCKS) as u64);
        let guard = lock.lock_timeout(PATIENCE)?;
        let [first, second] = [0, COLUMN].map(|column| {
            let at = (column + number % COLUMN) * PAGE_SIZE + number * 8;
            self.memory.atomic_u64(at)
        });
        let (first, second) = (first?, second?);
        let found = Entry {
            first: first.load(Relaxed),
            second: second.load(Relaxed),
        };
        assert!(
            [found.second, found.second + 1].contains(&found.first),
            "no instant had {found:?} in entry {number}"
        );
        let next = found.first + 1;
        first.store(next, Relaxed);
        second.store(next, Relaxed);
        let left = Entry {
            first: next,
            second: next,
        };
        look(number, found, left);
        guard.unlock();
        Ok(())
    }
}
