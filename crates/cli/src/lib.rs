//! The command `pagemesh`, as a library: the program itself is one call of
//! [`main`]. Tests and other programs use [`sandbox`], a whole cluster on one machine.

#![forbid(unsafe_code)]

mod apps;
mod cli;
mod commands;
mod config;
pub mod control;
mod exit;
mod interrupts;
mod logging;
mod output;
mod preload;
mod ranks;
pub mod sandbox;
mod units;

pub use exit::{Exit, Trouble};

use clap::Parser;
use std::process::ExitCode;

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    logging::start(&cli.global);
    match cli.command.run(&cli.global) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("pagemesh: {error:#}");
            exit::of(&error).into()
        }
    }
}
