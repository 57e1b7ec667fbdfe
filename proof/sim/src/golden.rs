//! The golden memory: the contents that a single shared memory would have. Every load is compared
//! with it.

use crate::check::{Check, ensure};
use crate::kernel::PageKey;
use pagemesh_wire::{Ticket, Version};
use std::collections::BTreeMap;

/// Words of a simulated page: few, so that a run is fast. On the wire they stand at the start of
/// a whole page.
pub(crate) const WORDS: usize = 8;

/// A page's contents.
pub(crate) type Words = [u64; WORDS];

/// The contents of one page, and its owners.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct GoldenPage {
    pub(crate) words: Words,
    /// A crash took the only copies: an access may be refused, or the page may come back once as
    /// it was before.
    pub(crate) lost: bool,
    /// The page was lost at least once.
    was_lost: bool,
    /// The newest version that a node claimed to own.
    version: Version,
    /// The host that claimed it, and the hosts to which ownership was sent since.
    hands: Vec<usize>,
    /// Watches whose threads must be told before the next store.
    watchers: Vec<Ticket>,
}

/// The memory of the whole cluster, as it should be.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Golden {
    pages: BTreeMap<PageKey, GoldenPage>,
    /// Unique values for stores, so that every stale load is noticed.
    last_value: u64,
}

impl Golden {
    /// A value that no thread has stored yet.
    pub(crate) fn fresh_value(&mut self) -> u64 {
        self.last_value += 1;
        self.last_value << 16
    }

    /// A thread on `host` stored a word.
    pub(crate) fn store(&mut self, host: usize, key: PageKey, word: usize, value: u64) -> Check {
        let page = self.pages.entry(key).or_default();
        ensure!(
            page.watchers.is_empty(),
            WatchFirst,
            "h{} stores to {key} while {:?} still rely on it",
            host + 1,
            page.watchers
        );
        page.words[word] = value;
        Ok(())
    }

    /// A thread on `host` loaded a word.
    pub(crate) fn load(&self, host: usize, key: PageKey, word: usize, value: u64) -> Check {
        let expected = self.words(key)[word];
        ensure!(
            value == expected,
            LatestValue,
            "h{} loads {value:#x} from {key}.{word}, but the latest store wrote {expected:#x}",
            host + 1
        );
        Ok(())
    }

    /// A page became accessible on `host` with these contents.
    pub(crate) fn mapped(&mut self, host: usize, key: PageKey, words: &Words) -> Check {
        let page = self.pages.entry(key).or_default();
        if page.words != *words {
            ensure!(
                page.lost,
                LatestValue,
                "h{} maps {key} with {words:x?}, but the latest stores made it {:x?}",
                host + 1,
                page.words
            );
            page.words = *words;
        }
        page.lost = false;
        Ok(())
    }

    /// A node became the owner of a page at this version.
    pub(crate) fn owned(&mut self, host: usize, key: PageKey, version: Version) -> Check {
        let page = self.pages.entry(key).or_default();
        ensure!(
            version > page.version || version == Version(0),
            OneOwner,
            "h{} owns {key} at {version}, but {} was owned before",
            host + 1,
            page.version
        );
        page.version = version.max(page.version);
        page.hands = vec![host];
        Ok(())
    }

    /// The last host that became owner of a page, and at which version.
    #[cfg(test)]
    pub(crate) fn owner(&self, key: PageKey) -> Option<(usize, Version)> {
        let page = self.pages.get(&key)?;
        Some((*page.hands.first()?, page.version))
    }

    /// Ownership is sent to a host.
    pub(crate) fn passed(&mut self, host: usize, key: PageKey) {
        let hands = &mut self.pages.entry(key).or_default().hands;
        if !hands.contains(&host) {
            hands.push(host);
        }
    }

    /// A host is gone. `kept` is true if a surviving host holds these contents.
    pub(crate) fn crashed(&mut self, kept: impl Fn(PageKey, &Words) -> bool) {
        for (key, page) in &mut self.pages {
            page.lost |= !kept(*key, &page.words);
            page.was_lost |= page.lost;
        }
    }

    /// A surviving host dropped its contents of a page. If its owners and the receivers of its
    /// grants are `gone`, these may have been the last contents.
    pub(crate) fn dropped(
        &mut self,
        key: PageKey,
        gone: impl Fn(usize) -> bool,
        kept: impl Fn(&Words) -> bool,
    ) {
        if let Some(page) = self.pages.get_mut(&key) {
            let at_risk = page.hands.iter().any(|host| gone(*host));
            page.lost |= at_risk && !kept(&page.words);
            page.was_lost |= page.lost;
        }
    }

    /// From now on a watch guarantees that its thread hears of the next store.
    pub(crate) fn watch(&mut self, key: PageKey, ticket: Ticket) {
        self.pages.entry(key).or_default().watchers.push(ticket);
    }

    /// The watch has ended: its thread was told, or is gone.
    pub(crate) fn unwatch(&mut self, ticket: Ticket) {
        for page in self
            .pages
            .values_mut()
            .filter(|page| !page.watchers.is_empty())
        {
            page.watchers.retain(|other| *other != ticket);
        }
    }

    /// The right contents of a page; zeros if no thread ever stored to it.
    pub(crate) fn words(&self, key: PageKey) -> Words {
        self.pages.get(&key).map_or([0; WORDS], |page| page.words)
    }

    /// True if at some time possibly only a crashed host held the page.
    pub(crate) fn was_lost(&self, key: PageKey) -> bool {
        self.pages.get(&key).is_some_and(|page| page.was_lost)
    }

    /// True if an access to the page may be refused.
    pub(crate) fn may_be_lost(&self, key: PageKey) -> bool {
        self.pages.get(&key).is_some_and(|page| page.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Invariant;
    use crate::kernel::tests::key;

    #[test]
    fn a_stale_load_is_noticed() {
        let mut golden = Golden::default();
        golden.store(0, key(1), 2, 9).unwrap();
        golden.load(1, key(1), 2, 9).unwrap();
        golden.load(1, key(7), 0, 0).unwrap();
        let stale = golden.load(1, key(1), 2, 8).unwrap_err();
        assert_eq!(stale.invariant, Invariant::LatestValue);
        assert!(golden.mapped(1, key(1), &[0; WORDS]).is_err());
    }

    #[test]
    fn what_only_the_dead_held_may_go_back_once() {
        let mut golden = Golden::default();
        golden.store(0, key(1), 0, 9).unwrap();
        golden.crashed(|_, _| false);
        assert!(golden.may_be_lost(key(1)));
        golden.mapped(1, key(1), &[0; WORDS]).unwrap();
        assert!(golden.mapped(2, key(1), &[5; WORDS]).is_err());
    }

    #[test]
    fn a_store_under_a_watch_is_noticed() {
        let mut golden = Golden::default();
        golden.watch(key(1), Ticket(4));
        let early = golden.store(0, key(1), 0, 1).unwrap_err();
        assert_eq!(early.invariant, Invariant::WatchFirst);
        golden.unwatch(Ticket(4));
        golden.store(0, key(1), 0, 1).unwrap();
    }

    #[test]
    fn versions_only_rise() {
        let mut golden = Golden::default();
        golden.owned(0, key(1), Version(2)).unwrap();
        assert!(golden.owned(1, key(1), Version(2)).is_err());
        golden.owned(1, key(1), Version(3)).unwrap();
    }
}
