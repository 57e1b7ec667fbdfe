//! Numbered processes that send each other messages: `csend` and `crecv`, as those of Intel's
//! hypercubes, over pipes (E15).

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::bell::after;
use crate::fork::Guarded;
use crate::pipe::{Watchfulness, sleep};
use crate::{End, Error, Job, Mesh, Pipe, PipeOptions, Result};

/// Processes of a group at most: each has a pipe to each other one.
const LARGEST: u32 = 64;

/// Bytes of messages of other kinds that wait in the process of their receiver at most. A program
/// that lets more wait has forgotten to receive a kind.
const SET_ASIDE: usize = 256 << 20;

/// Options of a group; all its processes give the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupOptions {
    /// Permission bits for owner, group and others, as of a file.
    pub mode: u16,
    /// Bytes of the longest message.
    pub size: usize,
}

impl Default for GroupOptions {
    /// Mode 0600, and messages of up to a page without the words before them.
    fn default() -> Self {
        let PipeOptions { mode, size, .. } = PipeOptions::default();
        Self { mode, size }
    }
}

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its kind, as its sender gave it.
    pub kind: i64,
    /// The number of the process that sent the message.
    pub from: u32,
    /// The message.
    pub bytes: Vec<u8>,
}

/// This process in a group of numbered processes.
#[derive(Debug)]
pub struct Group {
    mesh: Mesh,
    name: String,
    number: u32,
    options: GroupOptions,
    /// By the numbers of the others.
    pipes: Vec<OnceLock<Pipe>>,
    /// Messages that were read while another kind was asked for, in the order of their arrival.
    aside: Guarded<Aside>,
}

#[derive(Debug, Default)]
struct Aside {
    messages: VecDeque<Received>,
    bytes: usize,
    /// Whose pipe is looked at first, so that each has its turn.
    turn: usize,
}

impl Group {
    /// Joins a group as process `number` of `count`. A pipe to another process is opened when it is
    /// needed first.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a number not below `count`, and beyond 64 processes.
    pub fn join(
        mesh: &Mesh,
        name: &str,
        (number, count): (u32, u32),
        options: GroupOptions,
    ) -> Result<Self> {
        if number >= count || count > LARGEST {
            return Err(Error::Invalid(
                "a group has 1 to 64 processes, with numbers from 0",
            ));
        }
        Ok(Self {
            mesh: mesh.clone(),
            name: name.into(),
            number,
            options,
            pipes: (0..count).map(|_| OnceLock::new()).collect(),
            aside: Guarded::default(),
        })
    }

    /// The group of all processes of this process's job.
    ///
    /// # Errors
    /// As [`Job::from_env`] and [`Group::join`].
    pub fn of_job(mesh: &Mesh, options: GroupOptions) -> Result<Self> {
        let job = Job::from_env(mesh)?;
        let name = format!("{}.group", job.segment().name());
        Self::join(mesh, &name, (job.rank(), job.size()), options)
    }

