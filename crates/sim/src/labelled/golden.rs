//! What memory would hold if there were one, and what may be missing of it when
//! hosts have died.
//!
//! A store is *confirmed* when somebody has acquired what was released after it:
//! from then on it is there for everybody, or its page fails. Until then, if its
//! host dies, it may never have happened; which it is, the first load decides. What
//! another host has loaded is confirmed, too.

use std::collections::BTreeMap;

/// Stores to one byte that are not confirmed.
struct Loose {
    /// What the last confirmed one left.
    before: u8,
    /// By which host, what; in order.
    since: Vec<(usize, u8)>,
}

/// The reference.
pub(super) struct Golden {
    bytes: Vec<u8>,
    loose: BTreeMap<usize, Loose>,
    dead: Vec<bool>,
}

impl Golden {
    pub(super) fn new(length: usize, hosts: usize) -> Self {
        Self {
            bytes: vec![0; length],
            loose: BTreeMap::new(),
            dead: vec![false; hosts],
        }
    }

    pub(super) fn store(&mut self, byte: usize, host: usize, value: u8) {
        let before = std::mem::replace(&mut self.bytes[byte], value);
        let since = Vec::new();
        let loose = self.loose.entry(byte).or_insert(Loose { before, since });
        loose.since.push((host, value));
    }

    /// Whatever the living stored to such bytes is known to somebody else. What a host
    /// stored that has died since may have been known to it alone.
    pub(super) fn confirm(&mut self, such: impl Fn(usize) -> bool) {
        let dead = &self.dead;
        let doubtful = |loose: &Loose| loose.since.last().is_some_and(|(host, _)| dead[*host]);
        self.loose
            .retain(|byte, loose| !such(*byte) || doubtful(loose));
    }

    pub(super) fn host_died(&mut self, host: usize) {
        self.dead[host] = true;
    }

    pub(super) fn somebody_died(&self) -> bool {
        self.dead.contains(&true)
    }

    /// Whether a load of a host may return this; else what it should.
    pub(super) fn load(&mut self, byte: usize, host: usize, value: u8) -> Result<(), u8> {
        let wanted = self.bytes[byte];
        let Some(loose) = self.loose.get(&byte) else {
            return if value == wanted { Ok(()) } else { Err(wanted) };
        };
        let own = loose.since.last().is_some_and(|(by, _)| *by == host);
        if value == wanted {
            if !own {
                self.loose.remove(&byte);
            }
            return Ok(());
        }
        let lost = |(host, _): &&(usize, u8)| self.dead[*host];
        let lost = loose.since.iter().rev().take_while(lost).count();
        let certain = loose.since.len() - lost;
        // From the last one that its host lived to tell, on to the last.
        let left = |kept: usize| match kept.checked_sub(1) {
            Some(last) => loose.since[last].1,
            None => loose.before,
        };
        let mut kept = certain..loose.since.len();
        if !kept.any(|kept| left(kept) == value) {
            return Err(wanted);
        }
        self.loose.remove(&byte);
        self.bytes[byte] = value;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_dead_told_nobody_may_be_missing() {
        let mut golden = Golden::new(4, 3);
        golden.store(1, 0, 5);
        golden.confirm(|byte| byte == 1);
        golden.store(1, 0, 6);
        golden.store(1, 2, 7);
        golden.store(1, 2, 8);
        assert_eq!(golden.load(1, 0, 6), Err(8), "nobody died");
        golden.host_died(2);
        assert_eq!(golden.load(1, 0, 5), Err(8), "host 0 lives to tell");
        assert_eq!(golden.load(1, 0, 7), Ok(()));
        assert_eq!(golden.load(1, 0, 8), Err(7), "that never happened now");
        assert_eq!(golden.load(1, 1, 6), Err(7), "and this was seen");
        golden.store(1, 1, 9);
        golden.confirm(|_| true);
        assert_eq!(golden.load(1, 0, 7), Err(9), "it was told");
    }
}
