//! A copy that is a process of this machine.

use super::{Copy, Event, Events, Stream};
use crate::exit::{Exit, Trouble};
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::{self, ErrorKind, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A process, and the group it leads.
pub(crate) struct LocalCopy {
    group: Pid,
}

impl LocalCopy {
    /// Starts the command as rank `rank`. It dies with the calling thread.
    pub(crate) fn start(rank: usize, mut command: Command, events: &Events) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        pagemesh_os::netns::make_mortal(&mut command);
        let mut child = command.spawn().map_err(|error| failure(&program, &error))?;
        let group = Pid::from_child(&child);
        let out = child.stdout.take().context("no standard output")?;
        let err = child.stderr.take().context("no standard error")?;
        pump(rank, Stream::Out, out, events.clone())?;
        pump(rank, Stream::Err, err, events.clone())?;
        let events = events.clone();
        std::thread::Builder::new()
            .name(format!("wait-{rank}"))
            .spawn(move || await_end(rank, child, group, &events))?;
        Ok(Self { group })
    }
}

/// With the exit code a shell would give it.
fn failure(program: &str, error: &io::Error) -> Trouble {
    let exit = match error.kind() {
        ErrorKind::NotFound => Exit::NO_PROGRAM,
        ErrorKind::PermissionDenied => Exit::CANNOT_RUN,
        _ => Exit::FAILURE,
    };
    Trouble::new(exit, format!("starting {program}: {error}"))
}

impl Copy for LocalCopy {
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.group, signal);
    }
}

fn pump(
    rank: usize,
    stream: Stream,
    mut pipe: impl Read + Send + 'static,
    events: Events,
) -> Result<()> {
    std::thread::Builder::new()
        .name(format!("output-{rank}"))
        .spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(got @ 1..) = pipe.read(&mut buffer) {
                let said = Event::Said(rank, stream, buffer[..got].to_vec());
                if events.send(said).is_err() {
                    return;
                }
            }
            let _ = events.send(Event::Closed(rank, stream));
        })?;
    Ok(())
}

fn await_end(rank: usize, mut child: Child, group: Pid, events: &Events) {
    // Its number stays taken until it is reaped. Processes it left behind hold our pipes, and only
    // this ends them.
    let _ = waitid(
        WaitId::Pid(group),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    );
    let _ = kill_process_group(group, Signal::KILL);
    let (code, why) = match child.wait() {
        Ok(status) => verdict(status),
        Err(error) => (1, Some(error.to_string())),
    };
    let _ = events.send(Event::Ended(rank, code, why));
}

/// The exit code as a shell would give it, and a signal's name.
fn verdict(status: ExitStatus) -> (u8, Option<String>) {
    match (status.code(), status.signal()) {
        (Some(code), _) => (code as u8, None),
        (None, Some(signal)) => (128 + signal as u8, Some(format!("{status}"))),
        (None, None) => (1, Some(format!("{status}"))),
    }
}
