//! One host: its one process, and its rights.

use super::spent::{Doing, Spent};
use super::trace::Step;
use pagemesh_core::Rights;
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::peer::{Access, DiffName};
use pagemesh_wire::{PageIndex, SyncKey, Ticket};
use std::collections::{BTreeMap, VecDeque};

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing that takes time.
    Runs,
    /// It uses the processor.
    Works,
    /// Stopped at a page.
    Stopped(PageIndex, Access),
    /// It waits for an answer of its daemon.
    Waits(Ticket),
    /// It waits for a condition.
    Sleeps,
    Ended,
}

/// The requests that a process may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Lock,
    /// A lock after a condition, which real processes do not count either.
    Relock,
    Barrier,
}

pub(super) struct Host {
    pub(super) rights: BTreeMap<PageIndex, Rights>,
    /// Bytes changed since the twin was made or refreshed.
    pub(super) changed: BTreeMap<PageIndex, u32>,
    /// How long the diffs are that the daemon has.
    pub(super) diffs: BTreeMap<DiffName, u16>,
    pub(super) words: BTreeMap<SyncKey, LockWord>,
    pub(super) steps: VecDeque<Step>,
    pub(super) state: State,
    /// When the process made the request that it waits for.
    pub(super) asked: (Asked, u64),
    /// When its daemon heard of the page it stopped at.
    pub(super) fault_since: u64,
    /// Nanoseconds since the daemon had the processor.
    pub(super) computed: u64,
    /// The daemon will find nothing in the caches.
    pub(super) is_cold: bool,
    /// Times the process asked for, in nanoseconds.
    pub(super) notes: Vec<u64>,
    /// The process's activity, and since when.
    pub(super) doing: Option<(Doing, u64)>,
    pub(super) spent: Spent,
}

impl Host {
    pub(super) fn new(steps: VecDeque<Step>) -> Self {
        Self {
            rights: BTreeMap::new(),
            changed: BTreeMap::new(),
            diffs: BTreeMap::new(),
            words: BTreeMap::new(),
            steps,
            state: State::Runs,
            asked: (Asked::Lock, 0),
            fault_since: 0,
            computed: 0,
            is_cold: false,
            notes: Vec::new(),
            doing: None,
            spent: Spent::default(),
        }
    }

    pub(super) fn may(&self, page: PageIndex) -> Rights {
        self.rights.get(&page).copied().unwrap_or_default()
    }
}
