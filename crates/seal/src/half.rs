//! Handshakes that are not finished.

use crate::noise::Handshake;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

/// One that this host began.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) state: Box<Handshake>,
    /// This host's number of it.
    pub(crate) ours: u32,
    /// The greeting, to be repeated.
    pub(crate) greeting: Vec<u8>,
    /// When it was repeated last.
    pub(crate) sent: Duration,
    /// When it was made.
    pub(crate) began: Duration,
}

/// One at the door that this host answered, and whose proof is awaited.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) state: Box<Handshake>,
    /// The stranger's number of it.
    pub(crate) theirs: u32,
    pub(crate) source: SocketAddr,
    pub(crate) began: Duration,
}

/// Datagrams that wait for a session, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Waiting(VecDeque<Vec<u8>>);

/// So many wait; of more, the oldest are lost, as datagrams may be.
const KEPT: usize = 32;

impl Waiting {
    pub(crate) fn push(&mut self, parts: &[&[u8]]) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(parts.concat());
    }

    pub(crate) fn take(&mut self) -> VecDeque<Vec<u8>> {
        std::mem::take(&mut self.0)
    }
}
