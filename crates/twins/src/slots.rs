//! Where the bytes rest.

use crate::{At, DiffKey};
use core::fmt::Debug;
use core::hash::Hash;
use std::collections::BTreeMap;

/// What some bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// The twin of a page.
    Twin(At),
    /// A diff.
    Diff(DiffKey),
}

/// There is no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room")]
pub struct Full;

/// Room for labelled bytes. A memory that outlives its process can be one.
pub trait Slots {
    /// Names a place.
    type Slot: Copy + Debug + Eq + Ord + Hash;

    /// Keeps bytes; whoever looks at the label finds all of them or none.
    ///
    /// # Errors
    /// If there is no room.
    fn keep(&mut self, label: Label, bytes: &[u8]) -> Result<Self::Slot, Full>;

    /// What is kept there.
    fn bytes(&self, slot: Self::Slot) -> &[u8];

    /// What is kept there, to change.
    fn bytes_mut(&mut self, slot: Self::Slot) -> &mut [u8];

    /// Keeps it no more.
    fn free(&mut self, slot: Self::Slot);
}

/// Ordinary memory, without bound.
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

    fn free(&mut self, slot: Label) {
        self.0.remove(&slot);
    }
}
