//! The memory of a segment on this node: one sparse, sealed memfd.
//!
//! Pages are read and written with `pread` and `pwrite`, never through a mapping: a load from a
//! hole would allocate it, and a client can punch holes under a mapping.

use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, SeekFrom, fallocate, fchmod,
    fcntl_add_seals, fstat, ftruncate, memfd_create, open, seek,
};
use rustix::io::{Errno, pread, preadv, pwrite};
use std::fs::File;
use std::io::{self, IoSliceMut, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// The bytes of one page.
pub type PageBytes = [u8; PAGE];

/// A sealed memfd. Only the daemon holds this open file description, so no client can change its
/// flags or its position.
#[derive(Debug)]
pub struct Memfd(OwnedFd);

impl Memfd {
    /// Memory of `length` bytes, all holes, which no process can resize. Only root and this user
    /// can open it anew.
    ///
    /// # Errors
    /// If the kernel gives none.
    pub fn create(name: &str, length: u64) -> io::Result<Self> {
        let base = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 reject the flag, and later ones log a warning without it.
        let first = match memfd_create(name, base | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => memfd_create(name, base)?,
            made => made?,
        };
        ftruncate(&first, length)?;
        fchmod(&first, Mode::RUSR | Mode::WUSR)?;
        // SEAL too: otherwise a client could seal against writing, and with it against punching.
        fcntl_add_seals(
            &first,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        )?;
        Ok(Self(reopen(&first, OFlags::RDWR)?))
    }

    /// Takes over memory that another daemon made: the daemon's own description of it, which no
    /// client ever had.
    #[must_use]
    pub fn adopt(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Its size in bytes, holes included.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn size(&self) -> io::Result<u64> {
        Ok(u64::try_from(fstat(&self.0)?.st_size).unwrap_or(0))
    }

    /// Whether a descriptor is one of this memory. Numbers of inodes of memory are not used again.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn is_behind(&self, fd: impl AsFd) -> io::Result<bool> {
        let (mine, other) = (fstat(&self.0)?, fstat(fd)?);
        Ok((mine.st_dev, mine.st_ino) == (other.st_dev, other.st_ino))
    }

    /// A descriptor to lend to a client that may store.
    ///
    /// # Errors
    /// If the kernel gives none.
    pub fn writable(&self) -> io::Result<OwnedFd> {
        reopen(&self.0, OFlags::RDWR)
    }

    /// A descriptor to lend to a client that may only load.
    ///
    /// # Errors
    /// If the kernel gives none.
    pub fn readable(&self) -> io::Result<OwnedFd> {
        reopen(&self.0, OFlags::RDONLY)
    }

    /// Reads the page at byte `offset`; zeros if it is a hole.
    ///
    /// # Errors
    /// If the offset is outside.
    pub fn read(&self, offset: u64, page: &mut PageBytes) -> io::Result<()> {
        match pread(&self.0, page.as_mut_slice(), offset)? {
            PAGE => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Reads neighbouring pages from byte `offset` on, each into a buffer of its own; zeros where
    /// there are holes.
    ///
    /// # Errors
    /// If the range is outside, or longer than the kernel reads at once.
    pub fn read_run(&self, offset: u64, rooms: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let wanted: usize = rooms.iter().map(|room| room.len()).sum();
        match preadv(&self.0, rooms, offset)? {
            read if read == wanted => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Overwrites the page at byte `offset`.
    ///
    /// # Errors
    /// If the offset is outside, or memory is short.
    pub fn write(&self, offset: u64, page: &PageBytes) -> io::Result<()> {
        match pwrite(&self.0, page, offset)? {
            PAGE => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Overwrites exactly these bytes at byte `offset`.
    ///
    /// # Errors
    /// If they go beyond the end, or memory is short.
    pub fn write_some(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if pwrite(&self.0, bytes, offset)? == bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// Appends the page at byte `offset` to `bytes`. A hole reads as zeros, and stays a hole.
    ///
    /// # Errors
    /// If the offset is outside; then nothing was appended.
    pub fn append(&self, offset: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
        bytes.reserve(PAGE);
        let room = &mut bytes.spare_capacity_mut()[..PAGE];
        let (page, _) = pread(&self.0, room, offset)?;
        if page.len() != PAGE {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let length = bytes.len() + PAGE;
        // SAFETY: the kernel has just written the page behind the last byte.
        unsafe { bytes.set_len(length) };
        Ok(())
    }

    /// Makes a hole of `length` bytes at byte `offset`: every mapping loses the pages at once, and
    /// their contents are lost.
    ///
    /// # Errors
    /// If the range is outside.
    pub fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.0, flags, offset, length)?)
    }

    /// True if there is a page at byte `offset`, not a hole.
    ///
    /// # Errors
    /// If the offset is outside.
    pub fn has_data(&self, offset: u64) -> io::Result<bool> {
        match seek(&self.0, SeekFrom::Data(offset)) {
            Ok(found) => Ok(found == offset),
            Err(Errno::NXIO) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The runs of pages that there are, as offsets and lengths in bytes.
    ///
    /// # Errors
    /// As lseek(2).
    pub fn extents(&self) -> io::Result<Vec<(u64, u64)>> {
        let mut extents = Vec::new();
        let mut end = 0;
        loop {
            let start = match seek(&self.0, SeekFrom::Data(end)) {
                Ok(start) => start,
                Err(Errno::NXIO) => return Ok(extents),
                Err(errno) => return Err(errno.into()),
            };
            end = seek(&self.0, SeekFrom::Hole(start))?;
            extents.push((start, end - start));
        }
    }

    /// True if there is no page at all.
    ///
    /// # Errors
    /// As lseek(2).
    pub fn is_empty(&self) -> io::Result<bool> {
        match seek(&self.0, SeekFrom::Data(0)) {
            Ok(_) => Ok(false),
            Err(Errno::NXIO) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Memfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A file in memory, readable through the returned descriptor.
///
/// # Errors
/// If the kernel gives none.
pub fn file(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let made = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(made);
    file.write_all(bytes)?;
    fchmod(&file, Mode::RUSR)?;
    fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW,
    )?;
    reopen(&file, OFlags::RDONLY)
}

/// A new open file description of the same memory, which shares no flags with the old one.
fn reopen(fd: impl AsFd, flags: OFlags) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    Ok(open(path, flags | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_and_go() {
        let memory = Memfd::create("test", 4 * PAGE as u64).unwrap();
        let mut page = [9; PAGE];
        assert!(!memory.has_data(4096).unwrap() && memory.is_empty().unwrap());
        memory.read(4096, &mut page).unwrap();
        assert_eq!(page, [0; PAGE]);
        assert!(!memory.has_data(4096).unwrap(), "reading allocates nothing");
        memory.write(4096, &[7; PAGE]).unwrap();
        assert!(memory.has_data(4096).unwrap() && !memory.has_data(0).unwrap());
        assert!(!memory.is_empty().unwrap());
        memory.read(4096, &mut page).unwrap();
        assert_eq!(page, [7; PAGE]);
        let mut bytes = b"head".to_vec();
        memory.append(4096, &mut bytes).unwrap();
        assert_eq!(bytes, [&b"head"[..], &[7; PAGE]].concat());
        assert!(memory.append(4 * 4096, &mut bytes).is_err());
        assert_eq!(bytes.len(), 4 + PAGE);
        memory.punch(4096, 4096).unwrap();
        assert!(!memory.has_data(4096).unwrap());
        assert!(memory.write(4 * 4096, &page).is_err(), "sealed at its end");
        assert!(memory.read(4 * 4096, &mut page).is_err());
    }

    #[test]
    fn what_is_lent_is_limited() {
        let memory = Memfd::create("test", PAGE as u64).unwrap();
        let reader = memory.readable().unwrap();
        assert_eq!(pwrite(&reader, b"x", 0), Err(Errno::BADF));
        let writer = memory.writable().unwrap();
        assert_eq!(ftruncate(&writer, 0), Err(Errno::PERM));
        assert_eq!(
            fcntl_add_seals(&writer, SealFlags::FUTURE_WRITE),
            Err(Errno::PERM)
        );
        // The flags of a lent description are not those of the daemon's own.
        rustix::fs::fcntl_setfl(&writer, OFlags::APPEND).unwrap();
        memory.write(0, &[1; PAGE]).unwrap();
    }
}
