//! Code that the tests of real clusters share with the processes they start.

#![forbid(unsafe_code)]

pub mod dice;
pub mod ledger;
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

/// A message that shows its number in its first eight bytes, and everywhere else what lies there.
#[must_use]
pub fn message(number: u64, length: usize) -> Vec<u8> {
    let words = (0..length.div_ceil(8) as u64).map(|at| match at {
        0 => number,
        at => number.wrapping_add(at).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    });
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(length);
    bytes
}
