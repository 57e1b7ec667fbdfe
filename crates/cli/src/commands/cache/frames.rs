//! The frames of a view: those that the daemon gives.

use crate::output;
use pagemesh::FilePool;
use pagemesh_files::Frames;
use pagemesh_wire::PageIndex;
use pagemesh_wire::local::FileFrames;
use pagemesh_wire::peer::FilePart;
use std::io;
use std::time::Duration;

/// How long the daemon may take. It answers within a tenth of a second, but for a host without
/// processor time; a daemon that is gone may have a successor within this time.
const PATIENCE: Duration = Duration::from_secs(5);

/// Frames of the daemon of this host.
pub(super) struct PoolFrames(FilePool);

impl PoolFrames {
    pub(super) fn new(pool: FilePool) -> Self {
        Self(pool)
    }
}

impl Frames for PoolFrames {
    fn get(&self, part: FilePart) -> Option<FileFrames> {
        match self.0.get(part, PATIENCE) {
            Ok(frames) => Some(frames),
            Err(error) => {
                output::note(format_args!(
                    "pagemesh: nothing is cached any more, and the view reads the directory: \
                     {error}; mount it anew when the daemon runs"
                ));
                None
            }
        }
    }

    fn read(&self, frame: PageIndex, from: usize, into: &mut [u8]) -> io::Result<()> {
        self.0.read(frame, from, into)
    }

    fn write(&self, frame: PageIndex, page: &[u8]) -> io::Result<()> {
        self.0.write(frame, page)
    }

    fn done(&self, part: FilePart, filled: u64, frames: Vec<PageIndex>) {
        self.0.done(part, filled, frames);
    }
}