    /// The number of this process.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// How many processes there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.pipes.len() as u32
    }

    /// Sends a message of this kind, 0 or more, to process `to`. Returns when it is stored and
    /// sent, before it is received; the buffer can be used again.
    ///
    /// # Errors
    /// As [`Pipe::send`]; [`Error::Invalid`] if there is no such process, or it is this one.
    pub fn csend(&self, kind: i64, bytes: &[u8], to: u32, timeout: Option<Duration>) -> Result<()> {
        if kind < 0 {
            return Err(Error::Invalid("the kind of a message is 0 or more"));
        }
        self.pipe(to)?.send_as(kind, bytes, timeout.and_then(after))
    }

    /// Receives the next message of this kind, of any kind if `None`, from process `from`, or from
    /// any. Messages from one process come in the order in which it sent them; those of other kinds
    /// wait in this process.
    ///
    /// # Errors
    /// As [`Pipe::receive`], if no process from which a message may come is there any more.
    pub fn crecv(
        &self,
        kind: Option<i64>,
        from: Option<u32>,
        timeout: Option<Duration>,
    ) -> Result<Received> {
        let until = timeout.and_then(after);
        let others: Vec<u32> = match from {
            Some(from) => vec![from],
            None => (0..self.count()).filter(|n| *n != self.number).collect(),
        };
        let pipes = others.iter().map(|number| self.pipe(*number));
        let pipes = pipes.collect::<Result<Vec<_>>>()?;
        let wanted = |message: &Received| {
            kind.is_none_or(|kind| kind == message.kind)
                && from.is_none_or(|from| from == message.from)
        };
        let mut watchfulness = Watchfulness::default();
        loop {
            if let Some(message) = self.next(&others, &pipes, wanted)? {
                return Ok(message);
            }
            self.wait(&pipes, &mut watchfulness, until)?;
        }
    }

    /// The next message that is wanted: one that was set aside, or one from a pipe.
    fn next(
        &self,
        others: &[u32],
        pipes: &[&Pipe],
        wanted: impl Fn(&Received) -> bool,
    ) -> Result<Option<Received>> {
        let mut aside = self.aside.lock();
        if let Some(place) = aside.messages.iter().position(&wanted) {
            let message = aside.messages.remove(place);
            aside.bytes -= message.as_ref().map_or(0, |message| message.bytes.len());
            return Ok(message);
        }
        let turn = aside.turn % pipes.len().max(1);
        for place in (turn..pipes.len()).chain(0..turn) {
            while aside.bytes <= SET_ASIDE
                && let Some((kind, bytes)) = pipes[place].try_receive()?
            {
                let from = others[place];
                let message = Received { kind, from, bytes };
                if wanted(&message) {
                    aside.turn = place + 1;
                    return Ok(Some(message));
                }
                aside.bytes += message.bytes.len();
                aside.messages.push_back(message);
            }
        }
        if aside.bytes > SET_ASIDE {
            return Err(Error::Invalid(
                "more than 256 MiB of messages of other kinds wait: receive them",
            ));
        }
        Ok(None)
    }

    /// Puts a message back: it is the next one that is received.
    #[doc(hidden)]
    pub fn put_back(&self, message: Received) {
        let mut aside = self.aside.lock();
        aside.bytes += message.bytes.len();
        aside.messages.push_front(message);
    }

    /// Sleeps until something may have come from one of those that are still there.
    fn wait(
        &self,
        pipes: &[&Pipe],
        watchfulness: &mut Watchfulness,
        until: Option<Instant>,
    ) -> Result<()> {
        let mut over = Error::Invalid("a process alone in its group receives nothing");
        let mut there = Vec::with_capacity(pipes.len());
        for pipe in pipes {
            match pipe.check_peer() {
                Ok(()) => there.push(*pipe),
                Err(error @ (Error::PipeClosed | Error::PeerDied)) => over = error,
                Err(error) => return Err(error),
            }
        }
        let mut ready = || {
            let mut any = false;
            for pipe in pipes {
                any |= pipe.has_news()?;
            }
            for pipe in &there {
                any |= pipe.check_peer().is_err();
            }
            Ok(any)
        };
        if there.is_empty() {
            // What came with the last words of the others is received first.
            return if ready()? { Ok(()) } else { Err(over) };
        }
        sleep(&there, watchfulness, until, &mut ready)
    }

    /// The pipe to another process; of the two, the one with the lower number has the first end.
    fn pipe(&self, other: u32) -> Result<&Pipe> {
        let place = self
            .pipes
            .get(other as usize)
            .filter(|_| other != self.number);
        let place = place.ok_or(Error::Invalid(
            "there is no such process in the group, or it is this one",
        ))?;
        if let Some(pipe) = place.get() {
            return Ok(pipe);
        }
        let (low, high) = (self.number.min(other), self.number.max(other));
        let end = match self.number == low {
            true => End::First,
            false => End::Second,
        };
        let options = PipeOptions {
            mode: self.options.mode,
            size: self.options.size,
            end,
        };
        // One thread at a time: the second would find the end open.
        let _one = self.aside.lock();
        if let Some(pipe) = place.get() {
            return Ok(pipe);
        }
        let pipe = Pipe::create(&self.mesh, &self.pipe_name(low, high), options)?;
        Ok(place.get_or_init(|| pipe))
    }

    /// Removes the names of all pipes of the group; processes that have them open keep them. One
    /// process does so when no other one will open a pipe any more.
    ///
    /// # Errors
    /// As [`Mesh::remove`]; a pipe that was never used is no error.
    pub fn remove(&self) -> Result<()> {
        for high in 1..self.count() {
            for low in 0..high {
                match self.mesh.remove(&self.pipe_name(low, high)) {
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn pipe_name(&self, low: u32, high: u32) -> String {
        format!("{}.{low}-{high}", self.name)
    }
}
