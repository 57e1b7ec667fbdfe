//! Where the time of the kernel and of the daemons goes (TR5, TR6): the stacks of all
//! processors, looked at some thousand times a second by `perf` while a program runs.

use super::document::{Divided, Run};
use super::program;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Looks a second; no divisor of the kernel's ticks.
const RATE: u32 = 1999;

/// The answer of `perf` when it has begun.
const ACK: &[u8; 4] = b"ack\n";

/// The pipes for orders to `perf` and its answers. It writes nothing down if they close before it
/// ends.
type Control = (ChildStdin, ChildStdout);

/// `perf` at work.
pub(super) struct Samples {
    perf: Child,
    _control: Control,
    file: PathBuf,
}

/// The part whose time a sample counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    KernelCommunication,
    KernelMemory,
    KernelOther,
    Memory,
    Consistency,
    Other,
    Program,
}

/// Functions of the kernel that move pages and rights. They come first: a system call that faults
/// waits for memory.
const KERNEL_MEMORY: [&str; 12] = [
    "userfaultfd_ioctl",
    "userfaultfd_read",
    "handle_userfault",
    "exc_page_fault",
    "sys_pwrite64",
    "sys_pread64",
    "sys_fallocate",
    "sys_mmap",
    "sys_munmap",
    "sys_mprotect",
    "sys_madvise",
    "sys_ioctl",
];

/// And where they carry datagrams and packets, or wait for some.
const KERNEL_COMMUNICATION: [&str; 11] = [
    "sys_send",
    "sys_recv",
    "sys_epoll",
    "sys_poll",
    "sys_ppoll",
    "sys_read",
    "sys_write",
    "sys_futex",
    "net_rx_action",
    "sock_sendmsg",
    "sock_recvmsg",
];

/// Parts of the daemon that make, keep and apply twins and diffs, and place pages.
const MEMORY: [&str; 11] = [
    "pagemesh_diff",
    "pagemesh_twins",
    "pagemesh_reduce",
    "::changes::",
    "::shelf::",
    "::pages::",
    "::runs::",
    "::course::",
    "memcpy",
    "memmove",
    "memset",
];

/// Modules for intervals and vector times.
const CONSISTENCY: [&str; 5] = [
    "policies::release",
    "pagemesh_core::order",
    "vector_time",
    "VectorTime",
    "IntervalRecord",
];

/// Has it begin, and waits for that: programs may be over before it is ready.
fn begin(perf: &mut Child) -> Result<Control> {
    let mut orders = perf.stdin.take().context("its input is closed")?;
    orders.write_all(b"enable\n")?;
    let mut answers = perf.stdout.take().context("its output is closed")?;
    let mut answer = [0; ACK.len()];
    answers.read_exact(&mut answer)?;
    ensure!(answer == *ACK, "it answers otherwise than expected");
    Ok((orders, answers))
}

impl Samples {
    /// Begins to look, at everything on this machine.
    pub(super) fn start() -> Result<Self> {
        let name = format!("pagemesh-perf-{}.data", std::process::id());
        let file = std::env::temp_dir().join(name);
        let mut command = Command::new("perf");
        command
            .args(["record", "-q", "-a", "-g", "-e", "cpu-clock", "-F"])
            .arg(RATE.to_string())
            .args(["--delay", "-1", "--control", "fd:0,1", "-o"])
            .arg(&file);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::null());
        pagemesh_os::netns::die_with_parent(&mut command);
        let mut perf = command
            .spawn()
            .context("there is no perf; install linux-perf")?;
        let control = begin(&mut perf).context("perf does not begin")?;
        Ok(Self {
            perf,
            _control: control,
            file,
        })
    }

    /// Stops, and divides the samples of some daemons and of a program.
    pub(super) fn divide(mut self, daemons: &[u32], run: &Run) -> Result<Divided> {
        let perf = Pid::from_child(&self.perf);
        kill_process(perf, Signal::INT).context("cannot stop perf")?;
        self.perf.wait()?;
        let output = Command::new("perf")
            .args(["script", "-F", "comm,pid,ip,sym", "-i"])
            .arg(&self.file)
            .stderr(Stdio::null())
            .output()?;
        let _ = std::fs::remove_file(&self.file);
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            !text.trim().is_empty(),
            "perf saw nothing; it needs root, or kernel.perf_event_paranoid below 0"
        );
        let looks = f64::from(RATE) * run.whole_seconds * run.nodes as f64;
        Ok(divided(&text, daemons, run, looks))
    }
}

