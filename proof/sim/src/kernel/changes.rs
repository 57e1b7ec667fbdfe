//! Twins and diffs of compact pages (policy `release`), as a driver keeps them.

use super::{Kernel, PageKey};
use crate::check::{Check, ensure};
use crate::golden::{WORDS, Words};
use pagemesh_core::{Afterwards, Rights, Source};
use pagemesh_wire::peer::{DiffName, Diffs};
use pagemesh_wire::{SegmentId, VectorTime};
use std::collections::BTreeMap;

/// The changed words, with their new values.
type Diff = Vec<(u8, u64)>;

/// Bytes of one word of a diff in a datagram.
const ENCODED: usize = 9;

/// A host's record of the changes of each node.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Changes {
    twins: BTreeMap<PageKey, Words>,
    diffs: BTreeMap<(SegmentId, DiffName), Diff>,
}

fn apply(diff: &Diff, words: &mut Words) {
    for (place, value) in diff {
        words[usize::from(*place)] = *value;
    }
}

impl Kernel {
    fn frame(&self, key: PageKey) -> Check<Words> {
        let frame = self.slots.get(&key).and_then(|slot| slot.frame);
        ensure!(frame.is_some(), Law, "{key} has no frame to compare");
        Ok(frame.unwrap_or([0; WORDS]))
    }

    fn nobody_writes(&self, key: PageKey) -> Check {
        let may = self.rights(key);
        ensure!(may < Rights::Write, Law, "{key} may still be stored to");
        Ok(())
    }

    /// The twin of a page.
    pub(super) fn twin_of(&self, key: PageKey) -> Option<Words> {
        self.changes.twins.get(&key).copied()
    }

    /// The frame is copied before the first store.
    pub(crate) fn twin(&mut self, key: PageKey, source: Source) -> Check {
        if source == Source::Zero && self.served.remove(&key) {
            self.changes.twins.insert(key, [0; WORDS]);
            return Ok(());
        }
        self.nobody_writes(key)?;
        let frame = self.frame(key)?;
        ensure!(
            source == Source::Frame || frame == [0; WORDS],
            Law,
            "{key} gets a twin of zeros, and is none"
        );
        self.changes.twins.insert(key, frame);
        Ok(())
    }

    /// A twin is not needed any more.
    pub(crate) fn drop_twin(&mut self, key: PageKey) -> Check {
        self.nobody_writes(key)?;
        let twin = self.changes.twins.remove(&key);
        ensure!(twin.is_some(), Law, "{key} has no twin to drop");
        Ok(())
    }

    /// Makes a diff of the stores since the twin was made. False if it is empty.
    pub(crate) fn diff(
        &mut self,
        segment: SegmentId,
        name: DiffName,
        then: Afterwards,
    ) -> Check<bool> {
        let page = name.page;
        let key = PageKey { segment, page };
        let frame = self.frame(key)?;
        if then == Afterwards::Drop {
            self.nobody_writes(key)?;
        }
        let Some(twin) = self.changes.twins.remove(&key) else {
            ensure!(false, Law, "{key} has no twin to compare with");
            unreachable!()
        };
        if then == Afterwards::Refresh {
            self.changes.twins.insert(key, frame);
        }
        let words = (0_u8..).zip(frame.iter().zip(&twin));
        let stored = words.filter(|(_, (now, before))| now != before);
        let diff: Diff = stored.map(|(place, (now, _))| (place, *now)).collect();
        let changed = !diff.is_empty();
        let former = self.changes.diffs.insert((segment, name), diff);
        ensure!(
            former.is_none(),
            Law,
            "INV-diff-is-final: {name:?} is made twice"
        );
        Ok(changed)
    }

    /// Keeps the diffs of a datagram; diffs that are kept already stay.
    pub(crate) fn keep(&mut self, outgoing: &Diffs, tail: &[u8], names: &[DiffName]) -> Check {
        let mut rest = tail;
        for (name, length) in &outgoing.diffs {
            let (encoded, after) = rest.split_at(usize::from(*length));
            rest = after;
            if !names.contains(name) {
                continue;
            }
            let words = encoded.chunks_exact(ENCODED).map(|word| {
                let value = word[1..].try_into().expect("a word has eight bytes");
                (word[0], u64::from_le_bytes(value))
            });
            let diffs = &mut self.changes.diffs;
            let kept = diffs.entry((outgoing.segment, *name));
            kept.or_insert_with(|| words.collect());
        }
        for name in names {
            let kept = self.changes.diffs.contains_key(&(outgoing.segment, *name));
            ensure!(kept, Law, "{name:?} shall be kept, but did not come");
        }
        Ok(())
    }

    /// The message for diffs, and the bytes behind it.
    pub(crate) fn pack(
        &self,
        mut outgoing: Diffs,
        names: &[DiffName],
        at_most: u16,
    ) -> Check<(Diffs, Vec<u8>)> {
        let mut tail = Vec::new();
        for name in names {
            let diff = self.named(outgoing.segment, *name)?;
            let length = (diff.len() * ENCODED) as u16;
            if length <= at_most {
                outgoing.diffs.push((*name, length));
                for (place, value) in diff {
                    tail.push(*place);
                    tail.extend_from_slice(&value.to_le_bytes());
                }
            }
        }
        Ok((outgoing, tail))
    }

    fn named(&self, segment: SegmentId, name: DiffName) -> Check<&Diff> {
        let diff = self.changes.diffs.get(&(segment, name));
        ensure!(diff.is_some(), Law, "{name:?} is used, but not here");
        Ok(diff.expect("it was looked for just now"))
    }

    /// The frame becomes contents of elsewhere, and diffs are merged into it.
    pub(crate) fn merge(
        &mut self,
        key: PageKey,
        (source, payload): (Source, Option<&[u8]>),
        names: &[DiffName],
    ) -> Check {
        let mut words = self.contents(key, source, payload)?;
        for name in names {
            apply(self.named(key.segment, *name)?, &mut words);
        }
        self.fill(key, words)
    }

    /// Diffs go into a page that threads use, and into its twin.
    pub(crate) fn update(&mut self, key: PageKey, names: &[DiffName]) -> Check {
        let mut frame = self.frame(key)?;
        let mut twin = self.twin_of(key);
        for name in names {
            let diff = self.named(key.segment, *name)?;
            apply(diff, &mut frame);
            if let Some(twin) = &mut twin {
                apply(diff, twin);
            }
        }
        self.slots.entry(key).or_default().frame = Some(frame);
        self.changes.twins.extend(twin.map(|twin| (key, twin)));
        Ok(())
    }

    /// Forgets collected changes.
    pub(crate) fn forget_changes(&mut self, segment: SegmentId, upto: &VectorTime) {
        self.changes
            .diffs
            .retain(|(of, name), _| *of != segment || !upto.has(name.node, name.interval));
    }
}
