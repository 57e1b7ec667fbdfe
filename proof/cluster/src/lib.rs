//! Code that the tests of real clusters share with the processes they start.

#![forbid(unsafe_code)]

pub mod dice;
pub mod litmus;
pub mod record;
pub mod stress;

/// Whether libraries that Rust cannot link, and cargo therefore does not build for a test, are
/// there: `PAGEMESH_BUILT` says so. A package built by itself gets other features than with all
/// others, and much is compiled again.
#[must_use]
pub fn libraries_are_built() -> bool {
    std::env::var_os("PAGEMESH_BUILT").is_some()
}
