//! The copies of one program, one a rank: their output, their end, their exit code.
//!
//! A copy is a process here or one on another node; both are threads that send
//! [`Event`]s, and something that takes a signal.

mod local;
mod remote;

pub(crate) use local::LocalCopy;
pub(crate) use remote::RemoteCopy;

use crate::exit::Exit;
use crate::output;
use crate::units::parse_duration;
use anyhow::{Context as _, Result};
use clap::{ArgAction, Args};
use rustix::process::Signal;
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Lines under way between the copies and our own output.
const BACKLOG: usize = 1024;

/// Copies that were told to end may take this long before they are killed.
const MERCY: Duration = Duration::from_secs(3);

/// Output may come this long after its process ended.
const AFTERGLOW: Duration = Duration::from_secs(1);

/// Longest line that is kept together.
const LINE_LIMIT: usize = 64 * 1024;

/// Which output of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// An event of a copy.
#[derive(Debug)]
pub(crate) enum Event {
    /// It said something.
    Said(usize, Stream, Vec<u8>),
    /// One of its outputs is closed.
    Closed(usize, Stream),
    /// It is over, with this exit code; and why, if that needs telling.
    Ended(usize, u8, Option<String>),
    /// We were told to stop.
    Interrupted(i32),
}

/// Where copies send their events.
pub(crate) type Events = SyncSender<Event>;

/// A copy as its supervisor sees it.
pub(crate) trait Copy {
    /// Passes a signal on, to all processes of the copy. Best effort.
    fn signal(&self, signal: Signal);
}

/// A channel for events.
pub(crate) fn events() -> (Events, Receiver<Event>) {
    sync_channel(BACKLOG)
}

/// How the copies are looked after.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Care {
    /// Once a copy has failed, the others may go on this long
    #[arg(long, default_value = "5s", value_parser = parse_duration)]
    pub(crate) grace: Duration,
    /// End all copies after this long, with exit code 124
    #[arg(long = "timeout", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) limit: Option<Duration>,
    /// Do not begin output lines with [rank]
    #[arg(long = "no-prefix", action = ArgAction::SetFalse)]
    pub(crate) prefix: bool,
}

/// The exit code of a job that took too long, as of timeout(1).
const TOO_LONG: u8 = 124;

/// Looks after copies until all have ended, and returns the worst exit code.
pub(crate) fn supervise(
    copies: &[Box<dyn Copy>],
    events: &Receiver<Event>,
    care: Care,
) -> Result<Exit> {
    Supervisor {
        copies,
        care,
        lines: HashMap::new(),
        running: vec![true; copies.len()],
        open: copies.len() * 2,
        worst: 0,
        stop: Stop::No,
        deadline: care.limit.map(|limit| Instant::now() + limit),
        pressed: false,
    }
    .run(events)
}

/// How far the end of the job has come.
enum Stop {
    No,
    /// Copies are asked to end at this time.
    Ask(Instant),
    /// Copies are killed at this time.
    Kill(Instant),
    Killed,
}

struct Supervisor<'a> {
    copies: &'a [Box<dyn Copy>],
    care: Care,
    lines: HashMap<(usize, Stream), Vec<u8>>,
    running: Vec<bool>,
    open: usize,
    worst: u8,
    stop: Stop,
    /// When the job has taken too long.
    deadline: Option<Instant>,
    /// Copies were told to end.
    pressed: bool,
}

