//! Memory and files that are not what was written.

use crate::pair::{Memory, Moment, Pair, copy};
use core::sync::atomic::{AtomicU64, Ordering};
use pagemesh_recorder::{Dump, digest, recover};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// A journal, and every state its node was ever in.
fn sample() -> &'static (Memory, BTreeSet<u64>, Vec<u8>) {
    static SAMPLE: OnceLock<(Memory, BTreeSet<u64>, Vec<u8>)> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let mut pair = Pair::new();
        let mut states = BTreeSet::from([digest(&pair.sides[1].node)]);
        pair.work(12, &mut |side, moment, _| {
            if moment == Moment::Done(0) {
                states.insert(digest(&side.node));
            }
        });
        let side = &pair.sides[1];
        let dump = Dump::take(side.journal.memory(), Some(&side.node), "test").expect("one");
        (copy(side.journal.memory()), states, dump.to_bytes())
    })
}

/// The words that were ever written: damage elsewhere is no damage.
fn written(memory: &[AtomicU64]) -> Vec<usize> {
    let word = |index: &usize| memory[*index].load(Ordering::Relaxed) != 0;
    (0..memory.len()).filter(word).collect()
}

/// An error, or a state the node was in; and never a panic.
fn check(memory: &[AtomicU64], states: &BTreeSet<u64>) {
    if let Ok(found) = recover(memory) {
        assert!(
            states.contains(&digest(&found.node)),
            "no state of the node"
        );
        assert!(found.done <= found.effects.as_slice().len());
    }
    if let Ok(dump) = Dump::take(memory, None, "") {
        let _ = dump.replay(|_| {});
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn changed_words_yield_no_half_record(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), any::<bool>()), 1..4)
    ) {
        let (memory, states, _) = sample();
        let places = written(memory);
        let memory = copy(memory);
        for (place, value, flip) in changes {
            let word = &memory[*place.get(&places)];
            let was = word.load(Ordering::Relaxed);
            let bit = 1 << (value % 64);
            word.store(if flip { was ^ bit } else { value }, Ordering::Relaxed);
        }
        check(&memory, states);
    }

    #[test]
    fn cut_memory_yields_no_half_record(length in any::<prop::sample::Index>()) {
        let (memory, states, _) = sample();
        let places = written(memory);
        let mut memory = copy(memory);
        memory.truncate(*length.get(&places));
        check(&memory, states);
    }

    #[test]
    fn noise_is_no_journal(words in prop::collection::vec(any::<u64>(), 0..200), magic: bool) {
        let mut memory: Memory = words.into_iter().map(AtomicU64::new).collect();
        if magic && memory.len() > 1 {
            *memory[0].get_mut() = u64::from_le_bytes(*b"PMJOURN1");
            *memory[1].get_mut() &= 1;
        }
        check(&memory, &BTreeSet::new());
    }

    #[test]
    fn a_damaged_dump_is_refused(place in any::<prop::sample::Index>(), byte in 1u8.., cut: bool) {
        let (_, _, dump) = sample();
        let mut bytes = dump.clone();
        let at = place.index(bytes.len());
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= byte;
        }
        prop_assert!(Dump::from_bytes(&bytes).is_err());
    }
}
