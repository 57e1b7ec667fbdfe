//! The command `pagemesh-bench`.

#![forbid(unsafe_code)]

use mimalloc::MiMalloc;
use std::process::ExitCode;

/// As in `pagemesh`: what is measured here allocates as it does there.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    pagemesh_bench::main()
}
