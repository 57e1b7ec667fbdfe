//! Keeps idle processors from halting: a halted one takes 25 µs to answer, a polling one 3 µs
//! (`docs/decisions`). The effect is system-wide and costs power.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::write;
use std::io;
use std::os::fd::OwnedFd;

/// While this lives, no processor of the host enters a deep sleep state.
#[derive(Debug)]
pub struct LatencyHold(#[expect(dead_code, reason = "held open, never used")] OwnedFd);

impl LatencyHold {
    /// Asks the kernel for the shortest wake-up latency.
    ///
    /// # Errors
    /// If `/dev/cpu_dma_latency` is missing or not accessible to this user.
    pub fn acquire() -> io::Result<Self> {
        let device = open(
            "/dev/cpu_dma_latency",
            OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        write(&device, &0i32.to_ne_bytes())?;
        Ok(Self(device))
    }
}
