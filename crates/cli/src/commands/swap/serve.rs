//! The process behind a swap device.
//!
//! It must not need the device that it serves. So it and the daemon are locked in memory before
//! anything is swapped out, and both keep clear of the kernel's choice when memory runs out. It ends
//! when the file system is unmounted, and not before: Ctrl-C and SIGTERM would take swapped pages
//! with it.

use super::file::SwapFile;
use super::groups;
use super::state::Places;
use crate::exit::Exit;
use crate::far;
use crate::global::Global;
use crate::interrupts::Interrupts;
use crate::units::parse_size;
use anyhow::{Context as _, Result};
use clap::Args;
use fuser::{Config, MountOption, Session};
use pagemesh::Advice;
use pagemesh_os::residency::Residency;
use pagemesh_wire::local::Request;
use serde_json::json;
use std::io::Write as _;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Requests that are served at once; each waits for a page as a rule, not for a processor.
const THREADS: usize = 8;

/// Time between two looks whether the daemon, which may be another one by now, is locked.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(super) struct Serve {
    /// How large
    #[arg(long, value_parser = parse_size)]
    size: u64,
    /// How much of it in this host's memory
    #[arg(long, value_parser = parse_size)]
    local: Option<u64>,
    /// With two donors for a page, instead of this host's disk
    #[arg(long)]
    copies: bool,
}

impl Serve {
    pub(super) fn run(self, global: &Global, state: &Path) -> Result<Exit> {
        // A terminal that closes does not concern it.
        let _ = rustix::process::setsid();
        let interrupts = Interrupts::catch()?;
        interrupts.watch(|signal| {
            tracing::warn!(signal, "ignored: `pagemesh swap off` ends this process");
            true
        })?;
        groups::check_free("server", std::process::id())?;
        let mut residency = Residency::default();
        residency.lock()?;
        lock_daemon(global, true)?;
        let served = self.serve(global, state);
        // Another swap device that this daemon serves is locked again within a second.
        let unlocked = lock_daemon(global, false);
        served.and(unlocked)?;
        Ok(Exit::OK)
    }

    fn serve(&self, global: &Global, state: &Path) -> Result<()> {
        let mesh = far::connect(global)?;
        let policy = if self.copies {
            "private-copies"
        } else {
            "private"
        };
        let segment = far::memory_by(policy, &mesh, "swap", self.size, self.local)?;
        // A page that was fetched and not mapped would not be locked in memory.
        segment.advise(0..segment.size(), Advice::Random)?;
        let file = SwapFile::new(segment.map().context("mapping the memory")?);
        let places = Places(state);
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        config.mount_options = vec![
            MountOption::FSName("pagemesh-swap".to_owned()),
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoExec,
        ];
        let session = Session::new(file, places.mount(), &config)
            .with_context(|| format!("mounting {}", places.mount().display()))?;
        let (ended, end) = channel();
        std::thread::Builder::new()
            .name("swap".to_owned())
            .spawn(move || ended.send(session.run()))
            .context("starting a thread")?;
        ready()?;
        loop {
            match end.recv_timeout(LOOK) {
                Ok(result) => return result.context("serving the swap device"),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = lock_daemon(global, true) {
                        tracing::error!(%error, "the daemon is not locked in memory");
                    }
                }
            }
        }
    }
}

/// Tells the command that started this process that the file is there.
fn ready() -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", json!({ "ready": std::process::id() }))?;
    out.flush().context("telling that the device is there")
}

/// Has the daemon lock its memory, or not any more.
fn lock_daemon(global: &Global, on: bool) -> Result<()> {
    let mut control = crate::commands::connect(global)?;
    if let Some(daemon) = control.process().filter(|_| on) {
        groups::check_free("daemon", daemon)?;
    }
    control.ask(Request::LockMemory { on })?;
    Ok(())
}
