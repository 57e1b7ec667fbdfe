//! Frames for pages of files, which the nodes of the cluster cache for each other.

use std::io;
use std::time::Duration;

use pagemesh_wire::local::{FileFrames, Reply, Request};
use pagemesh_wire::peer::{FilePart, Policy};
use pagemesh_wire::{PAGE_SIZE, PageIndex};

use crate::bell::after;
use crate::connection::unexpected;
use crate::{Error, Mesh, Options, Result, Segment};

/// Frames of this process for pages of files. They go with the process.
///
/// [`FilePool::get`] gives frames; those that are missing are filled by [`FilePool::write`]; and
/// [`FilePool::done`] gives all of them back.
#[derive(Debug)]
pub struct FilePool {
    segment: Segment,
}

impl FilePool {
    /// Frames for `size` bytes. `name` must be one that no other process guesses; it exists for a
    /// moment.
    ///
    /// # Errors
    /// If the daemon does not answer, or refuses so many.
    pub fn new(mesh: &Mesh, name: &str, size: u64) -> Result<Self> {
        let options = Options {
            policy: Policy::Files,
            exclusive: true,
            ..Options::default()
        };
        let segment = mesh.create(name, size, options)?;
        mesh.remove(name)?;
        Ok(Self { segment })
    }

    /// Frames for pages. The daemon sets the user.
    ///
    /// # Errors
    /// If the daemon does not answer within `patience`, or is no member of a cluster any more. Frames
    /// that it gives later stay in use.
    pub fn get(&self, part: FilePart, patience: Duration) -> Result<FileFrames> {
        let segment = self.segment.id();
        let request = Request::FilePages { segment, part };
        let connection = self.segment.mesh().connection();
        let answer = connection.ask_surely(request, after(patience))?;
        let Reply::FilePages(frames) = answer.reply else {
            return Err(unexpected(&answer.reply));
        };
        let (all, count) = (frames.all(), self.segment.size() / PAGE_SIZE as u64);
        let fit = |frame: &PageIndex| u64::from(frame.0) < count;
        if all & !part.pages != 0
            || frames.frames.len() != all.count_ones() as usize
            || !frames.frames.iter().all(fit)
        {
            return Err(Error::Invalid("the daemon names frames that there are not"));
        }
        Ok(frames)
    }

    /// Gives frames back, in the order of the pages. Those of `filled` pages have their contents.
    pub fn done(&self, part: FilePart, filled: u64, frames: Vec<PageIndex>) {
        let segment = self.segment.id();
        self.segment
            .mesh()
            .connection()
            .tell(Request::FilePagesDone {
                segment,
                part,
                filled,
                frames,
            });
    }

    /// Copies bytes of a frame.
    ///
    /// # Errors
    /// If the memory cannot be read.
    pub fn read(&self, frame: PageIndex, from: usize, into: &mut [u8]) -> io::Result<()> {
        let mut got = 0;
        while got < into.len() {
            let at = frame.offset().0 + (from + got) as u64;
            match rustix::io::pread(self.segment.memory(), &mut into[got..], at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => got += more,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Stores a page into a frame.
    ///
    /// # Errors
    /// If the memory cannot be written to.
    pub fn write(&self, frame: PageIndex, page: &[u8]) -> io::Result<()> {
        let mut put = 0;
        while put < page.len() {
            let at = frame.offset().0 + put as u64;
            match rustix::io::pwrite(self.segment.memory(), &page[put..], at) {
                Ok(more) => put += more,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
