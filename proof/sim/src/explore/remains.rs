//! The permitted results of loads after a host has vanished, under policy `release`: a load sees a
//! store that a living host knows of, or fails if only the dead host had the diff. A store that no
//! living host knows of may be lost; which it is cannot be known from outside before a thread loads
//! the word, and then the answer is the same for all.
//!
//! Only in settings in which a host may vanish: elsewhere each load finds the latest store.
//!
//! A collection ends intervals whenever it comes: between a host's getting the right to store and
//! the store itself, too. The others then only know that the dead host may have stored.

use super::state::Life;
use crate::check::{Check, ensure};
use crate::kernel::PageKey;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Remains {
    /// Stores to each word that a load may find, the oldest first, with the host of each.
    stores: BTreeMap<(PageKey, usize), Vec<(usize, u64)>>,
    /// Which hosts had the right to store to which page, where intervals end at any moment.
    let_store: BTreeSet<(PageKey, usize)>,
}

impl Remains {
    /// A thread stored a word, after it had seen the former value.
    pub(super) fn store(&mut self, at: usize, key: PageKey, word: usize, value: u64) {
        self.stores
            .entry((key, word))
            .or_default()
            .push((at, value));
    }

    /// A host may store to a page from now on, and its interval may end before it does.
    pub(super) fn let_store(&mut self, at: usize, key: PageKey) {
        self.let_store.insert((key, at));
    }

    /// A thread loaded a word, with the lock in hand that keeps it.
    pub(super) fn load(
        &mut self,
        lives: &[Life],
        (key, word): (PageKey, usize),
        value: u64,
    ) -> Check {
        let stores = self.stores.entry((key, word)).or_default();
        let of_the_living = stores.iter().rposition(|(at, _)| !is_dead(lives, *at));
        let found = stores.iter().rposition(|(_, stored)| *stored == value);
        let as_before = value == 0 && of_the_living.is_none();
        ensure!(
            found >= of_the_living && (found.is_some() || as_before),
            LatestValue,
            "{value:#x} is loaded from {key}.{word}, to which {stores:x?} was stored"
        );
        // Later stores are lost, since a host that would know them has not seen them.
        stores.truncate(found.map_or(0, |found| found + 1));
        Ok(())
    }

    /// A host has seen the last store to a word. With a replica it cannot be lost while that host
    /// lives.
    pub(super) fn seen(&mut self, by: usize, word: (PageKey, usize)) {
        let stores = self.stores.get_mut(&word);
        if let Some(last) = stores.and_then(|stores| stores.last_mut()) {
            last.0 = by;
        }
    }

    /// Whether a page may be refused: changes of it may have been lost with the dead.
    pub(super) fn may_be_lost(&self, lives: &[Life], key: PageKey) -> bool {
        let of_page = self.stores.iter().filter(|((page, _), _)| *page == key);
        let mut stores = of_page.flat_map(|(_, stores)| stores);
        let mut let_store = self.let_store.iter().filter(|(page, _)| *page == key);
        stores.any(|(at, _)| is_dead(lives, *at)) || let_store.any(|(_, at)| is_dead(lives, *at))
    }
}

fn is_dead(lives: &[Life], host: usize) -> bool {
    matches!(lives[host], Life::Crashed | Life::Buried)
}

#[cfg(test)]
mod tests {
    use super::super::observe::page_of;
    use super::*;
    use pagemesh_wire::{NodeId, SegmentId};

    const UP: [Life; 2] = [Life::Up, Life::Up];
    const GONE: [Life; 2] = [Life::Up, Life::Crashed];

    fn word() -> (PageKey, usize) {
        (page_of(SegmentId::new(NodeId(1), 1), 0), 0)
    }

    fn stored(stores: &[(usize, u64)]) -> Remains {
        let mut remains = Remains::default();
        let (key, word) = word();
        for (at, value) in stores {
            remains.store(*at, key, word, *value);
        }
        remains
    }

    #[test]
    fn while_all_live_the_latest_store_is_found() {
        let mut remains = stored(&[(0, 5), (1, 6)]);
        assert!(remains.load(&UP, word(), 5).is_err());
        assert!(remains.load(&UP, word(), 0).is_err());
        assert!(remains.load(&UP, word(), 6).is_ok());
        assert!(!remains.may_be_lost(&UP, word().0));
        assert!(stored(&[]).load(&UP, word(), 0).is_ok());
        assert!(stored(&[]).load(&UP, word(), 9).is_err());
    }

    #[test]
    fn who_could_store_may_have_stored() {
        let mut remains = stored(&[(0, 5)]);
        let (key, _) = word();
        remains.let_store(1, key);
        assert!(!remains.may_be_lost(&UP, key));
        assert!(remains.may_be_lost(&GONE, key));
        assert!(!remains.may_be_lost(&GONE, page_of(key.segment, 1)));
        assert!(remains.load(&GONE, word(), 5).is_ok());
        assert!(
            remains.load(&GONE, word(), 0).is_err(),
            "the living's stays"
        );
    }

    #[test]
    fn stores_of_the_dead_may_never_have_happened_but_for_all_alike() {
        let stores = [(0, 5), (1, 6), (1, 7)];
        for (value, fine) in [(0, false), (5, true), (6, true), (7, true)] {
            assert_eq!(stored(&stores).load(&GONE, word(), value).is_ok(), fine);
        }
        let mut remains = stored(&stores);
        assert!(remains.may_be_lost(&GONE, word().0));
        assert!(remains.load(&GONE, word(), 5).is_ok());
        assert!(remains.load(&GONE, word(), 6).is_err(), "it comes back");
        assert!(remains.load(&GONE, word(), 5).is_ok());
        assert!(stored(&[(1, 7)]).load(&GONE, word(), 0).is_ok());
    }

    #[test]
    fn what_the_living_have_seen_stays_where_they_are_said_to() {
        let mut remains = stored(&[(1, 5), (1, 6)]);
        remains.seen(0, word());
        assert!(remains.load(&GONE, word(), 5).is_err());
        assert!(remains.load(&GONE, word(), 6).is_ok());
    }

    #[test]
    fn what_the_living_stored_last_stays() {
        assert!(stored(&[(1, 5), (0, 6)]).load(&GONE, word(), 5).is_err());
        assert!(stored(&[(1, 5), (0, 6)]).load(&GONE, word(), 6).is_ok());
    }
}
