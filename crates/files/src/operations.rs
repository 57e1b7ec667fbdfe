//! What the kernel asks for, done in the directory.

use crate::View;
use crate::attributes::kind;
use crate::open_files::{Entry, OpenFile};
use crate::tree::Node;
use fuser::{FileHandle, FopenFlags, INodeNo, OpenFlags, RenameFlags, TimeOrNow};
use rustix::fs::{self, AtFlags, CWD, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

impl View {
    pub(super) fn look_up_in(
        &self,
        parent: INodeNo,
        name: &OsStr,
    ) -> io::Result<(Arc<Node>, Stat)> {
        let parent = self.tree.node(parent)?;
        let (node, stat) = self.tree.look_up(&parent, name)?;
        node.saw(&stat);
        Ok((node, stat))
    }

    /// Makes a name by `make`, and looks it up.
    pub(super) fn make(
        &self,
        parent: INodeNo,
        name: &OsStr,
        make: impl FnOnce(&Arc<std::os::fd::OwnedFd>) -> rustix::io::Result<()>,
    ) -> io::Result<(Arc<Node>, Stat)> {
        let node = self.tree.node(parent)?;
        make(&node.place())?;
        self.look_up_in(parent, name)
    }

    pub(super) fn remove(&self, parent: INodeNo, name: &OsStr, flags: AtFlags) -> io::Result<()> {
        let parent = self.tree.node(parent)?;
        Ok(fs::unlinkat(&*parent.place(), name, flags)?)
    }

    pub(super) fn open_file(
        &self,
        number: INodeNo,
        flags: OpenFlags,
    ) -> io::Result<(FileHandle, FopenFlags)> {
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

    pub(super) fn create_file(
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

    pub(super) fn write_file(
        &self,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
    ) -> io::Result<u32> {
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

    pub(super) fn entries(&self, number: INodeNo) -> io::Result<Vec<Entry>> {
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

    pub(super) fn set_attributes(
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
    pub(super) fn attribute(
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
    pub(super) fn flush_file(&self, handle: FileHandle) -> io::Result<()> {
        let open = self.open.file(handle)?;
        if open.writes && self.identity.is_remote() {
            fs::fdatasync(&open.file)?;
        }
        Ok(())
    }

    pub(super) fn synchronize(&self, handle: FileHandle, data: bool) -> io::Result<()> {
        let open = self.open.file(handle)?;
        let done = if data {
            fs::fdatasync(&open.file)
        } else {
            fs::fsync(&open.file)
        };
        Ok(done?)
    }

    pub(super) fn renamed(
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
pub(super) struct Changed {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) atime: Option<TimeOrNow>,
    pub(super) mtime: Option<TimeOrNow>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_before_1970_are_set_as_they_are() {
        let time = UNIX_EPOCH - Duration::from_nanos(1_500_000_000);
        let moment = moment(Some(TimeOrNow::SpecificTime(time)));
        assert_eq!((moment.tv_sec, moment.tv_nsec), (-2, 500_000_000));
    }
}
