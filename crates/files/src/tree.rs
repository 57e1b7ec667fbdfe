//! The files that the kernel knows, each with a descriptor: a path would not follow renames.

use crate::version::Version;
use fuser::INodeNo;
use rustix::fs::{self, CWD, Mode, OFlags, Stat};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files by the numbers that the kernel has for them.
#[derive(Debug)]
pub(crate) struct Tree {
    known: Mutex<Known>,
    device: u64,
}

#[derive(Debug, Default)]
struct Known {
    nodes: HashMap<u64, (Arc<Node>, u64)>,
    /// Numbers by file system and inode.
    numbers: HashMap<(u64, u64), u64>,
    /// The last number of a file whose inode number is taken.
    last: u64,
}

/// A file or directory.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) number: INodeNo,
    place: Mutex<Arc<OwnedFd>>,
    reads: Mutex<Reads>,
}

/// How a file may be read.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// The version whose pages answer reads; none: they go to the directory.
    pub(crate) version: Option<Version>,
    /// The version of the pages that the kernel keeps of the file.
    pub(crate) kept: Option<Version>,
    /// Openings that may store.
    pub(crate) writers: u32,
}

/// Numbers from here on are given to files that have no number of their own: those of other file
/// systems inside of the directory.
const OTHERS: u64 = 1 << 63;

/// Descriptors that only name a file.
const NAMES: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is locked here is whole after every statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tree {
    /// The tree below a directory.
    pub(crate) fn new(directory: &Path) -> io::Result<Self> {
        let place = fs::openat(CWD, directory, NAMES - OFlags::NOFOLLOW, Mode::empty())?;
        let stat = fs::fstat(&place)?;
        let root = Arc::new(Node::new(INodeNo::ROOT, place));
        let mut known = Known {
            last: OTHERS,
            ..Known::default()
        };
        known
            .numbers
            .insert((stat.st_dev, stat.st_ino), INodeNo::ROOT.0);
        known.nodes.insert(INodeNo::ROOT.0, (root, 1));
        Ok(Self {
            known: Mutex::new(known),
            device: stat.st_dev,
        })
    }

    /// The file system of the directory.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    /// The file with this number.
    pub(crate) fn node(&self, number: INodeNo) -> io::Result<Arc<Node>> {
        let known = lock(&self.known);
        let node = known.nodes.get(&number.0);
        node.map(|(node, _)| Arc::clone(node))
            .ok_or_else(|| rustix::io::Errno::STALE.into())
    }

    /// Looks up a name. The kernel knows the file once more.
    pub(crate) fn look_up(&self, parent: &Node, name: &OsStr) -> io::Result<(Arc<Node>, Stat)> {
        let place = fs::openat(&*parent.place(), name, NAMES, Mode::empty())?;
        self.adopt(place)
    }

    /// The file that a descriptor of the kind `O_PATH` names. The kernel knows it once more.
    pub(crate) fn adopt(&self, place: OwnedFd) -> io::Result<(Arc<Node>, Stat)> {
        let stat = fs::fstat(&place)?;
        let identity = (stat.st_dev, stat.st_ino);
        let mut known = lock(&self.known);
        if let Some(number) = known.numbers.get(&identity).copied()
            && let Some((node, times)) = known.nodes.get_mut(&number)
        {
            *times += 1;
            // The file may be another one than before that has got the same number.
            *lock(&node.place) = Arc::new(place);
            return Ok((Arc::clone(node), stat));
        }
        let own = stat.st_dev == self.device && (2..OTHERS).contains(&stat.st_ino);
        let number = if own {
            stat.st_ino
        } else {
            known.last += 1;
            known.last
        };
        let node = Arc::new(Node::new(INodeNo(number), place));
        known.numbers.insert(identity, number);
        known.nodes.insert(number, (Arc::clone(&node), 1));
        Ok((node, stat))
    }

    /// The kernel has forgotten a file so many times.
    pub(crate) fn forget(&self, number: INodeNo, times: u64) {
        let mut known = lock(&self.known);
        let Some((_, left)) = known.nodes.get_mut(&number.0) else {
            return;
        };
        *left = left.saturating_sub(times);
        if *left == 0 && number != INodeNo::ROOT {
            known.nodes.remove(&number.0);
            known.numbers.retain(|_, known| *known != number.0);
        }
    }
}

impl Node {
    fn new(number: INodeNo, place: OwnedFd) -> Self {
        Self {
            number,
            place: Mutex::new(Arc::new(place)),
            reads: Mutex::default(),
        }
    }

    /// The descriptor that names it.
    pub(crate) fn place(&self) -> Arc<OwnedFd> {
        Arc::clone(&lock(&self.place))
    }

    /// How it may be read.
    pub(crate) fn reads(&self) -> MutexGuard<'_, Reads> {
        lock(&self.reads)
    }

    /// Its attributes. If they are not those of the version that answers reads, none does.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        let stat = fs::fstat(&*self.place())?;
        self.saw(&stat);
        Ok(stat)
    }

    /// Its attributes are these now.
    pub(crate) fn saw(&self, stat: &Stat) {
        let mut reads = self.reads();
        if reads.version.is_some() && reads.version != Version::of(stat) {
            reads.version = None;
        }
    }

    /// It is changed by this host, or is about to be.
    pub(crate) fn changes(&self) {
        let mut reads = self.reads();
        reads.version = None;
        reads.kept = None;
    }

    /// A path that leads to it, whatever it is called.
    pub(crate) fn path(place: &OwnedFd) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd()))
    }

    /// Opens it.
    pub(crate) fn open(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let place = self.place();
        let flags = flags | OFlags::CLOEXEC;
        Ok(fs::openat(CWD, Self::path(&place), flags, Mode::empty())?)
    }
}