/// Adds up the samples in the output of `perf script`.
fn divided(text: &str, daemons: &[u32], run: &Run, looks: f64) -> Divided {
    let file = program::file_of(&run.program);
    let mut counts = [0_u64; 7];
    for sample in text.split("\n\n") {
        let mut lines = sample.lines().filter(|line| !line.trim().is_empty());
        let Some((name, pid)) = lines.next().and_then(|line| line.trim().rsplit_once(' ')) else {
            continue;
        };
        let daemon = pid.parse().is_ok_and(|pid| daemons.contains(&pid));
        if daemon || Some(name.trim()) == file {
            let stack: Vec<&str> = lines.map(str::trim).collect();
            counts[whose(&stack, daemon) as usize] += 1;
        }
    }
    let part = |whose: Whose| counts[whose as usize] as f64 / looks;
    Divided {
        program: run.program.clone(),
        large: run.large,
        policy: run.policy.clone(),
        nodes: run.nodes,
        kernel_communication: part(Whose::KernelCommunication),
        kernel_memory: part(Whose::KernelMemory),
        kernel_other: part(Whose::KernelOther),
        memory: part(Whose::Memory),
        consistency: part(Whose::Consistency),
        other: part(Whose::Other),
    }
}

/// By a stack, innermost first: each line an address and a name.
fn whose(stack: &[&str], daemon: bool) -> Whose {
    let called = |names: &[&str]| {
        let mut frames = stack.iter();
        frames.any(|frame| names.iter().any(|name| frame.contains(name)))
    };
    let innermost = stack.first().copied().unwrap_or_default();
    let within = |names: &[&str]| names.iter().any(|name| innermost.contains(name));
    if innermost.starts_with("ffff") {
        return if called(&KERNEL_MEMORY) {
            Whose::KernelMemory
        } else if called(&KERNEL_COMMUNICATION) {
            Whose::KernelCommunication
        } else {
            Whose::KernelOther
        };
    }
    match daemon {
        true if within(&MEMORY) => Whose::Memory,
        true if within(&CONSISTENCY) => Whose::Consistency,
        true => Whose::Other,
        false if within(&["pagemesh", "Tmk_"]) => Whose::Other,
        false => Whose::Program,
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::run;
    use super::*;

    const SAMPLES: &str = "\
jacobi  5823
\t    55cc relax

6n7bxztd30n  5370
\tffffffff813a2413 finish_task_switch.isra.0
\tffffffff81000000 __x64_sys_ppoll
\t    7fb2a3 __poll

daemon  11
\tffffffff81e570e9 skb_defer_free_flush
\tffffffff81e570ea __x64_sys_sendmsg
\t          5b9c96 pagemesh_os::udp::send

daemon  11
\tffffffff82201018 clear_page_erms
\tffffffff82201019 userfaultfd_ioctl
\tffffffff8220101a __x64_sys_ioctl

daemon  12
\t          5b6681 pagemesh_diff::Diff::apply

daemon  12
\t          4351cd pagemesh_core::policies::release::history::History::since

daemon  12
\t          3da6b1 pagemesh_core::rooms::Rooms::handle

jacobi  5823
\tffffffff821f2fa7 exc_page_fault
\t    55cd relax
";

    #[test]
    fn samples_are_divided_by_what_they_were_about() {
        let run = run("jacobi", 2, 1.0);
        let found = divided(SAMPLES, &[11, 12], &run, 10.0);
        let parts = [
            found.kernel_communication,
            found.kernel_memory,
            found.kernel_other,
            found.memory,
            found.consistency,
            found.other,
        ];
        assert_eq!(parts, [0.1, 0.2, 0.0, 0.1, 0.1, 0.1]);
        assert_eq!((found.program.as_str(), found.nodes), ("jacobi", 2));
    }
}
