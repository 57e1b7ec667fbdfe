//! A file system with one file, whose bytes are memory of the cluster: a loop device needs a file.

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};
use pagemesh::{Advice, Mapping, PAGE_SIZE};
use std::ffi::OsStr;
use std::io;
use std::time::{Duration, UNIX_EPOCH};

/// The name of the file.
pub(super) const NAME: &str = "swap";

const FILE: INodeNo = INodeNo(2);

/// Names and sizes never change.
const EVER: Duration = Duration::from_secs(1 << 20);

/// The largest request: what the block layer merges at most.
const LARGEST: u32 = 1 << 20;

/// The file system.
pub(super) struct SwapFile(Mapping);

impl SwapFile {
    /// With a file that consists of this memory.
    pub(super) fn new(memory: Mapping) -> Self {
        Self(memory)
    }

    fn attributes(&self, node: INodeNo) -> Option<FileAttr> {
        let is_file = node == FILE;
        if !is_file && node != INodeNo::ROOT {
            return None;
        }
        let size = if is_file { self.0.len() as u64 } else { 0 };
        let (kind, perm) = match is_file {
            true => (FileType::RegularFile, 0o600),
            false => (FileType::Directory, 0o700),
        };
        Some(FileAttr {
            ino: node,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: PAGE_SIZE as u32,
            flags: 0,
        })
    }

    /// Where a request begins and how many bytes of it lie in the file.
    fn place(&self, offset: u64, length: usize) -> Option<(usize, usize)> {
        let at = usize::try_from(offset).ok()?;
        let rest = self.0.len().checked_sub(at)?;
        Some((at, length.min(rest)))
    }

    fn load(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let Some((at, length)) = self.place(offset, length) else {
            return Ok(Vec::new());
        };
        if length > PAGE_SIZE {
            // The kernel reads neighbouring pages together: fetch them together.
            let range = at as u64..(at + length) as u64;
            let _ = self.0.segment().advise(range, Advice::WillNeed);
        }
        let mut bytes = vec![0; length];
        self.0.read(at, &mut bytes).map_err(io::Error::other)?;
        Ok(bytes)
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> io::Result<u32> {
        match self.place(offset, bytes.len()) {
            Some((at, length)) if length == bytes.len() => {
                self.0.write(at, bytes).map_err(io::Error::other)?;
                Ok(length as u32)
            }
            _ => Err(io::ErrorKind::StorageFull.into()),
        }
    }
}

impl Filesystem for SwapFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What the kernel cannot do it does without.
        let _ = config.set_max_write(LARGEST);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE) {
            Some(file) if parent == INodeNo::ROOT && name == NAME => {
                reply.entry(&EVER, &file, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(node) {
            Some(found) => reply.attr(&EVER, &found),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // No page cache: it would need memory for what is to free memory.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.load(offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => {
                tracing::error!(%error, offset, "swapped pages cannot be read");
                reply.error(Errno::EIO);
            }
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.store(offset, bytes) {
            Ok(written) => reply.written(written),
            Err(error) => {
                tracing::error!(%error, offset, "pages cannot be swapped out");
                reply.error(Errno::EIO);
            }
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // A store is in memory when its reply is sent, and gets no safer.
        reply.ok();
    }
}
