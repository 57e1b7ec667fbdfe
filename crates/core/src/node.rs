//! A node: every room of the core, and the corridor between them.

use crate::effect::Effects;
use crate::input::Input;
use crate::time::Time;
use core::net::SocketAddr;
use core::time::Duration;
use pagemesh_wire::{ClusterId, Incarnation};

/// What a node is told at its start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Its name, by default the host name.
    pub name: String,
    /// Where its own datagrams come from, as peers see it.
    pub address: SocketAddr,
    /// Drawn at random for this life.
    pub incarnation: Incarnation,
    /// Join the cluster of a daemon here, or be the first node of a new one.
    pub start: Start,
    /// Resend, suspicion and use-guard times; the simulator shortens them.
    pub pace: Pace,
}

/// How a node begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// Found a cluster and be its coordinator.
    Found(ClusterId),
    /// Ask the daemon at this address for admission.
    Join(SocketAddr),
}

/// Times that depend on the network, not on the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pace {
    /// See [`crate::limits::RESEND_FIRST`].
    pub resend_first: Duration,
    /// See [`crate::limits::RESEND_CEILING`].
    pub resend_ceiling: Duration,
    /// See [`crate::limits::HEARTBEAT`].
    pub heartbeat: Duration,
    /// See [`crate::limits::DEAD_AFTER`].
    pub dead_after: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        use crate::limits;
        Self {
            resend_first: limits::RESEND_FIRST,
            resend_ceiling: limits::RESEND_CEILING,
            heartbeat: limits::HEARTBEAT,
            dead_after: limits::DEAD_AFTER,
        }
    }
}

/// One node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    config: Config,
}

impl Node {
    /// A node about to start; its first input should be [`Input::Deadline`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config }
    }

    /// Something happened at `now`. What is to be done about it is appended to
    /// `effects`, in the order in which it must be done.
    pub fn handle(&mut self, now: Time, input: Input<'_>, effects: &mut Effects) {
        let _ = (now, input, effects);
    }

    /// When [`Input::Deadline`] is due next, if nothing happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        None
    }
}
