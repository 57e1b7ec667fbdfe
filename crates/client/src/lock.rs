//! Cluster-wide locks.
//!
//! A lock is taken in two steps. The *gate* admits one thread of this process. That thread then
//! looks at the *lock word*, which the processes of this node share and which says where the lock's
//! token is: a token that is lent to this node and free is taken by one compare-and-swap; otherwise
//! the thread asks the daemon, which keeps the queue.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pagemesh_os::area::Word;
use pagemesh_wire::local::{Reply, Request};
use pagemesh_wire::lockword::{LOCAL_TURNS, LockWord};

use crate::bell::{Gate, after};
use crate::connection::unexpected;
use crate::fork::Generation;
use crate::{Error, Result, Segment, undisturbed};

/// How long [`Lock::try_lock`] waits for a free token to arrive from another node.
const FETCH: Duration = Duration::from_millis(20);

/// How long an unlock waits for the daemon to note that a contended lock is free.
const UNLOCK: Duration = Duration::from_secs(1);

/// State of one lock that the threads of this process share.
#[derive(Debug)]
pub struct LockState {
    gate: Gate,
    /// Index of the lock word; [`UNKNOWN`] until the daemon has told it.
    slot: AtomicU32,
    /// How often the lock was taken without the daemon since the daemon lent the token. Changed
    /// only by the thread behind the gate.
    turns: AtomicU32,
}

/// A slot index beyond every lock area.
const UNKNOWN: u32 = u32::MAX;

impl Default for LockState {
    fn default() -> Self {
        Self {
            gate: Gate::default(),
            slot: AtomicU32::new(UNKNOWN),
            turns: AtomicU32::new(0),
        }
    }
}

/// A lock of a segment, by its number. Clones are the same lock.
///
/// A lock belongs to a process, not to a thread: another thread may drop the guard. It is not
/// recursive. If a process dies while it holds the lock, the next holder learns it from
/// [`LockGuard::recovered`].
#[derive(Clone)]
pub struct Lock {
    segment: Segment,
    number: u64,
    state: Arc<LockState>,
}

/// What signal handlers do to a thread that waits for a lock.
#[derive(Clone, Copy, Debug)]
enum Signals {
    EndTheWait,
    /// Nothing, as long as the daemon answers: the request keeps its place in the queue.
    ChangeNothing,
}

/// A held lock; released when this is dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct LockGuard {
    lock: Lock,
    recovered: bool,
    held: bool,
    /// The process that took the lock: a forked child has a copy of its parent's guards, but does
    /// not hold the locks.
    holder: Generation,
}

impl Lock {
    pub(crate) fn new(segment: Segment, number: u64, state: Arc<LockState>) -> Self {
        Self {
            segment,
            number,
            state,
        }
    }

    /// Takes the lock; waiting nodes are served in the order of their requests.
    ///
    /// # Errors
    /// [`Error::Interrupted`]; [`Error::Refused`] if the node that holds the lock's token cannot be
    /// reached.
    pub fn lock(&self) -> Result<LockGuard> {
        self.acquire(None, Signals::EndTheWait)
    }

    /// Takes the lock, waiting for at most `timeout`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], else as [`Lock::lock`].
    pub fn lock_timeout(&self, timeout: Duration) -> Result<LockGuard> {
        self.acquire(after(timeout), Signals::EndTheWait)
    }

    /// As [`Lock::lock_timeout`], in spite of signals. For turns within this library, which are
    /// short.
    pub(crate) fn lock_surely(&self, timeout: Option<Duration>) -> Result<LockGuard> {
        let until = timeout.and_then(after);
        undisturbed(|| self.acquire(until, Signals::ChangeNothing))
    }

    /// Takes the lock if it is free; `None` if it is held. While the token is on another node, only
    /// a request for it tells a free lock from a held one, which takes up to 20 ms.
    ///
    /// # Errors
    /// [`Error::Refused`], as [`Lock::lock`].
    pub fn try_lock(&self) -> Result<Option<LockGuard>> {
        self.check_process()?;
        if !self.state.gate.try_enter() {
            return Ok(None);
        }
        let outcome = self.try_pass();
        if !matches!(outcome, Ok(Some(_))) {
            self.state.gate.leave();
        }
        Ok(outcome?.map(|recovered| self.guard(recovered)))
    }

    fn acquire(&self, until: Option<Instant>, signals: Signals) -> Result<LockGuard> {
        self.check_process()?;
        self.state.gate.enter(until)?;
        match self.pass(until, signals) {
            Ok(recovered) => Ok(self.guard(recovered)),
            Err(error) => {
                self.state.gate.leave();
                Err(error)
            }
        }
    }