impl Supervisor<'_> {
    fn run(mut self, events: &Receiver<Event>) -> Result<Exit> {
        let mut over = None;
        loop {
            if over.is_none() && !self.running.contains(&true) {
                over = Some(Instant::now() + AFTERGLOW);
            }
            if over.is_some_and(|at| self.open == 0 || at <= Instant::now()) {
                self.flush()?;
                return Ok(Exit(self.worst));
            }
            self.press();
            match events.recv_timeout(self.patience(over)) {
                Ok(event) => self.handle(event)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.running.fill(false),
            }
        }
    }

    fn patience(&self, over: Option<Instant>) -> Duration {
        let next = match self.stop {
            Stop::Ask(at) | Stop::Kill(at) => Some(at),
            Stop::No | Stop::Killed => None,
        };
        [next, over, self.deadline]
            .into_iter()
            .flatten()
            .min()
            .map_or(Duration::from_secs(60), |at| {
                at.saturating_duration_since(Instant::now())
            })
    }

    fn handle(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Said(rank, stream, bytes) => self.say(rank, stream, &bytes)?,
            Event::Closed(rank, stream) => {
                self.open = self.open.saturating_sub(1);
                if let Some(rest) = self.lines.remove(&(rank, stream)) {
                    self.print(rank, stream, &rest)?;
                }
            }
            Event::Ended(rank, code, why) => self.ended(rank, code, why),
            Event::Interrupted(signal) => self.interrupted(signal),
        }
        Ok(())
    }

    /// Prints whole lines and keeps the rest until it is one.
    fn say(&mut self, rank: usize, stream: Stream, bytes: &[u8]) -> Result<()> {
        let mut kept = self.lines.remove(&(rank, stream)).unwrap_or_default();
        kept.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(length) = kept[start..].iter().position(|byte| *byte == b'\n') {
            self.print(rank, stream, &kept[start..start + length])?;
            start += length + 1;
        }
        kept.drain(..start);
        if kept.len() > LINE_LIMIT {
            self.print(rank, stream, &kept)?;
            kept.clear();
        }
        if !kept.is_empty() {
            self.lines.insert((rank, stream), kept);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        for ((rank, stream), rest) in std::mem::take(&mut self.lines) {
            self.print(rank, stream, &rest)?;
        }
        Ok(())
    }

    fn print(&self, rank: usize, stream: Stream, line: &[u8]) -> Result<()> {
        let mut whole = Vec::with_capacity(line.len() + 8);
        if self.care.prefix {
            write!(whole, "[{rank}] ")?;
        }
        whole.extend_from_slice(line);
        whole.push(b'\n');
        let result = match stream {
            Stream::Out => io::stdout().write_all(&whole),
            Stream::Err => io::stderr().write_all(&whole),
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result.context("cannot write the output of a rank"),
        }
    }

    fn ended(&mut self, rank: usize, code: u8, why: Option<String>) {
        self.running[rank] = false;
        // How a copy ends that we ended says nothing about the job.
        if code == 0 || self.pressed {
            return;
        }
        self.worst = self.worst.max(code);
        let why = why.unwrap_or_else(|| format!("exit code {code}"));
        let others = self.running.iter().filter(|running| **running).count();
        if matches!(self.stop, Stop::No) {
            output::note(format_args!("pagemesh: rank {rank} failed: {why}"));
            if others > 0 {
                self.stop = Stop::Ask(Instant::now() + self.care.grace);
            }
        }
    }

    fn interrupted(&mut self, signal: i32) {
        self.worst = self.worst.max(128 + signal as u8);
        let again = matches!(self.stop, Stop::Kill(_) | Stop::Killed);
        if again {
            self.stop = Stop::Kill(Instant::now());
            return;
        }
        self.tell(Signal::from_named_raw(signal).unwrap_or(Signal::TERM));
        self.stop = Stop::Kill(Instant::now() + MERCY);
    }

    /// Takes the next step towards the end, if it is due.
    fn press(&mut self) {
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            output::note(format_args!("pagemesh: not done in time; ending all ranks"));
            self.worst = self.worst.max(TOO_LONG);
            self.tell(Signal::TERM);
            self.stop = Stop::Kill(now + MERCY);
        }
        match self.stop {
            Stop::Ask(at) if at <= now => {
                output::note(format_args!(
                    "pagemesh: the other ranks still run {} s later; ending them",
                    self.care.grace.as_secs()
                ));
                self.tell(Signal::TERM);
                self.stop = Stop::Kill(now + MERCY);
            }
            Stop::Kill(at) if at <= now => {
                self.tell(Signal::KILL);
                self.stop = Stop::Killed;
            }
            _ => {}
        }
    }

    fn tell(&mut self, signal: Signal) {
        self.pressed = true;
        for (copy, _) in self
            .copies
            .iter()
            .zip(&self.running)
            .filter(|(_, running)| **running)
        {
            copy.signal(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn run(scripts: &[&str], grace: Duration) -> (u8, Duration) {
        let start = Instant::now();
        let (sender, receiver) = events();
        let copies: Vec<Box<dyn Copy>> = scripts
            .iter()
            .enumerate()
            .map(|(rank, script)| {
                let mut command = Command::new("sh");
                command.args(["-c", script]);
                Box::new(LocalCopy::start(rank, command, &sender).unwrap()) as Box<dyn Copy>
            })
            .collect();
        drop(sender);
        let care = Care {
            prefix: true,
            grace,
            limit: Some(Duration::from_secs(20)),
        };
        let exit = supervise(&copies, &receiver, care).unwrap();
        (exit.0, start.elapsed())
    }

    #[test]
    fn the_worst_exit_code_counts() {
        let grace = Duration::from_secs(60);
        assert_eq!(run(&["exit 0", "exit 0"], grace).0, 0);
        assert_eq!(run(&["exit 3", "exit 0", "exit 5"], grace).0, 5);
        assert_eq!(run(&["kill -9 $$", "exit 5"], grace).0, 137);
    }

    #[test]
    fn a_failure_ends_the_others_after_the_grace() {
        let (code, took) = run(&["exit 1", "sleep 60"], Duration::from_millis(50));
        assert_eq!(code, 1);
        assert!(took < Duration::from_secs(10), "{took:?}");
    }

    #[test]
    fn what_a_copy_leaves_running_is_ended_with_it() {
        let (code, took) = run(&["sleep 60 & echo left"], Duration::from_secs(60));
        assert_eq!(code, 0);
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}
