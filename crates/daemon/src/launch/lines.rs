//! Connections between daemons that are in use, by whose they are.

use pagemesh_sorted::SortedMap;
use pagemesh_wire::PublicKey;
use rustix::net::{Shutdown, shutdown};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines(Arc<Mutex<List>>);

#[derive(Debug, Default)]
struct List {
    next: u64,
    open: SortedMap<u64, (PublicKey, OwnedFd)>,
}

/// A connection in the list, until this is dropped.
#[derive(Debug)]
pub(super) struct Listed {
    lines: Lines,
    number: u64,
}

impl Lines {
    /// Lists a connection with the member of this key.
    pub(super) fn list(&self, key: PublicKey, stream: impl AsFd) -> io::Result<Listed> {
        let stream = stream.as_fd().try_clone_to_owned()?;
        let mut list = self.lock();
        let number = list.next;
        list.next += 1;
        list.open.insert(number, (key, stream));
        let lines = self.clone();
        Ok(Listed { lines, number })
    }

    /// Ends the connections with the members of these keys.
    pub(super) fn cut_off(&self, keys: &[PublicKey]) {
        let list = self.lock();
        let theirs = list.open.values().filter(|(key, _)| keys.contains(key));
        for (_, stream) in theirs {
            let _ = shutdown(stream, Shutdown::Both);
        }
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.lines.lock().open.remove(&self.number);
    }
}
