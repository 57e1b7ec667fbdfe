//! Condition variables that work in the whole cluster.

use std::time::{Duration, Instant};

use pagemesh_wire::local::{Reply, Request};

use crate::bell::after;
use crate::connection::unexpected;
use crate::{LockGuard, Result, Segment};

/// A condition variable of a segment, by its number. Clones are the same one.
///
/// ```no_run
/// # fn main() -> pagemesh::Result<()> {
/// # let segment = pagemesh::Mesh::connect()?.open("queue", pagemesh::Access::Writable)?;
/// # let memory = segment.map()?;
/// let mut guard = segment.lock(0).lock()?;
/// while memory.load_u64(0)? == 0 {
///     segment.condition(0).wait(&mut guard)?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Condition {
    segment: Segment,
    number: u64,
}

impl Condition {
    pub(crate) fn new(segment: Segment, number: u64) -> Self {
        Self { segment, number }
    }

    /// Releases the lock, waits for a signal, and takes the lock again; a signal given after the
    /// release is not missed. Check the awaited condition in a loop.
    ///
    /// # Errors
    /// [`Interrupted`](crate::Error::Interrupted), with the lock held again. If the daemon or the
    /// lock's node is gone, the lock is no longer held.
    pub fn wait(&self, guard: &mut LockGuard) -> Result<()> {
        self.wait_until(guard, None)
    }

    /// As [`Condition::wait`], for at most `timeout` before it takes the lock again.
    ///
    /// # Errors
    /// [`TimedOut`](crate::Error::TimedOut), with the lock held again; else as
    /// [`Condition::wait`].
    pub fn wait_timeout(&self, guard: &mut LockGuard, timeout: Duration) -> Result<()> {
        self.wait_until(guard, after(timeout))
    }

    /// Wakes one waiter, if there is one, and returns how many were woken. A signal without a
    /// waiter is lost.
    ///
    /// # Errors
    /// [`Refused`](crate::Error::Refused) if the segment's home node is gone.
    pub fn signal(&self) -> Result<u32> {
        self.wake(false)
    }

    /// Wakes all waiters and returns how many were woken.
    ///
    /// # Errors
    /// As [`Condition::signal`].
    pub fn broadcast(&self) -> Result<u32> {
        self.wake(true)
    }

    fn wait_until(&self, guard: &mut LockGuard, until: Option<Instant>) -> Result<()> {
        let cond = self.segment.key(self.number);
        let connection = self.segment.mesh().connection();
        let mut call = connection.start(Request::CondWait { cond }, &[], None)?;
        if call.begin(until)?.is_some() {
            return Ok(());
        }
        // This call is registered before the release: it receives every signal from here on.
        guard.release();
        let woken = call.finish(until);
        guard.retake()?;
        woken.map(|_| ())
    }

    fn wake(&self, all: bool) -> Result<u32> {
        let cond = self.segment.key(self.number);
        let request = Request::CondSignal { cond, all };
        match self.segment.mesh().ask(request, None)?.reply {
            Reply::Woken(count) => Ok(count),
            other => Err(unexpected(&other)),
        }
    }
}
