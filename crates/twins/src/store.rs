//! The store of twins and diffs.

use crate::deferred::{Deferred, REWRITTEN};
use crate::{At, DiffKey, Error, Heap, Label, Slots};
use core::ops::{Range, RangeInclusive};
use pagemesh_diff::{Diff, Lines, PAGE, Page, encode};
use pagemesh_wire::{NodeId, PageIndex, SegmentId};
use std::collections::BTreeMap;

/// Treatment of the twin when a diff is made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keep {
    /// The twin is updated to the present page, which stays writable.
    Twin,
    /// The twin is dropped. The page must not be stored to any more.
    Nothing,
}

/// Twins and diffs of one node. Pages have at most [`PAGE`] bytes; those of the
/// simulator are shorter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store<S: Slots = Heap> {
    pub(crate) slots: S,
    pub(crate) twins: BTreeMap<At, S::Slot>,
    diffs: BTreeMap<DiffKey, S::Slot>,
    /// Diffs that are made when they are needed: one of a page at most.
    pub(crate) deferred: BTreeMap<At, Deferred<S::Slot>>,
    /// Of so many words that are looked at, so many have changed in a page whose diff is deferred.
    pub(crate) rewritten: usize,
    bytes: u64,
    /// A buffer for a diff while its length is not known.
    pub(crate) draft: Draft,
}

/// What an empty twin stands for.
const ZEROS: &Page = &[0; PAGE];

/// A buffer for reuse; its contents mean nothing between operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft(pub(crate) Vec<u8>);

impl PartialEq for Draft {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Draft {}

impl core::hash::Hash for Draft {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

impl<S: Slots + Default> Default for Store<S> {
    fn default() -> Self {
        Self::new(S::default())
    }
}

impl<S: Slots> Store<S> {
    /// An empty store over empty storage.
    pub fn new(slots: S) -> Self {
        Self {
            slots,
            twins: BTreeMap::new(),
            diffs: BTreeMap::new(),
            deferred: BTreeMap::new(),
            rewritten: REWRITTEN,
            bytes: 0,
            draft: Draft::default(),
        }
    }

    /// A store over storage that a previous store has used; `found` lists the labels and slots.
    pub fn adopt(slots: S, found: impl IntoIterator<Item = (Label, S::Slot)>) -> Self {
        let mut store = Self::new(slots);
        for (label, slot) in found {
            store.enter(label, slot);
        }
        store.drop_made();
        store
    }

    /// The storage.
    pub fn slots(&self) -> &S {
        &self.slots
    }

    /// The storage, to prepare it for new bytes. Nothing in it may be freed or changed.
    pub fn slots_mut(&mut self) -> &mut S {
        &mut self.slots
    }

    /// Makes a twin of a page, replacing an older one.
    ///
    /// # Errors
    /// If the storage is full.
    ///
    /// # Panics
    /// If the page is longer than [`PAGE`].
    pub fn twin(&mut self, at: At, page: &[u8]) -> Result<(), Error> {
        assert!(page.len() <= PAGE);
        self.settle_from_twin(at)?;
        if let Some(twin) = self.twins.get(&at).copied() {
            let twin = self.slots.bytes_mut(twin);
            if twin.len() == page.len() {
                twin.copy_from_slice(page);
                return Ok(());
            }
            self.drop_twin(at);
        }
        self.keep_twin(at, page)
    }

    pub(crate) fn keep_twin(&mut self, at: At, page: &[u8]) -> Result<(), Error> {
        let label = Label::Twin(at);
        let slot = self.slots.keep(label, page)?;
        self.enter(label, slot);
        Ok(())
    }

    /// Makes the twin of a whole page of zeros, replacing an older one. It takes no memory: its
    /// label alone is stored.
    ///
    /// # Errors
    /// If the storage is full.
    pub fn twin_of_zeros(&mut self, at: At) -> Result<(), Error> {
        self.settle_from_twin(at)?;
        self.drop_twin(at);
        let label = Label::Twin(at);
        let slot = self.slots.keep(label, &[])?;
        self.enter(label, slot);
        Ok(())
    }

