//! The programs that are forecast: single faults, and the programs of `lab/apps/mirage`.

mod battleship;
mod faults;
mod matrix;

pub use battleship::{Battleship, Played, battleship};
pub use faults::{fault, invalidation, upgrade};
pub use matrix::{Matrix, matrix};

use core::time::Duration;

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The mean of times from each first note to the second of its pair; times between pairs are left
/// out.
fn mean_of_pairs(notes: &[Duration]) -> Duration {
    let pairs = notes.chunks_exact(2).map(|pair| pair[1] - pair[0]);
    let count = u32::try_from(notes.len() / 2).unwrap_or(u32::MAX);
    pairs.sum::<Duration>() / count.max(1)
}
