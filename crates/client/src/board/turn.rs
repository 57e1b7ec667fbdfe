//! Writers of a board take turns, and go on without one that is stopped.

use super::Board;
use crate::mapping::Mapping;
use crate::{Error, LockGuard, Result};
use std::time::Duration;

/// The lock that writers take, and the one of those that go on without it.
pub(super) const WRITERS: u64 = 0;
pub(super) const BYPASS: u64 = 17;

/// A writer waits so long for another one's turn. Then that one counts as stopped: this one goes on,
/// and leaves alone the slots that the stopped one may still write to.
pub(super) const TURN: Duration = Duration::from_secs(1);

/// How often a writer asks for its turn if its daemon does not answer.
const ROUNDS: u32 = 3;

/// Where the first page has the number of the newest state when a writer was found stopped; zero if
/// none is.
pub(super) const STOPPED: usize = 32;

/// The right to publish, until it is dropped.
pub(super) struct Turn {
    /// No other writer has it; else one that is stopped may.
    alone: bool,
    _guard: LockGuard,
}

impl Board {
    /// Waits for this writer's turn.
    pub(super) fn turn(&self) -> Result<Turn> {
        // While a daemon is replaced on a busy host, it does not answer: that says nothing of a writer.
        for _ in 1..ROUNDS {
            match self.either_turn() {
                Err(Error::DaemonSilent) => {}
                result => return result,
            }
        }
        self.either_turn()
    }

    fn either_turn(&self) -> Result<Turn> {
        match self.segment.lock(WRITERS).lock_surely(Some(TURN)) {
            Ok(guard) => Ok(Turn {
                alone: true,
                _guard: guard,
            }),
            Err(Error::TimedOut) => Ok(Turn {
                alone: false,
                _guard: self.segment.lock(BYPASS).lock_surely(Some(TURN))?,
            }),
            Err(error) => Err(error),
        }
    }

    /// The number of the next state. If this writer has published the last one, the two slots after it
    /// still have older ones, and are here: another writer would have taken the next one, or the
    /// one behind it if the writer of the next one was found stopped. With the second lock, if
    /// another writer may have only that one.
    pub(super) fn next(&self, memory: &Mapping, turn: &Turn) -> Result<(u64, Option<LockGuard>)> {
        let next = self.written + 1;
        let number = |number| memory.load_u64(self.layout.at(number));
        let alone = turn.alone;
        let is_last = || -> Result<bool> {
            Ok(number(next)? <= self.written && number(next + 1)? <= self.written)
        };
        if alone && self.written > 0 && is_last()? {
            return Ok((next, None));
        }
        let last = || -> Result<u64> {
            let mut last = 0;
            for slot in 0..self.layout.slots {
                last = last.max(number(slot)?);
            }
            Ok(last)
        };
        let stopped = memory.load_u64(STOPPED)?;
        match (alone, stopped) {
            (true, 0) => Ok((last()? + 1, None)),
            // The stopped writer is done, or dead.
            (true, _) => {
                let bypass = self.segment.lock(BYPASS).lock_surely(Some(TURN))?;
                memory.write(STOPPED, &[0; 8])?;
                Ok((last()? + 1, Some(bypass)))
            }
            (false, _) => {
                let last = last()?;
                let since = if stopped == 0 { last.max(1) } else { stopped };
                memory.write(STOPPED, &since.to_le_bytes())?;
                Ok((self.layout.beside(last, since), None))
            }
        }
    }
}
