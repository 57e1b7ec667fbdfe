//! The pages of private segments outside this node's memory: sealed for donors, and in files.
//!
//! Each private segment has a file of its own, sparse, in the directory for them. It has no name,
//! so that it ends with the daemon, its keeper and its successors; it holds contents as programs
//! stored them, which nobody but the superuser can read. Writing and reading are synchronous: a slow
//! disk delays the programs that wait for it, and all others of this node.

use crate::experiment::SlowDisk;
use anyhow::{Context as _, Result};
use pagemesh_core::PageRange;
use pagemesh_os::memfd::{PAGE, PageBytes};
use pagemesh_os::region::{Region, Shape};
use pagemesh_seal::{PAGE_SECRET, PageSealer, SystemDice};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::header::HEADER_SIZE;
use pagemesh_wire::peer::{DonorReply, Got, LentPage, Message, PageSeal};
use pagemesh_wire::{PageIndex, SegmentId};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Seals lent pages, and keeps the files of private segments.
#[derive(Debug)]
pub(crate) struct Lending {
    sealer: PageSealer,
    /// The secret of the sealer, for a daemon that goes on as this node.
    kept: Region,
    directory: PathBuf,
    files: SortedMap<SegmentId, File>,
    /// Files made, and not yet kept for the next daemon.
    fresh: Vec<SegmentId>,
    /// Reads take longer, for a measurement.
    pub(crate) disk: Option<SlowDisk>,
    /// Change what goes back to owners, for a test.
    pub(crate) tampers: bool,
    /// Contents on their way to a donor.
    pub(crate) sealed: Vec<u8>,
}

const SECRET: Shape = Shape {
    words: 0,
    bytes: PAGE_SECRET,
};

impl Lending {
    /// With a new secret, and no files.
    ///
    /// # Errors
    /// If there is no memory for the secret.
    pub(crate) fn create(directory: &Path) -> Result<Self> {
        let sealer = PageSealer::new(&SystemDice::default());
        let mut kept = Region::create("pagemesh-page-secret", SECRET)?;
        kept.bytes_mut().copy_from_slice(sealer.secret());
        Ok(Self::over(sealer, kept, directory))
    }

    /// With the secret and the files of the daemon before.
    ///
    /// # Errors
    /// If the secret is none.
    pub(crate) fn adopt(
        secret: OwnedFd,
        files: SortedMap<SegmentId, OwnedFd>,
        directory: &Path,
    ) -> Result<Self> {
        let kept = Region::map(secret, SECRET)?;
        let secret = kept.bytes().try_into().context("the secret is too short")?;
        let mut lending = Self::over(PageSealer::from_secret(secret), kept, directory);
        lending.files = files.into_iter().map(|(id, fd)| (id, fd.into())).collect();
        Ok(lending)
    }

    fn over(sealer: PageSealer, kept: Region, directory: &Path) -> Self {
        Self {
            sealer,
            kept,
            directory: directory.to_owned(),
            files: SortedMap::new(),
            fresh: Vec::new(),
            disk: None,
            tampers: false,
            sealed: Vec::with_capacity(PAGE),
        }
    }

