//! The file of a coordinator or standby.
//!
//! ```text
//! magic and version | record | record | ...
//! record: bytes of the body, its CRC-32, the body: entries as MessagePack with names of fields
//! ```
//!
//! A record is written and synchronized before the next one begins, so only the last one can be
//! incomplete after a crash: what it says was told to no other node, and it is cut off. Any other
//! damage is an error, because decisions behind it may be lost.

use anyhow::{Context as _, Result, anyhow, bail};
use pagemesh_core::{Kept, KeptEntry};
use pagemesh_recorder::schema;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How the file begins; the version of its format follows.
const MAGIC: &[u8; 6] = b"PMKEPT";
const VERSION: u16 = 1;
/// Bytes before the first record.
const FRONT: usize = MAGIC.len() + 2;
/// Bytes before the body of a record.
const HEAD: usize = 8;

/// The file is written anew when it is this long, and several times as long as after it was last
/// written anew.
const LONG: u64 = 1 << 20;
const TIMES: u64 = 4;

/// How long a daemon that is ending may still have the directory.
const ENDING: Duration = Duration::from_secs(10);

/// The file, open for appending, and what it says.
#[derive(Debug)]
pub(crate) struct LedgerFile {
    directory: PathBuf,
    file: File,
    length: u64,
    /// Its length when it was last written anew.
    least: u64,
    pub(crate) kept: Kept,
    /// Held as long as this daemon uses the directory.
    _lock: File,
}

impl LedgerFile {
    /// Opens the file in this directory, and makes both if they are not there.
    ///
    /// # Errors
    /// If another daemon uses the directory, or the file is damaged, or none of ours.
    pub(crate) fn open(directory: &Path) -> Result<Self> {
        let cannot = || format!("cannot use the state directory {}", directory.display());
        fs::create_dir_all(directory).with_context(cannot)?;
        let lock = lock(directory)?;
        let path = directory.join(NAME);
        let found = match fs::read(&path) {
            Ok(bytes) => Some(read(&bytes).map_err(|why| anyhow!("{}: {why}", path.display()))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(cannot),
        };
        let Some((kept, length)) = found else {
            let kept = Kept::default();
            let (file, length) = write_anew(directory, &kept).with_context(cannot)?;
            return Ok(Self::with(directory, (file, length), kept, lock));
        };
        let mut file = File::options()
            .write(true)
            .open(&path)
            .with_context(cannot)?;
        // Cuts off what was being written when the last daemon ended.
        file.set_len(length).with_context(cannot)?;
        file.seek(SeekFrom::End(0)).with_context(cannot)?;
        Ok(Self::with(directory, (file, length), kept, lock))
    }

    fn with(directory: &Path, (file, length): (File, u64), kept: Kept, lock: File) -> Self {
        Self {
            directory: directory.to_owned(),
            file,
            length,
            least: length,
            kept,
            _lock: lock,
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(NAME)
    }

    /// Appends entries. They are on the disk when this returns.
    ///
    /// # Errors
    /// If the disk does not take them; the file must be [written anew](Self::rewrite) then.
    pub(crate) fn append(&mut self, entries: &[KeptEntry]) -> io::Result<()> {
        let bytes = record(entries);
        for entry in entries {
            self.kept.apply(entry.clone());
        }
        self.file.write_all(&bytes)?;
        self.file.sync_data()?;
        self.length += bytes.len() as u64;
        if self.length > LONG.max(self.least * TIMES) {
            self.rewrite()?;
        }
        Ok(())
    }

    /// Writes everything into a new file, and puts it into the place of the former one.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub(crate) fn rewrite(&mut self) -> io::Result<()> {
        (self.file, self.length) = write_anew(&self.directory, &self.kept)?;
        self.least = self.length;
        Ok(())
    }
}

const NAME: &str = "coordinator";

fn write_anew(directory: &Path, kept: &Kept) -> io::Result<(File, u64)> {
    let draft = directory.join("coordinator.new");
    let bytes = whole(kept);
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&draft)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&draft, directory.join(NAME))?;
    File::open(directory)?.sync_all()?;
    Ok((file, bytes.len() as u64))
}

