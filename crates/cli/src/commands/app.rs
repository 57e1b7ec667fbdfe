//! `pagemesh app`: take part in one of the programs that come with PageMesh.

use crate::apps::pagerank::PageRank;
use crate::exit::Exit;
use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum App {
    #[command(name = "pagerank")]
    PageRank(PageRank),
}

impl App {
    pub(crate) fn run(self) -> Result<Exit> {
        match self {
            Self::PageRank(app) => app.run()?,
        }
        Ok(Exit::OK)
    }
}
