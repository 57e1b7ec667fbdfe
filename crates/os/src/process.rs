//! Other processes, by a handle that never refers to another process later.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A handle of a process. Its descriptor becomes readable when the process ends.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// Opens the process with this number.
    ///
    /// # Errors
    /// If there is none, or the kernel has no process handles.
    pub fn open(pid: i32) -> io::Result<Self> {
        let pid = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// True if the process has ended, whether or not its parent has waited for it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // If the kernel does not tell, the process counts as ended, so that no caller waits for
        // ever.
        !matches!(poll(&mut fds, Some(&at_once)), Ok(0))
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The CPU time of all threads of a process so far, in nanoseconds. `None` if there is no such
/// process, or the number is that of a thread.
#[must_use]
pub fn computed(pid: i32) -> Option<u64> {
    let mut clock = 0;
    // SAFETY: the kernel returns the number of that process's clock; no memory of the process is
    // used.
    let known = pid > 0 && unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } == 0;
    // SAFETY: the structure consists of integers, for which zero is a value.
    let mut time: libc::timespec = unsafe { zeroed() };
    // SAFETY: the kernel writes one timespec.
    let told = known && unsafe { libc::clock_gettime(clock, &raw mut time) } == 0;
    let (seconds, rest) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    told.then(|| Some(seconds.ok()? * 1_000_000_000 + rest.ok()?))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_ends_once_even_if_nobody_waits_for_it() {
        let mut child = Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let process = Process::open(child.id() as i32).unwrap();
        assert!(!process.has_ended());
        drop(child.stdin.take());
        while !process.has_ended() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(process.has_ended());
        assert!(Process::open(0).is_err() && Process::open(-1).is_err());
    }

    #[test]
    fn who_waits_does_not_compute() {
        let mut child = Command::new("sh")
            .args(["-c", "read word; while :; do :; done"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let after = |pause| {
            std::thread::sleep(std::time::Duration::from_millis(pause));
            computed(pid).unwrap()
        };
        let mut waits = after(20);
        while after(20) != waits {
            waits = after(20);
        }
        drop(child.stdin.take());
        while computed(pid).unwrap() < waits + 10_000_000 {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(
            (computed(pid), computed(0), computed(-1)),
            (None, None, None)
        );
    }
}
