//! Lock words.

use super::{Kernel, Returned};
use crate::canary::Canary;
use crate::check::{Check, ensure};
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::{ClientId, SyncKey};

impl Kernel {
    fn word(&mut self, key: SyncKey) -> &mut u32 {
        self.words.entry(key).or_insert(LockWord::Absent.encode())
    }

    /// The value of a lock's word.
    pub(crate) fn lock_word(&self, key: SyncKey) -> LockWord {
        self.words
            .get(&key)
            .map_or(LockWord::Absent, |word| LockWord::decode(*word))
    }

    /// A client tries to swap a free word to held.
    pub(crate) fn try_lock(&mut self, key: SyncKey, by: ClientId) -> bool {
        let free = self.lock_word(key) == LockWord::Free;
        if free {
            *self.word(key) = LockWord::Held { by, wanted: false }.encode();
        }
        free
    }

    /// A client releases. True if it must tell its node.
    pub(crate) fn release(&mut self, key: SyncKey, holder: ClientId) -> Check<bool> {
        let word = self.lock_word(key);
        let LockWord::Held { by, wanted } = word else {
            ensure!(
                false,
                OneToken,
                "{holder} releases lock {key}, but its word says {word:?}"
            );
            unreachable!()
        };
        ensure!(
            by == holder,
            OneToken,
            "{holder} releases lock {key}, but its word says {word:?}"
        );
        *self.word(key) = if wanted {
            LockWord::Absent
        } else {
            LockWord::Free
        }
        .encode();
        Ok(wanted)
    }

    /// The node lends a token to a client.
    pub(crate) fn lend(&mut self, key: SyncKey, by: ClientId, wanted: bool) -> Check {
        let before = self.lock_word(key);
        ensure!(
            before == LockWord::Absent,
            OneToken,
            "lock {key} is lent to {by}, but its word says {before:?}"
        );
        *self.word(key) = LockWord::Held { by, wanted }.encode();
        Ok(())
    }

    /// The node wants a token back.
    pub(crate) fn reclaim(&mut self, key: SyncKey) -> Returned {
        match self.lock_word(key) {
            LockWord::Absent => Returned::UnderWay,
            LockWord::Free => {
                *self.word(key) = LockWord::Absent.encode();
                Returned::Back
            }
            LockWord::Held { .. } if self.canary == Some(Canary::LockStolen) => {
                *self.word(key) = LockWord::Absent.encode();
                Returned::Back
            }
            LockWord::Held { .. } if self.canary == Some(Canary::WantedForgotten) => {
                Returned::Marked
            }
            LockWord::Held { by, .. } => {
                *self.word(key) = LockWord::Held { by, wanted: true }.encode();
                Returned::Marked
            }
        }
    }

    /// Takes the locks a dead client held.
    pub(crate) fn recover_locks(&mut self, client: ClientId) -> Vec<SyncKey> {
        let mut recovered = Vec::new();
        for (key, word) in &mut self.words {
            if matches!(LockWord::decode(*word), LockWord::Held { by, .. } if by == client) {
                *word = LockWord::Absent.encode();
                recovered.push(*key);
            }
        }
        recovered
    }
}
