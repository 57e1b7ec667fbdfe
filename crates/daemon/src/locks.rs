//! The lock words of a segment on this node: which lock has which slot, where tokens are.

use pagemesh_core::Reclaimed;
use pagemesh_os::area::{LockArea, Word};
use pagemesh_recorder::Note;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::lockword::{LockWord, SLOT_LIMIT};
use pagemesh_wire::{ClientId, SegmentId, SyncKey};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Slots of one lock area, by lock number.
#[derive(Debug)]
pub(crate) struct Locks {
    /// None while no process here has the segment open.
    area: Option<LockArea>,
    slots: HashMap<u64, Slot>,
    /// How many of them each user was first to ask for.
    users: SortedMap<u32, u32>,
}

/// The place of a lock's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    index: u32,
    /// The user that asked for it first.
    uid: u32,
}

impl Locks {
    /// An empty area.
    pub(crate) fn create() -> io::Result<Self> {
        Ok(Self::with(LockArea::create()?))
    }

    fn with(area: LockArea) -> Self {
        Self {
            area: Some(area),
            slots: HashMap::new(),
            users: SortedMap::new(),
        }
    }

    /// A descriptor of the area to lend.
    pub(crate) fn lend_area(&self) -> io::Result<OwnedFd> {
        let area = self.area().ok_or(io::ErrorKind::NotFound)?;
        area.try_clone_to_owned()
    }

    /// Makes the area anew if it was given up. True if it was.
    pub(crate) fn wake(&mut self) -> io::Result<bool> {
        let given_back = self.area.is_none();
        if given_back {
            self.area = Some(LockArea::create()?);
        }
        Ok(given_back)
    }

    /// Gives the area up: no token is lent, and no process here knows a word.
    pub(crate) fn give_back(&mut self) {
        self.area = None;
        self.forget_slots();
    }

    /// No lock has a slot.
    pub(crate) fn forget_slots(&mut self) {
        self.slots.clear();
        self.users.clear();
    }

    /// The locks whose tokens are lent and free; none if some process holds a lock, which a
    /// process that has closed the segment may still do.
    pub(crate) fn idle(&self) -> Option<Vec<u64>> {
        let mut free = Vec::new();
        for number in self.slots.keys() {
            match self.word(*number).map(Word::load) {
                Some(LockWord::Held { .. }) => return None,
                Some(LockWord::Free) => free.push(*number),
                Some(LockWord::Absent) | None => {}
            }
        }
        free.sort_unstable();
        Some(free)
    }

    fn word(&self, number: u64) -> Option<&Word> {
        self.area.as_ref()?.word(self.known(number)?)
    }

    /// Goes on with an area that the daemon before made.
    pub(crate) fn adopt(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self::with(LockArea::map(fd)?))
    }

    /// The area itself, unless it was given up.
    pub(crate) fn area(&self) -> Option<BorrowedFd<'_>> {
        self.area.as_ref().map(AsFd::as_fd)
    }

    /// A slot that the daemon before assigned.
    pub(crate) fn restore(&mut self, number: u64, index: u32, uid: u32) {
        if self.slots.insert(number, Slot { index, uid }).is_none() {
            *self.users.entry(uid).or_default() += 1;
        }
    }

    /// How many slots each user has.
    pub(crate) fn users(&self) -> &SortedMap<u32, u32> {
        &self.users
    }

    /// Which locks have which slots.
    pub(crate) fn notes(&self, segment: SegmentId) -> impl Iterator<Item = Note> {
        self.slots.iter().map(move |(number, slot)| Note::Slot {
            key: SyncKey {
                segment,
                number: *number,
            },
            slot: slot.index,
            uid: slot.uid,
        })
    }

    /// The slot of a lock, if it has one.
    pub(crate) fn known(&self, number: u64) -> Option<u32> {
        self.slots.get(&number).map(|slot| slot.index)
    }

    /// The slot of a lock, assigned at its first use; `None` when all are taken.
    pub(crate) fn slot(&mut self, number: u64, uid: u32) -> Option<u32> {
        if let Some(slot) = self.known(number) {
            return Some(slot);
        }
        let next = u32::try_from(self.slots.len()).ok()?;
        if next >= SLOT_LIMIT {
            return None;
        }
        self.restore(number, next, uid);
        Some(next)
    }

    /// Writes that a process holds a lock; false if there is no slot for it.
    pub(crate) fn lend(&self, number: u64, by: ClientId, wanted: bool) -> bool {
        let word = self.word(number);
        word.map(|word| word.swap(LockWord::Held { by, wanted }))
            .is_some()
    }

    /// Asks for a lent token back.
    pub(crate) fn reclaim(&self, number: u64) -> Reclaimed {
        match self.word(number) {
            None => Reclaimed::Broken,
            Some(word) => match word.reclaim() {
                LockWord::Free => Reclaimed::Back,
                LockWord::Held { .. } => Reclaimed::Marked,
                LockWord::Absent => Reclaimed::Broken,
            },
        }
    }

    /// The token is not lent any more, whatever the word's value.
    pub(crate) fn take_back(&self, number: u64) {
        if let Some(word) = self.word(number) {
            word.swap(LockWord::Absent);
        }
    }

    /// Whether a process holds the lock.
    pub(crate) fn holds(&self, number: u64, client: ClientId) -> bool {
        let word = self.word(number).map(Word::load);
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
        assert_eq!(locks.slot(77, 10), Some(0));
        assert_eq!(locks.slot(5, 11), Some(1));
        assert_eq!(locks.slot(77, 11), Some(0));
        assert_eq!(locks.users(), &[(10, 1), (11, 1)].into());
        assert_eq!(locks.reclaim(6), Reclaimed::Broken);
        assert!(locks.lend(77, one, false) && locks.lend(5, one, true));
        assert_eq!(locks.reclaim(77), Reclaimed::Marked);
        assert!(locks.holds(77, one) && !locks.holds(77, two));
        assert!(!locks.lend(9, two, false), "it has no slot");
        assert_eq!(locks.slot(9, 10), Some(2));
        assert!(locks.lend(9, two, false));
        assert_eq!(locks.held_by(one), [5, 77]);
        locks.take_back(77);
        assert_eq!(locks.held_by(one), [5]);
        assert_eq!(locks.idle(), None, "two are held");
        locks.take_back(5);
        assert_eq!(locks.idle(), None, "one is held");
        let word = locks.word(9).unwrap();
        word.swap(LockWord::Free);
        assert_eq!(locks.idle(), Some(vec![9]));
        assert_eq!(locks.reclaim(9), Reclaimed::Back);
    }

    #[test]
    fn an_area_that_nobody_uses_is_given_up_and_made_anew() {
        let mut locks = Locks::create().unwrap();
        locks.slot(77, 10);
        locks.give_back();
        assert!(locks.area().is_none() && locks.lend_area().is_err());
        assert!(locks.users().is_empty());
        assert_eq!(locks.reclaim(77), Reclaimed::Broken);
        assert!(locks.wake().unwrap() && !locks.wake().unwrap());
        assert_eq!(locks.slot(78, 10), Some(0));
        assert!(locks.lend(78, ClientId(1), false));
    }
}
