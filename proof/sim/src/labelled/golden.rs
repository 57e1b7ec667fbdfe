//! The contents of memory if there were only one, and the parts that may be missing when hosts have
//! died.
//!
//! A store is *known* to a host that made it, or that has synchronized with one that knew it: by a
//! lock that one released, or a barrier it arrived at. A load of a byte sees each store that a
//! living host knows, or its page fails. A store that only dead hosts knew may be lost; the first
//! load decides whether it is.

use std::collections::BTreeMap;

/// How many stores of each host a host knows.
type Clock = Vec<u64>;

fn join(into: &mut Clock, from: &Clock) {
    for (mine, theirs) in into.iter_mut().zip(from) {
        *mine = (*mine).max(*theirs);
    }
}

/// One store to a byte.
struct Store {
    host: usize,
    /// Which of the stores of its host.
    index: u64,
    value: u8,
}

/// Stores to one byte that perhaps no living host knows.
struct Loose {
    /// The value before the first of them.
    before: u8,
    /// In order.
    since: Vec<Store>,
}

/// The reference.
pub(super) struct Golden {
    bytes: Vec<u8>,
    loose: BTreeMap<usize, Loose>,
    dead: Vec<bool>,
    /// The clock of each host.
    clocks: Vec<Clock>,
    /// The clock of the host that last released a lock.
    locks: BTreeMap<u64, Clock>,
    /// The joined clocks of the hosts that arrived at each barrier.
    barriers: Vec<Clock>,
}

impl Golden {
    pub(super) fn new(length: usize, hosts: usize) -> Self {
        Self {
            bytes: vec![0; length],
            loose: BTreeMap::new(),
            dead: vec![false; hosts],
            clocks: vec![vec![0; hosts]; hosts],
            locks: BTreeMap::new(),
            barriers: Vec::new(),
        }
    }

    pub(super) fn store(&mut self, byte: usize, host: usize, value: u8) {
        self.settle(byte);
        self.clocks[host][host] += 1;
        let index = self.clocks[host][host];
        let before = std::mem::replace(&mut self.bytes[byte], value);
        let since = Vec::new();
        let loose = self.loose.entry(byte).or_insert(Loose { before, since });
        loose.since.push(Store { host, index, value });
    }

    /// A thread of a host has released a lock, or died with it.
    pub(super) fn release(&mut self, lock: u64, host: usize) {
        self.locks.insert(lock, self.clocks[host].clone());
    }

    /// A thread of a host has got a lock. If the token had to be made anew, its holder knows of the
    /// dead hosts what any living one does.
    pub(super) fn acquire(&mut self, lock: u64, host: usize, recovered: bool) {
        let Some(mut released) = self.locks.get(&lock).cloned() else {
            return;
        };
        for dead in (0..self.dead.len()).filter(|of| recovered && self.dead[*of]) {
            let living = self.clocks.iter().zip(&self.dead);
            let told = living
                .filter(|(_, dead)| !**dead)
                .map(|(clock, _)| clock[dead]);
            released[dead] = told.max().unwrap_or_default();
        }
        join(&mut self.clocks[host], &released);
    }

    /// A thread of a host has arrived at a barrier.
    pub(super) fn arrive(&mut self, barrier: u64, host: usize) {
        let hosts = self.clocks.len();
        let barrier = barrier as usize;
        if self.barriers.len() <= barrier {
            self.barriers.resize(barrier + 1, vec![0; hosts]);
        }
        join(&mut self.barriers[barrier], &self.clocks[host]);
    }

    /// A thread of a host has left a barrier; so the home of it knows as much.
    pub(super) fn depart(&mut self, barrier: u64, host: usize, home: usize) {
        for host in [host, home] {
            join(&mut self.clocks[host], &self.barriers[barrier as usize]);
        }
    }

    pub(super) fn host_died(&mut self, host: usize) {
        self.dead[host] = true;
    }

    pub(super) fn somebody_died(&self) -> bool {
        self.dead.contains(&true)
    }

