//! Open files and directories, by the numbers that the kernel has for them.

use crate::tree::{Node, lock};
use fuser::FileHandle;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) node: Arc<Node>,
    pub(crate) file: OwnedFd,
    /// It may store.
    pub(crate) writes: bool,
    /// Its reads go to the directory (O_DIRECT).
    pub(crate) direct: bool,
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) kind: fuser::FileType,
    pub(crate) name: OsString,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    files: HashMap<u64, Arc<OpenFile>>,
    directories: HashMap<u64, Arc<Vec<Entry>>>,
}

fn closed() -> io::Error {
    rustix::io::Errno::BADF.into()
}

impl OpenFiles {
    /// Gives a file a number.
    pub(crate) fn add(&self, file: OpenFile) -> FileHandle {
        let mut inner = lock(&self.0);
        inner.last += 1;
        let number = inner.last;
        inner.files.insert(number, Arc::new(file));
        FileHandle(number)
    }

    /// The file with this number.
    pub(crate) fn file(&self, handle: FileHandle) -> io::Result<Arc<OpenFile>> {
        let inner = lock(&self.0);
        inner.files.get(&handle.0).cloned().ok_or_else(closed)
    }

    /// Closes a file.
    pub(crate) fn remove(&self, handle: FileHandle) -> Option<Arc<OpenFile>> {
        lock(&self.0).files.remove(&handle.0)
    }

    /// Gives the entries of a directory a number.
    pub(crate) fn add_directory(&self, entries: Vec<Entry>) -> FileHandle {
        let mut inner = lock(&self.0);
        inner.last += 1;
        let number = inner.last;
        inner.directories.insert(number, Arc::new(entries));
        FileHandle(number)
    }

    /// The entries with this number.
    pub(crate) fn directory(&self, handle: FileHandle) -> io::Result<Arc<Vec<Entry>>> {
        let inner = lock(&self.0);
        inner.directories.get(&handle.0).cloned().ok_or_else(closed)
    }

    /// Closes a directory.
    pub(crate) fn remove_directory(&self, handle: FileHandle) {
        lock(&self.0).directories.remove(&handle.0);
    }
}
