//! The command `pagemesh`.

#![forbid(unsafe_code)]

use mimalloc::MiMalloc;
use std::process::ExitCode;

/// A fault allocates a dozen times in its two daemons; the usual allocator took a sixth of their
/// computing time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    pagemesh_cli::main()
}