    /// The twin of a page, if it has one.
    pub fn twin_of(&self, at: At) -> Option<&[u8]> {
        let slot = self.twins.get(&at)?;
        Some(self.twin_in(*slot))
    }

    pub(crate) fn twin_in(&self, slot: S::Slot) -> &[u8] {
        let bytes = self.slots.bytes(slot);
        if bytes.is_empty() { ZEROS } else { bytes }
    }

    /// Drops the twin of a page, and with it the record of what was changed since.
    pub fn drop_twin(&mut self, at: At) {
        let Some(slot) = self.twins.remove(&at) else {
            return;
        };
        match self.deferred.get_mut(&at) {
            Some(deferred) if deferred.is_of_twin() => deferred.keep_after(&mut self.slots, slot),
            _ => self.free(slot),
        }
    }

    /// Makes a diff of this node from the twin and the page `now`, and stores it as `key`. Returns
    /// the number of changed bytes, or an upper bound of it if the diff is deferred.
    ///
    /// # Errors
    /// If there is no twin and the diff was not made before, or if the storage is full.
    ///
    /// # Panics
    /// If the twin has another length than the page.
    pub fn capture(&mut self, key: DiffKey, now: &[u8], keep: Keep) -> Result<usize, Error> {
        if self.has_diff(key) {
            return self.captured_before(key, now, keep);
        }
        self.settle(key.at())?;
        if keep == Keep::Twin && self.is_rewritten(key.at(), now) {
            return self.defer(key, now);
        }
        let twin = *self.twins.get(&key.at()).ok_or(Error::NoTwin(key.at()))?;
        let mut draft = std::mem::take(&mut self.draft.0);
        draft.clear();
        let of_zeros = self.slots.bytes(twin).is_empty();
        let lines = encode_any(self.twin_in(twin), now, &mut draft);
        let changed = Diff::check(&draft).map_err(Error::from);
        let changed = changed.map(|diff| diff.len());
        let kept = self.keep_diff(key, &draft);
        self.draft.0 = draft;
        kept?;
        match keep {
            Keep::Nothing => self.drop_twin(key.at()),
            Keep::Twin if of_zeros => self.twin(key.at(), now)?,
            // Update the twin only after the diff is stored: if the daemon ends here, its successor
            // finds the diff and updates the twin from it.
            Keep::Twin => copy_any(lines, now, self.slots.bytes_mut(twin)),
        }
        changed
    }

    /// The previous daemon made the diff, from a page that may have been written since.
    fn captured_before(&mut self, key: DiffKey, now: &[u8], keep: Keep) -> Result<usize, Error> {
        if self.is_deferred(key) {
            return self.deferred_before(key, now, keep);
        }
        let changed = self.checked(key)?.len();
        match keep {
            Keep::Nothing => self.drop_twin(key.at()),
            Keep::Twin => {
                // Only a twin of zeros is replaced by one that takes memory, and between the two
                // there is none.
                if !self.twins.contains_key(&key.at()) {
                    self.twin_of_zeros(key.at())?;
                }
                self.update_twin(key)?;
            }
        }
        Ok(changed)
    }

    /// Stores a diff from another node. A diff that is present already stays.
    ///
    /// # Errors
    /// If it is not a valid diff, or the storage is full.
    pub fn insert(&mut self, key: DiffKey, encoded: &[u8]) -> Result<(), Error> {
        Diff::check(encoded)?;
        if self.has_diff(key) {
            return Ok(());
        }
        self.keep_diff(key, encoded)
    }

    /// Whether a diff is here, made or deferred.
    pub fn has_diff(&self, key: DiffKey) -> bool {
        self.diffs.contains_key(&key) || self.is_deferred(key)
    }

    /// An encoded diff. A deferred one is made.
    ///
    /// # Errors
    /// If it is not in the store, or cannot be made because the storage is full.
    pub fn diff(&mut self, key: DiffKey) -> Result<&[u8], Error> {
        self.settle_diff(key)?;
        self.made(key)
    }

