//! Processes that write, watch or serve, and what they say.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A process; killed when this goes.
pub(super) struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: PathBuf,
}

impl Process {
    /// Starts it; what it says on standard error goes to a file.
    pub(super) fn start(mut command: Command, errors: &Path) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(File::create(errors).context("cannot make a file")?);
        pagemesh_os::netns::die_with_parent(&mut command);
        let child = command.spawn();
        let mut child = child.with_context(|| format!("cannot start {name}"))?;
        let output = child.stdout.take().context("no pipe from a process")?;
        let (sender, lines) = channel();
        // Ends with the process.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Ok(Self {
            orders: child.stdin.take(),
            child,
            lines,
            errors: errors.to_owned(),
        })
    }

    /// The next line that it says.
    pub(super) fn hear(&self, patience: Duration) -> Result<String> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                bail!("no answer in {patience:?}: {}", self.complaint())
            }
            Err(RecvTimeoutError::Disconnected) => bail!("it ended: {}", self.complaint()),
        }
    }

    /// Waits until it is ready.
    pub(super) fn wait_until_ready(&self, patience: Duration) -> Result<()> {
        match self.hear(patience)?.as_str() {
            "ready" => Ok(()),
            other => bail!("it said `{other}` instead of `ready`"),
        }
    }

    /// Lets it go on.
    pub(super) fn go(&mut self) -> Result<()> {
        let orders = self.orders.as_mut().context("no pipe to a process")?;
        writeln!(orders, "go").context("a process is gone")
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id() as i32).context("no process")?;
        kill_process(pid, signal).context("cannot signal a process")
    }

    /// Processor time of all its threads so far, in nanoseconds.
    pub(super) fn busy(&self) -> u64 {
        busy(self.child.id())
    }

    /// The last line of its complaints.
    fn complaint(&self) -> String {
        let text = std::fs::read_to_string(&self.errors).unwrap_or_default();
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        last.unwrap_or("it said nothing").trim().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time of all threads of a process so far, in nanoseconds; 0 if it has ended.
pub(super) fn busy(process: u32) -> u64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return 0;
    };
    let of_thread = |thread: std::fs::DirEntry| -> Option<u64> {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    threads.filter_map(Result::ok).filter_map(of_thread).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ends_is_told_with_its_complaint() {
        let errors = std::env::temp_dir().join(format!("boards-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready; echo no broker >&2; exit 3"]);
        let process = Process::start(command, &errors).unwrap();
        process.wait_until_ready(Duration::from_secs(10)).unwrap();
        let why = process.hear(Duration::from_secs(10)).unwrap_err();
        std::fs::remove_file(&errors).unwrap();
        assert_eq!(why.to_string(), "it ended: no broker");
    }
}
