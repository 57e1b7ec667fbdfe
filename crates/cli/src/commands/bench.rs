//! `pagemesh bench`: measure. One module a benchmark, in `bench/`.

use crate::cli::Global;
use crate::exit::Exit;
use anyhow::Result;
use clap::Args;

/// Measure
#[derive(Args)]
pub(crate) struct Bench {
    /// Which benchmark
    name: String,
}

impl Bench {
    pub(crate) fn run(self, _: &Global) -> Result<Exit> {
        anyhow::bail!("no benchmark {:?} yet", self.name)
    }
}
