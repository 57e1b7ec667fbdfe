//! Reads of files: from frames where there are any, else from the directory.

use crate::View;
use crate::open_files::OpenFile;
use crate::version::Version;
use pagemesh_wire::PAGE_SIZE;
use pagemesh_wire::local::FileFrames;
use pagemesh_wire::peer::{FileKey, FilePart};
use rustix::fs::fstat;
use rustix::io::pread;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

const PAGE: u64 = PAGE_SIZE as u64;

impl View {
    /// A file was opened. True if the pages that the kernel keeps of it are those of its version.
    pub(crate) fn opened(&self, open: &OpenFile) -> io::Result<bool> {
        let stat = fstat(&open.file)?;
        let mut reads = open.node.reads();
        if open.writes {
            reads.writers += 1;
            (reads.version, reads.kept) = (None, None);
            return Ok(false);
        }
        if reads.writers > 0 {
            return Ok(false);
        }
        let shared = self.tree.device() == stat.st_dev;
        let version = Version::settled(&stat, SystemTime::now()).filter(|_| shared);
        let keep = version.is_some() && reads.kept == version;
        (reads.version, reads.kept) = (version, version);
        Ok(keep)
    }

    /// A file was closed.
    pub(crate) fn closed(open: &OpenFile) {
        if open.writes {
            let mut reads = open.node.reads();
            reads.writers = reads.writers.saturating_sub(1);
        }
    }

    /// Reads bytes; fewer at the end of the file.
    pub(crate) fn read(&self, open: &OpenFile, offset: u64, size: usize) -> io::Result<Vec<u8>> {
        let version = open.node.reads().version.filter(|_| !open.direct);
        let end = offset.saturating_add(size as u64);
        // The kernel asks for whole pages; more than those it asks for if it knows a larger file.
        let version = version.filter(|version| end <= version.size.next_multiple_of(PAGE));
        let Some(version) = version.filter(|version| offset < version.size) else {
            return self.read_past(open, offset, size);
        };
        let end = end.min(version.size);
        let mut bytes = vec![0; (end - offset) as usize];
        let key = version.key(&self.identity);
        let mut at = offset;
        while at < end {
            let chunk = PAGE * u64::from(FilePart::PAGES);
            let stop = (at / chunk + 1).saturating_mul(chunk).min(end);
            let into = &mut bytes[(at - offset) as usize..(stop - offset) as usize];
            if !self.read_chunk(open, (&version, key), at..stop, into)? {
                // It is another version by now.
                open.node.changes();
                return self.read_past(open, offset, size);
            }
            at = stop;
        }
        Ok(bytes)
    }

