//! Storage for twins and diffs.

use crate::{At, DiffKey};
use core::fmt::Debug;
use core::hash::Hash;
use std::collections::BTreeMap;

/// The meaning of stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// The twin of a page.
    Twin(At),
    /// A diff.
    Diff(DiffKey),
    /// The page before the interval of a deferred diff.
    Before(DiffKey),
    /// The page after the interval of a deferred diff, where it is not the twin any more.
    After(DiffKey),
}

/// The storage is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room")]
pub struct Full;

/// Storage for labelled bytes. It may be memory that outlives its process.
pub trait Slots {
    /// Identifies stored bytes.
    type Slot: Copy + Debug + Eq + Ord + Hash;

    /// Stores bytes under a label; a reader of the label finds all of them or none.
    ///
    /// # Errors
    /// If the storage is full.
    fn keep(&mut self, label: Label, bytes: &[u8]) -> Result<Self::Slot, Full>;

    /// The bytes in a slot.
    fn bytes(&self, slot: Self::Slot) -> &[u8];

    /// The bytes in a slot, mutable.
    fn bytes_mut(&mut self, slot: Self::Slot) -> &mut [u8];

    /// Gives stored bytes another label of the same page, at once.
    fn relabel(&mut self, slot: Self::Slot, label: Label) -> Self::Slot;

    /// Frees a slot.
    fn free(&mut self, slot: Self::Slot);

    /// What was freed will not be needed again, or memory is short: gives its memory back.
    fn rest(&mut self) {}
}

/// Ordinary memory, without limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Heap(BTreeMap<Label, Vec<u8>>);

impl Slots for Heap {
    type Slot = Label;

    fn keep(&mut self, label: Label, bytes: &[u8]) -> Result<Label, Full> {
        self.0.insert(label, bytes.to_vec());
        Ok(label)
    }

    fn bytes(&self, slot: Label) -> &[u8] {
        self.0.get(&slot).map_or(&[], Vec::as_slice)
    }

    fn bytes_mut(&mut self, slot: Label) -> &mut [u8] {
        self.0.get_mut(&slot).map_or(&mut [], Vec::as_mut_slice)
    }

    fn relabel(&mut self, slot: Label, label: Label) -> Label {
        if let Some(bytes) = self.0.remove(&slot) {
            self.0.insert(label, bytes);
        }
        label
    }

    fn free(&mut self, slot: Label) {
        self.0.remove(&slot);
    }
}
