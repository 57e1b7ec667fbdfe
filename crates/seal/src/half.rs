//! Unfinished handshakes.

use crate::Now;
use crate::guard::{Outbox, Outgoing, Pace};
use crate::noise::Handshake;
use crate::session::Session;
use crate::token::Grant;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

/// A handshake that this host began.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) state: Box<Handshake>,
    /// This host's number of the handshake.
    pub(crate) ours: u32,
    /// The hello, kept for repetition.
    pub(crate) greeting: Vec<u8>,
    /// When it was sent last.
    pub(crate) sent: Duration,
    /// When the handshake began.
    pub(crate) began: Duration,
    /// The grant it shows; `None` in a hello between members.
    pub(crate) grant: Option<Grant>,
}

impl Begun {
    /// True if the hello may still be answered; repeats it when that is due.
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
            outbox.push(Outgoing { to, bytes });
        }
        true
    }
}

/// A newcomer's handshake that this host answered, and whose proof is awaited.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) state: Box<Handshake>,
    /// The other host's number of the handshake.
    pub(crate) theirs: u32,
    pub(crate) source: SocketAddr,
    pub(crate) began: Duration,
    /// The grant that the other host has shown.
    pub(crate) grant: Grant,
}

/// Datagrams that wait for a session, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Waiting(VecDeque<Vec<u8>>);

/// Maximum number of waiting datagrams; if there are more, the oldest are dropped, as datagrams may
/// be.
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

    /// Seals and sends all waiting datagrams, now that there is a session.
    pub(crate) fn leave(&mut self, session: &mut Session, to: SocketAddr, outbox: &mut Outbox) {
        for datagram in self.0.drain(..) {
            let mut bytes = Vec::new();
            session.seal(&[&datagram], &mut bytes);
            outbox.push(Outgoing { to, bytes });
        }
    }
}
