//! The words of a pipe's two ends, and what is published and purged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::area::{CLOSED, HEAD, READ_GENERATION, SESSION, WRITE_GENERATION, WRITE_SIZE};
use super::{OLD_SHORT, Pipe};
use crate::mapping::INCONSISTENT;
use crate::{Error, Result, undisturbed};

/// How long a waiting thread looks whether the lock of the other end is free.
const GLANCE: Duration = Duration::from_millis(5);

impl Pipe {
    /// A word of the other end.
    pub(super) fn theirs(&self, word: usize) -> Result<u64> {
        let at = self.layout.area(1 - self.end) + word;
        Ok(u64::from_le(self.short.load_u64(at)?))
    }

    /// A word of this end.
    pub(super) fn ours(&self, word: usize) -> Result<&AtomicU64> {
        if !self.seat.is_held() {
            return Err(Error::Forked);
        }
        self.own.atomic_u64(self.layout.area(self.end) + word)
    }

    /// Stores words of this end, in this order.
    pub(super) fn store(&self, words: &[(usize, u64)]) -> Result<()> {
        for (word, value) in words {
            self.ours(*word)?.store(value.to_le(), Ordering::Release);
        }
        Ok(())
    }

    /// The own `WriteGeneration`.
    pub(super) fn written(&self) -> Result<u64> {
        Ok(self.ours(WRITE_GENERATION)?.load(Ordering::Acquire))
    }

    /// Whether the message before has been read.
    pub(super) fn has_room(&self) -> Result<bool> {
        Ok(self.theirs(READ_GENERATION)? >= self.written()?)
    }

    /// Where the data of this end begin.
    pub(super) fn data(&self) -> usize {
        self.layout.area(self.end) + HEAD
    }

    /// Publishes the own area as far as the other end needs it. A message that has not been read
    /// goes along, so that its pages and its words are of one publication.
    pub(super) fn publish(&self) -> Result<()> {
        let size = self.ours(WRITE_SIZE)?.load(Ordering::Acquire) as u32 as usize;
        let length = if self.has_room()? { 0 } else { size };
        let first = self.layout.area(self.end) as u64;
        let bytes = first..first + (HEAD + length) as u64;
        // After a signal it is not known whether they were sent: twice does no harm.
        let is_short = self.layout.is_short(length);
        undisturbed(|| self.segment.publish(is_short, bytes.clone()))
    }

    /// PURGE of the short page of the other end: the next access fetches it (E16).
    pub(super) fn purge_short(&self) -> Result<()> {
        let at = self.layout.area(1 - self.end) as u64;
        self.segment.purge(OLD_SHORT, at..at + HEAD as u64)
    }

    pub(super) fn purge_whole(&self) -> Result<()> {
        let at = self.layout.area(1 - self.end) as u64;
        let bytes = at..at + (HEAD + self.size()) as u64;
        self.segment.purge(INCONSISTENT, bytes)
    }

    /// Whether the process that last opened the other end has closed it.
    pub(super) fn is_closed(&self) -> Result<bool> {
        Ok(self.theirs(CLOSED)? == self.theirs(SESSION)?)
    }

    /// Whether no process has the other end open.
    pub(super) fn seat_is_free(&self) -> Result<bool> {
        let seat = self.segment.lock(1 - self.end as u64);
        match seat.lock_surely(Some(GLANCE)) {
            Ok(_) => Ok(true),
            // The second one: the node with the lock is being given up.
            Err(Error::TimedOut | Error::Refused(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
