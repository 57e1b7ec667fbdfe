//! The options that every command has, and how they are handed on to another program.

use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// The heading under which `--help` lists them, apart from a command's own.
const HEADING: &str = "Global options";

/// Options of every command of `pagemesh` and of the programs beside it.
#[derive(Args, Clone, Debug)]
pub struct Global {
    /// How to print results
    #[arg(
        short,
        long,
        global = true,
        help_heading = HEADING,
        value_enum,
        default_value_t,
        env = "PAGEMESH_OUTPUT"
    )]
    pub output: Format,
    /// Say more on standard error; twice for everything
    #[arg(short, long, global = true, help_heading = HEADING, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Say only what went wrong
    #[arg(short, long, global = true, help_heading = HEADING, conflicts_with = "verbose")]
    pub quiet: bool,
    /// The daemon's socket
    #[arg(
        long,
        global = true,
        help_heading = HEADING,
        value_name = "PATH",
        env = "PAGEMESH_SOCKET"
    )]
    pub socket: Option<PathBuf>,
    /// How to write the log on standard error
    #[arg(
        long,
        global = true,
        help_heading = HEADING,
        value_enum,
        default_value_t,
        env = "PAGEMESH_LOG_FORMAT"
    )]
    pub log_format: LogFormat,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns for people.
    #[default]
    Table,
    /// More columns.
    Wide,
    /// For programs; carries `schema_version`.
    Json,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl Global {
    /// The same options, as the arguments of another program that has them.
    #[must_use]
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--output".into(), self.output.name().into()];
        arguments.extend(["--log-format".into(), self.log_format.name().into()]);
        arguments.extend((0..self.verbose).map(|_| "--verbose".into()));
        arguments.extend(self.quiet.then(|| "--quiet".into()));
        if let Some(socket) = &self.socket {
            arguments.extend(["--socket".into(), socket.into()]);
        }
        arguments
    }
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Wide => "wide",
            Self::Json => "json",
        }
    }
}

impl LogFormat {
    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        global: Global,
    }

    #[test]
    fn another_program_reads_the_same_options() {
        for line in [
            "p",
            "p -o json -vv --socket /x",
            "p -q -o wide --log-format json",
        ] {
            let first = Program::parse_from(line.split(' ')).global;
            let handed_on = first.arguments();
            let program = std::iter::once("p".into()).chain(handed_on.clone());
            let second = Program::parse_from(program).global;
            assert_eq!(format!("{first:?}"), format!("{second:?}"), "{handed_on:?}");
        }
    }
}
