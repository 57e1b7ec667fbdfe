//! The command `pagemesh`, as a library: the program itself is one call of
//! [`main`]. Tests and the programs beside it use [`sandbox`], a whole cluster on one
//! machine, and the parts that their command lines share with this one.

#![forbid(unsafe_code)]
// These panic where nothing can be written; `output` has functions that do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cli;
mod commands;
mod config;
pub mod control;
mod exit;
mod far;
mod global;
mod interrupts;
mod logging;
pub mod output;
mod preload;
mod ranks;
pub mod sandbox;
mod units;

pub use exit::{Exit, Trouble};
pub use global::{Format, Global, LogFormat};

use anyhow::Result;
use clap::Parser;
use std::process::ExitCode;

/// Runs the command line of this process as that of `pagemesh`.
#[must_use]
pub fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    run("pagemesh", &cli.global, |global| cli.command.run(global))
}

/// Runs a command of this program: starts the log, prints an error and turns the result into an
/// exit code.
#[must_use]
pub fn run(
    program: &str,
    global: &Global,
    command: impl FnOnce(&Global) -> Result<Exit>,
) -> ExitCode {
    logging::start(global);
    match command(global) {
        Ok(exit) => exit.into(),
        Err(error) => {
            output::note(format_args!("{program}: {error:#}"));
            exit::of(&error).into()
        }
    }
}
