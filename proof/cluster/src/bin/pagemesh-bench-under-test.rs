//! The command `pagemesh-bench`, built together with the tests that need it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    pagemesh_bench::main()
}
