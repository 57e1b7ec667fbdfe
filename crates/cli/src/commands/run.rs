//! `pagemesh run`: one program on the nodes of the cluster.

use crate::cli::Global;
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;
use std::ffi::OsString;

/// Run a program on the nodes of the cluster
#[derive(Args)]
pub(crate) struct Run {
    /// How many copies [default: one on each node]
    #[arg(short)]
    n: Option<u32>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Run {
    pub(crate) fn run(self, _: &Global) -> Result<Exit> {
        anyhow::bail!("not built yet")
    }
}
