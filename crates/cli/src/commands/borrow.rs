//! `pagemesh borrow`: a program whose large allocations lie in memory of the cluster.

use crate::exit::Exit;
use crate::far;
use crate::global::Global;
use crate::preload;
use crate::units::parse_size;
use anyhow::{Context as _, Result};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Run a program whose large allocations lie in memory of the cluster
#[derive(Args)]
#[command(
    after_help = "The program is any that is linked with the GNU C library and allocates by malloc \
                  and its like. Children of fork get a copy of its large allocations, programs \
                  that it executes get memory of their own (docs/far-memory.md)."
)]
pub(crate) struct Borrow {
    /// How much can be allocated, for example 16G; nothing is taken before it is used
    #[arg(long, value_parser = parse_size, default_value = "16G")]
    size: u64,
    /// How much of it this host keeps in its memory at most, for example 2G; the rest is in idle
    /// memory of other hosts and on this host's disk [default: what the daemon's memory allows]
    #[arg(long, value_parser = parse_size)]
    local: Option<u64>,
    /// From which size on an allocation is large; at least 64K
    #[arg(long, value_parser = parse_size, default_value = "1M")]
    threshold: u64,
    /// The most that a fork may copy [default: what memory is available]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    fork_limit: Option<u64>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Borrow {
    /// Becomes the program.
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let control = super::connect(global)?;
        let (program, arguments) = self.command.split_first().context("no program is named")?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env(
                preload::VARIABLE,
                preload::preload(preload::BORROW, program)?,
            )
            .env(pagemesh::SOCKET_VARIABLE, control.path())
            .env("PAGEMESH_BORROW_SIZE", self.size.to_string())
            .env("PAGEMESH_BORROW_THRESHOLD", self.threshold.to_string());
        if let Some(local) = self.local {
            far::policy(Some(local))?;
            command.env("PAGEMESH_BORROW_LOCAL", local.to_string());
        }
        if let Some(limit) = self.fork_limit {
            command.env("PAGEMESH_BORROW_FORK_LIMIT", limit.to_string());
        }
        let error = command.exec();
        Err(error).with_context(|| format!("starting {}", program.display()))
    }
}
