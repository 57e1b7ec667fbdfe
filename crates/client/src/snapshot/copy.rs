//! Copying pages from a mapping to the file.

use std::path::Path;

use pagemesh_snapshot::{PAGE, Summary, Writer};
use pagemesh_wire::PageIndex;
use pagemesh_wire::local::Advice;

use super::file::NewFile;
use super::{Observer, Progress, SaveOptions, SnapshotError, SnapshotResult, Step, tell};
use crate::{Mapping, Segment};

/// Pages that are fetched together.
pub const CHUNK: u32 = 256;

/// One page of contents.
pub type Page = [u8; PAGE];

/// A save under way: the segment's memory, and the file.
pub struct Copier<'a, 'o> {
    pub segment: &'a Segment,
    mapping: Mapping,
    pub pages: u32,
    path: &'a Path,
    writer: Writer<NewFile>,
    observer: Option<Observer<'o>>,
}

impl<'a, 'o> Copier<'a, 'o> {
    pub fn new(
        segment: &'a Segment,
        path: &'a Path,
        header: &super::Header,
        options: SaveOptions<'o>,
    ) -> SnapshotResult<Self> {
        let pages = segment.info().spec.size.pages();
        let pages = pages.map_or(0, |pages| pages.0);
        let mapping = segment.map_at(None, 0, u64::from(pages) * PAGE as u64, false)?;
        let file = NewFile::create(path)?;
        let writer = Writer::new(file, header, options.form);
        Ok(Self {
            segment,
            mapping,
            pages,
            path,
            writer: writer.map_err(|error| failed(path, error))?,
            observer: options.observer,
        })
    }

    /// The contents of a page; fetches it.
    pub fn read(&self, index: PageIndex, page: &mut Page) -> SnapshotResult<()> {
        let at = index.0 as usize * PAGE;
        match self.mapping.read_if_served(at, page)? {
            true => Ok(()),
            false => Err(SnapshotError::Lost(index)),
        }
    }

    /// Asks for pages ahead of reading them. Advice may be refused without harm.
    pub fn fetch(&self, first: u32, count: u32) {
        let start = u64::from(first) * PAGE as u64;
        let end = start + u64::from(count) * PAGE as u64;
        let _ = self.segment.advise(start..end, Advice::WillNeed);
    }

    /// Appends a page to the file.
    pub fn write(&mut self, index: PageIndex, page: &Page) -> SnapshotResult<()> {
        let written = self.writer.page(index, page);
        written.map_err(|error| failed(self.path, error))
    }

    /// Tells that everything up to this page is copied.
    pub fn tell(&mut self, page: u32) -> SnapshotResult<()> {
        let bytes = |pages| u64::from(pages) * PAGE as u64;
        let progress = Progress {
            step: Step::Copying,
            done: bytes(page),
            total: bytes(self.pages),
        };
        tell(&mut self.observer, progress)
    }

    /// Copies every page once, as this process sees it. Returns how many are not zero.
    pub fn copy_all(&mut self) -> SnapshotResult<u64> {
        let mut page = [0; PAGE];
        let mut full = 0;
        for first in (0..self.pages).step_by(CHUNK as usize) {
            let end = self.pages.min(first + CHUNK);
            self.fetch(first, end - first);
            for index in (first..end).map(PageIndex) {
                self.read(index, &mut page)?;
                if page != [0; PAGE] {
                    self.write(index, &page)?;
                    full += 1;
                }
            }
            self.tell(end)?;
        }
        Ok(full)
    }

    /// The file gets its name.
    pub fn finish(self) -> SnapshotResult<Summary> {
        let path = self.path;
        let finished = self.writer.finish();
        let (mut file, summary) = finished.map_err(|error| failed(path, error))?;
        file.finish()?;
        Ok(summary)
    }
}

pub fn failed(path: &Path, source: std::io::Error) -> SnapshotError {
    SnapshotError::File {
        path: path.to_owned(),
        source,
    }
}
