//! The command `pagemesh`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    pagemesh_cli::main()
}
