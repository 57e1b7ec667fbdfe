//! System V calls, for the library that replaces those of the C library.

use std::time::{Duration, Instant};

use pagemesh_wire::local::{Reply, Request};
use pagemesh_wire::sysv::{Errno, Op, Outcome, SemBuf};

use crate::bell::after;
use crate::connection::unexpected;
use crate::segment::Access;
use crate::{Mesh, Result, Segment};

/// The time limit of a wait without limit: a wait with a time limit ends with any signal, as these
/// calls do.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The result of an attachment.
#[derive(Debug)]
pub enum Attached {
    /// The segment is open.
    Here(Segment),
    /// The call failed with this error.
    Failed(Errno),
}

/// How to undo a call that was withdrawn, but happened nevertheless.
#[derive(Debug, PartialEq, Eq)]
enum Undo {
    /// The call changes nothing.
    Nothing,
    /// This operation undoes it.
    By(Op),
    /// Not possible: the call's result may have been consumed already, or the call took something
    /// that has an order.
    Impossible,
}

impl Undo {
    fn of(op: &Op) -> Self {
        let Op::SemOp { id, ops } = op else {
            return Self::Impossible;
        };
        if ops.iter().any(|op| op.op > 0 || op.op == i16::MIN) {
            return Self::Impossible;
        }
        let taken = ops.iter().filter(|op| op.op < 0);
        let ops: Vec<_> = taken.map(|op| SemBuf { op: -op.op, ..*op }).collect();
        if ops.is_empty() {
            Self::Nothing
        } else {
            Self::By(Op::SemOp { id: *id, ops })
        }
    }
}

impl Mesh {
    /// Makes a System V call with this process's present user and group.
    ///
    /// # Errors
    /// The call's own error is in the outcome. [`crate::Error::Interrupted`] and
    /// [`crate::Error::TimedOut`], if the call had no effect.
    #[doc(hidden)]
    pub fn sysv(&self, op: Op, until: Option<Instant>) -> Result<Outcome> {
        let until = until.or_else(|| after(FOR_EVER));
        loop {
            let undo = Undo::of(&op);
            let back = match &undo {
                Undo::By(op) => Some(Request::Sysv(op.clone())),
                Undo::Nothing | Undo::Impossible => None,
            };
            let call = self
                .connection()
                .start(Request::Sysv(op.clone()), &[], back)?;
            let call = call.surely(undo != Undo::Impossible);
            match call.finish(until)?.reply {
                Reply::Sysv(outcome) => return Ok(outcome),
                Reply::Unproven => self.connection().show_again(),
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// `shmat` without the mapping.
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

    /// True if a forked process has this connection for itself.
    #[doc(hidden)]
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.connection().is_ours()
    }
}
