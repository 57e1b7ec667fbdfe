//! The lock words of a segment on this node: who has which slot, where tokens are.

use crate::note::Note;
use pagemesh_core::Reclaimed;
use pagemesh_os::area::LockArea;
use pagemesh_wire::lockword::{LockWord, SLOT_LIMIT};
use pagemesh_wire::{ClientId, SegmentId, SyncKey};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Slots of one lock area, by lock number.
#[derive(Debug)]
pub(crate) struct Locks {
    area: LockArea,
    slots: HashMap<u64, u32>,
}

impl Locks {
    /// An empty area.
    pub(crate) fn create() -> io::Result<Self> {
        Ok(Self {
            area: LockArea::create()?,
            slots: HashMap::new(),
        })
    }

    /// A descriptor of the area to lend.
    pub(crate) fn lend_area(&self) -> io::Result<OwnedFd> {
        self.area.as_fd().try_clone_to_owned()
    }

    /// Goes on with an area that the daemon before made.
    pub(crate) fn adopt(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            area: LockArea::map(fd)?,
            slots: HashMap::new(),
        })
    }

    /// The area itself.
    pub(crate) fn area(&self) -> BorrowedFd<'_> {
        self.area.as_fd()
    }

    /// A slot that the daemon before assigned.
    pub(crate) fn restore(&mut self, number: u64, slot: u32) {
        self.slots.insert(number, slot);
    }

    /// Which locks have which slots.
    pub(crate) fn notes(&self, segment: SegmentId) -> impl Iterator<Item = Note> {
        self.slots.iter().map(move |(number, slot)| Note::Slot {
            key: SyncKey {
                segment,
                number: *number,
            },
            slot: *slot,
        })
    }

    /// The slot of a lock, if it has one.
    pub(crate) fn known(&self, number: u64) -> Option<u32> {
        self.slots.get(&number).copied()
    }

    /// The slot of a lock, assigned at its first use; `None` when all are taken.
    pub(crate) fn slot(&mut self, number: u64) -> Option<u32> {
        if let Some(slot) = self.known(number) {
            return Some(slot);
        }
        let next = u32::try_from(self.slots.len()).ok()?;
        if next >= SLOT_LIMIT {
            return None;
        }
        self.slots.insert(number, next);
        Some(next)
    }

    /// Writes that a process holds a lock; false if there is no slot for it.
    pub(crate) fn lend(&mut self, number: u64, by: ClientId, wanted: bool) -> bool {
        let Some(slot) = self.slot(number) else {
            return false;
        };
        let word = self.area.word(slot);
        word.map(|word| word.swap(LockWord::Held { by, wanted }))
            .is_some()
    }

    /// Asks for a lent token back.
    pub(crate) fn reclaim(&self, number: u64) -> Reclaimed {
        let word = self.slots.get(&number);
        match word.and_then(|slot| self.area.word(*slot)) {
            None => Reclaimed::Broken,
            Some(word) => match word.reclaim() {
                LockWord::Free => Reclaimed::Back,
                LockWord::Held { .. } => Reclaimed::Marked,
                LockWord::Absent => Reclaimed::Broken,
            },
        }
    }

    /// The token is not lent any more, whatever the word says.
    pub(crate) fn take_back(&self, number: u64) {
        let word = self.known(number).and_then(|slot| self.area.word(slot));
        if let Some(word) = word {
            word.swap(LockWord::Absent);
        }
    }

    /// Whether a process holds the lock.
    pub(crate) fn holds(&self, number: u64, client: ClientId) -> bool {
        let word = self.known(number).and_then(|slot| self.area.word(slot));
        let word = word.map(|word| word.load());
        matches!(word, Some(LockWord::Held { by, .. }) if by == client)
    }

    /// The locks a process holds.
    pub(crate) fn held_by(&self, client: ClientId) -> Vec<u64> {
        let numbers = self.slots.keys().copied();
        let mut held: Vec<_> = numbers
            .filter(|number| self.holds(*number, client))
            .collect();
        held.sort_unstable();
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_lent_and_come_back() {
        let mut locks = Locks::create().unwrap();
        let (one, two) = (ClientId(1), ClientId(2));
        assert_eq!(locks.slot(77), Some(0));
        assert_eq!(locks.slot(5), Some(1));
        assert_eq!(locks.slot(77), Some(0));
        assert_eq!(locks.reclaim(6), Reclaimed::Broken);
        assert!(locks.lend(77, one, false) && locks.lend(5, one, true));
        assert_eq!(locks.reclaim(77), Reclaimed::Marked);
        assert!(locks.holds(77, one) && !locks.holds(77, two));
        assert!(locks.lend(9, two, false));
        assert_eq!(locks.held_by(one), [5, 77]);
        locks.take_back(77);
        assert_eq!(locks.held_by(one), [5]);
        let word = locks.area.word(2).unwrap();
        word.swap(LockWord::Free);
        assert_eq!(locks.reclaim(9), Reclaimed::Back);
    }
}
