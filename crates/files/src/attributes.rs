//! Attributes of files, in the kernel's terms.

use fuser::{FileAttr, FileType, INodeNo};
use rustix::fs::{self, Stat};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The attributes, with the number by which the view names the file.
pub(crate) fn attributes(stat: &Stat, number: INodeNo) -> FileAttr {
    FileAttr {
        ino: number,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
        atime: time(stat.st_atime, stat.st_atime_nsec as i64),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec as i64),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec as i64),
        crtime: UNIX_EPOCH,
        kind: kind(fs::FileType::from_raw_mode(stat.st_mode)),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: u32::try_from(stat.st_blksize).unwrap_or(4096),
        flags: 0,
    }
}

/// The kind of a file.
pub(crate) fn kind(kind: fs::FileType) -> FileType {
    match kind {
        fs::FileType::Directory => FileType::Directory,
        fs::FileType::Symlink => FileType::Symlink,
        fs::FileType::Fifo => FileType::NamedPipe,
        fs::FileType::Socket => FileType::Socket,
        fs::FileType::CharacterDevice => FileType::CharDevice,
        fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn time(seconds: i64, nanos: i64) -> SystemTime {
    let nanos = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
    let whole = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 {
        UNIX_EPOCH - whole + nanos
    } else {
        UNIX_EPOCH + whole + nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_times() {
        assert_eq!(
            time(-2, 500),
            UNIX_EPOCH - Duration::from_nanos(1_999_999_500)
        );
        assert_eq!(
            time(2, 500),
            UNIX_EPOCH + Duration::from_nanos(2_000_000_500)
        );
    }
}
