//! The requests of the kernel.

use crate::View;
use crate::attributes::attributes;
use crate::operations::Changed;
use crate::tree::Node;
use fuser::{
    FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, Stat};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

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
