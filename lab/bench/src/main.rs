//! The command `pagemesh-bench`.

#![forbid(unsafe_code)]

use mimalloc::MiMalloc;
use std::process::ExitCode;

/// The same allocator as in `pagemesh`, so that measurements hold for it.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    pagemesh_bench::main()
}
