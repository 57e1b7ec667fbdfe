//! `pagemesh segment load`.

use super::bar::Bar;
use super::show;
use crate::exit::Exit;
use crate::global::{Format, Global};
use crate::output;
use anyhow::{Context as _, Result};
use clap::Args;
use pagemesh::snapshot::LoadOptions;
use serde_json::json;
use std::path::PathBuf;

/// Make a segment from a file that `save` wrote
#[derive(Args)]
#[command(
    after_help = "The whole file is checked first, and the segment gets its name when all of it is \
                  there.\nIt has the size, mode and policy that were saved, belongs to you, and its \
                  pages are on this node."
)]
pub(crate) struct Load {
    /// Its name
    name: String,
    /// Where from
    file: PathBuf,
    /// Take the name from the segment that has it; processes that have that one open keep it
    #[arg(long)]
    replace: bool,
}

impl Load {
    pub(super) fn run(self, global: &Global) -> Result<Exit> {
        let bar = Bar::new(global.quiet)?;
        let mesh = crate::commands::mesh(global)?;
        let mut observer = bar.observer();
        let options = LoadOptions {
            replace: self.replace,
            observer: Some(&mut observer),
        };
        let loaded = mesh.load(&self.name, &self.file, options);
        bar.finish();
        let header = loaded.with_context(|| format!("loading segment {}", self.name))?;
        let info = mesh.stat(&self.name)?;
        match global.output {
            Format::Json => output::json(json!({
                "loaded": self.name,
                "file": self.file,
                "saved_name": header.name,
                "saved_ns": header.saved,
                "consistency": header.consistency.to_string(),
                "segment": show::document(&info),
            }))?,
            Format::Table | Format::Wide => output::lines([&self.name])?,
        }
        Ok(Exit::OK)
    }
}
