//! The process of one daemon.

use super::spawner::Spawner;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

/// Lines of a daemon's log that go into an error message.
const TAIL: usize = 8;

pub(super) struct DaemonProcess {
    child: Child,
    index: usize,
    log: PathBuf,
}

impl DaemonProcess {
    pub(super) fn start(
        spawner: &Spawner,
        mut command: Command,
        index: usize,
        log: PathBuf,
    ) -> Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&log)
            .with_context(|| format!("opening {}", log.display()))?;
        command
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        pagemesh_os::netns::make_mortal(&mut command);
        let child = spawner.spawn(command)?;
        Ok(Self { child, index, log })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        let ended = self.ended()?;
        ensure!(
            ended.is_none(),
            "the daemon of node {} has ended already{}",
            self.index,
            self.tail()
        );
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id() as i32).context("no process")?;
        kill_process(pid, signal).with_context(|| format!("signalling node {}", self.index))
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last lines of its log, for an error message.
    pub(super) fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(TAIL)..];
        if last.is_empty() {
            "; it logged nothing".to_owned()
        } else {
            format!("; its log ends:\n  {}", last.join("\n  "))
        }
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        // The whole cluster ends: there is no node to hand pages to.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
