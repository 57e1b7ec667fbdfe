//! All sessions with one other host.

use crate::frame::Frame;
use crate::guard::{Outbox, Pace, Refused};
use crate::half::{Begun, Waiting};
use crate::session::Session;
use crate::token::Grant;
use core::net::SocketAddr;
use core::time::Duration;

/// Another host, identified by its key.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    /// Seals outgoing datagrams.
    current: Option<Session>,
    /// Opens datagrams sealed before the other host changed to the current session.
    previous: Option<Session>,
    /// A session that this host has answered and the other has not yet used: the answer may be
    /// lost.
    next: Option<Session>,
    /// A hello of this host that is not answered yet.
    pub(crate) begun: Option<Begun>,
    /// The latest hello of the other host and the answer to it.
    pub(crate) answered: Option<Reply>,
    /// The greatest time in a hello of the other host; hellos with earlier times are replays.
    pub(crate) greeted: u64,
    pub(crate) waiting: Waiting,
}

/// A hello that was answered, with the answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) greeting: Vec<u8>,
    pub(crate) reply: Vec<u8>,
}

impl Peer {
    /// Makes a session on which both hosts agree the current one; returns the number of the session
    /// it displaces.
    pub(crate) fn establish(&mut self, session: Session) -> Option<u32> {
        let displaced = std::mem::replace(&mut self.previous, self.current.take());
        self.current = Some(session);
        displaced.map(|session| session.ours)
    }

    /// Notes a session that this host has agreed to and the other may not know yet.
    pub(crate) fn propose(&mut self, session: Session) -> Option<u32> {
        self.next.replace(session).map(|session| session.ours)
    }

    /// The session that seals, unless it has been used for too long.
    pub(crate) fn sealer(&mut self, now: Duration, pace: &Pace) -> Option<&mut Session> {
        self.current
            .as_mut()
            .filter(|session| !is_worn(session, now, pace, 2))
    }

    /// Ends the sessions whose grant is `void`, and returns their numbers.
    pub(crate) fn end_sessions(&mut self, void: impl Fn(&Grant) -> bool) -> Vec<u32> {
        let sessions = [&mut self.current, &mut self.previous, &mut self.next];
        let ends = |session: &mut Session| session.grant.as_ref().is_some_and(&void);
        let ended = sessions.map(|session| session.take_if(|session| ends(session)));
        ended
            .into_iter()
            .flatten()
            .map(|session| session.ours)
            .collect()
    }

    /// The grant on which the session with this number is based.
    pub(crate) fn grant(&self, ours: u32) -> Option<&Grant> {
        let mut sessions = [&self.current, &self.previous, &self.next]
            .into_iter()
            .flatten();
        sessions
            .find(|session| session.ours == ours)?
            .grant
            .as_ref()
    }

    /// True if a new session is due.
    pub(crate) fn wants_new(&self, now: Duration, pace: &Pace) -> bool {
        self.current
            .as_ref()
            .is_none_or(|session| is_worn(session, now, pace, 1))
    }

    /// The number under which the other host seals, if there is a session.
    pub(crate) fn number(&self) -> Option<u32> {
        self.current.as_ref().map(|session| session.ours)
    }

    /// True if datagrams are sealed under the other host's number `theirs`.
    pub(crate) fn seals_for(&self, theirs: u32) -> bool {
        self.current
            .as_ref()
            .is_some_and(|session| session.theirs == theirs)
    }

    /// Sends the waiting datagrams if there is a session; the other host may have begun it.
    pub(crate) fn let_go(
        &mut self,
        (now, pace): (Duration, &Pace),
        to: SocketAddr,
        outbox: &mut Outbox,
    ) {
        if self.waiting.is_empty() {
            return;
        }
        let current = self.current.as_mut();
        if let Some(session) = current.filter(|session| !is_worn(session, now, pace, 2)) {
            self.waiting.leave(session, to, outbox);
        }
    }

    /// Opens a datagram. The first one of a proposed session confirms that session; the number of
    /// the session that this displaces is returned, too.
    pub(crate) fn open(
        &mut self,
        frame: &Frame,
        datagram: &[u8],
        into: &mut [u8],
        (now, pace): (Duration, &Pace),
    ) -> Result<(usize, Option<u32>), Refused> {
        let by =
            |session: &&mut Session| session.ours == frame.to && !is_worn(session, now, pace, 3);
        let established = [&mut self.current, &mut self.previous];
        let found = established.into_iter().filter_map(Option::as_mut).find(by);
        if let Some(session) = found {
            return Ok((session.open(frame, datagram, into)?, None));
        }
        let proposed = self.next.as_mut().filter(by);
        let length = proposed
            .ok_or(Refused::Unknown)?
            .open(frame, datagram, into)?;
        let displaced = self.next.take().and_then(|session| self.establish(session));
        Ok((length, displaced))
    }
}

/// True if the session's age or use exceeds `times` times the limit for a new one.
fn is_worn(session: &Session, now: Duration, pace: &Pace, times: u32) -> bool {
    now.saturating_sub(session.began) >= pace.rekey_after * times
        || session.sealed() >= pace.rekey_datagrams * u64::from(times)
}
