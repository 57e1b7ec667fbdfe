//! What the kernel says about memory, swap space and processes.

use pagemesh_os::procstat::ProcStat;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A process that was started at a certain time: another one with its number is not it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// In the kernel's ticks since the host started.
    start: u64,
}

/// Whether a process can be swapped out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Residence {
    /// Bytes of its address space that are locked in memory.
    pub(super) locked: u64,
    /// Bytes of it that are swapped out.
    pub(super) swapped: u64,
    /// Its weight when the kernel ends a process for want of memory; -1000: it is never chosen.
    pub(super) oom_weight: i32,
}

impl Process {
    /// The process with this number.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let stat = ProcStat::of(pid).ok().filter(|stat| !stat.has_ended())?;
        let start = stat.started();
        Some(Self { pid, start })
    }

    /// Whether it still runs.
    pub(super) fn runs(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Where its pages are; none if it has ended.
    pub(super) fn residence(self) -> Option<Residence> {
        if !self.runs() {
            return None;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let weight = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", self.pid)).ok()?;
        Some(Residence {
            locked: kib(&status, "VmLck:")?,
            swapped: kib(&status, "VmSwap:")?,
            oom_weight: weight.trim().parse().ok()?,
        })
    }
}

/// One swap device or file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SwapSpace {
    pub(super) path: PathBuf,
    pub(super) size: u64,
    pub(super) used: u64,
    pub(super) priority: i32,
}

/// All swap space of the host.
pub(super) fn swap_spaces() -> Vec<SwapSpace> {
    let text = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    text.lines().skip(1).filter_map(parse_swap).collect()
}

/// This device, if it is used as swap space.
pub(super) fn swap_space(device: &Path) -> Option<SwapSpace> {
    swap_spaces().into_iter().find(|space| space.path == device)
}

fn parse_swap(line: &str) -> Option<SwapSpace> {
    let mut fields = line.split_ascii_whitespace();
    let path = fields.next()?.into();
    let mut number = || fields.next()?.parse::<i64>().ok();
    // The kind of swap space stands between.
    let _ = number();
    let (size, used, priority) = (number()?, number()?, number()?);
    Some(SwapSpace {
        path,
        size: u64::try_from(size).ok()? * 1024,
        used: u64::try_from(used).ok()? * 1024,
        priority: priority.try_into().ok()?,
    })
}

/// Bytes that programs could get without swapping.
pub(super) fn available() -> Option<u64> {
    kib(
        &std::fs::read_to_string("/proc/meminfo").ok()?,
        "MemAvailable:",
    )
}

/// The bytes of the line that begins so and counts in KiB.
fn kib(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    let rest = lines.find_map(|line| line.strip_prefix(name))?;
    let number: u64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_space_is_read_from_the_kernel_s_table() {
        let line = "/dev/loop0                              partition\t262140\t\t1024\t\t-2";
        let space = parse_swap(line).unwrap();
        assert_eq!((space.size, space.used), (262_140 << 10, 1 << 20));
        assert_eq!(
            (space.path.to_str(), space.priority),
            (Some("/dev/loop0"), -2)
        );
    }

    #[test]
    fn a_process_is_known_by_its_start() {
        let me = Process::of(std::process::id()).unwrap();
        assert!(me.runs() && me.start > 0);
        let other = Process {
            start: me.start + 1,
            ..me
        };
        assert!(!other.runs() && other.residence().is_none());
        assert_eq!(me.residence().unwrap().swapped, 0);
    }
}
