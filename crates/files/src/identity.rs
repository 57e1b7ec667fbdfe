//! The name of a file system that is the same on every host that mounts it.

use blake2::{Blake2s256, Digest as _};
use rustix::fs::{major, minor, stat};
use std::io;
use std::path::Path;

/// File systems whose inode numbers and times come from the server, so that a file has the same on
/// every host.
const NETWORK: [&str; 9] = [
    "nfs",
    "nfs4",
    "ceph",
    "lustre",
    "gpfs",
    "gfs2",
    "ocfs2",
    "beegfs",
    "fuse.glusterfs",
];

/// The hosts that share pages of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All that mount this source.
    Source(String),
    /// Nodes on this host only: nothing says that files have the same inode numbers elsewhere. With
    /// the kind of the file system.
    Host(String),
    /// All that use this name.
    Name(String),
}

/// A file system, as the nodes that cache pages of it name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    scope: Scope,
    bytes: [u8; 32],
}

impl Identity {
    /// That of the file system with this directory.
    ///
    /// # Errors
    /// If the directory or the kernel's tables cannot be read.
    pub fn of(directory: &Path) -> io::Result<Self> {
        let device = stat(directory)?.st_dev;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let mut known = mounts.lines().filter_map(Line::read);
        let numbers = format!("{}:{}", major(device), minor(device));
        let line = known.rfind(|line| line.device == numbers);
        if let Some(line) = &line
            && NETWORK.contains(&line.kind)
        {
            let parts = ["source", line.kind, line.source];
            return Ok(Self {
                scope: Scope::Source(line.source.to_owned()),
                bytes: hash(&parts),
            });
        }
        // Unlike an address or the number of a file system, this is never the same on two hosts,
        // not even on a copy of a virtual machine.
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let kind = line.map_or("unknown", |line| line.kind);
        Ok(Self {
            scope: Scope::Host(kind.to_owned()),
            bytes: hash(&["host", boot.trim(), &numbers]),
        })
    }

    /// That of a directory of which a person says that it is the same on every host, with the same
    /// inode numbers and times.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            scope: Scope::Name(name.to_owned()),
            bytes: hash(&["name", name]),
        }
    }

    /// The hosts that share pages.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Whether the directory is on a network file system: stores are to be there when a file is
    /// closed.
    pub(crate) fn is_remote(&self) -> bool {
        !matches!(self.scope, Scope::Host(_))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn hash(parts: &[&str]) -> [u8; 32] {
    let mut hash = Blake2s256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// A line of /proc/self/mountinfo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line<'a> {
    device: &'a str,
    kind: &'a str,
    source: &'a str,
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        Some(Self {
            device: before.split(' ').nth(2)?,
            kind: after.next()?,
            source: after.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read() {
        let line = "36 35 0:41 /sub /mnt rw,noatime master:1 - nfs4 server:/export rw,vers=4.2";
        let read = Line::read(line).unwrap();
        assert_eq!(
            (read.device, read.kind, read.source),
            ("0:41", "nfs4", "server:/export")
        );
        assert_eq!(Line::read("nonsense"), None);
    }

    #[test]
    fn a_local_directory_is_shared_within_its_host() {
        let one = Identity::of(Path::new("/")).unwrap();
        assert!(matches!(one.scope(), Scope::Host(_)));
        assert_eq!(one, Identity::of(Path::new("/")).unwrap());
        assert_ne!(
            one.bytes(),
            Identity::of(Path::new("/proc")).unwrap().bytes()
        );
        assert!(Identity::of(Path::new("/there/is/none")).is_err());
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
    }
}
