//! `pagemesh app`: take part in one of the programs that come with PageMesh.

use crate::exit::Exit;
use crate::output;
use anyhow::Result;
use clap::Subcommand;
use pagemesh_centrality::Centrality;

#[derive(Subcommand)]
pub(crate) enum App {
    Centrality(Centrality),
}

impl App {
    pub(crate) fn run(self) -> Result<Exit> {
        match self {
            Self::Centrality(app) => app.run(output::lines)?,
        }
        Ok(Exit::OK)
    }
}
