//! Which processors nodes have.

use anyhow::Result;
use clap::ValueEnum;
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Which processor a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CpuSlots {
    /// The first node, which is measured, has one to itself, as a host has; the others share the rest.
    #[value(name = "pinned")]
    Apart,
    /// Each gets the next one, in turn: nobody is measured who does not do what all do.
    #[value(skip)]
    Dealt,
    /// Whichever the kernel likes.
    #[value(name = "unpinned")]
    Anywhere,
}

impl CpuSlots {
    /// In reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Apart => "pinned",
            Self::Dealt => "dealt",
            Self::Anywhere => "unpinned",
        }
    }

    /// The processor of a node and of its programs; none if the kernel chooses.
    pub(super) fn processor(self, node: usize) -> Option<usize> {
        match self {
            Self::Apart => Some(processor(node)),
            Self::Dealt => Some(node % processors()),
            Self::Anywhere => None,
        }
    }
}

/// The processor of a node where each sits apart ([`CpuSlots::Apart`]).
pub(super) fn processor(node: usize) -> usize {
    let others = processors() - 1;
    match node.checked_sub(1) {
        Some(other) if others > 0 => 1 + other % others,
        _ => 0,
    }
}

/// How many processors this process may use.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Binds every thread of a process to one processor.
pub(super) fn pin_process(pid: u32, cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let tid = task?.file_name().to_string_lossy().parse()?;
        match sched_setaffinity(Pid::from_raw(tid), &set) {
            // A thread that has ended meanwhile.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
