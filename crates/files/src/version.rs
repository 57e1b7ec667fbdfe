//! Versions of files: what makes two pages the same on two hosts.

use crate::identity::Identity;
use blake2::{Blake2s256, Digest as _};
use pagemesh_wire::peer::FileKey;
use rustix::fs::{FileType, Stat};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file that was changed less than this long ago has no version: a second change may leave the
/// same times behind. It is longer than the steps in which file systems count time (FAT counts two
/// seconds), and covers clocks of host and file server that differ by less.
pub(crate) const SETTLED: Duration = Duration::from_secs(3);

/// One version of a file, by its attributes. Every change of a file changes its `ctime`, which no
/// program can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    device: u64,
    inode: u64,
    /// Bytes of the file.
    pub(crate) size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Version {
    /// The version that has these attributes; none if it is no regular file with contents.
    pub(crate) fn of(stat: &Stat) -> Option<Self> {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        (is_file && size > 0).then_some(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        })
    }

    /// The version, if a later change cannot have the same attributes.
    pub(crate) fn settled(stat: &Stat, now: SystemTime) -> Option<Self> {
        let version = Self::of(stat)?;
        let seconds = u64::try_from(version.changed.0).unwrap_or(0);
        let changed = UNIX_EPOCH + Duration::new(seconds, version.changed.1 as u32);
        let age = now.duration_since(changed).ok()?;
        (age >= SETTLED).then_some(version)
    }

    /// Its name in the cluster.
    pub(crate) fn key(&self, identity: &Identity) -> FileKey {
        let mut hash = Blake2s256::new();
        hash.update(identity.bytes());
        for number in [self.inode, self.size] {
            hash.update(number.to_le_bytes());
        }
        for (seconds, nanos) in [self.modified, self.changed] {
            hash.update(seconds.to_le_bytes());
            hash.update(nanos.to_le_bytes());
        }
        let bytes = hash.finalize();
        let word = |at: usize| {
            let word = bytes[at..].first_chunk().copied();
            u64::from_le_bytes(word.unwrap_or_default())
        };
        FileKey {
            user: 0,
            hash: [word(0), word(8)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat() -> Stat {
        rustix::fs::stat("/proc/self/exe").unwrap()
    }

    #[test]
    fn every_attribute_makes_another_version() {
        let identity = Identity::named("test");
        let all = [
            |_: &mut Stat| {},
            |stat: &mut Stat| stat.st_size += 1,
            |stat: &mut Stat| stat.st_ino += 1,
            |stat: &mut Stat| stat.st_mtime_nsec ^= 1,
            |stat: &mut Stat| stat.st_ctime_nsec ^= 1,
            |stat: &mut Stat| stat.st_ctime += 1,
        ];
        let mut keys: Vec<_> = all
            .iter()
            .map(|change| {
                let mut stat = stat();
                change(&mut stat);
                Version::of(&stat).unwrap().key(&identity)
            })
            .collect();
        let other = Version::of(&stat()).unwrap();
        keys.push(other.key(&Identity::named("another")));
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), all.len() + 1);
    }

    #[test]
    fn a_file_that_was_just_changed_has_no_version() {
        let stat = stat();
        let changed = UNIX_EPOCH + Duration::new(stat.st_ctime as u64, stat.st_ctime_nsec as u32);
        let after = |age| Version::settled(&stat, changed + age);
        assert_eq!(after(SETTLED - Duration::from_nanos(1)), None);
        assert_eq!(after(SETTLED), Version::of(&stat));
        assert_eq!(
            Version::settled(&stat, changed - Duration::from_secs(9)),
            None,
            "the server's clock is ahead"
        );
        let mut empty = stat;
        empty.st_size = 0;
        assert_eq!(Version::of(&empty), None);
    }
}