    pub(super) fn is_dead(&self, host: usize) -> bool {
        self.dead[host]
    }

    /// How many of these stores cannot be lost any more while any host lives.
    fn certain(&self, loose: &Loose) -> usize {
        let knows = |store: &Store| {
            let mut living = self.clocks.iter().zip(&self.dead);
            living.any(|(clock, dead)| !dead && clock[store.host] >= store.index)
        };
        loose
            .since
            .iter()
            .rposition(knows)
            .map_or(0, |last| last + 1)
    }

    /// Forgets the stores of a byte that all hosts know.
    fn settle(&mut self, byte: usize) {
        let everybody = |loose: &Loose| {
            let mut stores = loose.since.iter();
            stores.all(|store| {
                let mut clocks = self.clocks.iter();
                clocks.all(|clock| clock[store.host] >= store.index)
            })
        };
        if self.loose.get(&byte).is_some_and(everybody) {
            self.loose.remove(&byte);
        }
    }

    /// Whether a load by a host may return this; else the value it should return.
    pub(super) fn load(&mut self, byte: usize, host: usize, value: u8) -> Result<(), u8> {
        let wanted = self.bytes[byte];
        let Some(loose) = self.loose.get(&byte) else {
            return if value == wanted { Ok(()) } else { Err(wanted) };
        };
        if value == wanted && !self.somebody_died() {
            return Ok(());
        }
        let left = |kept: usize| match kept.checked_sub(1) {
            Some(last) => loose.since[last].value,
            None => loose.before,
        };
        let certain = self.certain(loose);
        let mut kept = certain..=loose.since.len();
        let Some(kept) = kept.find(|kept| left(*kept) == value) else {
            return Err(wanted);
        };
        // The store that was seen did happen, and none after it. If no other living host knows it,
        // the one that has seen it does now.
        self.bytes[byte] = value;
        self.clocks[host][host] += 1;
        let index = self.clocks[host][host];
        if let Some(loose) = self.loose.get_mut(&byte) {
            loose.since.truncate(kept);
            if let Some(last) = loose.since.last_mut().filter(|_| kept > certain) {
                (last.host, last.index) = (host, index);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_dead_told_nobody_may_be_missing() {
        let mut golden = Golden::new(4, 3);
        golden.store(1, 2, 5);
        golden.release(0, 2);
        golden.acquire(0, 0, false);
        golden.store(1, 2, 6);
        golden.store(1, 2, 7);
        assert_eq!(golden.load(1, 0, 6), Err(7), "nobody died");
        golden.host_died(2);
        assert_eq!(golden.load(1, 0, 0), Err(7), "host 0 was told of 5");
        assert_eq!(golden.load(1, 0, 6), Ok(()));
        assert_eq!(golden.load(1, 0, 7), Err(6), "that never happened now");
        assert_eq!(golden.load(1, 0, 5), Err(6), "and this was seen");
    }

    #[test]
    fn what_is_told_on_is_known() {
        let mut golden = Golden::new(4, 4);
        golden.store(1, 3, 5);
        golden.release(7, 3);
        golden.acquire(7, 2, false);
        golden.release(8, 2);
        golden.acquire(8, 1, false);
        golden.host_died(3);
        golden.host_died(2);
        assert_eq!(golden.load(1, 0, 0), Err(5), "host 1 lives to tell");
        golden.host_died(1);
        assert_eq!(golden.load(1, 0, 0), Ok(()));
        assert_eq!(golden.load(1, 0, 5), Err(0), "that never happened now");
    }

    #[test]
    fn what_was_before_a_barrier_is_known_to_all_of_it() {
        let mut golden = Golden::new(4, 3);
        golden.store(1, 2, 5);
        golden.arrive(0, 2);
        golden.arrive(0, 1);
        golden.store(1, 2, 6);
        golden.depart(0, 1, 0);
        golden.host_died(2);
        golden.host_died(1);
        assert_eq!(golden.load(1, 0, 0), Err(6), "the home was told of 5");
        assert_eq!(golden.load(1, 0, 5), Ok(()));
    }
}
