//! Barriers across the whole cluster.

use std::time::{Duration, Instant};

use pagemesh_wire::local::{Reply, Request};

use crate::bell::after;
use crate::connection::unexpected;
use crate::{Result, Segment};

/// A barrier of a segment, by its number. It can be used repeatedly.
#[derive(Clone, Debug)]
pub struct Barrier {
    segment: Segment,
    number: u64,
    parties: u32,
}

impl Barrier {
    pub(crate) fn new(segment: Segment, number: u64, parties: u32) -> Self {
        Self {
            segment,
            number,
            parties,
        }
    }

    /// Waits until all parties have arrived. All parties see the stores that any party made before
    /// the barrier.
    ///
    /// # Errors
    /// [`Interrupted`](crate::Error::Interrupted), in which case this party has
    /// not arrived; [`Refused`](crate::Error::Refused) if the parties disagree
    /// on their number, or the segment's home node is gone.
    pub fn wait(&self) -> Result<()> {
        self.wait_until(None)
    }

    /// As [`Barrier::wait`], for at most `timeout`.
    ///
    /// # Errors
    /// [`TimedOut`](crate::Error::TimedOut), in which case this party has not
    /// arrived; else as [`Barrier::wait`].
    pub fn wait_timeout(&self, timeout: Duration) -> Result<()> {
        self.wait_until(after(timeout))
    }

    fn wait_until(&self, until: Option<Instant>) -> Result<()> {
        let request = Request::Barrier {
            key: self.segment.key(self.number),
            parties: self.parties,
        };
        let connection = self.segment.mesh().connection();
        match connection.ask(request, until)?.reply {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}
