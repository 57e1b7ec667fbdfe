//! Slow nodes: programs in control groups that get a part of a processor each. Only the programs;
//! daemons must answer at once even while the programs compute.

use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the kernel's version 1 of control groups limits processors.
const ROOT: &str = "/sys/fs/cgroup/cpu";

/// A group's time is counted in periods of this, in microseconds: short enough
/// to look even, long enough to be kept.
const PERIOD: u64 = 10_000;

/// Rounds of arithmetic that take about half a second.
const WORK: u64 = 400_000_000;

/// Groups, which are removed when this is dropped.
pub(super) struct Quota {
    groups: Vec<PathBuf>,
}

impl Quota {
    /// As many groups, each with a share of a processor.
    pub(super) fn new(count: usize, share: f64) -> Result<Self> {
        ensure!(
            Path::new(ROOT).join("cpu.cfs_quota_us").exists()
                || Path::new(ROOT).join("cpu.shares").exists(),
            "no control groups of version 1 for processors at {ROOT}"
        );
        let mut quota = Self { groups: Vec::new() };
        for number in 0..count {
            let group = Path::new(ROOT).join(format!("pagemesh-{}-{number}", std::process::id()));
            std::fs::create_dir(&group)
                .with_context(|| format!("cannot make {} (be root)", group.display()))?;
            quota.groups.push(group.clone());
            let time = (PERIOD as f64 * share) as u64;
            for (name, value) in [("cpu.cfs_period_us", PERIOD), ("cpu.cfs_quota_us", time)] {
                std::fs::write(group.join(name), value.to_string())
                    .with_context(|| format!("cannot write {name}"))?;
            }
        }
        Ok(quota)
    }

    /// The words before a command that put it into a group.
    pub(super) fn wrap(&self, group: usize, program: &Path) -> (OsString, Vec<OsString>) {
        const ENTER: &str = "echo $$ > \"$0\" && exec \"$@\"";
        let procs = self.groups[group].join("cgroup.procs");
        let words = ["-c".into(), ENTER.into(), procs.into(), program.into()];
        ("sh".into(), words.into())
    }

    /// How long so many processes take that divide some work and share nothing.
    pub(super) fn burn(&self, count: usize) -> Result<f64> {
        let this = std::env::current_exe().context("cannot find this program")?;
        let mut burners = Vec::new();
        for group in 0..count {
            let (shell, words) = self.wrap(group, &this);
            let mut command = Command::new(shell);
            command
                .args(words)
                .arg("burn")
                .arg((WORK / count as u64).to_string());
            burners.push(command.stdout(Stdio::piped()).spawn()?);
        }
        let mut slowest = 0.0_f64;
        for burner in burners {
            let output = burner.wait_with_output()?;
            let text = String::from_utf8_lossy(&output.stdout);
            slowest = slowest.max(text.trim().parse().context("a burner says no time")?);
        }
        Ok(slowest)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        for group in &self.groups {
            // Fails while a process is in it, which then outlives us.
            let _ = std::fs::remove_dir(group);
        }
    }
}
