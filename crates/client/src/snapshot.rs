//! Snapshots: a segment saved to a file, and made again from it.
//!
//! ```no_run
//! use pagemesh::snapshot::{LoadOptions, SaveOptions};
//! use pagemesh::{Access, Mesh};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mesh = Mesh::connect()?;
//! let segment = mesh.open("grid", Access::Writable)?;
//! segment.save("grid.snapshot", SaveOptions::default())?;
//! mesh.load("copy", "grid.snapshot", LoadOptions::default())?;
//! # Ok(())
//! # }
//! ```

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use pagemesh_snapshot::{Consistency, Error as FormatError, Flaw, Form, Header};
use pagemesh_wire::PageIndex;

use crate::{Error, Mesh, Segment};

mod copy;
mod cut;
mod file;
mod load;
mod save;

/// Told how far a save or a load is; may end it.
pub type Observer<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// How far a save or a load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is done now.
    pub step: Step,
    /// Bytes of this step that are done.
    pub done: u64,
    /// Bytes of this step.
    pub total: u64,
}

/// A step of a save or a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Copies pages to the file.
    Copying,
    /// Reads the file, and checks all of it.
    Checking,
    /// Stores the contents into the new segment.
    Storing,
}

/// Options of [`Segment::save`].
#[derive(Default)]
pub struct SaveOptions<'a> {
    /// How contents are written.
    pub form: Form,
    /// Where the policy does not give a consistent copy by itself: what orders the copy with the
    /// stores of other processes. [`Consistency::Caller`] by default.
    pub ordered: Option<Consistency>,
    /// Told how far the save is.
    pub observer: Option<Observer<'a>>,
}

/// A finished save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Which moment the contents are of.
    pub consistency: Consistency,
    /// Pages that are not zero.
    pub pages: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// For how long stores to the segment waited, in the whole cluster.
    pub stopped: Duration,
}

/// Options of [`Mesh::load`].
#[derive(Default)]
pub struct LoadOptions<'a> {
    /// If a segment has the name, the new one takes it from that one.
    pub replace: bool,
    /// Told how far the load is.
    pub observer: Option<Observer<'a>>,
}

/// Why a save or a load failed. It has left nothing behind: no file, no segment; a file that was
/// there before is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// A call to the cluster failed.
    #[error(transparent)]
    Mesh(#[from] Error),
    /// The file is no whole snapshot.
    #[error("{}: {source}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: FormatError,
    },
    /// The file cannot be written or read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A page cannot be read: it is lost.
    #[error(
        "page {} of the segment cannot be read: only a node that died had its contents; the \
         daemon's log names it. Load an older snapshot",
        .0.0
    )]
    Lost(PageIndex),
    /// A segment has the name.
    #[error(
        "there is a segment {0} already; load under another name, or take the name from it \
         (--replace)"
    )]
    Exists(String),
    /// The observer ended it.
    #[error("stopped before the end; nothing was changed")]
    Stopped,
}

/// The result of a save or a load.
pub type SnapshotResult<T> = Result<T, SnapshotError>;

impl Segment {
    /// Saves the segment to a file, which appears whole or not at all; an older file there is
    /// replaced. The segment was opened writable.
    ///
    /// What the contents are of depends on the policy. `sequential`: of one instant, while programs
    /// go on; stores wait while the last changed pages are copied ([`Saved::stopped`]). A board:
    /// whole states, as they were published. `release`, `private`, and other segments of `views`:
    /// what this process sees. Call it between two barriers, or hold a lock that all stores are
    /// made under: then it is the state of that moment.
    ///
    /// # Errors
    /// [`SnapshotError`]; no new file is there then.
    pub fn save(&self, path: impl AsRef<Path>, options: SaveOptions<'_>) -> SnapshotResult<Saved> {
        save::save(self, path.as_ref(), options)
    }
}

impl Mesh {
    /// Makes a segment of this name from a file that [`Segment::save`] wrote. The whole file is
    /// checked first, and the segment gets its name when all contents are there: no process can
    /// open it before. It has the size, mode and policy that were saved, belongs to this user, and
    /// its pages are on this node. Under policy `release` a process sees the contents after its
    /// first lock or barrier.
    ///
    /// # Errors
    /// [`SnapshotError`]; there is no new segment then.
    pub fn load(
        &self,
        name: &str,
        path: impl AsRef<Path>,
        options: LoadOptions<'_>,
    ) -> SnapshotResult<Header> {
        load::load(self, name, path.as_ref(), options)
    }
}

/// Tells the observer, if there is one.
fn tell(observer: &mut Option<Observer<'_>>, progress: Progress) -> SnapshotResult<()> {
    match observer.as_mut().map(|observer| observer(progress)) {
        Some(ControlFlow::Break(())) => Err(SnapshotError::Stopped),
        Some(ControlFlow::Continue(())) | None => Ok(()),
    }
}
