//! Other processes, by a handle that is never another process's.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A process that has not been waited for. Its descriptor becomes readable when it ends.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// The process of that number.
    ///
    /// # Errors
    /// If there is none, or the kernel gives no handles.
    pub fn open(pid: i32) -> io::Result<Self> {
        let pid = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Whether it has ended, waited for or not.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // If the kernel does not say, it is taken for ended: nobody waits for ever.
        !matches!(poll(&mut fds, Some(&at_once)), Ok(0))
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
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
}
