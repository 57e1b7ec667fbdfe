//! Handshakes that are not finished.

use crate::Now;
use crate::guard::{Letter, Outbox, Pace};
use crate::noise::Handshake;
use crate::session::Session;
use crate::token::Grant;
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
    /// The grant it shows; none in a greeting between members.
    pub(crate) grant: Option<Grant>,
}

impl Begun {
    /// Whether it may still be answered; if so, it is repeated when it is time.
    pub(crate) fn goes_on(
        &mut self,
        now: Now,
        pace: &Pace,
        to: SocketAddr,
        outbox: &mut Outbox,
    ) -> bool {
        if now.since.saturating_sub(self.began) >= pace.renew {
            return false;
        }
        if now.since.saturating_sub(self.sent) >= pace.repeat {
            self.sent = now.since;
            let bytes = self.greeting.clone();
            outbox.push(Letter { to, bytes });
        }
        true
    }
}

/// One at the door that this host answered, and whose proof is awaited.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) state: Box<Handshake>,
    /// The stranger's number of it.
    pub(crate) theirs: u32,
    pub(crate) source: SocketAddr,
    pub(crate) began: Duration,
    /// The grant the stranger has shown.
    pub(crate) grant: Grant,
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

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All leave, sealed, now that there is a session.
    pub(crate) fn leave(&mut self, session: &mut Session, to: SocketAddr, outbox: &mut Outbox) {
        for datagram in self.0.drain(..) {
            let mut bytes = Vec::new();
            session.seal(&[&datagram], &mut bytes);
            outbox.push(Letter { to, bytes });
        }
    }
}
