//! Waiting for events on many descriptors at once.

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A set of descriptors to wait for, each with a token.
pub struct Poll {
    epoll: OwnedFd,
    ready: Vec<epoll::Event>,
}

/// An event of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token given to [`Poll::add`].
    pub token: u64,
    /// The descriptor can be read.
    pub readable: bool,
    /// The descriptor can be written.
    pub writable: bool,
    /// The descriptor is broken, or its other end is closed.
    pub broken: bool,
}

/// Maximum number of events taken from the kernel in one call.
const BATCH: usize = 64;

impl Poll {
    /// An empty set.
    ///
    /// # Errors
    /// If the kernel gives no descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            ready: Vec::with_capacity(BATCH),
        })
    }

    /// Adds `fd` to the set, to wait until it is readable.
    ///
    /// # Errors
    /// If it cannot be polled.
    pub fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN)?)
    }

    /// Waits for `fd`, which is in the set, to become writable as well, or no longer.
    ///
    /// # Errors
    /// If it is not in the set.
    pub fn want_write(&self, fd: impl AsFd, token: u64, write: bool) -> io::Result<()> {
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, write);
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::modify(&self.epoll, fd, data, flags)?)
    }

    /// Removes `fd` from the set. Closing it is not enough, because other processes may hold the
    /// same description.
    ///
    /// # Errors
    /// If it is not in the set.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits for at most `timeout` nanoseconds (without limit if `None`, not at all if zero) and
    /// appends the events to `found`.
    ///
    /// # Errors
    /// Only if the set itself is broken; an interrupted wait finds nothing.
    pub fn wait(&mut self, timeout: Option<u64>, found: &mut Vec<Ready>) -> io::Result<()> {
        let timeout = timeout.map(|nanos| Timespec {
            tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (nanos % 1_000_000_000) as i64,
        });
        self.ready.clear();
        let spare = rustix::buffer::spare_capacity(&mut self.ready);
        match epoll::wait(&self.epoll, spare, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        found.extend(self.ready.drain(..).map(|event| {
            let flags = event.flags;
            Ready {
                token: event.data.u64(),
                readable: flags.contains(epoll::EventFlags::IN),
                writable: flags.contains(epoll::EventFlags::OUT),
                broken: flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP),
            }
        }));
        Ok(())
    }
}

impl fmt::Debug for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Poll").field(&self.epoll).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn finds_what_is_ready_and_nothing_else() {
        let mut poll = Poll::new().unwrap();
        let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        poll.add(&bell, 7).unwrap();
        let mut found = Vec::new();
        poll.wait(Some(1000), &mut found).unwrap();
        assert_eq!(found, []);
        rustix::io::write(&bell, &1u64.to_ne_bytes()).unwrap();
        poll.wait(None, &mut found).unwrap();
        assert_eq!(found.len(), 1);
        assert!(found[0].token == 7 && found[0].readable && !found[0].writable);
        poll.remove(&bell).unwrap();
        found.clear();
        poll.wait(Some(0), &mut found).unwrap();
        assert_eq!(found, []);
    }

    /// Time windows are a few microseconds long: a wait of milliseconds instead would delay other
    /// nodes.
    #[test]
    fn short_waits_are_short() {
        let mut poll = Poll::new().unwrap();
        let wait = |_| {
            let begin = std::time::Instant::now();
            poll.wait(Some(20_000), &mut Vec::new()).unwrap();
            begin.elapsed()
        };
        let shortest = (0..50).map(wait).min().unwrap();
        assert!(shortest.as_micros() < 800, "{shortest:?}");
        assert!(shortest.as_micros() >= 20, "{shortest:?}");
    }
}
