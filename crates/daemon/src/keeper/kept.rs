//! The keeper as the daemon has it: perhaps none.

use super::{Keeper, Tag};
use pagemesh_os::poll::Poll;
use std::io;
use std::os::fd::BorrowedFd;

/// A keeper, or none: then nothing outlives the daemon.
#[derive(Debug, Default)]
pub(crate) struct Kept(Option<Keeper>);

impl Kept {
    /// From now on this keeper.
    pub(crate) fn by(&mut self, keeper: Keeper) {
        self.0 = Some(keeper);
    }

    /// Keeps something from now on.
    pub(crate) fn put(&self, tag: Tag, note: Vec<u8>, fd: BorrowedFd<'_>) {
        if let Some(keeper) = &self.0 {
            keeper.put(tag, note, fd);
        }
    }

    /// Keeps it no more.
    pub(crate) fn drop(&self, tag: Tag) {
        if let Some(keeper) = &self.0 {
            keeper.drop(tag);
        }
    }

    /// Tells the keeper that the takeover is complete.
    pub(crate) fn settled(&self) {
        if let Some(keeper) = &self.0 {
            keeper.settled();
        }
    }

    /// Has the end of the keeper noticed.
    pub(crate) fn poll(&self, poll: &Poll, token: u64) -> io::Result<()> {
        self.0
            .as_ref()
            .map_or(Ok(()), |keeper| poll.add(keeper, token))
    }

    /// The keeper's process, if there is one.
    pub(crate) fn process(&self) -> Option<i32> {
        self.0.as_ref().map(Keeper::process)
    }

    /// The keeper, if it is gone; there is none then.
    pub(crate) fn take_gone(&mut self) -> Option<Keeper> {
        self.0.take_if(Keeper::is_gone)
    }

    /// The daemon ends for good.
    pub(crate) fn end(&mut self) {
        if let Some(keeper) = self.0.take() {
            keeper.end();
        }
    }
}
