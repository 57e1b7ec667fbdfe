//! Reads of pages of files that nodes cache for each other, by an agent: below the view, so that
//! neither FUSE nor the kernel's page cache is in the times.

use anyhow::{Context, Result, ensure};
use pagemesh::{FilePool, Mesh};
use pagemesh_wire::peer::{FileKey, FilePart};
use pagemesh_wire::{PAGE_SIZE, PageIndex};
use std::time::{Duration, Instant};

/// How long a daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Frames for so many pages.
pub(super) fn open(name: &str, pages: u32) -> Result<FilePool> {
    let size = u64::from(pages) * PAGE_SIZE as u64;
    FilePool::new(&Mesh::connect()?, name, size).context("no frames for files")
}

/// Reads each page. A time ends when the contents are in the memory of this process, or when it is
/// known that no node has them: then the page is brought as from its file, which is not timed.
pub(super) fn read(pool: &FilePool, file: u64, pages: &[u32]) -> Result<Vec<u64>> {
    let mut buffer = vec![0; PAGE_SIZE];
    let mut times = Vec::with_capacity(pages.len());
    // The daemon sets the user.
    let key = FileKey {
        user: 0,
        hash: [file, 0],
    };
    for page in pages {
        let part = FilePart::of_page(key, PageIndex(*page));
        let start = Instant::now();
        let frames = pool.get(part, PATIENCE)?;
        let frame = frames.frame(page % FilePart::PAGES);
        if let Some(frame) = frame.filter(|_| frames.missing == 0) {
            pool.read(frame, 0, &mut buffer)?;
            times.push(start.elapsed().as_nanos() as u64);
            ensure!(buffer == contents(file, *page), "page {page} is another");
        } else {
            times.push(start.elapsed().as_nanos() as u64);
            if let Some(frame) = frame {
                pool.write(frame, &contents(file, *page))?;
            }
        }
        let (all, missing) = (part.with(frames.all()), frames.missing);
        pool.done(all, missing, frames.frames);
    }
    Ok(times)
}

/// What a page of a file has in it.
fn contents(file: u64, page: u32) -> Vec<u8> {
    let word = (file << 32 | u64::from(page)).to_le_bytes();
    word.iter().copied().cycle().take(PAGE_SIZE).collect()
}
