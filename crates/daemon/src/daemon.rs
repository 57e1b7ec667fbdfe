//! Start, loop and end of a daemon.

use crate::counters::Count;
use crate::driver::Driver;
use crate::keeper::Keeping;
use crate::launch;
use crate::listener::{ProgramListener, Visit};
use crate::options::Options;
use crate::receive_batch::ReceiveBatch;
use crate::sessions::Sessions;
use crate::token::Token;
use crate::waiter::{Programs, Waiter};
use anyhow::{Result, bail};
use pagemesh_os::clock;
use pagemesh_os::latency::LatencyHold;
use pagemesh_os::poll::Ready;
use pagemesh_os::signals::Signals;
use pagemesh_wire::ClientId;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

mod awake;
mod datagrams;
mod keeping;
mod membership;
mod requests;
mod start;

use awake::{EXPECTED, Rounds};
use membership::NobodyCoordinates;

/// A running daemon.
struct Daemon {
    driver: Driver,
    listener: ProgramListener,
    signals: Signals,
    waiter: Waiter,
    ready: Vec<Ready>,
    /// Memory of the datagrams received last.
    receive_batch: ReceiveBatch,
    packet: Box<[u8]>,
    rounds: Rounds,
    /// When the daemon ends at the latest (monotonic nanoseconds); set by a signal to end.
    ending: Option<u64>,
    admitted: bool,
    /// The log already says that the daemon to join does not answer.
    complained: bool,
    /// How long to request admission; zero means without limit.
    join_timeout: Duration,
    _latency: Option<LatencyHold>,
    launch: Option<launch::Listening>,
    /// Epoch of the last member view whose revoked members were disconnected.
    epoch: u64,
    keeping: Option<Keeping>,
    socket: PathBuf,
}

/// Time limit for leaving the cluster after a signal to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// Datagrams received in a row before other descriptors are served.
const DATAGRAMS: usize = 64;

/// Nanoseconds by which a deadline is late after the daemon did not run.
const ABSENCE: u64 = 500_000_000;

/// Runs a daemon until it is told to end.
///
/// # Errors
/// If it cannot start, or its cluster refuses it; the message names the cure.
pub fn run(options: Options) -> Result<()> {
    run_announced(options, || Ok(()))
}

/// As [`run`]; calls `started` once this daemon listens on its socket.
///
/// # Errors
/// As [`run`], and those of `started`.
pub fn run_announced(options: Options, started: impl FnOnce() -> Result<()>) -> Result<()> {
    options.check()?;
    let mut started = Some(started);
    loop {
        let daemon = Daemon::start(&options)?;
        if let Some(started) = started.take() {
            started()?;
        }
        match daemon.run(&options.socket) {
            Err(why) if why.is::<NobodyCoordinates>() => tracing::warn!("{why}; beginning anew"),
            ended => return ended,
        }
    }
}

impl Daemon {
    /// Runs until it is told to end; a record is saved if it breaks.
    fn run(mut self, socket: &Path) -> Result<()> {
        match catch_unwind(AssertUnwindSafe(|| self.serve())) {
            Ok(ended) => {
                self.end();
                ended
            }
            Err(panic) => {
                let recorder = &self.driver.executor.recorder;
                recorder.save(socket, "the daemon broke");
                resume_unwind(panic)
            }
        }
    }

    fn serve(&mut self) -> Result<()> {
        loop {
            let now = clock::monotonic();
            self.mind_absence(now);
            self.hear_before_due(now)?;
            self.driver.due(now);
            self.driver.look_at_memory(now);
            self.driver.look_for_troubles(now);
            self.driver.cut_off();
            self.cut_off_revoked();
            self.open_listener(now)?;
            if self.is_over(now)? {
                return Ok(());
            }
            self.driver.executor.acknowledge_if_due();
            let executor = &self.driver.executor;
            let programs = executor.sessions.programs(&executor.faults.open);
            if self.waiter.stays_awake(now, programs) {
                self.spin(now, programs)?;
            } else {
                self.sleep(now, programs)?;
            }
        }
    }

