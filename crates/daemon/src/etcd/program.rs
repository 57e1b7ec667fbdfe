//! The program that speaks to etcd, while it runs: if it ends, it is started again.

use super::{EtcdRefuses, lock};
use anyhow::{Result, bail};
use pagemesh_wire::etcd::{Answer, Hello, Request, read_frame, write_frame};
use std::collections::HashMap;
use std::env;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const NAME: &str = "pagemesh-etcd";

/// Longer than the program takes for any request.
const LIMIT: Duration = Duration::from_secs(3);

/// Between two starts of the program.
const AGAIN: Duration = Duration::from_millis(500);

/// For each request the thread that waits for its answer.
type Waiting = Arc<Mutex<HashMap<u64, Sender<Answer>>>>;

/// See the module.
pub(crate) struct EtcdProgram {
    path: PathBuf,
    hello: Hello,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    child: Option<(Child, ChildStdin)>,
    waiting: Waiting,
    started: Option<Instant>,
    last: u64,
}

impl EtcdProgram {
    /// Finds the program, which is not started yet.
    ///
    /// # Errors
    /// If it is not installed.
    pub(crate) fn find(hello: Hello) -> Result<Self> {
        let Some(path) = places().find(|path| path.is_file()) else {
            bail!(
                "--control needs the program {NAME}, which is neither beside this one nor in the \
                 path: `make install` of the sources installs it (it needs protobuf-compiler and \
                 libprotobuf-dev to be built)"
            );
        };
        Ok(Self {
            path,
            hello,
            running: Mutex::new(Running::default()),
        })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// If etcd or the program does not answer.
    pub(crate) fn ask(&self, request: &Request) -> io::Result<Answer> {
        let (sender, answer) = channel();
        self.send(request, sender)?;
        match answer.recv_timeout(LIMIT) {
            Ok(Answer::Failed(why)) => Err(io::Error::other(why)),
            Ok(Answer::Refused(why)) => Err(io::Error::other(EtcdRefuses(why))),
            Ok(answer) => Ok(answer),
            Err(_) => Err(io::Error::other(format!("{NAME} has ended or hangs"))),
        }
    }

    fn send(&self, request: &Request, sender: Sender<Answer>) -> io::Result<()> {
        let mut running = lock(&self.running);
        if running.has_ended() {
            running.start(self)?;
        }
        running.last += 1;
        let id = running.last;
        lock(&running.waiting).insert(id, sender);
        let Some((_, stdin)) = &mut running.child else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        write_frame(stdin, id, request)
    }
}

impl Drop for EtcdProgram {
    fn drop(&mut self) {
        lock(&self.running).end();
    }
}

impl Running {
    fn has_ended(&mut self) -> bool {
        let Some((child, _)) = &mut self.child else {
            return true;
        };
        // What cannot be asked for its end is started anew, too.
        !matches!(child.try_wait(), Ok(None))
    }

    fn start(&mut self, program: &EtcdProgram) -> io::Result<()> {
        self.end();
        if let Some(before) = self.started {
            thread::sleep(AGAIN.saturating_sub(before.elapsed()));
            tracing::warn!("{NAME} has ended; starting another");
        }
        self.started = Some(Instant::now());
        let mut child = Command::new(&program.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A signal from the terminal is for the daemon.
            .process_group(0)
            .spawn()
            .map_err(|error| {
                let path = program.path.display();
                io::Error::new(error.kind(), format!("cannot start {path}: {error}"))
            })?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        write_frame(&mut stdin, 0, &program.hello)?;
        self.waiting = Waiting::default();
        let waiting = Arc::clone(&self.waiting);
        thread::Builder::new()
            .name("etcd".to_owned())
            .spawn(move || hear(stdout, &waiting))?;
        self.child = Some((child, stdin));
        Ok(())
    }

    /// The program ends when its input does.
    fn end(&mut self) {
        if let Some((mut child, stdin)) = self.child.take() {
            drop(stdin);
            // A program that hangs does not see that.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Hands over the answers, until the program ends.
fn hear(mut stdout: ChildStdout, waiting: &Waiting) {
    while let Ok(Some((id, answer))) = read_frame::<Answer>(&mut stdout) {
        if let Some(sender) = lock(waiting).remove(&id) {
            // The thread that asked may have given up.
            let _ = sender.send(answer);
        }
    }
    // No answer comes any more: the threads that wait fail.
    lock(waiting).clear();
}

/// Beside this program, then in the path.
fn places() -> impl Iterator<Item = PathBuf> {
    let here = env::current_exe().ok();
    let beside = here.and_then(|path| Some(path.parent()?.join(NAME)));
    let path = env::var_os("PATH").unwrap_or_default();
    let path: Vec<_> = env::split_paths(&path).collect();
    let found = path.into_iter().map(|directory| directory.join(NAME));
    beside.into_iter().chain(found)
}
