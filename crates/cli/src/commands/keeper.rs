//! `pagemesh keeper`: started by a daemon to keep its descriptors if it dies.

use crate::exit::Exit;
use anyhow::{Context as _, Result};
use clap::Args;
use rustix::fs::{Mode, OFlags, open};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// Keep what a daemon holds, for the next one; daemons start this by themselves
#[derive(Args)]
pub(crate) struct Keeper {
    /// Where the next daemon finds it
    #[arg(long)]
    path: PathBuf,
    /// How long to wait for the next daemon
    #[arg(long, value_parser = humantime::parse_duration)]
    grace: Duration,
}

impl Keeper {
    pub(crate) fn run(self) -> Result<Exit> {
        pagemesh_daemon::keeper::keep(standard_input()?, &self.path, self.grace)?;
        Ok(Exit::OK)
    }
}

/// The socket to the daemon, and no other descriptor of it: when it is closed,
/// the daemon shall see that.
fn standard_input() -> Result<OwnedFd> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let nothing = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(nothing).context("closing the standard input")?;
    Ok(socket)
}
