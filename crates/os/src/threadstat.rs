//! Whether a thread has run, from the kernel's count of its turns on a processor.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::pread;
use std::io;
use std::os::fd::OwnedFd;

/// A thread's scheduling statistics, kept open so that reading takes one call.
#[derive(Debug)]
pub struct ThreadStat(OwnedFd);

impl ThreadStat {
    /// Opens the statistics of thread `thread` of process `process`.
    ///
    /// # Errors
    /// If there is no such thread, or this process may not read its statistics.
    pub fn open(process: i32, thread: u32) -> io::Result<Self> {
        let path = format!("/proc/{process}/task/{thread}/schedstat");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self(open(path, flags, Mode::empty())?))
    }

    /// How many times the thread was scheduled on a processor. `None` if the thread is gone, or the
    /// kernel does not count.
    #[must_use]
    pub fn turns(&self) -> Option<u64> {
        let mut text = [0; 96];
        let length = pread(&self.0, &mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        let turns = text.split_ascii_whitespace().nth(2)?.parse().ok()?;
        (turns > 0).then_some(turns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::gettid;

    #[test]
    fn a_thread_that_slept_has_had_another_turn() {
        let thread = u32::try_from(gettid().as_raw_nonzero().get()).unwrap();
        let process = rustix::process::getpid().as_raw_nonzero().get();
        let stat = ThreadStat::open(process, thread).unwrap();
        let Some(before) = stat.turns() else {
            eprintln!("skipped: this kernel keeps no scheduling statistics");
            return;
        };
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(stat.turns() > Some(before));
        assert!(ThreadStat::open(process, u32::MAX).is_err());
    }
}
