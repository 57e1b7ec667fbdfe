//! Whether what is swapped out fits into memory.
//!
//! The kernel does not refuse to swap off when it does not: it ends programs until it does. So this
//! is computed before: for the host, and for each memory control group, whose limits hold for what
//! comes back, too.

use super::{groups, host};
use crate::exit::{Exit, Trouble};
use crate::units::size;
use anyhow::Result;
use std::path::Path;

/// The part of the available memory that is left alone: the host goes on while pages come back.
const RESERVE: u64 = 16;

/// Fails if `used` bytes of this device do not fit.
///
/// # Errors
/// With the place that has too little memory, and what to do.
pub(super) fn check(device: &Path, used: u64) -> Result<()> {
    let spaces = host::swap_spaces();
    let others = spaces.iter().filter(|space| space.path != device);
    let other = others.map(|space| space.size - space.used).sum();
    let available = host::available().unwrap_or(u64::MAX);
    fits(used, available, other)?;
    groups::check(other)
}

fn fits(used: u64, available: u64, other: u64) -> Result<()> {
    let room = (available - available / RESERVE).saturating_add(other);
    if used <= room {
        return Ok(());
    }
    let why = format!(
        "{} are swapped out, and this host has memory for {} of them ({} available, {} of other \
         swap space free): end programs, or add swap space with swapon(8), and try again",
        size(used),
        size(room),
        size(available),
        size(other)
    );
    Err(Trouble::new(Exit::FAILURE, why).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_its_size() {
        assert!(fits(900, 1000, 0).is_ok());
        let why = fits(3 << 30, 2 << 30, 1 << 20).unwrap_err().to_string();
        assert!(why.contains("3 GiB are swapped out"), "{why}");
        assert!(fits(3 << 30, 2 << 30, 2 << 30).is_ok(), "other swap space");
    }
}
