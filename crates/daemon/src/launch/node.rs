//! The side of the node: runs a program for a user of another node.

use super::frame::{Frame, Program, Said, Start, VERSION, read_frame, write_frame};
use super::line::{Line, Mouth};
use super::newcomers::{HANDSHAKE, Newcomer};
use super::{Place, Service, no_place, spawn, stranger};
use anyhow::{Context, Result, ensure};
use pagemesh_wire::peer::Credentials;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, geteuid, kill_process_group, waitid};
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A program whose user has gone may take this long to end by itself.
const MERCY: Duration = Duration::from_millis(500);

/// Output may come this long after its program ended.
const AFTERGLOW: Duration = Duration::from_secs(1);

impl Service {
    pub(super) fn run_program(&self, peer: TcpStream, newcomer: Newcomer<'_>) -> Result<()> {
        if self.identity.is_none() && self.address.ip().is_loopback() {
            stranger::refuse(peer.peer_addr()?, peer.local_addr()?)?;
        }
        peer.set_nodelay(true)?;
        peer.set_read_timeout(Some(HANDSHAKE))?;
        let mut line = self.answer(peer)?;
        // Without keys a connection stays a newcomer until it has sent its order.
        let newcomer = self.identity.is_none().then_some(newcomer);
        let Some(start) = read_frame::<Start>(&mut line.ear)? else {
            return Ok(());
        };
        drop(newcomer);
        line.stream.set_read_timeout(None)?;
        let Some(_place) = Place::take(&self.programs) else {
            return Ok(write_frame(&mut line.mouth, &no_place())?);
        };
        match begin(&start, &self.socket) {
            Ok(child) => look_after(child, line),
            Err(error) => Ok(write_frame(&mut line.mouth, &refusal(&error))?),
        }
    }
}

fn begin(start: &Start, socket: &Path) -> Result<Child> {
    ensure!(
        start.version == VERSION,
        "the daemons are of different versions; update all nodes"
    );
    let mut command = command(&start.program)?;
    become_user(&mut command, &start.credentials)?;
    command
        .env("PAGEMESH_SOCKET", socket)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // The thread of this connection waits for the program.
    pagemesh_os::netns::make_mortal(&mut command);
    let directory = command
        .get_current_dir()
        .unwrap_or(Path::new("?"))
        .display()
        .to_string();
    let program = command.get_program().to_string_lossy().into_owned();
    command
        .spawn()
        .with_context(|| format!("starting {program} in {directory}"))
}

/// A program that cannot be started ends with the code a shell would give it.
fn refusal(error: &anyhow::Error) -> Said {
    let why = format!("{error:#}");
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    let code = match kind {
        Some(ErrorKind::NotFound) => 127,
        Some(ErrorKind::PermissionDenied) => 126,
        _ => return Said::Refused(why),
    };
    Said::Ended {
        code,
        why: Some(why),
    }
}

fn command(program: &Program) -> Result<Command> {
    let os = |bytes: &Vec<u8>| OsString::from_vec(bytes.clone());
    let (first, rest) = program.command.split_first().context("no program named")?;
    let mut command = Command::new(os(first));
    command
        .args(rest.iter().map(os))
        .env_clear()
        .envs(
            program
                .environment
                .iter()
                .map(|(key, value)| (os(key), os(value))),
        )
        .current_dir(PathBuf::from(os(&program.directory)));
    Ok(command)
}

/// Supplementary groups are dropped: their numbers may differ between hosts.
fn become_user(command: &mut Command, wanted: &Credentials) -> Result<()> {
    let me = geteuid();
    if me.is_root() {
        command.uid(wanted.uid).gid(wanted.gid);
        return Ok(());
    }
    ensure!(
        wanted.uid == me.as_raw(),
        "the daemon there runs as uid {} and starts programs for nobody else, not for uid {}; \
         run it as root, or run as its user",
        me.as_raw(),
        wanted.uid
    );
    Ok(())
}

/// The program's processes, as long as it lives.
#[derive(Clone)]
struct Group(Arc<Mutex<Option<Pid>>>);

impl Group {
    fn signal(&self, signal: Signal) {
        let group = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = *group {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Kills the remaining processes; afterwards the number may belong to others.
    fn finish(&self) {
        self.signal(Signal::KILL);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn look_after(mut child: Child, line: Line) -> Result<()> {
    let Line {
        mut ear,
        mouth,
        stream,
        listed: _listed,
    } = line;
    let pid = Pid::from_child(&child);
    let group = Group(Arc::new(Mutex::new(Some(pid))));
    let (closed, outputs) = channel();
    let out = child.stdout.take().context("no standard output")?;
    let err = child.stderr.take().context("no standard error")?;
    let to_peer = Arc::new(Mutex::new(mouth));
    tell(&to_peer, &Said::Started { pid: child.id() })?;
    pump(out, Said::Out, Arc::clone(&to_peer), closed.clone())?;
    pump(err, Said::Err, Arc::clone(&to_peer), closed)?;
    let heard = group.clone();
    spawn("launch-ear", move || listen(&mut ear, &heard))?;
    // Its number stays taken until it is reaped, so signals cannot go astray.
    waitid(
        WaitId::Pid(pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    )?;
    group.finish();
    let status = child.wait()?;
    drain(&outputs);
    tell(&to_peer, &ended(status))?;
    // Wakes the listener, whose copy keeps the connection open.
    Ok(stream.shutdown(std::net::Shutdown::Both)?)
}

/// Passes signals on; when the user has gone, the program goes.
fn listen(peer: &mut impl Read, group: &Group) {
    while let Ok(Some(Frame::Signal(number))) = read_frame(peer) {
        if let Some(signal) = Signal::from_named_raw(number) {
            group.signal(signal);
        }
    }
    group.signal(Signal::TERM);
    std::thread::sleep(MERCY);
    group.signal(Signal::KILL);
}

fn pump(
    mut pipe: impl Read + Send + 'static,
    frame: fn(Vec<u8>) -> Said,
    peer: Arc<Mutex<Mouth>>,
    closed: Sender<()>,
) -> Result<()> {
    spawn("launch-output", move || {
        let _closed = closed;
        let mut buffer = [0; 8192];
        while let Ok(got @ 1..) = pipe.read(&mut buffer) {
            if tell(&peer, &frame(buffer[..got].to_vec())).is_err() {
                return;
            }
        }
    })
}

/// Waits until both outputs are closed, but not for ever: a process that left
/// the group may hold them.
fn drain(outputs: &Receiver<()>) {
    let _ = outputs.recv_timeout(AFTERGLOW);
}

fn tell(peer: &Mutex<Mouth>, said: &Said) -> io::Result<()> {
    let mut mouth = peer.lock().unwrap_or_else(PoisonError::into_inner);
    write_frame(&mut *mouth, said)
}

fn ended(status: ExitStatus) -> Said {
    let (code, why) = match (status.code(), status.signal()) {
        (Some(code), _) => (code as u8, None),
        (None, Some(signal)) => (128 + signal as u8, Some(status.to_string())),
        (None, None) => (1, Some(status.to_string())),
    };
    Said::Ended { code, why }
}
