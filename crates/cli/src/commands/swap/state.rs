//! What `on` made, written down for `off` and `status`.

use super::host::Process;
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// A swap device that is used.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    /// The loop device.
    pub(super) device: PathBuf,
    /// Its bytes.
    pub(super) size: u64,
    /// How much of it is in this host's memory at most, if that was said.
    pub(super) local: Option<u64>,
    /// The process that serves it.
    pub(super) server: Process,
    /// The daemon's socket, if it was named.
    pub(super) socket: Option<PathBuf>,
}

/// The places in the directory of the state.
pub(super) struct Places<'a>(pub(super) &'a Path);

impl Places<'_> {
    /// Where the file of the device is mounted.
    pub(super) fn mount(&self) -> PathBuf {
        self.0.join("disk")
    }

    /// The file of the device.
    pub(super) fn file(&self) -> PathBuf {
        self.mount().join(super::file::NAME)
    }

    /// What the server has to say.
    pub(super) fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    fn state(&self) -> PathBuf {
        self.0.join("state.json")
    }

    /// Makes the directories, for this user alone.
    pub(super) fn make(&self) -> Result<()> {
        for place in [self.0.to_owned(), self.mount()] {
            let made = DirBuilder::new().mode(0o700).recursive(true).create(&place);
            made.with_context(|| format!("making {}", place.display()))?;
        }
        Ok(())
    }

    /// Removes all of it, as far as it is there.
    pub(super) fn remove(&self) {
        let _ = std::fs::remove_file(self.state());
        let _ = std::fs::remove_file(self.log());
        let _ = std::fs::remove_dir(self.mount());
        let _ = std::fs::remove_dir(self.0);
    }

    /// The device that is used; none if there is none.
    pub(super) fn read(&self) -> Result<Option<State>> {
        let path = self.state();
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("reading {}", path.display()))?,
        };
        let state = serde_json::from_slice(&text);
        let state = state.with_context(|| format!("{} makes no sense", path.display()))?;
        Ok(Some(state))
    }

    /// Writes it down, whole or not at all.
    pub(super) fn write(&self, state: &State) -> Result<()> {
        let (path, fresh) = (self.state(), self.0.join("state.new"));
        let write = || {
            File::create(&fresh)?.write_all(&serde_json::to_vec(state)?)?;
            std::fs::rename(&fresh, &path)
        };
        write().with_context(|| format!("writing {}", path.display()))
    }
}
