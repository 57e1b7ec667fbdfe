//! What a keeper keeps.

use super::words::Tag;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// Something kept, and what goes with it.
pub(super) struct Item {
    pub(super) note: Vec<u8>,
    pub(super) fd: OwnedFd,
}

/// Everything kept, by name.
pub(super) type Items = BTreeMap<Tag, Item>;