    /// Datagrams that have come are handled before a deadline is: a daemon that was kept from its
    /// processor, or was busy for long, would ask again for what its socket has already.
    fn hear_before_due(&mut self, now: u64) -> Result<()> {
        if self.driver.next_due().is_some_and(|due| due <= now) {
            for _ in 0..DATAGRAMS {
                // A thread that has its page goes on; the first answer shows that others are coming.
                if !self.receive()? || !self.may_receive() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// After it did not run for long, the daemon does what was due before it serves a program, which
    /// would be told that others are silent.
    fn hear_after_absence(&mut self) -> Result<()> {
        let now = clock::monotonic();
        let late = |due: u64| now.saturating_sub(due) > ABSENCE;
        if self.driver.next_due().is_some_and(late) {
            self.hear_before_due(now)?;
            self.driver.due(now);
        }
        Ok(())
    }

    fn sleep(&mut self, now: u64, programs: Programs) -> Result<()> {
        self.be_told()?;
        self.await_room()?;
        // A program that got its reply and ran on this processor may have sent its next request.
        if self.rounds.expected < EXPECTED && self.request_slots(false)? {
            self.rounds.expected += 1;
            return Ok(());
        }
        self.rounds.expected = 0;
        self.driver.executor.catch_up(programs != Programs::Run);
        self.driver.executor.prepare();
        let due = [
            self.driver.next_due(),
            self.driver.next_look(),
            self.ending,
            self.listener.shut_until(),
        ]
        .into_iter()
        .flatten()
        .min();
        self.driver.executor.acknowledge();
        if !self.driver.executor.sessions.request_slots.look_away() {
            self.poll(Some(0))?;
            self.request_slots(true)?;
            return Ok(());
        }
        self.driver.executor.count(Count::Sleeps, 1);
        if self.waiter.spins() {
            self.mind_who_computes(now);
        }
        self.poll(due.map(|due| due.saturating_sub(now)))
    }

    /// Programs that compute must not delay this daemon when it is woken.
    fn mind_who_computes(&mut self, now: u64) {
        self.driver.executor.priority.go_first();
        if self.waiter.wonders(now)
            && let Some(computed) = self.driver.executor.sessions.computed()
        {
            self.waiter.computed(computed, now);
        }
    }

    fn poll(&mut self, timeout: Option<u64>) -> Result<()> {
        let mut ready = std::mem::take(&mut self.ready);
        self.driver.executor.poll.wait(timeout, &mut ready)?;
        self.hear_after_absence()?;
        // From here until the daemon sleeps again, programs need not wake it for a request slot.
        self.driver.executor.sessions.request_slots.look();
        if ready.is_empty() {
            self.driver.executor.acknowledge();
        }
        // Handle hangups first: those processes ended before the others sent their requests.
        ready.sort_by_key(|event| !event.broken);
        for event in ready.drain(..) {
            self.dispatch(event)?;
        }
        self.ready = ready;
        Ok(())
    }

    fn dispatch(&mut self, event: Ready) -> Result<()> {
        match Token::decode(event.token) {
            Some(Token::Network) => {
                for _ in 0..DATAGRAMS {
                    // The poll reports the remaining datagrams again.
                    let asked = |sessions: &Sessions| sessions.request_slots.asker().is_some();
                    if !self.receive()? || asked(&self.driver.executor.sessions) {
                        break;
                    }
                }
            }
            Some(Token::Mapping(mapping)) => {
                self.came(clock::monotonic());
                self.driver.faults(mapping, event.broken);
            }
            Some(Token::Session(client)) => {
                self.came(clock::monotonic());
                self.session(client, event);
            }
            Some(Token::Listener) => self.accept(),
            Some(Token::Signals) => self.signal()?,
            Some(Token::Keeper) => self.replace_keeper(),
            Some(Token::Keys) => {
                if let Some(sealing) = &mut self.driver.executor.network.sealing {
                    sealing.keys_changed();
                }
            }
            Some(Token::Ledger) => self.driver.kept(),
            Some(Token::Elections) => self.driver.elected(),
            None => {}
        }
        Ok(())
    }

    /// Records activity at `now`.
    fn came(&mut self, now: u64) {
        self.rounds.busy = true;
        self.waiter.active(now);
    }

    fn accept(&mut self) {
        match self.listener.open(clock::monotonic()) {
            Visit::Nobody => {}
            Visit::Came(socket) => {
                if let Err(error) = self.driver.connected(socket) {
                    tracing::warn!(%error, "a process could not connect");
                }
            }
            Visit::TurnedAway => {
                self.driver.executor.count(Count::SessionsTurnedAway, 1);
                tracing::warn!("a process was turned away: no file descriptor is left");
            }
            Visit::Failed(error) => {
                tracing::warn!(%error, "a process could not connect");
                // The poll would report this error again and again.
                let _ = self.driver.executor.poll.remove(&self.listener);
            }
        }
    }

    /// Accepts connections again after a pause for lack of descriptors.
    fn open_listener(&mut self, now: u64) -> Result<()> {
        if self.listener.shut_until().is_some_and(|until| until <= now) {
            self.listener.reopen();
            let poll = &self.driver.executor.poll;
            poll.add(&self.listener, Token::Listener.encode())?;
        }
        Ok(())
    }

    fn session(&mut self, client: ClientId, event: Ready) {
        if event.writable {
            self.driver.executor.flush(client);
        }
        if event.readable || event.broken {
            self.requests(client, |_| true);
        }
    }

    fn signal(&mut self) -> Result<()> {
        while let Some(number) = self.signals.next()? {
            if number == libc::SIGHUP {
                if let Some(sealing) = &self.driver.executor.network.sealing {
                    sealing.look();
                }
                continue;
            }
            if self.ending.is_some() {
                tracing::warn!(number, "ending at once");
                self.driver.executor.life.left = true;
                return Ok(());
            }
            tracing::info!(number, "leaving the cluster");
            let nanos = u64::try_from(FAREWELL.as_nanos()).unwrap_or(u64::MAX);
            self.ending = Some(clock::monotonic() + nanos);
            self.driver.leave();
        }
        Ok(())
    }

    /// A successor needs the socket and the keeper; without a successor both end here.
    fn end(self) {
        let Self {
            mut driver,
            listener,
            ..
        } = self;
        driver.executor.acknowledge();
        if let Some(schema) = driver.executor.life.handed_over {
            driver.executor.sessions.request_slots.tell_no_changes();
            // The other release may know of no deferred diffs.
            if let Err(error) = driver.executor.pages.changes.settle_all() {
                tracing::error!(%error, "a diff could not be made for another release");
            }
            // This is the last the journal is told: no log may follow the document. If the
            // document does not fit, a daemon of the same build still has the snapshot and its log.
            let registry = driver.executor.registry_in(schema);
            let recorder = &mut driver.executor.recorder;
            if !recorder.hand_over(schema, &driver.node, &registry) {
                tracing::error!("the state could not be handed over to another release");
            }
            listener.leave();
        } else {
            driver.executor.keeper.end();
        }
    }

    fn is_over(&mut self, now: u64) -> Result<bool> {
        if self.driver.executor.life.handed_over.is_some() {
            tracing::info!("making room for another daemon");
            return Ok(true);
        }
        if self.driver.executor.life.left {
            tracing::info!("ended");
            return Ok(true);
        }
        if self.ending.is_some_and(|ending| ending <= now) {
            tracing::warn!("could not leave in order within {FAREWELL:?}; ending anyway");
            return Ok(true);
        }
        if !self.admitted {
            self.admitted = self.driver.node.id().is_some();
            if let Some(why) = self.driver.node.out() {
                bail!("the cluster refuses this node: {why}");
            }
            self.complain(now)?;
        }
        Ok(false)
    }
}
