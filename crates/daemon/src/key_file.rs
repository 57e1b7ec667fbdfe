//! A cluster's key file, watched: a key that is taken out of it admits no host a moment later.

use anyhow::{Context as _, Result, anyhow, bail};
use pagemesh_seal::{Ring, Token};
use rustix::event::{EventfdFlags, eventfd};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

/// A key file, which a thread of its own reads again and again. A file system that does not
/// answer stops that thread, and not the daemon.
#[derive(Debug)]
pub(crate) struct KeyFile {
    path: PathBuf,
    shared: Arc<Shared>,
    watcher: Thread,
}

/// The contents of a key file: its keys, or why they cannot be read.
pub(crate) type Found = Result<Ring, String>;

/// Between the watcher and the daemon.
#[derive(Debug)]
struct Shared {
    /// The contents found last, until the daemon takes them.
    found: Mutex<Option<Found>>,
    /// Rung when something was found.
    bell: OwnedFd,
}

/// How often the file is read. Notifications of the kernel would be no surer: they do not report
/// changes by other hosts on a network file system, and a user has 128 watches.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl KeyFile {
    /// Reads a key file and watches it from now on.
    pub(crate) fn open(path: &Path) -> Result<(Self, Ring)> {
        let ring = read_ring(path)?;
        let shared = Arc::new(Shared {
            found: Mutex::new(None),
            bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        });
        let watch = Watch {
            path: path.to_owned(),
            shared: Arc::downgrade(&shared),
            known: Ok(ring.clone()),
            doubtful: None,
        };
        let watcher = thread::Builder::new()
            .name("key-file".to_owned())
            .spawn(move || watch.run())
            .context("no thread to watch the key file")?;
        let file = Self {
            path: path.to_owned(),
            shared,
            watcher: watcher.thread().clone(),
        };
        Ok((file, ring))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Becomes readable when the file has changed.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    /// Has the file read now.
    pub(crate) fn look(&self) {
        self.watcher.unpark();
    }

    /// The new contents of the file, if it has changed since the last call.
    pub(crate) fn take(&self) -> Option<Found> {
        let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
        self.shared.lock().take()
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Found>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that reads the file.
struct Watch {
    path: PathBuf,
    shared: Weak<Shared>,
    /// The contents that the daemon was told last.
    known: Found,
    /// The error of the last attempt: perhaps the file is being written.
    doubtful: Option<String>,
}

impl Watch {
    fn run(mut self) {
        loop {
            thread::park_timeout(LOOK_EVERY);
            let found = read_ring(&self.path).map_err(|error| format!("{error:#}"));
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            if let Some(found) = self.news(found) {
                *shared.lock() = Some(found);
                // A full counter has rung already.
                let _ = rustix::io::write(&shared.bell, &1_u64.to_ne_bytes());
            }
        }
    }

    /// The contents to tell the daemon, if any.
    fn news(&mut self, found: Found) -> Option<Found> {
        let doubtful = found.as_ref().err().cloned();
        let again = doubtful.is_none() || doubtful == self.doubtful;
        self.doubtful = doubtful;
        if !again || found == self.known {
            return None;
        }
        self.known = found;
        Some(self.known.clone())
    }
}

/// The keys in a file that only its owner may read.
pub(crate) fn read_ring(path: &Path) -> Result<Ring> {
    let text = read_private(path)?;
    Ring::from_text(&text).map_err(|(line, why)| anyhow!("{}, line {line}: {why}", path.display()))
}

/// The token in a file that only its owner may read.
pub(crate) fn read_token(path: &Path) -> Result<Token> {
    let text = read_private(path)?;
    Token::from_text(&text).with_context(|| format!("{}", path.display()))
}

fn read_private(path: &Path) -> Result<String> {
    let name = path.display();
    let cannot = || format!("cannot read {name}; `pagemesh key new` makes a key file");
    let mut file = File::open(path).with_context(cannot)?;
    if file.metadata().with_context(cannot)?.mode() & 0o077 != 0 {
        bail!(
            "{name} can be read by others than its owner, who could then join the cluster: \
             chmod 600 {name}"
        );
    }
    let mut text = String::new();
    file.read_to_string(&mut text)
        .with_context(|| format!("cannot read {name}"))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_seal::{Secret, SystemDice};
    use rustix::event::{PollFd, PollFlags, poll};
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn ring() -> Ring {
        Ring::default().rotated(Secret::new(&SystemDice::default()), 0)
    }

    fn write(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Waits, for ever if need be, until the file has changed.
    fn changed(file: &KeyFile) -> Found {
        loop {
            let bell = file.bell();
            poll(&mut [PollFd::new(&bell, PollFlags::IN)], None).unwrap();
            if let Some(found) = file.take() {
                return found;
            }
        }
    }

    #[test]
    fn every_change_of_the_file_is_noticed() {
        let name = format!("pagemesh-key-file-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let path = directory.join("there/key");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let [first, second, third] = [ring(), ring(), ring()];
        write(&path, &first.to_text());
        let (file, found) = KeyFile::open(&path).unwrap();
        assert_eq!(found, first);
        // Replaced, as `key rotate` does.
        let new = directory.join("new");
        write(&new, &second.to_text());
        fs::rename(&new, &path).unwrap();
        assert_eq!(changed(&file), Ok(second.clone()));
        // Written over, as `scp` does.
        write(&path, &third.to_text());
        assert_eq!(changed(&file), Ok(third.clone()));
        // Its directory moved away and another one in its place.
        fs::rename(directory.join("there"), directory.join("gone")).unwrap();
        assert!(changed(&file).unwrap_err().contains("cannot read"));
        fs::create_dir(directory.join("there")).unwrap();
        write(&path, &first.to_text());
        assert_eq!(changed(&file), Ok(first));
        // Open to others.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(changed(&file).unwrap_err().contains("chmod 600"));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_is_unreadable_once_may_be_half_written() {
        let mut watch = Watch {
            path: PathBuf::new(),
            shared: Weak::new(),
            known: Ok(ring()),
            doubtful: None,
        };
        let broken = || Err("line 2".to_owned());
        assert_eq!(watch.news(broken()), None);
        assert_eq!(watch.news(watch.known.clone()), None);
        assert_eq!(watch.news(broken()), None);
        assert_eq!(watch.news(broken()), Some(broken()));
        assert_eq!(watch.news(broken()), None);
        let next = ring();
        assert_eq!(watch.news(Ok(next.clone())), Some(Ok(next)));
    }
}
