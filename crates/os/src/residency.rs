//! Keeping a process's memory out of swap space. The processes that serve a swap device must not
//! need that device themselves: a page of theirs that lies there can never come back.

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::process::configure_io_flusher_behavior;
use std::io;

/// The file with the weight of this process when the kernel chooses which one to end.
const WEIGHT: &str = "/proc/self/oom_score_adj";

/// The weight of a process that is never chosen.
const NEVER: &str = "-1000";

/// What was changed of this process, so that it can be changed back.
#[derive(Debug, Default)]
pub struct Residency {
    /// The weight before, if it was changed.
    weight: Option<String>,
    locked: bool,
}

impl Residency {
    /// Locks every page of this process in memory: those that are there now, and each of the others
    /// from its first touch on. Memory that was mapped and never touched takes no memory by this.
    ///
    /// Besides, as far as the kernel allows it (it asks for `CAP_SYS_RESOURCE`): the kernel does not
    /// choose this process when it ends one for want of memory, and allocations of the calling
    /// thread never wait for pages to be written out.
    ///
    /// # Errors
    /// If the process may not lock so much memory.
    pub fn lock(&mut self) -> io::Result<()> {
        if self.locked {
            return Ok(());
        }
        let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
        mlockall(all).map_err(|errno| match errno {
            Errno::PERM | Errno::NOMEM | Errno::AGAIN => io::Error::new(
                io::ErrorKind::PermissionDenied,
                "this process may not lock its memory: start it as root, or with \
                 LimitMEMLOCK=infinity (ulimit -l unlimited)",
            ),
            other => other.into(),
        })?;
        self.locked = true;
        let before = std::fs::read_to_string(WEIGHT).ok();
        if std::fs::write(WEIGHT, NEVER).is_ok() {
            self.weight = before;
        }
        let _ = configure_io_flusher_behavior(true);
        Ok(())
    }

    /// Takes all of it back.
    ///
    /// # Errors
    /// As munlockall(2).
    pub fn unlock(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.locked) {
            return Ok(());
        }
        let _ = configure_io_flusher_behavior(false);
        if let Some(weight) = self.weight.take() {
            let _ = std::fs::write(WEIGHT, weight.trim());
        }
        Ok(munlockall()?)
    }
}