    /// Reads from the directory.
    fn read_past(&self, open: &OpenFile, offset: u64, size: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size];
        let got = self.read_file(&open.file, offset, &mut bytes)?;
        bytes.truncate(got);
        self.counts.went_past();
        Ok(bytes)
    }

    /// Fills a buffer from the directory; returns how far.
    fn read_file(&self, file: &OwnedFd, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut got = 0;
        while got < into.len() {
            match pread(file, &mut into[got..], offset + got as u64) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.counts.read_bytes(got);
        Ok(got)
    }

    /// Reads bytes of one chunk. False if the file is not of this version any more.
    fn read_chunk(
        &self,
        open: &OpenFile,
        (version, key): (&Version, FileKey),
        bytes: Range<u64>,
        into: &mut [u8],
    ) -> io::Result<bool> {
        let first = bytes.start / PAGE;
        let Ok(page) = u32::try_from(first) else {
            return Ok(false);
        };
        let pages = bytes.end.div_ceil(PAGE) - first;
        let mut part = FilePart::of_page(key, pagemesh_wire::PageIndex(page));
        let ones = u64::MAX >> (u64::from(FilePart::PAGES) - pages);
        part.pages = ones << (page % FilePart::PAGES);
        let got = self.frames_of(part);
        let mut frames = got.clone().unwrap_or_default();
        let result = self.gather(open, version, (part, &mut frames), &bytes, into);
        if let Some(got) = got {
            // Pages that were missing, and whose frames are filled now, are in `missing` no more.
            let filled = result.as_ref().map_or(0, |_| got.missing & !frames.missing);
            self.frames.done(part.with(got.all()), filled, got.frames);
        }
        result
    }

    fn frames_of(&self, part: FilePart) -> Option<FileFrames> {
        if self.broken.load(Ordering::Relaxed) {
            return None;
        }
        let frames = self.frames.get(part);
        if frames.is_none() {
            self.broken.store(true, Ordering::Relaxed);
        }
        frames
    }

    /// Copies pages from their frames, and reads the others. Takes the pages whose frames it has
    /// filled out of `missing`.
    fn gather(
        &self,
        open: &OpenFile,
        version: &Version,
        (part, frames): (FilePart, &mut FileFrames),
        bytes: &Range<u64>,
        into: &mut [u8],
    ) -> io::Result<bool> {
        let cached = frames.here | frames.came;
        let (mut here, mut came) = (frames.here, frames.came);
        let mut rest = part.pages & !cached;
        for page in part.with(cached).each() {
            let bit = page.0 % FilePart::PAGES;
            let (from, to) = overlap(u64::from(page.0), bytes);
            let slice = &mut into[(from - bytes.start) as usize..(to - bytes.start) as usize];
            let frame = frames.frame(bit);
            let read = frame.map(|frame| self.frames.read(frame, (from % PAGE) as usize, slice));
            if !matches!(read, Some(Ok(()))) {
                rest |= 1 << bit;
                here &= !(1 << bit);
                came &= !(1 << bit);
            }
        }
        self.counts
            .found(here.count_ones().into(), came.count_ones().into());
        let mut read = Vec::new();
        for run in runs(rest) {
            let first = u64::from(part.chunk * FilePart::PAGES + run.start);
            let mut pages = vec![0; (run.end - run.start) as usize * PAGE_SIZE];
            let expected = (version.size - first * PAGE).min(pages.len() as u64);
            if self.read_file(&open.file, first * PAGE, &mut pages)? as u64 != expected {
                return Ok(false);
            }
            let start = first * PAGE;
            let from = start.max(bytes.start);
            let to = (start + pages.len() as u64).min(bytes.end);
            into[(from - bytes.start) as usize..(to - bytes.start) as usize]
                .copy_from_slice(&pages[(from - start) as usize..(to - start) as usize]);
            read.push((run, pages));
        }
        if read.is_empty() {
            return Ok(true);
        }
        // A change sets the times before it stores. So what was read is of this version.
        if Version::of(&fstat(&open.file)?) != Some(*version) {
            return Ok(false);
        }
        for (run, pages) in read {
            self.counts.read_pages((run.end - run.start).into());
            for (bit, page) in run.zip(pages.chunks(PAGE_SIZE)) {
                if frames.missing >> bit & 1 == 1
                    && let Some(frame) = frames.frame(bit)
                    && self.frames.write(frame, page).is_ok()
                {
                    filled(frames, bit);
                }
            }
        }
        Ok(true)
    }
}

/// A page is not missing any more. It keeps its place among the frames.
fn filled(frames: &mut FileFrames, bit: u32) {
    frames.missing &= !(1 << bit);
    frames.here |= 1 << bit;
}

/// The bytes that a page and a range have in common.
fn overlap(page: u64, bytes: &Range<u64>) -> (u64, u64) {
    let start = page * PAGE;
    (start.max(bytes.start), (start + PAGE).min(bytes.end))
}

/// Runs of ones.
fn runs(mut bits: u64) -> Vec<Range<u32>> {
    let mut runs = Vec::new();
    while bits != 0 {
        let start = bits.trailing_zeros();
        let length = (bits >> start).trailing_ones();
        runs.push(start..start + length);
        let ones = u64::MAX >> (u64::BITS - length);
        bits &= !(ones << start);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_pages_are_read_together() {
        assert_eq!(runs(0), []);
        assert_eq!(runs(0b1_0110), [1..3, 4..5]);
        assert_eq!(runs(u64::MAX).first(), Some(&(0..64)));
        assert_eq!(runs(1 << 63 | 1), [0..1, 63..64]);
    }

    #[test]
    fn a_page_gives_the_bytes_that_are_asked_for() {
        assert_eq!(overlap(1, &(5000..9000)), (5000, 8192));
        assert_eq!(overlap(2, &(5000..9000)), (8192, 9000));
    }
}
