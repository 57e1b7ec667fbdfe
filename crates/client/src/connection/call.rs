//! One request that has been sent, and its replies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pagemesh_wire::local::{Refusal, Reply};

use super::hatch::Way;
use super::{Answer, Connection};
use crate::bell::{Bell, after};
use crate::{Error, Result};

/// How long a daemon may take to answer a withdrawal.
const GRACE: Duration = Duration::from_secs(2);

/// A request under way. Dropping it before its last reply withdraws it.
#[derive(Debug)]
pub struct Call<'c> {
    connection: &'c Connection,
    number: u64,
    bell: Arc<Bell>,
    /// Where the first reply is to come, if not through the socket.
    pub(super) way: Option<Way<'c>>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A reply may come.
    Open,
    /// Asked to be withdrawn; a reply may come.
    Withdrawn,
    /// No reply will come.
    Over,
}

impl<'c> Call<'c> {
    pub(super) fn new(connection: &'c Connection, number: u64, bell: Arc<Bell>) -> Self {
        Self {
            connection,
            number,
            bell,
            way: None,
            state: State::Open,
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// The request was never sent.
    pub(super) fn forget(mut self) {
        self.state = State::Over;
    }

    /// The first reply to a request with two: `None` if it is
    /// [`Reply::Waiting`], else the last one, which came without it.
    pub fn begin(&mut self, until: Option<Instant>) -> Result<Option<Answer>> {
        let answer = match self.connection.next(self, until) {
            Err(stop) => return self.withdraw(stop).map(Some),
            Ok(answer) => answer,
        };
        if matches!(answer.reply, Reply::Waiting) {
            return Ok(None);
        }
        self.last(answer).map(Some)
    }

    /// The last reply. If time runs out or a signal comes, the request is
    /// withdrawn; a reply that was faster still counts.
    pub fn finish(mut self, until: Option<Instant>) -> Result<Answer> {
        loop {
            match self.connection.next(&mut self, until) {
                Err(stop) => return self.withdraw(stop),
                // Said again by a daemon that went on in the place of another.
                Ok(answer) if matches!(answer.reply, Reply::Waiting) => {}
                Ok(answer) => return self.last(answer),
            }
        }
    }

    /// Takes the request back, for the reason `stop`.
    fn withdraw(&mut self, stop: Error) -> Result<Answer> {
        if !matches!(stop, Error::TimedOut | Error::Interrupted) {
            self.state = State::Over;
            return Err(stop);
        }
        self.state = State::Withdrawn;
        self.connection.cancel(self.number);
        let until = after(GRACE);
        loop {
            match self.connection.next(self, until) {
                // The first reply to a request with two, overtaken by our wish.
                Ok(answer) if matches!(answer.reply, Reply::Waiting) => {}
                Ok(answer) => {
                    return match self.last(answer) {
                        Err(Error::Refused(Refusal::Cancelled)) => Err(stop),
                        result => result,
                    };
                }
                Err(Error::Interrupted) => {}
                Err(Error::TimedOut) => {
                    // Withdrawn already; what still comes is nobody's.
                    self.connection.desk.lock().close(self.number, false);
                    self.state = State::Over;
                    return Err(Error::DaemonSilent);
                }
                Err(error) => {
                    self.state = State::Over;
                    return Err(error);
                }
            }
        }
    }

    fn last(&mut self, answer: Answer) -> Result<Answer> {
        self.state = State::Over;
        match answer.reply {
            Reply::Refused(refusal) => Err(refusal.into()),
            _ => Ok(answer),
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.connection.is_ours() {
            return;
        }
        let unseen = self.way.take().and_then(|way| way.give_up());
        if let Some(bytes) = unseen {
            self.connection.unseen(self.number, &bytes);
        }
        if self.state == State::Open {
            self.connection.cancel(self.number);
        }
        let answered = self.state == State::Over;
        self.connection.close(self.number, answered);
    }
}
