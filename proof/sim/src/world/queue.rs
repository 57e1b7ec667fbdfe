//! The future events, in order of time, and at one time in order of planning.

use super::EtcdStep;
use crate::kernel::ThreadId;
use crate::step::Fault;
use pagemesh_core::Time;
use pagemesh_wire::Ticket;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

/// The events.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// A daemon starts.
    Birth(usize),
    /// A datagram reaches an address.
    Arrival {
        to: SocketAddr,
        source: SocketAddr,
        bytes: Vec<u8>,
    },
    /// A host's daemon takes its next input.
    Turn(usize),
    /// The node's deadline may have come.
    Deadline { host: usize, generation: u64 },
    /// A thread takes its next step.
    Run { thread: ThreadId, generation: u64 },
    /// The kernel repeats a fault, if the thread still waits.
    FaultAgain { thread: ThreadId, generation: u64 },
    /// A thread loses patience with a request.
    Impatience { thread: ThreadId, ticket: Ticket },
    /// The ways of a host to others may have something to do.
    Ways(usize),
    /// The receipts of a host have waited for long enough.
    Receipts(usize),
    /// A host's disk has written the next batch.
    Disk(usize),
    /// The store that all hosts share, or a host's client of it, does something.
    Etcd(EtcdStep),
    /// A fault of the plan.
    Misfortune(Fault),
}

/// See the module.
#[derive(Default)]
pub(super) struct Queue {
    planned: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
}

struct Scheduled {
    at: Time,
    sequence: u64,
    what: Happening,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl Queue {
    /// Plans an event.
    pub(super) fn push(&mut self, at: Time, what: Happening) {
        self.sequence += 1;
        self.planned.push(Reverse(Scheduled {
            at,
            sequence: self.sequence,
            what,
        }));
    }

    /// When the next thing happens.
    pub(super) fn next_time(&self) -> Option<Time> {
        self.planned.peek().map(|Reverse(next)| next.at)
    }

    /// The next thing, and when.
    pub(super) fn pop(&mut self) -> Option<(Time, Happening)> {
        let Reverse(next) = self.planned.pop()?;
        Some((next.at, next.what))
    }

    /// Removes all faults of the plan that are still to come.
    pub(super) fn spare_all(&mut self) {
        let spared = |next: &Scheduled| !matches!(next.what, Happening::Misfortune(_));
        self.planned.retain(|Reverse(next)| spared(next));
    }
}
