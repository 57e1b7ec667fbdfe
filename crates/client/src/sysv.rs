//! System V calls, for the library that stands in for those of the C library.

use std::time::{Duration, Instant};

use pagemesh_wire::local::{Reply, Request};
use pagemesh_wire::sysv::{Errno, Op, Outcome};

use crate::bell::after;
use crate::connection::unexpected;
use crate::segment::Access;
use crate::{Mesh, Result, Segment};

/// A wait with a time limit ends with any signal, as these calls do.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// What became of an attachment.
#[derive(Debug)]
pub enum Attached {
    /// The segment is open.
    Here(Segment),
    /// No, and why.
    Failed(Errno),
}

impl Mesh {
    /// A System V call, in the name of this process as it is now.
    ///
    /// # Errors
    /// What the call itself says is in the outcome. [`crate::Error::Interrupted`] and
    /// [`crate::Error::TimedOut`], if nothing came of it.
    #[doc(hidden)]
    pub fn sysv(&self, op: Op, until: Option<Instant>) -> Result<Outcome> {
        let until = until.or_else(|| after(FOR_EVER));
        match self.ask(Request::Sysv(op), until)?.reply {
            Reply::Sysv(outcome) => Ok(outcome),
            other => Err(unexpected(&other)),
        }
    }

    /// `shmat`, but for the mapping.
    ///
    /// # Errors
    /// As [`Mesh::sysv`].
    #[doc(hidden)]
    pub fn sysv_attach(&self, op: Op, write: bool) -> Result<Attached> {
        let access = if write {
            Access::Writable
        } else {
            Access::ReadOnly
        };
        let answer = self.ask(Request::Sysv(op), after(FOR_EVER))?;
        match answer.reply {
            Reply::Opened { info } => self.lent(info, answer.fds, access).map(Attached::Here),
            Reply::Sysv(Outcome::Failed(errno)) => Ok(Attached::Failed(errno)),
            other => Err(unexpected(&other)),
        }
    }

    /// Whether a forked process has this connection for itself.
    #[doc(hidden)]
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.connection().is_ours()
    }
}
