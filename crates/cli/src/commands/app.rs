//! `pagemesh app`: take part in one of the programs that come with PageMesh.

use crate::apps::centrality::Centrality;
use crate::exit::Exit;
use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum App {
    Centrality(Centrality),
}

impl App {
    pub(crate) fn run(self) -> Result<Exit> {
        match self {
            Self::Centrality(app) => app.run()?,
        }
        Ok(Exit::OK)
    }
}