fn lock(directory: &Path) -> Result<File> {
    let path = directory.join("lock");
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let start = Instant::now();
    while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(error).with_context(|| format!("cannot lock {}", path.display()));
        }
        if start.elapsed() > ENDING {
            bail!(
                "another daemon uses the state directory {}: end it, or give this one a directory \
                 of its own (--state)",
                directory.display()
            );
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(file)
}

/// The bytes of everything.
pub(crate) fn whole(kept: &Kept) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    if *kept != Kept::default() {
        bytes.extend_from_slice(&record(&kept.entries()));
    }
    bytes
}

/// Reads the bytes of everything, and of records that were written since. None is incomplete.
///
/// # Errors
/// If it is damaged, or none of ours.
pub(crate) fn read_whole(bytes: &[u8]) -> Result<Kept> {
    let (kept, length) = read(bytes).map_err(|why| anyhow!("what etcd has: {why}"))?;
    if length != bytes.len() as u64 {
        bail!("what etcd has: {}", Unreadable::Damaged(length as usize));
    }
    Ok(kept)
}

/// The bytes of entries that count together.
pub(crate) fn record(entries: &[KeptEntry]) -> Vec<u8> {
    let body = schema::write_entries(entries);
    let length = u32::try_from(body.len()).expect("a cluster has fewer names");
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

/// Why a file is not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Unreadable {
    #[error(
        "this is no file of a PageMesh coordinator; give the daemon another directory (--state)"
    )]
    Foreign,
    #[error(
        "it was written in version {0} of the format, and this release reads version {VERSION}: \
         start the release that wrote it"
    )]
    Version(u16),
    #[error(
        "it is damaged at byte {0}, and decisions behind that may be lost: restore it from a \
         backup, go on from the standby's directory (--promote on its host), or move it away to \
         found a new cluster"
    )]
    Damaged(usize),
}

/// What a file says, and the bytes that count.
fn read(bytes: &[u8]) -> Result<(Kept, u64), Unreadable> {
    let version = bytes.strip_prefix(MAGIC).ok_or(Unreadable::Foreign)?;
    let version = version.first_chunk().ok_or(Unreadable::Foreign)?;
    let version = u16::from_le_bytes(*version);
    if version != VERSION {
        return Err(Unreadable::Version(version));
    }
    let (mut kept, mut at) = (Kept::default(), FRONT);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let Some((body, sum)) = body(rest) else {
            // The last record is incomplete.
            break;
        };
        let next = at + HEAD + body.len();
        if crc32fast::hash(body) != sum {
            if next == bytes.len() {
                break;
            }
            return Err(Unreadable::Damaged(at));
        }
        let entries = schema::read_entries(body).map_err(|_| Unreadable::Damaged(at))?;
        entries.into_iter().for_each(|entry| kept.apply(entry));
        at = next;
    }
    Ok((kept, at as u64))
}

/// The body of the first record and its checksum, if they are all there.
fn body(bytes: &[u8]) -> Option<(&[u8], u32)> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    Some((rest.get(..length)?, u32::from_le_bytes(*sum)))
}

