//! Calls: requests that have been sent, and their replies.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pagemesh_os::signals::aside;
use pagemesh_wire::local::{Refusal, Reply, Request, RequestPacket};

use super::request_slot::Way;
use super::router::ReplyRouter;
use super::{Answer, Connection, room, this_thread};
use crate::bell::{Bell, after};
use crate::signals::next_look;
use crate::{Error, Result, undisturbed};

/// After this many requests whose replies are not awaited, the reply of one is awaited, so that
/// they do not fill the socket.
const UNREAD_LIMIT: u64 = 32;

/// How long that wait may take.
const TELL_PATIENCE: Duration = Duration::from_secs(1);

/// How long a daemon may take to answer a withdrawal.
const GRACE: Duration = Duration::from_secs(2);

/// The same, for a call whose late result is given back. Most daemons answer sooner.
const SHORT_GRACE: Duration = Duration::from_millis(200);

/// Treatment of a withdrawn request while its daemon does not answer. As a rule such a daemon is
/// dead and about to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// Fail with [`Error::DaemonSilent`].
    Tells,
    /// Fail with the reason of the withdrawal: a late result changes nothing, or is given back.
    Counts,
    /// Wait until a daemon answers: only then it is known whether the request had an effect.
    Waits,
}

/// A request under way. Dropping it before its last reply withdraws it.
#[derive(Debug)]
pub struct Call<'c> {
    connection: &'c Connection,
    number: u64,
    bell: Arc<Bell>,
    /// The request slot where the first reply is to come; `None` if it comes through the socket.
    pub(super) way: Option<Way>,
    state: State,
    silence: Silence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Open: a reply may come.
    Open,
    /// The withdrawal was sent; a reply may still come.
    Withdrawn,
    /// No further reply will come.
    Over,
}

impl Connection {
    /// Sends a request and waits for its only reply. At the deadline or on a signal the request is
    /// withdrawn; a reply that was faster still counts.
    pub fn ask(&self, request: Request, until: Option<Instant>) -> Result<Answer> {
        self.start(request, &[], None)?.finish(until)
    }

    /// As [`Connection::ask`], for what the daemon answers as soon as it can: signals do not end the
    /// wait.
    pub fn ask_surely(&self, request: Request, until: Option<Instant>) -> Result<Answer> {
        self.start_surely(request, &[], None)?.finish_surely(until)
    }

    /// Sends a request; the returned call yields the replies.
    ///
    /// `undo` is the request that gives back what this request may still get after the caller has
    /// stopped waiting for it.
    pub fn start(
        &self,
        request: Request,
        fds: &[BorrowedFd<'_>],
        undo: Option<Request>,
    ) -> Result<Call<'_>> {
        self.start_on(Arc::default(), request, fds, undo)
    }

    /// As [`Connection::start`]; calls on one bell can be awaited together ([`Connection::first`]).
    pub fn start_on(
        &self,
        bell: Arc<Bell>,
        request: Request,
        fds: &[BorrowedFd<'_>],
        undo: Option<Request>,
    ) -> Result<Call<'_>> {
        if !self.is_ours() {
            return Err(Error::Forked);
        }
        let sysv = matches!(request, Request::Sysv(_));
        let brief = fds.is_empty() && request.is_brief() && (!sysv || self.shown.is_still_so());
        if brief && self.request_slot.is_wanted() {
            self.ask_for_slot();
        }
        let mut router = self.router.lock();
        let unheard = router.unheard();
        let number = router.open(undo, &bell)?;
        drop(router);
        let mut call = Call::new(self, number, bell);
        let packet = RequestPacket { number, request };
        if brief {
            call.way = self.request_slot.way(number, sysv);
        }
        let sent = match &call.way {
            Some(way) if unheard == 0 && way.post(&packet.encode()) => {
                self.router.lock().detour(number);
                if way.must_knock() {
                    self.knock();
                }
                Ok(())
            }
            _ => self.send(&packet, fds),
        };
        match sent {
            // A daemon that closed the connection may have said why; the reader will find it.
            Ok(()) | Err(Error::DaemonGone) => Ok(call),
            Err(error) => {
                call.forget();
                Err(error)
            }
        }
    }

    /// As [`Connection::start`]; a signal does not prevent that the request is sent.
    pub fn start_surely(
        &self,
        request: Request,
        fds: &[BorrowedFd<'_>],
        undo: Option<Request>,
    ) -> Result<Call<'_>> {
        undisturbed(|| self.start(request.clone(), fds, undo.clone()))
    }

    /// Asks the daemon for a request slot, which the thread that reads the reply opens. No request
    /// waits for it: a slot is of use only later, and the daemon may be stopped.
    pub(super) fn ask_for_slot(&self) {
        let number = self.number();
        self.request_slot.comes_with(number);
        let request = Request::RequestSlot;
        self.send_surely(&RequestPacket { number, request });
    }

    /// Tells the daemon through the socket to look into the request slot, because it may be asleep.
    fn knock(&self) {
        let number = self.number();
        let request = Request::Knock;
        self.send_surely(&RequestPacket { number, request });
    }

    /// Sends a request whose reply does not matter. A daemon that is gone need not be told, and a
    /// forked child does not tell its parent's daemon connection.
    pub fn tell(&self, request: Request) {
        if !self.is_ours() {
            return;
        }
        let mut router = self.router.lock();
        if router.unheard() + 1 < UNREAD_LIMIT {
            let number = router.number();
            drop(router);
            self.send_surely(&RequestPacket { number, request });
            // Count it only now: a call that is answered meanwhile may have been sent before this
            // request.
            self.router.lock().tell();
        } else {
            drop(router);
            // The thread that waits reads the replies for all.
            let call = self.start_surely(request, &[], None);
            let _ = call.and_then(|call| call.surely(true).finish(after(TELL_PATIENCE)));
        }
    }

