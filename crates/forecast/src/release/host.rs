//! One host: its daemon, its one process, and what that may touch.

use super::trace::Step;
use crate::site::Pending;
use pagemesh_core::{Node, Rights};
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::peer::{Access, DiffName};
use pagemesh_wire::{PageIndex, SyncKey, Ticket};
use std::collections::{BTreeMap, VecDeque};

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing that takes time.
    Runs,
    /// It uses the processor until then.
    Works {
        until: u64,
    },
    /// Stopped at a page.
    Stopped(PageIndex, Access),
    /// It waits for an answer of its daemon.
    Waits(Ticket),
    /// It waits for a condition.
    Sleeps,
    Ended,
}

pub(super) struct Host {
    pub(super) node: Node,
    pub(super) inbox: VecDeque<Pending>,
    pub(super) turn_due: bool,
    /// The daemon uses the processor until then.
    pub(super) busy_until: u64,
    pub(super) deadline: Option<u64>,
    pub(super) rights: BTreeMap<PageIndex, Rights>,
    /// Bytes changed since the twin was made or refreshed.
    pub(super) changed: BTreeMap<PageIndex, u32>,
    /// How long the diffs are that the daemon has.
    pub(super) diffs: BTreeMap<DiffName, u16>,
    pub(super) words: BTreeMap<SyncKey, LockWord>,
    pub(super) steps: VecDeque<Step>,
    pub(super) state: State,
    /// Runs that were scheduled before carry an older one.
    pub(super) generation: u64,
    /// Times the process asked for, in nanoseconds.
    pub(super) notes: Vec<u64>,
}

impl Host {
    pub(super) fn new(node: Node, steps: VecDeque<Step>) -> Self {
        Self {
            node,
            inbox: VecDeque::new(),
            turn_due: false,
            busy_until: 0,
            deadline: None,
            rights: BTreeMap::new(),
            changed: BTreeMap::new(),
            diffs: BTreeMap::new(),
            words: BTreeMap::new(),
            steps,
            state: State::Runs,
            generation: 0,
            notes: Vec::new(),
        }
    }

    pub(super) fn may(&self, page: PageIndex) -> Rights {
        self.rights.get(&page).copied().unwrap_or_default()
    }
}
