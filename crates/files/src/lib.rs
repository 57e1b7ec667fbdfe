//! A FUSE view of a directory, for `pagemesh cache`: files are read through frames that the nodes of
//! the cluster cache for each other, everything else goes to the directory.
//!
//! # Coherence
//! As NFS: close-to-open. An `open` compares the file's attributes, and only pages of this
//! [`version::Version`] answer its reads. A store goes to the directory at once. A file that is open
//! for writing here, or was changed in the last seconds, is read from the directory alone. Names and
//! attributes are never cached.
//!
//! This crate knows the kernel's side and the directory; [`Frames`] is what it wants of a daemon.

mod attributes;
mod counts;
mod filesystem;
mod identity;
mod open_files;
mod operations;
mod reading;
#[cfg(test)]
mod tests;
mod tree;
mod version;

pub use counts::Counted;
pub use identity::{Identity, Scope};

use counts::Counts;
use fuser::{Config, MountOption, Session, SessionUnmounter};
use open_files::OpenFiles;
use pagemesh_wire::PageIndex;
use pagemesh_wire::local::FileFrames;
use pagemesh_wire::peer::FilePart;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tree::Tree;

/// Frames for pages of files, which the nodes of a cluster share.
pub trait Frames: Send + Sync + 'static {
    /// Frames for pages, filled as far as any node caches them. None if there are no frames: the
    /// pages are read from the file.
    fn get(&self, part: FilePart) -> Option<FileFrames>;

    /// Copies bytes of a frame, from this byte on.
    ///
    /// # Errors
    /// If the memory of the frames cannot be read.
    fn read(&self, frame: PageIndex, from: usize, into: &mut [u8]) -> io::Result<()>;

    /// Stores a page into a frame.
    ///
    /// # Errors
    /// If the memory of the frames cannot be written to.
    fn write(&self, frame: PageIndex, page: &[u8]) -> io::Result<()>;

    /// The frames are not read from any more; those of the `filled` pages have their contents now.
    fn done(&self, part: FilePart, filled: u64, frames: Vec<PageIndex>);
}

/// What is mounted, and how.
#[derive(Debug)]
pub struct Options {
    /// Refuse changes.
    pub read_only: bool,
    /// Requests that are served at once.
    pub threads: usize,
}

/// A directory with its open files.
pub(crate) struct View {
    tree: Tree,
    open: OpenFiles,
    frames: Box<dyn Frames>,
    identity: Identity,
    counts: Arc<Counts>,
    /// Frames cannot be used any more.
    broken: AtomicBool,
}

/// A mounted view. Dropping it unmounts.
pub struct Mount {
    session: Session<View>,
    unmounter: SessionUnmounter,
    counts: Arc<Counts>,
}

/// Ends a view from another thread.
pub struct Unmounter(SessionUnmounter);

/// What was read, of a view that may be in use or gone.
#[derive(Clone)]
pub struct Meter(Arc<Counts>);

impl Mount {
    /// Mounts a view of `directory` at `mountpoint`.
    ///
    /// # Errors
    /// If the directory cannot be opened, or the kernel does not mount.
    pub fn new(
        directory: &Path,
        mountpoint: &Path,
        frames: Box<dyn Frames>,
        identity: Identity,
        options: &Options,
    ) -> io::Result<Self> {
        let counts = Arc::new(Counts::default());
        let view = View {
            tree: Tree::new(directory)?,
            open: OpenFiles::default(),
            frames,
            identity,
            counts: Arc::clone(&counts),
            broken: AtomicBool::new(false),
        };
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(directory.display().to_string()),
            MountOption::Subtype("pagemesh".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoSuid,
            MountOption::NoDev,
        ];
        if options.read_only {
            config.mount_options.push(MountOption::RO);
        }
        config.n_threads = Some(options.threads);
        let mut session = Session::new(view, mountpoint, &config)?;
        let unmounter = session.unmount_callable();
        Ok(Self {
            session,
            unmounter,
            counts,
        })
    }

    /// Counts what is read.
    #[must_use]
    pub fn meter(&self) -> Meter {
        Meter(Arc::clone(&self.counts))
    }

    /// Takes the part that ends the view apart from the part that serves it.
    #[must_use]
    pub fn split(self) -> (Serving, Unmounter) {
        (Serving(self.session), Unmounter(self.unmounter))
    }
}

/// The part of a view that serves requests.
pub struct Serving(Session<View>);

impl Serving {
    /// Serves requests until the view is unmounted.
    ///
    /// # Errors
    /// If the connection to the kernel fails.
    pub fn run(self) -> io::Result<()> {
        self.0.run()
    }
}

impl Unmounter {
    /// Unmounts the view.
    ///
    /// # Errors
    /// If files of it are in use.
    pub fn unmount(&mut self) -> io::Result<()> {
        self.0.unmount()
    }
}

impl Meter {
    /// What was read up to now.
    #[must_use]
    pub fn read(&self) -> Counted {
        self.0.read()
    }
}