    /// Sends the withdrawal of a call; only the call itself gets a reply.
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
        let (_, answer) = self.next_of(&[call.number()], call.bell(), until)?;
        Ok(answer)
    }

    /// Waits until one of these calls on one bell has its last reply. At the deadline or on a
    /// signal nothing is withdrawn: dropping the calls does that.
    pub fn first(&self, calls: &mut [Call<'_>], until: Option<Instant>) -> Result<Answer> {
        let numbers: Vec<_> = calls.iter().map(Call::number).collect();
        let Some(bell) = calls.first().map(|call| Arc::clone(&call.bell)) else {
            return Err(Error::Invalid("no call to wait for"));
        };
        loop {
            let (place, answer) = self.next_of(&numbers, &bell, until)?;
            // A successor of the daemon repeats this reply.
            if !matches!(answer.reply, Reply::Waiting) {
                return calls[place].last(answer);
            }
        }
    }

    /// Waits for the next reply to one of these calls, whose threads sleep on this bell; returns
    /// which call it answers.
    fn next_of(
        &self,
        numbers: &[u64],
        bell: &Bell,
        until: Option<Instant>,
    ) -> Result<(usize, Answer)> {
        let take = |router: &mut ReplyRouter| {
            let mut answers = numbers.iter().enumerate();
            answers.find_map(|(place, number)| Some((place, router.take(*number)?)))
        };
        let sleeps = |router: &mut ReplyRouter, asleep| {
            for number in numbers {
                router.sleeps(*number, asleep);
            }
        };
        let mut router = self.router.lock();
        let outcome = loop {
            if let Some(answer) = take(&mut router) {
                break Ok(answer);
            }
            if let Some(gone) = router.gone {
                break Err(gone.into());
            }
            let look = next_look(until);
            let until = look.map_or(until, |(next, _)| Some(next));
            let result;
            // A signal handler may run here while the call that it interrupts is the reader.
            let outer = router.reader;
            if outer.is_some_and(|reader| reader != this_thread()) {
                let rings = bell.rings();
                sleeps(&mut router, true);
                drop(router);
                result = aside(|| bell.wait(rings, until));
                router = self.router.lock();
                sleeps(&mut router, false);
            } else {
                router.reader = Some(this_thread());
                let mut buffer = router.buffer.take().unwrap_or_else(room);
                drop(router);
                let packet = self.read(&mut buffer, until);
                router = self.router.lock();
                router.reader = outer;
                router.buffer = Some(buffer);
                result = packet.map(|packet| self.deliver(&mut router, packet));
            }
            let Err(mut stop) = result else { continue };
            if let (Error::TimedOut, Some((_, look))) = (&stop, look) {
                // It may wait for threads that wait for replies.
                router.appoint_reader();
                drop(router);
                let ends = look();
                router = self.router.lock();
                if !ends {
                    continue;
                }
                stop = Error::Interrupted;
            }
            break take(&mut router).ok_or(stop);
        };
        router.appoint_reader();
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

    /// Makes a call that does not fail because its daemon is silent: if its result can be given
    /// back, the deadline holds; otherwise it waits for a daemon that answers.
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

    /// Closes a call whose request was never sent.
    pub(super) fn forget(mut self) {
        self.state = State::Over;
    }

    /// The first reply to a request with two replies: `None` if it is [`Reply::Waiting`], otherwise
    /// the last reply, which came without it.
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

    /// The last reply. At the deadline or on a signal the request is withdrawn; a reply that was
    /// faster still counts.
    pub fn finish(mut self, until: Option<Instant>) -> Result<Answer> {
        loop {
            match self.connection.next(&mut self, until) {
                Err(stop) => return self.withdraw(stop),
                // A successor of the daemon repeats this reply.
                Ok(answer) if matches!(answer.reply, Reply::Waiting) => {}
                Ok(answer) => return self.last(answer),
            }
        }
    }

    /// As [`Call::finish`], for an answer that should come soon. A signal does not withdraw the
    /// request: another node may have done what it says. Only if the answer does not come within
    /// the grace after the first signal, the daemon is asked what became of it.
    pub fn finish_surely(mut self, until: Option<Instant>) -> Result<Answer> {
        let mut limit = until;
        loop {
            match self.connection.next(&mut self, limit) {
                Err(Error::Interrupted) if limit == until => {
                    limit = until.into_iter().chain(after(GRACE)).min();
                }
                Err(Error::Interrupted) => {}
                Err(Error::TimedOut) if limit != until => return self.withdraw(Error::Interrupted),
                Err(stop) => return self.withdraw(stop),
                Ok(answer) if matches!(answer.reply, Reply::Waiting) => {}
                Ok(answer) => return self.last(answer),
            }
        }
    }

    /// Withdraws the request, for the reason `stop`.
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
                // The first reply to a request with two replies, which crossed our withdrawal.
                Ok(answer) if matches!(answer.reply, Reply::Waiting) => {}
                Ok(answer) => {
                    return match self.last(answer) {
                        Err(Error::Refused(Refusal::Cancelled)) => Err(stop),
                        result => result,
                    };
                }
                Err(Error::Interrupted) => {}
                Err(Error::TimedOut) => {
                    // Already withdrawn; a late result is given back.
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
