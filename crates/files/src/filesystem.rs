//! The requests of the kernel.

use crate::View;
use crate::attributes::{attributes, kind};
use crate::open_files::{Entry, OpenFile};
use crate::tree::Node;
use fuser::{
    FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{self, AtFlags, CWD, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the kernel may use names and attributes without asking: a change by another host is to
/// be seen as soon as the directory shows it.
const FRESH: Duration = Duration::ZERO;

/// The largest write.
const WRITE: u32 = 1 << 20;

/// The most that the kernel reads ahead: one chunk of pages.
const AHEAD: u32 = 256 << 10;

/// Answers with the outcome, or its error.
macro_rules! answer {
    ($reply:ident, $outcome:expr, $then:expr) => {
        match $outcome {
            Ok(outcome) => $then($reply, outcome),
            Err(error) => $reply.error(error.into()),
        }
    };
}

fn done(reply: ReplyEmpty, (): ()) {
    reply.ok();
}

fn entry(reply: ReplyEntry, (node, stat): (Arc<Node>, Stat)) {
    reply.entry(&FRESH, &attributes(&stat, node.number), Generation(0));
}

impl View {
    fn look_up_in(&self, parent: INodeNo, name: &OsStr) -> io::Result<(Arc<Node>, Stat)> {
        let parent = self.tree.node(parent)?;
        let (node, stat) = self.tree.look_up(&parent, name)?;
        node.saw(&stat);
        Ok((node, stat))
    }

    /// Makes a name by `make`, and looks it up.
    fn make(
        &self,
        parent: INodeNo,
        name: &OsStr,
        make: impl FnOnce(&Arc<std::os::fd::OwnedFd>) -> rustix::io::Result<()>,
    ) -> io::Result<(Arc<Node>, Stat)> {
        let node = self.tree.node(parent)?;
        make(&node.place())?;
        self.look_up_in(parent, name)
    }

    fn remove(&self, parent: INodeNo, name: &OsStr, flags: AtFlags) -> io::Result<()> {
        let parent = self.tree.node(parent)?;
        Ok(fs::unlinkat(&*parent.place(), name, flags)?)
    }

    fn open_file(&self, number: INodeNo, flags: OpenFlags) -> io::Result<(FileHandle, FopenFlags)> {
        let node = self.tree.node(number)?;
        let flags = OFlags::from_bits_retain(flags.0 as u32);
        let direct = flags.contains(OFlags::DIRECT);
        let file = node.open(flags - OFlags::DIRECT - OFlags::NOFOLLOW - OFlags::CREATE)?;
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        let open = OpenFile {
            node,
            file,
            writes,
            direct,
        };
        let keep = self.opened(&open)?;
        let mut how = FopenFlags::empty();
        if keep {
            how |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        if direct {
            how |= FopenFlags::FOPEN_DIRECT_IO;
        }
        Ok((self.open.add(open), how))
    }

    fn create_file(
        &self,
        parent: INodeNo,
        name: &OsStr,
        mode: Mode,
        flags: i32,
    ) -> io::Result<(FileHandle, Arc<Node>, Stat)> {
        let parent = self.tree.node(parent)?;
        let flags = OFlags::from_bits_retain(flags as u32) - OFlags::DIRECT;
        let flags = flags | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&*parent.place(), name, flags, mode)?;
        let place = fs::openat(
            CWD,
            Node::path(&file),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let (node, stat) = self.tree.adopt(place)?;
        let open = OpenFile {
            node: Arc::clone(&node),
            file,
            writes: flags.intersects(OFlags::WRONLY | OFlags::RDWR),
            direct: false,
        };
        self.opened(&open)?;
        Ok((self.open.add(open), node, stat))
    }

    fn write_file(&self, handle: FileHandle, offset: u64, data: &[u8]) -> io::Result<u32> {
        let open = self.open.file(handle)?;
        open.node.changes();
        let mut written = 0;
        while written < data.len() {
            match rustix::io::pwrite(&open.file, &data[written..], offset + written as u64) {
                Ok(0) => break,
                Ok(more) => written += more,
                Err(rustix::io::Errno::INTR) => {}
                // What is written already counts; the next write meets the error again.
                Err(_) if written > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(written as u32)
    }

    fn entries(&self, number: INodeNo) -> io::Result<Vec<Entry>> {
        let node = self.tree.node(number)?;
        let directory = node.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut entries = Vec::new();
        for entry in fs::Dir::read_from(&directory)? {
            let entry = entry?;
            entries.push(Entry {
                number: entry.ino(),
                kind: kind(entry.file_type()),
                name: OsStr::from_bytes(entry.file_name().to_bytes()).to_owned(),
            });
        }
        Ok(entries)
    }

    fn set_attributes(
        &self,
        number: INodeNo,
        changed: &Changed,
        handle: Option<FileHandle>,
    ) -> io::Result<(INodeNo, Stat)> {
        let node = self.tree.node(number)?;
        let place = node.place();
        let path = Node::path(&place);
        if let Some(mode) = changed.mode {
            fs::chmod(&path, Mode::from_raw_mode(mode))?;
        }
        if changed.uid.is_some() || changed.gid.is_some() {
            let (uid, gid) = (
                changed.uid.map(Uid::from_raw),
                changed.gid.map(Gid::from_raw),
            );
            fs::chownat(&*place, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(size) = changed.size {
            node.changes();
            let open = handle.and_then(|handle| self.open.file(handle).ok());
            match open.filter(|open| open.writes) {
                Some(open) => fs::ftruncate(&open.file, size)?,
                None => fs::ftruncate(node.open(OFlags::WRONLY)?, size)?,
            }
            node.changes();
        }
        if changed.atime.is_some() || changed.mtime.is_some() {
            let times = Timestamps {
                last_access: moment(changed.atime),
                last_modification: moment(changed.mtime),
            };
            fs::utimensat(&*place, "", &times, AtFlags::EMPTY_PATH)?;
        }
        Ok((number, node.stat()?))
    }

    /// The bytes of an extended attribute, or their number if `size` is zero.
    fn attribute(
        &self,
        number: INodeNo,
        size: u32,
        get: impl Fn(&Path, &mut [u8]) -> rustix::io::Result<usize>,
    ) -> io::Result<(u32, Vec<u8>)> {
        let place = self.tree.node(number)?.place();
        let mut bytes = vec![0; size as usize];
        let length = get(&Node::path(&place), &mut bytes)?;
        bytes.truncate(length);
        Ok((length as u32, bytes))
    }

    /// A file is closed by a program: on a network file system what it stored is on the server then.
    fn flush_file(&self, handle: FileHandle) -> io::Result<()> {
        let open = self.open.file(handle)?;
        if open.writes && self.identity.is_remote() {
            fs::fdatasync(&open.file)?;
        }
        Ok(())
    }

    fn synchronize(&self, handle: FileHandle, data: bool) -> io::Result<()> {
        let open = self.open.file(handle)?;
        let done = if data {
            fs::fdatasync(&open.file)
        } else {
            fs::fsync(&open.file)
        };
        Ok(done?)
    }

    fn renamed(
        &self,
        (parent, name): (INodeNo, &OsStr),
        (to, new): (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> io::Result<()> {
        let (parent, to) = (self.tree.node(parent)?, self.tree.node(to)?);
        let flags = fs::RenameFlags::from_bits_retain(flags.bits());
        Ok(fs::renameat_with(
            &*parent.place(),
            name,
            &*to.place(),
            new,
            flags,
        )?)
    }
}

/// Attributes to be changed.
struct Changed {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    atime: Option<TimeOrNow>,
    mtime: Option<TimeOrNow>,
}

fn moment(time: Option<TimeOrNow>) -> Timespec {
    let (tv_sec, tv_nsec) = match time {
        None => (0, fs::UTIME_OMIT),
        Some(TimeOrNow::Now) => (0, fs::UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(UNIX_EPOCH) {
            Ok(since) => (since.as_secs() as i64, since.subsec_nanos().into()),
            Err(before) => {
                // Whole seconds down, and nanoseconds up from there.
                let before = before.duration();
                let up = (1_000_000_000 - before.subsec_nanos()) % 1_000_000_000;
                let seconds = before.as_secs() as i64 + i64::from(before.subsec_nanos() > 0);
                (-seconds, up.into())
            }
        },
    };
    Timespec { tv_sec, tv_nsec }
}

fn xattr(reply: ReplyXattr, size: u32, outcome: io::Result<(u32, Vec<u8>)>) {
    match outcome {
        Ok((length, _)) if size == 0 => reply.size(length),
        Ok((_, bytes)) => reply.data(&bytes),
        Err(error) => reply.error(error.into()),
    }
}

impl Filesystem for View {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What the kernel does not have, it does not have.
        let wanted = InitFlags::FUSE_AUTO_INVAL_DATA | InitFlags::FUSE_PARALLEL_DIROPS;
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(WRITE);
        let _ = config.set_max_readahead(AHEAD);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer!(reply, self.look_up_in(parent, name), entry);
    }

    fn forget(&self, _: &Request, number: INodeNo, times: u64) {
        self.tree.forget(number, times);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let stat = self.tree.node(number).and_then(|node| node.stat());
        answer!(reply, stat, |reply: ReplyAttr, stat| {
            reply.attr(&FRESH, &attributes(&stat, number));
        });
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changed = Changed {
            mode,
            uid,
            gid,
            size,
            atime,
            mtime,
        };
        let stat = self.set_attributes(number, &changed, handle);
        answer!(reply, stat, |reply: ReplyAttr, (number, stat)| {
            reply.attr(&FRESH, &attributes(&stat, number));
        });
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let target = self.tree.node(number).and_then(|node| {
            let place = node.place();
            Ok(fs::readlinkat(&*place, "", Vec::new())?)
        });
        answer!(
            reply,
            target,
            |reply: ReplyData, target: std::ffi::CString| {
                reply.data(target.as_bytes());
            }
        );
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let kind = fs::FileType::from_raw_mode(mode);
        let bits = Mode::from_raw_mode(mode & !umask);
        let made = self.make(parent, name, |place| {
            fs::mknodat(&**place, name, kind, bits, rdev.into())
        });
        answer!(reply, made, entry);
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let bits = Mode::from_raw_mode(mode & !umask);
        let made = self.make(parent, name, |place| fs::mkdirat(&**place, name, bits));
        answer!(reply, made, entry);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove(parent, name, AtFlags::empty()), done);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove(parent, name, AtFlags::REMOVEDIR), done);
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = self.make(parent, name, |place| fs::symlinkat(target, &**place, name));
        answer!(reply, made, entry);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.renamed((parent, name), (to, new), flags), done);
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = self.tree.node(number).and_then(|node| {
            let from = node.place();
            self.make(parent, name, |place| {
                let path = Node::path(&from);
                fs::linkat(CWD, path, &**place, name, AtFlags::SYMLINK_FOLLOW)
            })
        });
        answer!(reply, linked, entry);
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.open_file(number, flags);
        answer!(reply, opened, |reply: ReplyOpen, (handle, how)| {
            reply.opened(handle, how);
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let open = self.open.file(handle);
        let bytes = open.and_then(|open| View::read(self, &open, offset, size as usize));
        answer!(reply, bytes, |reply: ReplyData, bytes: Vec<u8>| reply
            .data(&bytes));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.write_file(handle, offset, data);
        answer!(reply, written, |reply: ReplyWrite, written| reply
            .written(written));
    }

    fn flush(&self, _: &Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        answer!(reply, self.flush_file(handle), done);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(open) = self.open.remove(handle) {
            View::closed(&open);
        }
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, data: bool, reply: ReplyEmpty) {
        answer!(reply, self.synchronize(handle, data), done);
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let entries = self.entries(number);
        answer!(reply, entries, |reply: ReplyOpen, entries| {
            reply.opened(self.open.add_directory(entries), FopenFlags::empty());
        });
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match self.open.directory(handle) {
            Ok(entries) => {
                for (place, entry) in (1..).zip(&*entries).skip(offset as usize) {
                    if reply.add(INodeNo(entry.number), place, entry.kind, &entry.name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.open.remove_directory(handle);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let synchronized = self.tree.node(number).and_then(|node| {
            let directory = node.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
            Ok(fs::fsync(&directory)?)
        });
        answer!(reply, synchronized, done);
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        let stat = self.tree.node(number).and_then(|node| {
            let place = node.place();
            Ok(fs::fstatvfs(&*place)?)
        });
        answer!(reply, stat, |reply: ReplyStatfs, stat: fs::StatVfs| {
            reply.statfs(
                stat.f_blocks,
                stat.f_bfree,
                stat.f_bavail,
                stat.f_files,
                stat.f_ffree,
                stat.f_bsize as u32,
                stat.f_namemax as u32,
                stat.f_frsize as u32,
            );
        });
    }

    fn setxattr(
        &self,
        _: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let set = self.tree.node(number).and_then(|node| {
            let flags = fs::XattrFlags::from_bits_retain(flags as u32);
            let place = node.place();
            Ok(fs::setxattr(Node::path(&place), name, value, flags)?)
        });
        answer!(reply, set, done);
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.attribute(number, size, |path, into| fs::getxattr(path, name, into));
        xattr(reply, size, value);
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.attribute(number, size, |path, into| fs::listxattr(path, into));
        xattr(reply, size, names);
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.tree.node(number).and_then(|node| {
            let place = node.place();
            Ok(fs::removexattr(Node::path(&place), name)?)
        });
        answer!(reply, removed, done);
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let bits = Mode::from_raw_mode(mode & !umask);
        let made = self.create_file(parent, name, bits, flags);
        answer!(
            reply,
            made,
            |reply: ReplyCreate, (handle, node, stat): (_, Arc<Node>, Stat)| {
                let attributes = attributes(&stat, node.number);
                reply.created(
                    &FRESH,
                    &attributes,
                    Generation(0),
                    handle,
                    FopenFlags::empty(),
                );
            }
        );
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let done_it = self.open.file(handle).and_then(|open| {
            open.node.changes();
            let mode = fs::FallocateFlags::from_bits_retain(mode as u32);
            Ok(fs::fallocate(&open.file, mode, offset, length)?)
        });
        answer!(reply, done_it, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_set_as_they_are() {
        let time = UNIX_EPOCH - Duration::from_nanos(1_500_000_000);
        let moment = moment(Some(TimeOrNow::SpecificTime(time)));
        assert_eq!((moment.tv_sec, moment.tv_nsec), (-2, 500_000_000));
    }
}
