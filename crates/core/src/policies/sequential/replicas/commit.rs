//! A commit: pages whose contents the backup gets in one step.

use super::super::messages::PAGES;
use crate::backoff::Backoff;
use pagemesh_wire::{PageIndex, Version};
use serde::{Deserialize, Serialize};

/// A commit that the backup does not have.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Commit {
    pub(super) number: u64,
    pub(super) pages: Vec<Entry>,
    /// The part that is under way.
    pub(super) part: u32,
    pub(super) backoff: Backoff,
}

/// A page of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) page: PageIndex,
    pub(super) version: Version,
    pub(super) zeros: bool,
}

impl Commit {
    pub(super) fn parts(&self) -> usize {
        self.pages.len().div_ceil(PAGES)
    }

    /// The pages of the part that is under way.
    pub(super) fn present(&self) -> &[Entry] {
        let begin = self.part as usize * PAGES;
        &self.pages[begin..self.pages.len().min(begin + PAGES)]
    }

    pub(super) fn is_last(&self) -> bool {
        self.part as usize + 1 == self.parts()
    }
}
