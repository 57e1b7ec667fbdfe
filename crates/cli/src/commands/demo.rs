//! `pagemesh demo`: PageRank of this machine's packages on four nodes.

use crate::cli::Global;
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;

/// See it work: PageRank of this machine's packages on four nodes
#[derive(Args)]
pub(crate) struct Demo {}

impl Demo {
    pub(crate) fn run(self, _: &Global) -> Result<Exit> {
        anyhow::bail!("not built yet")
    }
}
