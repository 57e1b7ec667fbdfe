//! Waiting for the other end: without traffic while nothing happens, and with a look after it from
//! time to time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pagemesh_wire::local::Request;
use pagemesh_wire::{ByteOffset, PageCount};

use super::area::{Head, SESSION};
use super::{Peer, Pipe};
use crate::bell::after;
use crate::connection::Connection;
use crate::watch::doze;
use crate::{Error, Result};

/// A sleep lasts so long at first, and twice as long each time, up to the longest.
const SLEEP: Duration = Duration::from_millis(25);
const LONGEST_SLEEP: Duration = Duration::from_millis(400);

/// How the waiting threads look after the other ends: less and less often.
#[derive(Debug)]
pub struct Watchfulness(Duration);

impl Default for Watchfulness {
    fn default() -> Self {
        Self(SLEEP)
    }
}

impl Watchfulness {
    /// The end of the next sleep, and whether it is that of the wait.
    fn next(&mut self, until: Option<Instant>) -> (Option<Instant>, bool) {
        let short = after(self.0);
        self.0 = (self.0 * 2).min(LONGEST_SLEEP);
        match until.filter(|until| short.is_none_or(|short| *until <= short)) {
            Some(until) => (Some(until), true),
            None => (short, false),
        }
    }
}

/// Sleeps until the other end of one of the pipes may have published something (E9, without a
/// fault: a sleep in a fault has no time limit). All pipes have one connection. Looks after the
/// other ends when that takes long.
pub fn sleep(
    pipes: &[&Pipe],
    watchfulness: &mut Watchfulness,
    until: Option<Instant>,
    ready: &mut dyn FnMut() -> Result<bool>,
) -> Result<()> {
    let Some(connection) = pipes.first().map(|pipe| pipe.segment.mesh().connection()) else {
        return Err(Error::Invalid("there is no pipe to wait for"));
    };
    let (end, is_last) = watchfulness.next(until);
    match sleep_until(connection, pipes, end, ready) {
        Err(Error::TimedOut) if !is_last => {
            let alive = watchfulness.0 == LONGEST_SLEEP;
            pipes.iter().try_for_each(|pipe| pipe.look_after(alive))
        }
        slept => slept,
    }
}

fn sleep_until(
    connection: &Connection,
    pipes: &[&Pipe],
    end: Option<Instant>,
    ready: &mut dyn FnMut() -> Result<bool>,
) -> Result<()> {
    // Changes of other segments wake this thread, too.
    while doze(connection, end, ready)? {
        if ready()? {
            return Ok(());
        }
    }
    let bell = Arc::default();
    let mut calls = Vec::with_capacity(pipes.len());
    for pipe in pipes {
        let call = connection.start_on(Arc::clone(&bell), pipe.watch(), &[], None)?;
        let mut call = call.surely(true);
        if call.begin(end)?.is_some() {
            return Ok(());
        }
        calls.push(call);
    }
    if ready()? {
        return Ok(());
    }
    connection.first(&mut calls, end).map(drop)
}

impl Pipe {
    /// Waits until the message before has been read.
    pub(super) fn wait_for_room(&self, until: Option<Instant>) -> Result<()> {
        let mut watchfulness = Watchfulness::default();
        loop {
            self.check_peer()?;
            if self.has_room()? {
                return Ok(());
            }
            let mut ready = || Ok(self.has_room()? || self.check_peer().is_err());
            sleep(&[self], &mut watchfulness, until, &mut ready)?;
        }
    }

    /// Waits for a message.
    pub(super) fn wait_for_message(&self, until: Option<Instant>) -> Result<(Head, Vec<u8>)> {
        let mut watchfulness = Watchfulness::default();
        loop {
            if let Some(found) = self.look()? {
                return Ok(found);
            }
            // The last message of an end that closed is read first; it came before this word did.
            if let Err(over) = self.check_peer() {
                return self.look()?.ok_or(over);
            }
            let mut ready = || Ok(self.look()?.is_some() || self.check_peer().is_err());
            sleep(&[self], &mut watchfulness, until, &mut ready)?;
        }
    }

    /// Fails if the other end is not open any more.
    pub(crate) fn check_peer(&self) -> Result<()> {
        match self.peer()? {
            Peer::Absent | Peer::Open => Ok(()),
            Peer::Closed => Err(Error::PipeClosed),
            Peer::Dead => Err(Error::PeerDied),
        }
    }

    fn watch(&self) -> Request {
        let at = ByteOffset(self.layout.area(1 - self.end) as u64);
        Request::WatchRange {
            segment: self.segment.id(),
            first: at.page().expect("it lies in the segment"),
            count: PageCount(1),
        }
    }

    /// Fetches the words of the other end anew (E16), and looks whether its process is alive.
    pub(super) fn look_after(&self, alive: bool) -> Result<()> {
        self.purge_short()?;
        if self.next()?.is_some() && self.look()?.is_none() {
            // Its words are here, and not all of its data.
            self.purge_whole()?;
        }
        if !alive || self.peer()? != Peer::Open {
            return Ok(());
        }
        let session = self.theirs(SESSION)?;
        if self.seat_is_free()? {
            // It may have closed the end, or sent its last message, since this node looked.
            self.purge_short()?;
            if self.theirs(SESSION)? == session && !self.is_closed()? {
                self.dead.store(session, Ordering::Release);
            }
        }
        Ok(())
    }
}
