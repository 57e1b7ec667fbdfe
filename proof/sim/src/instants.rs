//! What memory may be after hosts have vanished, if all that others have seen survives: for each dead
//! host the memory of one instant, that is all of its stores up to one of them, and none after it.
//!
//! Which instant that was cannot be known from outside: the loads of the living tell it bit by bit, and
//! must agree, in whatever pages they look. Bounds from below are the stores that they have seen, and
//! those that were made before a lock came from the dead host, or before it arrived at a barrier.

use pagemesh_sorted::SortedMap;
use std::collections::BTreeMap;

/// A store to a word.
#[derive(Clone, Copy, Debug, Hash)]
struct Store {
    host: usize,
    /// Which of the stores of its host.
    index: u64,
    value: u64,
}

/// The stores of a host.
#[derive(Clone, Debug, Hash)]
struct Host {
    made: u64,
    /// At least so many of them survive, ...
    least: u64,
    /// ... and at most so many, if it is dead.
    most: u64,
    dead: bool,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            made: 0,
            least: 0,
            most: u64::MAX,
            dead: false,
        }
    }
}

/// The permitted contents of words, which have names of type `W`.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Instants<W: Ord> {
    /// The stores to each word that a load may find, the oldest first.
    words: BTreeMap<W, Vec<Store>>,
    hosts: SortedMap<usize, Host>,
    /// The host that released each lock last, after so many stores of its own.
    locks: BTreeMap<u64, (usize, u64)>,
    /// The hosts that arrived at each barrier, after so many stores of their own.
    barriers: BTreeMap<u64, Vec<(usize, u64)>>,
}

impl<W: Ord> Default for Instants<W> {
    fn default() -> Self {
        Self {
            words: BTreeMap::new(),
            hosts: SortedMap::new(),
            locks: BTreeMap::new(),
            barriers: BTreeMap::new(),
        }
    }
}

impl<W: Ord> Instants<W> {
    fn host(&mut self, host: usize) -> &mut Host {
        self.hosts.entry(host).or_default()
    }

    /// A thread on `host` stores a word.
    pub(crate) fn store(&mut self, host: usize, word: W, value: u64) {
        let state = self.host(host);
        state.made += 1;
        let index = state.made;
        let stores = self.words.entry(word).or_default();
        stores.push(Store { host, index, value });
    }

    /// A thread on `host` loads a word.
    pub(crate) fn load(&mut self, host: usize, word: W, value: u64) -> Result<(), String> {
        let stores = self.words.entry(word).or_default();
        let found = stores.iter().rposition(|store| store.value == value);
        if found.is_none() && value != 0 {
            return Err(format!(
                "{value:#x} is loaded, which was never there, or is gone: {stores:x?}"
            ));
        }
        // What came after it never happened.
        let kept = found.map_or(0, |found| found + 1);
        for later in stores.split_off(kept) {
            let state = self.hosts.entry(later.host).or_default();
            if !state.dead {
                return Err(format!(
                    "{value:#x} is loaded after {later:x?} of a living host"
                ));
            }
            if later.index <= state.least {
                return Err(format!(
                    "INV-one-instant: {value:#x} is loaded, and {later:x?} is lost, of which {} were seen",
                    state.least
                ));
            }
            state.most = state.most.min(later.index - 1);
        }
        if let Some(store) = found.map(|found| stores[found])
            && store.host != host
        {
            self.saw(store.host, store.index)?;
        }
        Ok(())
    }

    /// So many stores of a host have certainly happened.
    fn saw(&mut self, host: usize, index: u64) -> Result<(), String> {
        let state = self.host(host);
        state.least = state.least.max(index);
        if state.least > state.most {
            return Err(format!(
                "INV-one-instant: store {} of h{} is there, and one of the first {} is not",
                state.least,
                host + 1,
                state.most + 1
            ));
        }
        Ok(())
    }

    /// A thread of a host releases a lock.
    pub(crate) fn release(&mut self, host: usize, lock: u64) {
        let made = self.host(host).made;
        self.locks.insert(lock, (host, made));
    }

    /// A thread of a host has got a lock; `recovered` if it may have been made anew.
    pub(crate) fn acquire(
        &mut self,
        host: usize,
        lock: u64,
        recovered: bool,
    ) -> Result<(), String> {
        match self.locks.get(&lock).copied() {
            Some((by, made)) if by != host && !recovered => self.saw(by, made),
            _ => Ok(()),
        }
    }

    /// A thread of a host arrives at a barrier.
    pub(crate) fn arrive(&mut self, host: usize, barrier: u64) {
        let made = self.host(host).made;
        self.barriers.entry(barrier).or_default().push((host, made));
    }

    /// A thread of a host leaves a barrier.
    pub(crate) fn depart(&mut self, host: usize, barrier: u64) -> Result<(), String> {
        for (by, made) in self.barriers.get(&barrier).cloned().unwrap_or_default() {
            if by != host {
                self.saw(by, made)?;
            }
        }
        Ok(())
    }

    /// A host vanishes.
    pub(crate) fn died(&mut self, host: usize) {
        self.host(host).dead = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_leave_the_memory_of_one_instant() {
        let mut instants = Instants::default();
        instants.store(1, 'p', 5);
        instants.store(1, 'q', 6);
        instants.store(1, 'p', 7);
        assert!(instants.load(0, 'p', 5).is_err(), "nobody died");
        let mut instants = Instants::default();
        for (word, value) in [('p', 5), ('q', 6), ('p', 7)] {
            instants.store(1, word, value);
        }
        instants.died(1);
        let look = |at: &[(char, u64)]| {
            let mut after = instants.clone();
            at.iter()
                .all(|(word, value)| after.load(0, *word, *value).is_ok())
        };
        assert!(look(&[('p', 0), ('q', 0)]) && look(&[('p', 5), ('q', 0)]));
        assert!(look(&[('p', 5), ('q', 6)]) && look(&[('q', 6), ('p', 7)]));
        assert!(!look(&[('q', 6), ('p', 0)]), "q was stored after p");
        assert!(!look(&[('q', 0), ('p', 7)]), "and before p again");
        assert!(!look(&[('p', 5), ('p', 7)]), "it never happened");
    }

    #[test]
    fn what_was_seen_or_handed_on_has_happened() {
        let mut instants = Instants::default();
        instants.store(1, 'p', 5);
        instants.load(0, 'p', 5).unwrap();
        instants.store(1, 'q', 6);
        instants.release(1, 9);
        instants.store(1, 'r', 7);
        let mut unlocked = instants.clone();
        instants.died(1);
        assert!(instants.clone().load(2, 'p', 0).is_err(), "host 0 saw it");
        assert!(instants.load(2, 'q', 0).is_ok());
        unlocked.acquire(0, 9, false).unwrap();
        unlocked.died(1);
        assert!(
            unlocked.clone().load(2, 'q', 0).is_err(),
            "the lock came after"
        );
        assert!(unlocked.load(2, 'r', 0).is_ok());
    }

    #[test]
    fn who_departs_knows_what_was_stored_before_all_arrived() {
        let mut instants = Instants::default();
        instants.store(1, 'p', 5);
        instants.arrive(1, 0);
        instants.arrive(0, 0);
        instants.depart(0, 0).unwrap();
        instants.died(1);
        assert!(instants.load(2, 'p', 0).is_err());
    }
}
