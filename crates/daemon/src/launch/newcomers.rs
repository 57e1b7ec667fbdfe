//! Connections whose other end has not proved its identity yet.

use pagemesh_sorted::SortedMap;
use rustix::net::{Shutdown, shutdown};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a newcomer may be silent before it has sent its order.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(2);

/// Newcomers at once. One more cuts off the one that has been here longest: a handshake takes a
/// millisecond, and a silent connection must not keep others out.
const MOST: usize = 64;

/// The newcomers of one listener, by the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Newcomers(Mutex<Room>);

#[derive(Debug, Default)]
struct Room {
    next: u64,
    here: SortedMap<u64, OwnedFd>,
}

/// A connection among the newcomers, until this is dropped.
#[derive(Debug)]
pub(super) struct Newcomer<'a> {
    room: &'a Newcomers,
    number: u64,
}

impl Newcomers {
    /// One more comes.
    pub(super) fn enter(&self, stream: impl AsFd) -> io::Result<u64> {
        let stream = stream.as_fd().try_clone_to_owned()?;
        let mut room = self.lock();
        let number = room.next;
        room.next += 1;
        room.here.insert(number, stream);
        if room.here.len() > MOST
            && let Some((_, oldest)) = room.here.pop_first()
        {
            // Its thread reads the end of the connection.
            let _ = shutdown(oldest, Shutdown::Both);
        }
        Ok(number)
    }

    /// The newcomer with this number; it stops being one when the result is dropped.
    pub(super) const fn get(&self, number: u64) -> Newcomer<'_> {
        Newcomer { room: self, number }
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Newcomer<'_> {
    fn drop(&mut self) {
        self.room.lock().here.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_oldest_makes_room() {
        let room = Newcomers::default();
        let (known, mut friend) = UnixStream::pair().unwrap();
        drop(room.get(room.enter(&known).unwrap()));
        let pairs: Vec<_> = (0..=MOST).map(|_| UnixStream::pair().unwrap()).collect();
        for (here, _) in &pairs {
            room.enter(here).unwrap();
        }
        let ended = |mut there: &UnixStream| {
            there.set_nonblocking(true).unwrap();
            matches!(there.read(&mut [0]), Ok(0))
        };
        let cut: Vec<_> = pairs.iter().map(|(_, there)| ended(there)).collect();
        assert!(cut[0] && !cut[1..].contains(&true), "{cut:?}");
        friend.set_nonblocking(true).unwrap();
        assert!(friend.read(&mut [0]).is_err(), "who is known stays");
    }
}
