//! The lock words of a segment on this node: who has which slot, where tokens are.

use pagemesh_os::area::LockArea;
use pagemesh_wire::ClientId;
use pagemesh_wire::lockword::{LockWord, SLOT_LIMIT};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Slots of one lock area, by lock number.
#[derive(Debug)]
pub(crate) struct Locks {
    area: LockArea,
    slots: HashMap<u64, u32>,
}

/// What came of asking for a lent token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reclaimed {
    /// Nobody held the lock: the token is back.
    Back,
    /// Held; the holder will tell when it releases.
    Marked,
    /// The word was destroyed by some process: nobody knows who held the lock.
    Broken,
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

    /// The slot of a lock, assigned at its first use; `None` when all are taken.
    pub(crate) fn slot(&mut self, number: u64) -> Option<u32> {
        if let Some(slot) = self.slots.get(&number) {
            return Some(*slot);
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

    /// Takes the token from a process that says it held the lock; false if the
    /// word does not say so.
    pub(crate) fn release(&self, number: u64, by: ClientId) -> bool {
        let word = self.slots.get(&number);
        let Some(word) = word.and_then(|slot| self.area.word(*slot)) else {
            return false;
        };
        [true, false].into_iter().any(|wanted| {
            word.compare_exchange(LockWord::Held { by, wanted }, LockWord::Absent)
                .is_ok()
        })
    }

    /// Takes the tokens from a process that died, and says which.
    pub(crate) fn bury(&self, dead: ClientId) -> Vec<u64> {
        let held = |slot: u32| match self.area.word(slot).map(|word| word.load()) {
            Some(LockWord::Held { by, .. }) => by == dead,
            _ => false,
        };
        let mut numbers: Vec<_> = self
            .slots
            .iter()
            .filter(|(number, slot)| held(**slot) && self.release(**number, dead))
            .map(|(number, _)| *number)
            .collect();
        numbers.sort_unstable();
        numbers
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
        assert!(!locks.release(77, two), "not the holder");
        assert!(locks.release(77, one) && !locks.release(77, one));
        assert!(locks.lend(9, two, false));
        assert_eq!(locks.bury(one), [5]);
        assert_eq!(locks.bury(one), []);
        let word = locks.area.word(2).unwrap();
        word.swap(LockWord::Free);
        assert_eq!(locks.reclaim(9), Reclaimed::Back);
    }
}
