//! The exit codes of commands, and their meaning for scripts.

use std::fmt;
use std::process::ExitCode;

/// The exit code of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(pub u8);

impl Exit {
    /// All went well.
    pub const OK: Self = Self(0);
    /// It did not work.
    pub const FAILURE: Self = Self(1);
    /// The command line makes no sense (clap's own code).
    pub const USAGE: Self = Self(2);
    /// No daemon answers on the socket.
    pub const NO_DAEMON: Self = Self(3);
    /// The cluster works, but not all of it.
    pub const DEGRADED: Self = Self(4);
    /// The program was found but cannot be run, as shells say it.
    pub const CANNOT_RUN: Self = Self(126);
    /// There is no such program, as shells say it.
    pub const NO_PROGRAM: Self = Self(127);
    /// The kernel or the segment's mode forbids it (`EX_NOPERM`).
    pub const NO_PERMISSION: Self = Self(77);
    /// A configuration file or variable is wrong (`EX_CONFIG`); do not restart.
    pub const BAD_CONFIG: Self = Self(78);
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

/// An error that has an exit code of its own.
#[derive(Debug)]
pub struct Trouble {
    exit: Exit,
    message: String,
}

impl Trouble {
    /// An error with this message, its cause and cure in it.
    #[must_use]
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Trouble {}

/// The exit code an error asks for.
pub(crate) fn of(error: &anyhow::Error) -> Exit {
    error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Trouble>())
        .map_or(Exit::FAILURE, |trouble| trouble.exit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn context_keeps_the_exit_code() {
        let error = Err::<(), _>(Trouble::new(Exit::NO_DAEMON, "no daemon"))
            .context("members")
            .unwrap_err();
        assert_eq!(of(&error), Exit::NO_DAEMON);
        assert_eq!(of(&anyhow::anyhow!("plain")), Exit::FAILURE);
    }
}
