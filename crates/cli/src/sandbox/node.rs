//! One node of a sandbox.

use super::daemon::DaemonProcess;
use super::network::Network;
use super::patience::Patience;
use crate::control::Control;
use anyhow::{Result, bail};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long one that was asked may take to answer, before it is looked at whether it
/// still lives: a process that outlives a daemon keeps its socket open, and says nothing.
const ANSWER: Duration = Duration::from_millis(500);

/// One node of a sandbox.
pub struct Node {
    pub(super) index: usize,
    pub(super) size: usize,
    pub(super) job: u64,
    pub(super) address: SocketAddr,
    pub(super) socket: PathBuf,
    pub(super) network: Arc<Network>,
    pub(super) daemon: Mutex<DaemonProcess>,
}

impl Node {
    /// Where its daemon listens for processes.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Where its daemon listens for other daemons.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process of its daemon.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.daemon().pid()
    }

    /// A program that will run on this node: in its namespace, told its rank
    /// and its daemon's socket.
    ///
    /// # Panics
    /// If this process has no descriptor left.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("PAGEMESH_RANK", self.index.to_string())
            .env("PAGEMESH_SIZE", self.size.to_string())
            .env("PAGEMESH_SOCKET", &self.socket)
            .env("PAGEMESH_JOB", self.job.to_string());
        self.network
            .confine(self.index, &mut command)
            .expect("a descriptor can be duplicated");
        command
    }

    /// A conversation with its daemon.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn control(&self) -> Result<Control> {
        Control::connect(&self.socket)
    }

    /// The log of its daemon.
    #[must_use]
    pub fn log(&self) -> String {
        self.daemon().log()
    }

    pub(super) fn daemon(&self) -> MutexGuard<'_, DaemonProcess> {
        self.daemon.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the daemon answers and sees enough members alive.
    pub(super) fn wait_until(
        &self,
        patience: &mut Patience,
        failing: &str,
        enough: impl Fn(usize) -> bool,
    ) -> Result<()> {
        loop {
            let ended = self.daemon().ended()?;
            if let Some(status) = ended {
                bail!(
                    "the daemon of node {} ended ({status}){}",
                    self.index,
                    self.daemon().tail()
                );
            }
            let control = Control::connect_within(&self.socket, ANSWER);
            let last = match control.and_then(|mut control| control.alive()) {
                Ok(alive) if enough(alive.len()) => return Ok(()),
                Ok(alive) => format!("it sees {} members", alive.len()),
                Err(error) => format!("{error:#}"),
            };
            let pid = self.daemon().pid();
            if !patience.lasts(pid) {
                bail!(
                    "node {} {failing} in time: {last}{}{}",
                    self.index,
                    patience.remark(pid),
                    self.daemon().tail()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