    /// Takes the lock word, waiting until it is free. True if the last holder died.
    fn pass(&self, until: Option<Instant>, signals: Signals) -> Result<bool> {
        let known = self.state.slot.load(Ordering::Relaxed) != UNKNOWN;
        if known && self.swap(LockWord::Free, self.held(), until)? {
            let turns = self.state.turns.load(Ordering::Relaxed);
            self.state.turns.store(turns + 1, Ordering::Relaxed);
            return Ok(false);
        }
        let key = self.segment.key(self.number);
        let connection = self.segment.mesh().connection();
        let place = if known {
            None
        } else {
            // Both requests are sent at once, because at the first use the token is seldom on this
            // node.
            Some(connection.start_surely(Request::LockSlot { key }, &[], None)?)
        };
        let (request, undo) = (Request::Lock { key }, Request::Unlock { key });
        let lock = connection
            .start_surely(request, &[], Some(undo))?
            .surely(true);
        if let Some(place) = place {
            self.learn(&place.finish_surely(until)?.reply)?;
        }
        let answer = match signals {
            Signals::EndTheWait => lock.finish(until)?,
            Signals::ChangeNothing => lock.finish_surely(until)?,
        };
        match answer.reply {
            Reply::Locked { recovered } => {
                self.state.turns.store(0, Ordering::Relaxed);
                Ok(recovered)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Takes the lock word if it is free.
    fn try_pass(&self) -> Result<Option<bool>> {
        let until = after(FETCH);
        let held = |word: &Word| matches!(word.load(), LockWord::Held { .. });
        let passed = match self.word(until) {
            Ok(word) if held(word) => return Ok(None),
            Ok(_) => self.pass(until, Signals::ChangeNothing),
            Err(error) => Err(error),
        };
        match passed {
            Err(Error::TimedOut) => Ok(None),
            result => result.map(Some),
        }
    }

    /// Releases the lock.
    fn release(&self) {
        // Another node may be waiting, and our daemon may not have had time to recall the token.
        let enough = self.state.turns.load(Ordering::Relaxed) >= LOCAL_TURNS;
        // A process that locked the word once knows its index.
        if enough || !matches!(self.swap(self.held(), LockWord::Free, None), Ok(true)) {
            self.state.turns.store(0, Ordering::Relaxed);
            self.ask_unlock();
        }
        // Open the gate last: the next thread's request must be sent after our release.
        self.state.gate.leave();
    }

    /// Sends the release to the daemon, in spite of signals, and waits for the reply: if this
    /// process ended before the daemon has read the request, the next holder would be told that we
    /// died with the lock. A daemon that does not answer in time reads it later.
    fn ask_unlock(&self) {
        let key = self.segment.key(self.number);
        let connection = self.segment.mesh().connection();
        let call = connection.start_surely(Request::Unlock { key }, &[], None);
        let _ = call.and_then(|call| call.surely(true).finish(after(UNLOCK)));
    }

    fn swap(&self, current: LockWord, new: LockWord, until: Option<Instant>) -> Result<bool> {
        Ok(self.word(until)?.compare_exchange(current, new).is_ok())
    }

    /// The lock word; asks the daemon for its index at the first use.
    fn word(&self, until: Option<Instant>) -> Result<&Word> {
        let mut slot = self.state.slot.load(Ordering::Relaxed);
        if slot == UNKNOWN {
            let key = self.segment.key(self.number);
            let answer = self.segment.mesh().ask(Request::LockSlot { key }, until)?;
            slot = self.learn(&answer.reply)?;
        }
        let word = self.segment.area().word(slot);
        word.ok_or(Error::Invalid(
            "the daemon named a lock outside of the lock area",
        ))
    }

    /// Stores the index of the lock word from the daemon's reply.
    fn learn(&self, reply: &Reply) -> Result<u32> {
        let Reply::Slot { index } = reply else {
            return Err(unexpected(reply));
        };
        // The index never changes.
        self.state.slot.store(*index, Ordering::Relaxed);
        Ok(*index)
    }

    fn held(&self) -> LockWord {
        LockWord::Held {
            by: self.segment.mesh().client(),
            wanted: false,
        }
    }

    fn guard(&self, recovered: bool) -> LockGuard {
        LockGuard {
            lock: self.clone(),
            recovered,
            held: true,
            holder: Generation::current(),
        }
    }

    /// Fails in a forked child without a connection: lock words hold process numbers, and such a
    /// child has none.
    fn check_process(&self) -> Result<()> {
        if self.segment.mesh().connection().is_ours() {
            Ok(())
        } else {
            Err(Error::Forked)
        }
    }
}

impl LockGuard {
    /// True if the last holder died while it held the lock: the data that the lock guards may be
    /// inconsistent.
    #[must_use]
    pub fn recovered(&self) -> bool {
        self.recovered
    }

    /// True if the lock is held. False only after a [`Condition`] wait that failed to take it
    /// again, and in a forked child, whose parent holds it.
    ///
    /// [`Condition`]: crate::Condition
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held && self.holder.is_current()
    }

    /// Releases the lock, as dropping does.
    pub fn unlock(self) {}

    /// Releases the lock for the time of a condition wait.
    pub(crate) fn release(&mut self) {
        if self.is_held() {
            self.held = false;
            self.lock.release();
        }
    }

    /// Takes the lock again; signals do not interrupt it.
    pub(crate) fn retake(&mut self) -> Result<()> {
        let mut again = self.lock.lock_surely(None)?;
        again.held = false;
        self.held = true;
        self.holder = again.holder;
        self.recovered |= again.recovered;
        Ok(())
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lock({})", self.segment.key(self.number))
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("lock", &self.lock)
            .field("recovered", &self.recovered)
            .finish_non_exhaustive()
    }
}