    /// The descriptor of the secret.
    pub(crate) fn secret(&self) -> BorrowedFd<'_> {
        self.kept.as_fd()
    }

    /// All files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (SegmentId, BorrowedFd<'_>)> {
        self.files.iter().map(|(id, file)| (*id, file.as_fd()))
    }

    /// A file that is not yet kept for the next daemon; it will be now.
    pub(crate) fn take_fresh(&mut self) -> Option<(SegmentId, BorrowedFd<'_>)> {
        let id = self.fresh.pop()?;
        self.files.get(&id).map(|file| (id, file.as_fd()))
    }

    /// Seals the contents in `sealed`.
    pub(crate) fn seal(&mut self, lent: LentPage) -> PageSeal {
        self.sealer.seal(lent, &mut self.sealed)
    }

    /// Opens the page of a datagram in place, if it is one that this node lent. If its donor has
    /// changed it, or it is another version, a message that says so takes its place, of this length.
    pub(crate) fn open(&mut self, datagram: &mut [u8]) -> Option<usize> {
        if datagram.get(HEADER_SIZE) != Some(&Message::GOT) {
            return None;
        }
        let Ok((header, Message::Got(Got { lent, seal }), _)) = Message::decode(datagram) else {
            // The core refuses it.
            return None;
        };
        let start = datagram.len().checked_sub(PAGE)?;
        if self.sealer.open(lent, seal, &mut datagram[start..]) {
            return None;
        }
        let mut spoiled = Vec::new();
        Message::DonorReply(DonorReply::Spoiled(lent)).encode(header, &mut spoiled);
        datagram[..spoiled.len()].copy_from_slice(&spoiled);
        Some(spoiled.len())
    }

    /// Writes neighbouring pages to the file of their segment.
    ///
    /// # Errors
    /// If the file system is full, or does not work.
    pub(crate) fn store(&mut self, pages: PageRange, contents: &[&PageBytes]) -> Result<()> {
        let file = match self.files.entry(pages.segment) {
            pagemesh_sorted::Entry::Occupied(there) => there.into_mut(),
            pagemesh_sorted::Entry::Vacant(place) => {
                self.fresh.push(pages.segment);
                place.insert(make_file(&self.directory)?)
            }
        };
        let mut slices: Vec<_> = contents
            .iter()
            .map(|page| IoSlice::new(&page[..]))
            .collect();
        let mut rest = &mut slices[..];
        let mut at = pages.first.offset().0;
        while !rest.is_empty() {
            let written = rustix::io::pwritev(&*file, rest, at).map_err(io::Error::from)?;
            if written == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero).into());
            }
            at += written as u64;
            IoSlice::advance_slices(&mut rest, written);
        }
        Ok(())
    }

    /// Reads a page from the file of its segment.
    ///
    /// # Errors
    /// If there is no file, or the disk does not work.
    pub(crate) fn load(
        &mut self,
        (segment, page): (SegmentId, PageIndex),
    ) -> io::Result<Box<PageBytes>> {
        let began = self.disk.is_some().then(Instant::now);
        let file = self.files.get(&segment).ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = Box::new([0; PAGE]);
        file.read_exact_at(&mut bytes[..], page.offset().0)?;
        if let (Some(disk), Some(began)) = (&mut self.disk, began) {
            disk.read(began, (segment, page));
        }
        Ok(bytes)
    }

    /// The segment is not used any more.
    pub(crate) fn forget(&mut self, segment: SegmentId) -> bool {
        self.sealer.forget(segment);
        self.fresh.retain(|fresh| *fresh != segment);
        self.files.remove(&segment).is_some()
    }
}

/// A file without a name.
fn make_file(directory: &Path) -> Result<File> {
    let cannot = || {
        format!(
            "cannot make a file for private pages in {}: choose another directory by --private-dir",
            directory.display()
        )
    };
    std::fs::create_dir_all(directory).with_context(cannot)?;
    let (flags, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    if let Ok(file) = rustix::fs::open(directory, flags | OFlags::TMPFILE, mode) {
        return Ok(file.into());
    }
    // Not every file system has files without names.
    let path = directory.join(format!("pagemesh-private-{}", std::process::id()));
    let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode);
    let file = file.map_err(io::Error::from).with_context(cannot)?;
    std::fs::remove_file(&path).with_context(cannot)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::NodeId;

    #[test]
    fn neighbours_are_written_together_and_read_one_by_one() {
        let directory =
            std::env::temp_dir().join(format!("pagemesh-lending-{}", std::process::id()));
        let mut lending = Lending::create(&directory).unwrap();
        let segment = SegmentId::new(NodeId(1), 1);
        let pages = PageRange {
            segment,
            first: PageIndex(7),
            count: 3,
        };
        let contents = [[1; PAGE], [2; PAGE], [3; PAGE]];
        lending.store(pages, &contents.each_ref()).unwrap();
        let byte = |lending: &mut Lending, page| {
            lending.load((segment, PageIndex(page))).map(|page| page[9])
        };
        assert_eq!(
            [7, 8, 9].map(|page| byte(&mut lending, page).unwrap()),
            [1, 2, 3]
        );
        assert!(byte(&mut lending, 10).is_err(), "beyond the end");
        assert_eq!(
            std::fs::read_dir(&directory).unwrap().count(),
            0,
            "it has no name"
        );
        // The next daemon.
        let secret = lending.secret().try_clone_to_owned().unwrap();
        let files = lending.files();
        let files = files
            .map(|(id, fd)| (id, fd.try_clone_to_owned().unwrap()))
            .collect();
        let mut next = Lending::adopt(secret, files, &directory).unwrap();
        assert_eq!(byte(&mut next, 8).unwrap(), 2);
        assert!(next.forget(segment) && byte(&mut next, 8).is_err());
        std::fs::remove_dir(&directory).unwrap();
    }
}
