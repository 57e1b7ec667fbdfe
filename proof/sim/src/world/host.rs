//! One host of the simulated cluster.

use crate::kernel::Kernel;
use crate::receipts::Receipts;
use crate::recording::{Recording, Remains};
use crate::sealing::Sealing;
use crate::step::HostPlan;
use crate::ways::Ways;
use pagemesh_core::{Input, Node, Time};
use pagemesh_wire::NodeId;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// An input that waits for a host's daemon.
#[derive(Clone, Debug)]
pub(crate) enum Pending {
    /// A datagram.
    Datagram(SocketAddr, Vec<u8>),
    /// Anything else.
    Local(Input<'static>),
}

/// Where a host is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Its daemon has not started.
    Unborn,
    /// Its daemon runs.
    Up,
    /// It left in order.
    Left,
    /// It vanished.
    Crashed,
}

/// One host: a node, its kernel, and its waiting inputs.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) node: Node,
    pub(crate) kernel: Kernel,
    pub(crate) plan: HostPlan,
    pub(crate) address: SocketAddr,
    pub(crate) life: Life,
    /// Declared dead although it runs; nothing it has or does counts any more.
    pub(crate) buried: bool,
    /// It was asked to leave: it gives pages away and fails accesses.
    pub(crate) leaves: bool,
    /// Its number in the cluster, once admitted.
    pub(crate) id: Option<NodeId>,
    /// Stands between the node and the network, in some seeds.
    pub(crate) guard: Sealing,
    /// Its state of the paths to other hosts, in some seeds.
    pub(crate) ways: Ways,
    pub(crate) inbox: VecDeque<Pending>,
    pub(crate) receipts: Receipts,
    pub(crate) disk: super::disk::Disk,
    pub(crate) client: super::etcd::Client,
    /// Number of inputs at its front that are answers to effects.
    pub(crate) answers: usize,
    /// Its journal, in some seeds.
    pub(crate) recording: Option<Recording>,
    /// Its daemon was killed: the effects that the next one has to carry out first.
    pub(crate) remains: Option<Remains>,
    pub(super) paused_until: Time,
    pub(super) slow: (u64, Time),
    pub(super) busy_until: Time,
    pub(super) turn_due: Option<Time>,
    pub(super) deadline: Option<Time>,
    pub(super) deadline_waits: bool,
    pub(super) generation: u64,
    /// Deadlines in a row that did not move into the future.
    pub(super) stuck_deadlines: u32,
}

impl Host {
    /// The host's own clock, which started at another time than those of others.
    pub(crate) fn clock(&self, now: Time) -> Time {
        Time(now.0 + self.plan.clock_offset)
    }

    /// The node hears this: its deadline waits no longer, if it is that.
    pub(crate) fn deadline_heard(&mut self, input: &Input<'_>) {
        self.deadline_waits &= !matches!(input, Input::Deadline);
    }
}
