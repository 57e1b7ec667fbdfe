//! `pagemesh bench`: starts `pagemesh-bench`, a program of its own, as git and cargo
//! start theirs.

use crate::exit::{Exit, Trouble};
use crate::global::Global;
use crate::sandbox;
use anyhow::{Context, Result};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const PROGRAM: &str = "pagemesh-bench";

/// Measure this machine and network, with the program pagemesh-bench
#[derive(Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(crate) struct Bench {
    /// What to measure, and how: see `pagemesh bench --help` where pagemesh-bench is installed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Bench {
    /// Becomes the other program, or says how to get it.
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let this = std::env::current_exe().context("finding this program")?;
        let beside = this.parent().map(|directory| directory.join(PROGRAM));
        let program = beside
            .filter(|program| program.is_file())
            .or_else(on_the_path)
            .ok_or_else(missing)?;
        let mut command = Command::new(&program);
        command.args(global.arguments()).args(self.arguments);
        // It measures the daemon of this program, not of another one that it finds.
        command.env(sandbox::PROGRAM_VARIABLE, &this);
        let error = command.exec();
        Err(error).with_context(|| format!("starting {}", program.display()))
    }
}

fn on_the_path() -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join(PROGRAM))
        .find(|program| program.is_file())
}

fn missing() -> anyhow::Error {
    let message = format!(
        "there is no program `{PROGRAM}` beside this one nor in PATH, and it does the \
         measuring; in PageMesh's source, `make install` builds and installs it"
    );
    Trouble::new(Exit::NO_PROGRAM, message).into()
}