#[cfg(test)]
impl LedgerFile {
    /// From now on the disk is full, until the file is written anew.
    pub(super) fn fill_disk(&mut self) {
        self.file = File::options().write(true).open("/dev/full").unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::peer::{Health, Member, MemberView};
    use pagemesh_wire::{ClusterId, Incarnation, NodeId, PublicKey, Term};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A directory that is removed at the end.
    struct Place(PathBuf);

    impl Place {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("pagemesh-ledger-{}-{number}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn file(&self) -> PathBuf {
            self.0.join(NAME)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn life() -> KeptEntry {
        KeptEntry::Life {
            cluster: ClusterId(7),
            node: NodeId(1),
            term: Term::FIRST,
        }
    }

    fn view(epoch: u64) -> KeptEntry {
        let member = Member {
            id: NodeId(1),
            name: "one".into(),
            address: ([127, 0, 0, 1], 7450).into(),
            incarnation: Incarnation(9),
            key: PublicKey([3; 32]),
            health: Health::Alive,
            program: pagemesh_wire::Program::default(),
        };
        KeptEntry::View(MemberView {
            epoch,
            members: vec![member],
            term: Term::FIRST,
            standby: NodeId::NONE,
            generation: 0,
            deaths: 0,
        })
    }

    fn written(place: &Place) -> Kept {
        let mut file = LedgerFile::open(&place.0).unwrap();
        assert_eq!(file.kept, Kept::default());
        file.append(&[life(), view(1)]).unwrap();
        for epoch in 2..5 {
            file.append(&[view(epoch)]).unwrap();
        }
        file.kept.clone()
    }

    #[test]
    fn what_was_written_is_read_and_gone_on_with() {
        let place = Place::new();
        let before = written(&place);
        let mut file = LedgerFile::open(&place.0).unwrap();
        assert_eq!(file.kept, before);
        assert!(file.kept.is_whole());
        file.append(&[view(9)]).unwrap();
        file.rewrite().unwrap();
        file.append(&[view(10)]).unwrap();
        let after = file.kept.clone();
        drop(file);
        assert_eq!(LedgerFile::open(&place.0).unwrap().kept, after);
        assert_eq!(after.view().epoch, 10);
    }

    #[test]
    fn a_long_file_is_written_anew() {
        let place = Place::new();
        let before = written(&place);
        let mut file = LedgerFile::open(&place.0).unwrap();
        for epoch in 10..60 {
            file.append(&vec![view(epoch); 1000]).unwrap();
        }
        assert!(file.length < LONG, "{} bytes", file.length);
        drop(file);
        let kept = LedgerFile::open(&place.0).unwrap().kept;
        assert_eq!((kept.view().epoch, kept.cluster()), (59, before.cluster()));
    }

    /// Wherever the writing of the last record stopped, the ones before it count, and the file is
    /// gone on with.
    #[test]
    fn an_incomplete_last_record_is_cut_off() {
        let place = Place::new();
        let before = written(&place);
        let whole = fs::read(place.file()).unwrap();
        let last = record(&[view(9)]);
        for cut in 0..last.len() {
            let mut torn = whole.clone();
            torn.extend_from_slice(&last[..cut]);
            fs::write(place.file(), &torn).unwrap();
            let mut file = LedgerFile::open(&place.0).unwrap();
            assert_eq!(file.kept, before, "{cut} bytes of the last record");
            if cut % 16 == 0 {
                file.append(&[view(11)]).unwrap();
                drop(file);
                let kept = LedgerFile::open(&place.0).unwrap().kept;
                assert_eq!(kept.view().epoch, 11);
            }
        }
        // Its length was written, but not all of its contents.
        let mut torn = [&whole[..], &last[..]].concat();
        let end = torn.len();
        torn[end - 5..].fill(0);
        fs::write(place.file(), &torn).unwrap();
        assert_eq!(LedgerFile::open(&place.0).unwrap().kept, before);
    }

    #[test]
    fn damaged_and_foreign_files_are_refused_with_place_and_cure() {
        let place = Place::new();
        written(&place);
        let whole = fs::read(place.file()).unwrap();
        let refused = |bytes: &[u8]| {
            fs::write(place.file(), bytes).unwrap();
            format!("{:#}", LedgerFile::open(&place.0).unwrap_err())
        };
        let name = place.file().display().to_string();
        let mut damaged = whole.clone();
        damaged[FRONT + HEAD + 20] ^= 1;
        let why = refused(&damaged);
        assert!(
            why.contains(&name) && why.contains("damaged at byte 8"),
            "{why}"
        );
        assert!(why.contains("--promote"), "{why}");
        let why = refused(b"#!/bin/sh\nexit 0\n");
        assert!(why.contains(&name) && why.contains("--state"), "{why}");
        let why = refused(b"");
        assert!(why.contains("no file of a PageMesh coordinator"), "{why}");
        let mut later = whole.clone();
        later[MAGIC.len()] = 9;
        let why = refused(&later);
        assert!(why.contains("version 9"), "{why}");
        // Whatever single byte is changed, nothing wrong is believed.
        fs::write(place.file(), &whole).unwrap();
        let right = LedgerFile::open(&place.0).unwrap().kept;
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x55;
            if let Ok((kept, length)) = read(&changed) {
                assert!(kept == right || length < whole.len() as u64, "byte {at}");
            }
        }
    }

    #[test]
    fn one_daemon_uses_a_directory() {
        let place = Place::new();
        let first = LedgerFile::open(&place.0).unwrap();
        let here = File::open(place.0.join("lock")).unwrap();
        let second = flock(&here, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(second, Err(rustix::io::Errno::WOULDBLOCK));
        drop(first);
        LedgerFile::open(&place.0).unwrap();
    }
}
