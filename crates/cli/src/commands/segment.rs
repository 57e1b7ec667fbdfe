//! `pagemesh segment`: create, list, look into, save, load and remove segments.

mod bar;
mod create;
mod inspect;
mod load;
mod save;
mod sharing;
mod show;

use crate::control::unexpected;
use crate::exit::Exit;
use crate::global::{Format, Global};
use crate::output;
use anyhow::Result;
use clap::{Args, Subcommand};
use pagemesh_wire::local::{Reply, Request};
use serde_json::json;

#[derive(Subcommand)]
pub(crate) enum Segment {
    /// Create a segment
    Create(create::Create),
    /// List segments
    #[command(visible_alias = "list")]
    Ls(Ls),
    /// Show what this node knows of a segment's pages
    Inspect(inspect::Inspect),
    /// Make a segment from a file that `save` wrote
    Load(load::Load),
    /// Remove a segment's name; its memory goes when the last process lets go
    Rm(Rm),
    /// Save a segment to a file, while programs go on
    Save(save::Save),
    /// Show one segment
    Stat(Stat),
}

impl Segment {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        match self {
            Self::Create(command) => command.run(global),
            Self::Ls(command) => command.run(global),
            Self::Inspect(command) => command.run(global),
            Self::Load(command) => command.run(global),
            Self::Save(command) => command.run(global),
            Self::Rm(command) => command.run(global),
            Self::Stat(command) => command.run(global),
        }
    }
}

/// List segments
#[derive(Args)]
pub(crate) struct Ls {
    /// Only names that begin with this
    #[arg(value_name = "BEGINNING", default_value = "")]
    beginning: String,
}

impl Ls {
    fn run(self, global: &Global) -> Result<Exit> {
        let mut segments = super::connect(global)?.segments()?;
        segments.retain(|info| info.name.starts_with(&self.beginning));
        match global.output {
            _ if global.quiet => output::lines(segments.iter().map(|info| &info.name))?,
            Format::Json => {
                let all: Vec<_> = segments.iter().map(show::document).collect();
                output::json(json!({ "segments": all }))?;
            }
            format => show::table(&segments, format == Format::Wide).print()?,
        }
        Ok(Exit::OK)
    }
}

/// Remove a segment's name; its memory goes when the last process lets go
#[derive(Args)]
pub(crate) struct Rm {
    /// Which
    #[arg(required = true)]
    names: Vec<String>,
}

impl Rm {
    fn run(self, global: &Global) -> Result<Exit> {
        let mut control = super::connect(global)?;
        let mut removed = Vec::new();
        let mut failure = None;
        for name in self.names {
            match control.ask(Request::Remove { name: name.clone() }) {
                Ok(_) => removed.push(name),
                Err(error) => {
                    output::note(format_args!("pagemesh: {name}: {error:#}"));
                    failure = Some(crate::exit::of(&error));
                }
            }
        }
        match global.output {
            Format::Json => output::json(json!({ "removed": removed }))?,
            Format::Table | Format::Wide => output::lines(&removed)?,
        }
        Ok(failure.unwrap_or(Exit::OK))
    }
}

/// Show one segment
#[derive(Args)]
pub(crate) struct Stat {
    /// Which
    name: String,
}

impl Stat {
    fn run(self, global: &Global) -> Result<Exit> {
        let info = match super::connect(global)?.ask(Request::Stat { name: self.name })? {
            Reply::Segment(info) => info,
            other => return unexpected(&other),
        };
        match global.output {
            Format::Json => output::json(show::document(&info))?,
            Format::Table | Format::Wide => output::lines(show::lines(&info))?,
        }
        Ok(Exit::OK)
    }
}
