//! `pagemesh board`: look at a board, or put something on it.

use super::sockets;
use crate::exit::Exit;
use crate::global::{Format, Global};
use crate::output;
use crate::units::{parse_duration, parse_size};
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use pagemesh::{Access, Board as Open, BoardOptions, Mesh, State};
use serde_json::json;
use std::io::Read as _;
use std::time::Duration;

/// Read and write boards: state that one process publishes and many watch
#[derive(Subcommand)]
pub(crate) enum Board {
    /// Print the newest state
    Get(Get),
    /// Print every new state as it comes, the newest only
    Watch(Watch),
    /// Publish a state
    Set(Set),
}

#[derive(Args)]
pub(crate) struct Get {
    /// The board
    name: String,
}

#[derive(Args)]
pub(crate) struct Watch {
    /// The board
    name: String,
    /// End after so many states
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End with an error if no state comes for so long, for example 5s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
}

#[derive(Args)]
pub(crate) struct Set {
    /// The board; it is created if there is none
    name: String,
    /// The state; standard input if it is not given
    state: Option<String>,
    /// Bytes of the largest state of a new board
    #[arg(long, default_value = "4K", value_parser = parse_size)]
    size: u64,
    /// States of a new board that stay readable
    #[arg(long, default_value_t = 1)]
    history: u32,
    /// Other nodes that have the states of a new board, so that they outlive their writer's node:
    /// 0 or 1
    #[arg(long, value_name = "N", default_value_t = 0)]
    replicas: u8,
}

impl Board {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let mesh = connect(global)?;
        match self {
            Self::Get(get) => {
                let mut board = Open::open(&mesh, &get.name, Access::ReadOnly)?;
                let state = board.read()?;
                let state = state.context("nothing was published on this board yet")?;
                print(&state, global)?;
            }
            Self::Watch(watch) => watch.run(&mesh, global)?,
            Self::Set(set) => set.run(&mesh)?,
        }
        Ok(Exit::OK)
    }
}

impl Watch {
    fn run(self, mesh: &Mesh, global: &Global) -> Result<()> {
        let mut board = Open::open(mesh, &self.name, Access::ReadOnly)?;
        let (mut seen, mut left) = (0, self.count.unwrap_or(u64::MAX));
        while left > 0 {
            board.wait(seen, self.timeout)?;
            // The state may be overwritten just now; then a newer one follows.
            if let Some(state) = board.read()?.filter(|state| state.number > seen) {
                print(&state, global)?;
                seen = state.number;
                left -= 1;
            }
        }
        Ok(())
    }
}

impl Set {
    fn run(self, mesh: &Mesh) -> Result<()> {
        let state = match self.state {
            Some(text) => text.into_bytes(),
            None => {
                let mut bytes = Vec::new();
                std::io::stdin().lock().read_to_end(&mut bytes)?;
                bytes
            }
        };
        let mut board = match Open::open(mesh, &self.name, Access::Writable) {
            Err(pagemesh::Error::Refused(pagemesh::Refusal::NotFound)) => {
                let options = BoardOptions {
                    history: self.history,
                    replicas: self.replicas,
                    ..BoardOptions::default()
                };
                let size = usize::try_from(self.size)?.max(state.len());
                Open::create(mesh, &self.name, size, options)?
            }
            board => board?,
        };
        board.publish(&state)?;
        Ok(())
    }
}

fn connect(global: &Global) -> Result<Mesh> {
    let mut failure = None;
    for path in sockets(global) {
        match Mesh::connect_to(path) {
            Ok(mesh) => return Ok(mesh),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.map_or_else(
        || anyhow::anyhow!("nowhere to look for a daemon"),
        Into::into,
    ))
}

fn print(state: &State, global: &Global) -> Result<()> {
    let age = state.age().as_micros() as u64;
    let text = String::from_utf8_lossy(&state.bytes);
    match global.output {
        Format::Json => output::json(json!({
            "schema_version": 1,
            "number": state.number,
            "age_us": age,
            "missed": state.missed,
            "writer": state.writer.0,
            "state": text,
        })),
        Format::Wide => output::lines([format!(
            "{} {age} us, {} missed, by node {}: {text}",
            state.number, state.missed, state.writer.0
        )]),
        Format::Table => output::lines([text]),
    }
}
