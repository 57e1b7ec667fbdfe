//! One host: its node, its kernel and its clock. Its reactions depend on nothing else, so that
//! every reaction is computed once.

mod executor;
mod turn;

use self::turn::Turn;
use super::setting::Op;
use super::timeless::Timeless;
use crate::canary::Canary;
use crate::check::Check;
use crate::golden::Words;
use crate::kernel::{Kernel, PageKey, ThreadId};
use crate::run::without_panic;
use pagemesh_core::{Config, Event, Input, Node, Reply, Request, Rights, Time};
use pagemesh_wire::peer::Message;
use pagemesh_wire::{ClientId, MappingId, NodeId, SegmentId, SyncKey, Ticket, Version};
use std::collections::VecDeque;
use std::hash::Hash;
use std::net::SocketAddr;
use std::time::Duration;

/// A step of a clock: the slowest repetition of an exploration is due then, and a page that was not
/// used may leave after two of them.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// The silence after which the coordinator gives a host up.
pub(super) const SILENCE: Duration = Duration::from_secs(1000);

/// A host at one moment.
#[derive(Clone)]
pub(crate) struct Site {
    pub(super) node: Node,
    kernel: Kernel,
    clock: Time,
    canary: Option<Canary>,
}

/// A datagram on its way.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Packet {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) bytes: Vec<u8>,
    pub(super) message: Message,
}

/// A thread of the host, as the host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seat {
    pub(super) thread: ThreadId,
    pub(super) client: ClientId,
    pub(super) mapping: MappingId,
    /// It was stopped at this page, and runs again.
    pub(super) stopped_at: Option<PageKey>,
}

/// The events of a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stimulus<'a> {
    /// A datagram arrives.
    Datagram(SocketAddr, &'a [u8]),
    /// A process or the kernel tells the daemon something.
    Local(&'a Input<'static>),
    /// A thread takes a step; with the value that it would store.
    Thread(Seat, Op, u64, SegmentId),
    /// The clock runs.
    Tick,
    /// The clock runs so far that all others, heard just now, live, but this one
    /// is given up.
    GiveUp(NodeId),
}

/// The outcomes that the rest of the cluster, or its observer, sees.
#[derive(Clone, Debug)]
pub(crate) enum Outcome<P> {
    /// A datagram left.
    Sent(P),
    /// An event for the observer.
    Seen(Sight),
}

/// The events that an observer sees.
#[derive(Clone, Debug)]
pub(crate) enum Sight {
    /// A mapping got rights to a page with these contents.
    Mapped(PageKey, Words, Rights),
    /// Contents of a page were dropped.
    Dropped(PageKey),
    /// Ownership of a page left for a node.
    Passed(NodeId, PageKey),
    /// Ownership of a page arrived.
    Owned(PageKey, Version),
    /// These threads can never have the page.
    Failed(PageKey, Vec<ThreadId>, String),
    /// A request was answered.
    Replied(Ticket, Reply),
    /// A lock was lent to a client.
    Lent(ClientId),
    /// A lock that comes back anyway is asked for.
    Awaited(SyncKey),
    /// A stopped thread may run.
    Woken(ThreadId),
    /// A grant was made.
    Given(Event),
    /// Another node is no member any more.
    Gone(NodeId),
    /// The node is no member any more.
    Expelled,
    /// Locks came back from a dead client.
    Recovered(Vec<SyncKey>),
    /// The thread loaded this word.
    Loaded(PageKey, u8, u64),
    /// The thread stored this word.
    Stored(PageKey, u8, u64),
    /// The thread is stopped at a page.
    Stopped(PageKey, Input<'static>),
    /// The thread took a lock by itself.
    Took(SyncKey),
    /// The thread asks the daemon.
    Asks(Request),
    /// The thread gave a lock back; whether it must tell the daemon.
    Released(SyncKey, bool),
}

impl<P> Outcome<P> {
    /// The same with another way to name datagrams.
    pub(super) fn map<Q>(self, keep: impl FnOnce(P) -> Q) -> Outcome<Q> {
        match self {
            Self::Sent(packet) => Outcome::Sent(keep(packet)),
            Self::Seen(sight) => Outcome::Seen(sight),
        }
    }
}

impl Site {
    /// A host whose daemon is about to start.
    pub(super) fn new(config: Config, canary: Option<Canary>) -> Self {
        Self {
            node: Node::new(config),
            kernel: Kernel::new(canary),
            clock: Time(1_000_000_000),
            canary,
        }
    }

    /// Stands for everything about the host but when it is.
    pub(crate) fn digest(&self) -> u128 {
        let mut hasher = Timeless::at(self.clock);
        self.node.hash(&mut hasher);
        self.kernel.hash(&mut hasher);
        hasher.digest()
    }

    pub(super) fn rights(&self, key: PageKey) -> Rights {
        self.kernel.rights(key)
    }

    pub(super) fn holds(&self, key: PageKey, words: &Words) -> bool {
        self.kernel.holds(key, words)
    }

    pub(super) fn shows(&self, key: PageKey, words: &Words) -> bool {
        self.kernel.shows(key, words)
    }

    /// Handles a stimulus. The host at `me` becomes the returned one.
    pub(crate) fn react(
        &self,
        me: usize,
        stimulus: &Stimulus<'_>,
    ) -> Check<(Self, Vec<Outcome<Packet>>)> {
        let mut site = self.clone();
        let mut outcomes = without_panic(|| {
            let mut turn = Turn {
                site: &mut site,
                me,
                outcomes: Vec::new(),
                answers: VecDeque::new(),
                diffs: None,
                payload: None,
            };
            turn.take(stimulus)?;
            Ok(turn.outcomes)
        })?;
        let woken = std::mem::take(&mut site.kernel.woken);
        let woken = woken
            .into_iter()
            .map(|thread| Outcome::Seen(Sight::Woken(thread)));
        outcomes.extend(woken);
        Ok((site, outcomes))
    }
}
