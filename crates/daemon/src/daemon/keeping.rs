//! The keeper of a daemon, which holds what its successor needs.

use super::Daemon;
use crate::executor::DaemonExecutor;
use crate::keeper::{Keeper, Keeping, Tag};
use crate::receive_batch::ReceiveBatch;
use crate::token::Token;
use std::os::fd::AsFd;
use std::path::Path;

impl Daemon {
    /// The keeper died: starts another and gives it everything.
    pub(super) fn replace_keeper(&mut self) {
        let executor = &mut self.driver.executor;
        let Some(gone) = executor.keeper.take_gone() else {
            return;
        };
        let _ = executor.poll.remove(&gone);
        tracing::warn!(
            process = gone.process(),
            "the keeper is gone; starting another"
        );
        if let Some(keeping) = &self.keeping {
            keep(
                keeping,
                &self.socket,
                executor,
                &self.listener,
                &self.receive_batch,
            );
        }
        self.poll_keeper();
    }

    pub(super) fn poll_keeper(&self) {
        let executor = &self.driver.executor;
        if let Err(error) = executor.keeper.poll(&executor.poll, Token::Keeper.encode()) {
            tracing::warn!(%error, "the end of the keeper will not be noticed");
        }
    }
}

/// Starts a keeper and gives it everything. A daemon works without one, but then has no successor
/// if it dies.
pub(super) fn keep(
    keeping: &Keeping,
    socket: &Path,
    executor: &mut DaemonExecutor,
    listener: impl AsFd,
    receive_batch: &ReceiveBatch,
) {
    match Keeper::start(keeping, socket) {
        Ok(keeper) => {
            keeper.put(Tag::Listener, Vec::new(), listener.as_fd());
            keeper.put(Tag::Datagram, Vec::new(), receive_batch.as_fd());
            executor.keeper.by(keeper);
            executor.keep_everything();
        }
        Err(error) => tracing::error!("no keeper, so this daemon cannot be replaced: {error:#}"),
    }
}
