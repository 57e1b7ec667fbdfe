//! `bench paper`: what a paper measured, measured here, beside its figures.

mod mether;
mod mirage;
mod treadmarks;

use anyhow::Result;
use clap::{Args, Subcommand};
use pagemesh_cli::Exit;
use pagemesh_cli::Global;

/// What a paper measured, beside its figures
#[derive(Args)]
pub(super) struct Paper {
    #[command(subcommand)]
    which: Which,
}

#[derive(Subcommand)]
enum Which {
    /// TreadMarks, 1994: nine programs on 1 and 2 nodes, and on 8 slow ones
    Treadmarks(Box<treadmarks::Treadmarks>),
    /// MIRAGE+, 1994: faults by every switch, compression, Battleship, matrix multiply
    Mirage(mirage::Mirage),
    /// Mether, 1993: two processes count by five protocols, and a sparse solver
    Mether(mether::Mether),
}

impl Paper {
    pub(super) fn run(self, global: &Global) -> Result<Exit> {
        match self.which {
            Which::Treadmarks(command) => command.run(global),
            Which::Mirage(command) => command.run(global),
            Which::Mether(command) => command.run(global),
        }
    }
}
