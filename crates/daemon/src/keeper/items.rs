//! The items that a keeper keeps.

use super::words::Tag;
use pagemesh_sorted::SortedMap;
use std::os::fd::OwnedFd;

/// An item, with its note.
pub(super) struct Item {
    pub(super) note: Vec<u8>,
    pub(super) fd: OwnedFd,
}

/// All items, by name.
pub(super) type Items = SortedMap<Tag, Item>;
