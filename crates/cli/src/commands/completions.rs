//! `pagemesh completions`: a script that completes this command line.

use crate::cli::Cli;
use crate::exit::Exit;
use crate::global::Global;
use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print a completion script for a shell
#[derive(Args)]
pub(crate) struct Completions {
    /// For example: pagemesh completions bash > /etc/bash_completion.d/pagemesh
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, _: &Global) -> Result<Exit> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "pagemesh", &mut script);
        crate::output::lines([String::from_utf8(script)?.trim_end()])?;
        Ok(Exit::OK)
    }
}