    /// An encoded diff that is not deferred.
    ///
    /// # Errors
    /// If it is not in the store, or deferred.
    pub fn made(&self, key: DiffKey) -> Result<&[u8], Error> {
        let slot = self.diffs.get(&key).ok_or(Error::NoDiff(key))?;
        Ok(self.slots.bytes(*slot))
    }

    /// Applies diffs to a page in the order given: later ones overwrite earlier ones.
    ///
    /// # Errors
    /// If a diff is not in the store or goes beyond the page; then nothing has changed.
    pub fn merge(
        &mut self,
        keys: impl Iterator<Item = DiffKey> + Clone,
        page: &mut [u8],
    ) -> Result<(), Error> {
        for diff in keys.clone() {
            fits(&self.checked(diff)?, page.len())?;
        }
        for diff in keys {
            apply_any(&self.checked_made(diff)?, page);
        }
        Ok(())
    }

    /// Applies a diff to the twin of its page, if there is a twin, so that the changes of another
    /// node do not count as changes of this one.
    ///
    /// # Errors
    /// If it is not in the store or goes beyond the page; then nothing has changed.
    pub fn update_twin(&mut self, key: DiffKey) -> Result<(), Error> {
        self.settle_from_twin(key.at())?;
        let slot = *self.diffs.get(&key).ok_or(Error::NoDiff(key))?;
        let Some(mut twin) = self.twins.get(&key.at()).copied() else {
            return Ok(());
        };
        if self.slots.bytes(twin).is_empty() {
            self.twin(key.at(), ZEROS)?;
            twin = self.twins[&key.at()];
        }
        let mut draft = std::mem::take(&mut self.draft.0);
        draft.clear();
        draft.extend_from_slice(self.slots.bytes(slot));
        let twin = self.slots.bytes_mut(twin);
        let applied = Diff::check(&draft).map_err(Error::from).and_then(|diff| {
            fits(&diff, twin.len())?;
            apply_any(&diff, twin);
            Ok(())
        });
        self.draft.0 = draft;
        applied
    }

    /// The ranges of bytes that two diffs of a page both change, in order.
    ///
    /// # Errors
    /// If a diff is not in the store.
    pub fn overlap(&mut self, one: DiffKey, other: DiffKey) -> Result<Vec<Range<usize>>, Error> {
        self.settle_diff(one)?;
        self.settle_diff(other)?;
        Ok(self.checked_made(one)?.overlap(&self.checked_made(other)?))
    }

    /// A diff whose changes can be read. A deferred one is made.
    ///
    /// # Errors
    /// As [`Self::diff`].
    pub fn checked(&mut self, key: DiffKey) -> Result<Diff<'_>, Error> {
        Ok(Diff::check(self.diff(key)?)?)
    }

    fn checked_made(&self, key: DiffKey) -> Result<Diff<'_>, Error> {
        Ok(Diff::check(self.made(key)?)?)
    }

    /// Drops the diffs of a segment that no node will ask for any more: for each node those of its
    /// intervals up to `through`.
    pub fn forget_through(&mut self, segment: SegmentId, through: impl Fn(NodeId) -> u64) {
        let gone = |key: &DiffKey| key.interval <= through(key.node);
        let gone: Vec<_> = self
            .diffs
            .range(diffs_of(segment))
            .map(|(key, _)| *key)
            .filter(gone)
            .collect();
        self.forget_diffs(gone);
        self.forget_deferred(segment, |key| key.interval <= through(key.node));
    }

    /// Drops the diffs of one page.
    pub fn forget_page(&mut self, at: At) {
        let gone: Vec<_> = self.diffs_of_page(at).collect();
        self.forget_diffs(gone);
        self.drop_deferred(at);
    }

    /// Drops all twins and diffs of a segment.
    pub fn forget(&mut self, segment: SegmentId) {
        let diffs: Vec<_> = self
            .diffs
            .range(diffs_of(segment))
            .map(|(key, _)| *key)
            .collect();
        self.forget_diffs(diffs);
        self.forget_deferred(segment, |_| true);
        let twins = (segment, PageIndex(0))..=(segment, PageIndex(u32::MAX));
        let twins: Vec<_> = self.twins.range(twins).map(|(at, _)| *at).collect();
        for at in twins {
            self.drop_twin(at);
        }
        self.rest();
    }

