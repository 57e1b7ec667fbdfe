//! The directory of a sandbox: sockets and logs.

use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const PREFIX: &str = "pagemesh-sandbox-";

/// A directory of its own that is removed in the end.
pub(super) struct Room(PathBuf);

impl Room {
    /// A new one; those of sandboxes that were killed are swept on the way.
    pub(super) fn new() -> Result<Self> {
        let base = std::env::temp_dir();
        sweep(&base);
        let name = format!(
            "{PREFIX}{}-{:08x}",
            std::process::id(),
            rand::random::<u32>()
        );
        let path = base.join(name);
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("making {}; is TMPDIR writable?", path.display()))?;
        let room = Self(path);
        if rustix::process::geteuid().is_root() {
            // Programs that root starts may become another user, and ask the daemon as that one,
            // who judges them as the kernel tells it.
            fs::set_permissions(room.path(), fs::Permissions::from_mode(0o711))?;
        }
        Ok(room)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn socket(&self, index: usize) -> PathBuf {
        self.0.join(format!("{index}.sock"))
    }

    pub(super) fn log(&self, index: usize) -> PathBuf {
        self.0.join(format!("{index}.log"))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes what killed sandboxes of this user left.
fn sweep(base: &Path) {
    let me = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(owner) = name.to_str().and_then(maker) else {
            continue;
        };
        let mine = entry
            .metadata()
            .is_ok_and(|data| data.is_dir() && data.uid() == me);
        if mine && !Path::new("/proc").join(owner.to_string()).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The process that made a room of this name.
fn maker(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_of_the_dead_are_swept_and_those_of_the_living_stay() {
        let base = std::env::temp_dir().join(format!("sweep-test-{}", std::process::id()));
        let dead = base.join(format!("{PREFIX}{}-0", i32::MAX));
        let living = base.join(format!("{PREFIX}{}-0", std::process::id()));
        let other = base.join("something-else");
        for path in [&dead, &living, &other] {
            fs::create_dir_all(path).unwrap();
        }
        sweep(&base);
        assert!(!dead.exists() && living.exists() && other.exists());
        fs::remove_dir_all(&base).unwrap();
    }
}
