//! A process on a node.

use super::PATIENCE;
use pagemesh_cli::sandbox::Node;
use pagemesh_os::netns::die_with_parent;
use pagemesh_os::procstat::ProcStat;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A player that is killed, if it still runs, when this is dropped.
pub(crate) struct Player {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
    what: String,
}

impl Player {
    /// Starts one. Arguments are separated by blanks.
    pub(super) fn start(node: &Node, arguments: &str) -> Self {
        let mut command = node.command(env!("CARGO_BIN_EXE_pagemesh-player"));
        command.args(arguments.split_whitespace()); // so no name has blanks
        Self::run(command, arguments)
    }

    /// Any program that a node's command starts.
    pub(crate) fn run(mut command: Command, what: &str) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        die_with_parent(&mut command);
        hear_ctrl_c(&mut command);
        let mut child = command.spawn().expect("the program starts");
        let output = child.stdout.take().expect("it is a pipe");
        Self {
            orders: child.stdin.take(),
            lines: lines_of(output),
            what: what.to_owned(),
            child,
        }
    }

    /// Gives an order.
    pub(crate) fn tell(&mut self, order: &str) {
        let orders = self.orders.as_mut().expect("its input is open");
        writeln!(orders, "{order}").unwrap_or_else(|error| panic!("{}: {error}", self.what));
    }

    /// Gives an order and waits for the answer.
    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.hear()
    }

    /// The next line it says.
    pub(crate) fn hear(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| {
            panic!("{} says nothing: {error}{}", self.what, self.end_if_any())
        })
    }

    /// How it has ended, if it has, for a message.
    fn end_if_any(&self) -> String {
        let unreaped = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // The end of its output is seen a moment before its own.
        std::thread::sleep(super::A_WHILE);
        match waitid(WaitId::Pid(Pid::from_child(&self.child)), unreaped) {
            Ok(Some(end)) => format!(
                "; its exit code is {:?}, its signal {:?}",
                end.exit_status(),
                end.terminating_signal()
            ),
            _ => String::new(),
        }
    }

    /// The next line must be this one.
    pub(crate) fn expect(&self, line: &str) {
        assert_eq!(self.hear(), line, "{}", self.what);
    }

    /// The next line, if it comes in time; none if the process ended.
    pub(crate) fn hear_within(&self, time: Duration) -> Option<String> {
        self.lines.recv_timeout(time).ok()
    }

    /// Nothing is said for a while, and the process is still there.
    pub(crate) fn expect_silence(&self) {
        let heard = self.lines.recv_timeout(super::A_WHILE);
        assert_eq!(heard, Err(RecvTimeoutError::Timeout), "{}", self.what);
    }

    /// Waits until its first thread sleeps in a function of the kernel whose name
    /// contains this; on kernels that do not say, until it sleeps.
    pub(crate) fn wait_until_it_sleeps_in(&self, function: &str) {
        let process = self.child.id();
        super::eventually(&format!("{} sleeps in {function}", self.what), || {
            sleeps_in(process, function)
        });
    }

    /// As `ps` shows it: `S` asleep, `R` running, `T` stopped, `Z` dead.
    pub(crate) fn state(&self) -> Option<char> {
        state(self.child.id())
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state(), Some('Z') | None)
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let process = Pid::from_child(&self.child);
        kill_process(process, signal).expect("the process is there");
    }

    /// Whether it goes on, rather than crash at what it was told last.
    pub(crate) fn is_well(&mut self) -> bool {
        super::eventually("it answers or ends", || {
            self.lines.try_recv().is_ok() || self.is_over()
        });
        self.ended().is_none()
    }

    /// Kills it at once, and waits until it is no more.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the process is there");
        self.child.wait().expect("it can be waited for");
    }

    /// Waits for its end. Its input is closed, by which a scripted node ends in order.
    pub(crate) fn end(mut self) -> ExitStatus {
        drop(self.orders.take());
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(status) = self.ended() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{} does not end", self.what);
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it can be waited for")
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until all have ended well; all their lines, one list a player. The
/// first that fails fails the test, for the others may wait for it.
pub(crate) fn finish_all(mut players: Vec<Player>) -> Vec<Vec<String>> {
    let mut said = vec![Vec::new(); players.len()];
    for player in &mut players {
        drop(player.orders.take());
    }
    loop {
        let mut running = false;
        for (player, said) in players.iter_mut().zip(&mut said) {
            said.extend(player.lines.try_iter());
            match player.ended() {
                Some(status) if status.success() => {}
                Some(status) => {
                    said.extend(player.lines.iter());
                    panic!("{}: {status}, having said {said:?}", player.what);
                }
                None => running = true,
            }
        }
        if !running {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    for (player, said) in players.iter().zip(&mut said) {
        said.extend(player.lines.iter());
    }
    said
}

/// Whether the first thread of a process sleeps in a function of the kernel whose name contains this;
/// on kernels that do not say, whether it sleeps.
pub(crate) fn sleeps_in(process: u32, function: &str) -> bool {
    let place = std::fs::read_to_string(format!("/proc/{process}/wchan")).unwrap_or_default();
    let unknown = place.is_empty() || place == "0";
    place.contains(function) || (unknown && state(process) == Some('S'))
}

/// The state of a process, as `ps` shows it.
pub(crate) fn state(process: u32) -> Option<char> {
    ProcStat::of(process).ok().map(|stat| stat.state())
}

fn lines_of(output: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Has a program end at Ctrl-C even where the tests run in the background of a script, which
/// ignores it.
fn hear_ctrl_c(command: &mut Command) {
    let default = || {
        // SAFETY: no handler of this process is touched, and the call is safe after fork.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: the closure does nothing but make a system call.
    unsafe { command.pre_exec(default) };
}
