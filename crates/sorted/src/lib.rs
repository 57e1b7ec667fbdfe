//! Ordered maps that compile to little.
//!
//! The state of a node has a hundred maps whose keys are nodes, segments, clients or calls: some
//! dozens of entries, or keys that come in ascending order. A `BTreeMap` of each pair of types
//! compiles to ten times as much as a sorted vector, was half of what the core compiled to, and is
//! slower to search and to clone at these sizes: they are [`SortedMap`]s. What can grow with the
//! pages of a segment or with the locks of a program is a [`LongMap`], a list of such vectors.

mod entry;
mod long;
mod map;
mod read;

pub use entry::{Entry, OccupiedEntry, Slots, VacantEntry};
pub use long::{LongIter, LongIterMut, LongMap};
pub use map::{IntoIter, Iter, IterMut, SortedMap};

#[cfg(test)]
mod tests;