    /// Memory is short: gives back what is kept for later twins and diffs.
    pub fn rest(&mut self) {
        self.slots.rest();
    }

    /// The keys of the diffs of a page that were made, by node and interval.
    pub fn diffs_of_page(&self, at: At) -> impl Iterator<Item = DiffKey> {
        let name = |node, interval| DiffKey {
            segment: at.0,
            page: at.1,
            node: NodeId(node),
            interval,
        };
        let all = name(0, 0)..=name(u16::MAX, u64::MAX);
        self.diffs.range(all).map(|(key, _)| *key)
    }

    /// The number of twins and the number of diffs.
    pub fn counts(&self) -> (usize, usize) {
        (self.twins.len(), self.diffs.len() + self.deferred.len())
    }

    /// The total size of all twins and diffs in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn keep_diff(&mut self, key: DiffKey, encoded: &[u8]) -> Result<(), Error> {
        let label = Label::Diff(key);
        let slot = self.slots.keep(label, encoded)?;
        self.enter(label, slot);
        Ok(())
    }

    fn enter(&mut self, label: Label, slot: S::Slot) {
        self.bytes += self.slots.bytes(slot).len() as u64;
        let former = match label {
            Label::Twin(at) => self.twins.insert(at, slot),
            Label::Diff(key) => self.diffs.insert(key, slot),
            Label::Before(key) => self.deferred_of(key).before.replace(slot),
            Label::After(key) => self.deferred_of(key).after.replace(slot),
        };
        debug_assert!(former.is_none(), "{label:?} is kept twice");
    }

    fn forget_diffs(&mut self, keys: Vec<DiffKey>) {
        for key in keys {
            if let Some(slot) = self.diffs.remove(&key) {
                self.free(slot);
            }
        }
    }

    pub(crate) fn free(&mut self, slot: S::Slot) {
        self.bytes -= self.slots.bytes(slot).len() as u64;
        self.slots.free(slot);
    }
}

/// The range of all diff keys of a segment.
fn diffs_of(segment: SegmentId) -> RangeInclusive<DiffKey> {
    let name = |page, node, interval| DiffKey {
        segment,
        page: PageIndex(page),
        node: NodeId(node),
        interval,
    };
    name(0, 0, 0)..=name(u32::MAX, u16::MAX, u64::MAX)
}

/// Encodes the changes of a page of any length.
pub(crate) fn encode_any(twin: &[u8], now: &[u8], out: &mut Vec<u8>) -> Lines {
    assert_eq!(twin.len(), now.len(), "a page keeps its length");
    match (<&Page>::try_from(twin), <&Page>::try_from(now)) {
        (Ok(twin), Ok(now)) => encode(twin, now, out),
        _ => encode(&padded(twin), &padded(now), out),
    }
}

/// Updates a twin of any length from its page.
fn copy_any(lines: Lines, now: &[u8], twin: &mut [u8]) {
    match (<&Page>::try_from(now), <&mut Page>::try_from(&mut *twin)) {
        (Ok(now), Ok(twin)) => lines.copy(now, twin),
        _ => twin.copy_from_slice(now),
    }
}

/// Applies a diff that fits to a page of any length.
fn apply_any(diff: &Diff<'_>, page: &mut [u8]) {
    if let Ok(page) = <&mut Page>::try_from(&mut *page) {
        return diff.apply(page);
    }
    let mut whole = padded(page);
    diff.apply(&mut whole);
    page.copy_from_slice(&whole[..page.len()]);
}

/// Checks that a diff changes nothing beyond the end of a page of this length.
fn fits(diff: &Diff<'_>, length: usize) -> Result<(), Error> {
    if length == PAGE {
        return Ok(());
    }
    let last = diff.changes().last().map_or(0, |change| {
        change.offset + 8 - change.mask.leading_zeros() as usize
    });
    if last > length {
        return Err(Error::Malformed);
    }
    Ok(())
}

fn padded(short: &[u8]) -> Page {
    let mut page = [0; PAGE];
    page[..short.len()].copy_from_slice(short);
    page
}
