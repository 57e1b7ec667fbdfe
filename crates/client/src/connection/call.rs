//! Requests: each one that has been sent, and its replies.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pagemesh_os::signals::aside;
use pagemesh_wire::local::{Refusal, Reply, Request, RequestPacket};

use super::hatch::Way;
use super::{Answer, Connection, PATIENCE, room, this_thread};
use crate::bell::{Bell, after};
use crate::{Error, Result};

/// Of so many requests whose replies nobody awaits, one is awaited after all,
/// lest they fill the socket.
const UNREAD_LIMIT: u64 = 32;

/// How long that may take.
const TELL_PATIENCE: Duration = Duration::from_secs(1);

/// How long a daemon may take to answer a withdrawal.
const GRACE: Duration = Duration::from_secs(2);

/// The same, where what it gave in spite of that is given back. Most answer sooner.
const SHORT_GRACE: Duration = Duration::from_millis(200);

/// What becomes of a request that was withdrawn while its daemon does not answer, being dead as a
/// rule and about to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// An error of its own.
    Tells,
    /// The caller hears why it was withdrawn: what it got unseen is nothing, or is given back.
    Counts,
    /// It is waited for until somebody answers: only then it is known whether anything happened.
    Waits,
}

/// A request under way. Dropping it before its last reply withdraws it.
#[derive(Debug)]
pub struct Call<'c> {
    connection: &'c Connection,
    number: u64,
    bell: Arc<Bell>,
    /// Where the first reply is to come, if not through the socket.
    pub(super) way: Option<Way>,
    state: State,
    silence: Silence,
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

impl Connection {
    /// Asks, and waits for the only reply. If time runs out or a signal comes,
    /// the request is withdrawn; a reply that was faster still counts.
    pub fn ask(&self, request: Request, until: Option<Instant>) -> Result<Answer> {
        self.start(request, &[], None)?.finish(until)
    }

    /// Asks; the replies come from the call.
    ///
    /// `undo` gives back what the request may still get after the caller has
    /// stopped waiting for it.
    pub fn start(
        &self,
        request: Request,
        fds: &[BorrowedFd<'_>],
        undo: Option<Request>,
    ) -> Result<Call<'_>> {
        if !self.is_ours() {
            return Err(Error::Forked);
        }
        let sysv = matches!(request, Request::Sysv(_));
        let brief = fds.is_empty() && request.is_brief() && (!sysv || self.shown.is_still_so());
        if brief && self.hatch.is_wanted() {
            self.open_hatch()?;
        }
        let mut desk = self.desk.lock();
        let unheard = desk.unheard();
        let (number, bell) = desk.open(undo)?;
        drop(desk);
        let mut call = Call::new(self, number, bell);
        let packet = RequestPacket { number, request };
        if brief {
            call.way = self.hatch.way(number, sysv);
        }
        let sent = match &call.way {
            Some(way) if unheard == 0 && way.post(&packet.encode()) => {
                self.desk.lock().detour(number);
                if way.must_knock() {
                    self.knock();
                }
                Ok(())
            }
            _ => self.send(&packet, fds),
        };
        match sent {
            // A daemon that went may have said why; whoever reads will hear it.
            Ok(()) | Err(Error::DaemonGone) => Ok(call),
            Err(error) => {
                call.forget();
                Err(error)
            }
        }
    }

    /// Asks for a hatch. Without one everything goes through the socket.
    fn open_hatch(&self) -> Result<()> {
        match self.ask(Request::Hatch, after(PATIENCE)) {
            Ok(mut answer) => {
                if let Some(memory) = answer.fds.pop() {
                    // What is no hatch is not used.
                    let _ = self.hatch.open(memory);
                }
                Ok(())
            }
            Err(Error::Refused(_)) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// The daemon may not look into the hatch.
    fn knock(&self) {
        let number = self.number();
        let request = Request::Knock;
        self.send_surely(&RequestPacket { number, request });
    }

    /// Says something whose reply does not matter. A daemon that is gone need
    /// not be told, and neither may a forked child tell its parent's.
    pub fn tell(&self, request: Request) {
        if !self.is_ours() {
            return;
        }
        let mut desk = self.desk.lock();
        if desk.unheard() + 1 < UNREAD_LIMIT {
            let number = desk.number();
            drop(desk);
            self.send_surely(&RequestPacket { number, request });
            // Only now: who is answered meanwhile may have asked before this.
            self.desk.lock().tell();
        } else {
            drop(desk);
            // Whoever waits reads what has come for all.
            let _ = self.ask(request, after(TELL_PATIENCE));
        }
    }

    /// Withdraws a call; there is no reply but the call's own.
    fn cancel(&self, number: u64) {
        let own = self.number();
        self.send_surely(&RequestPacket {
            number: own,
            request: Request::Cancel { number },
        });
    }

    /// Waits for the next reply to a call.
    fn next(&self, call: &mut Call<'_>, until: Option<Instant>) -> Result<Answer> {
        if let Some(way) = call.way.take() {
            let (came, stop) = way.wait(until);
            if let Some(bytes) = came {
                return self.came(call.number(), &bytes);
            }
            stop?;
        }
        let mut desk = self.desk.lock();
        let outcome = loop {
            if let Some(answer) = desk.take(call.number()) {
                break Ok(answer);
            }
            if let Some(gone) = desk.gone {
                break Err(gone.into());
            }
            let result;
            // A signal handler may be here while the call that it interrupts reads.
            let outer = desk.reader;
            if outer.is_some_and(|reader| reader != this_thread()) {
                let rings = call.bell().rings();
                desk.sleeps(call.number(), true);
                drop(desk);
                result = aside(|| call.bell().wait(rings, until));
                desk = self.desk.lock();
                desk.sleeps(call.number(), false);
            } else {
                desk.reader = Some(this_thread());
                let mut buffer = desk.buffer.take().unwrap_or_else(room);
                drop(desk);
                let packet = self.read(&mut buffer, until);
                desk = self.desk.lock();
                desk.reader = outer;
                desk.buffer = Some(buffer);
                result = packet.map(|packet| self.deliver(&mut desk, packet));
            }
            if let Err(stop) = result {
                break desk.take(call.number()).ok_or(stop);
            }
        };
        desk.appoint_reader();
        outcome
    }
}

impl<'c> Call<'c> {
    pub(super) fn new(connection: &'c Connection, number: u64, bell: Arc<Bell>) -> Self {
        Self {
            connection,
            number,
            bell,
            way: None,
            state: State::Open,
            silence: Silence::Tells,
        }
    }

    /// A call that never fails since its daemon is silent: its time limit holds if what it got
    /// can be given back, and else it waits for a daemon that answers.
    pub fn surely(mut self, can_be_given_back: bool) -> Self {
        self.silence = if can_be_given_back {
            Silence::Counts
        } else {
            Silence::Waits
        };
        self
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
        let until = match self.silence {
            Silence::Tells => after(GRACE),
            Silence::Counts => after(SHORT_GRACE),
            Silence::Waits => None,
        };
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
                    // Withdrawn already; what still comes is given back.
                    return Err(if self.silence == Silence::Counts {
                        stop
                    } else {
                        Error::DaemonSilent
                    });
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
