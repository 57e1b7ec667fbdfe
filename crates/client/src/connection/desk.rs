//! The calls of a connection that are open, and who waits for what.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use pagemesh_wire::local::{PacketError, Reply, Request};

use crate::bell::Bell;
use crate::{Error, Result};

/// A reply, and the descriptors that came with it.
#[derive(Debug)]
pub struct Answer {
    /// What the daemon said.
    pub reply: Reply,
    /// What it lent.
    pub fds: Vec<OwnedFd>,
}

/// Why there will be no more replies.
#[derive(Clone, Copy, Debug)]
pub enum Gone {
    /// The daemon closed its end.
    Closed,
    /// The daemon said something incomprehensible.
    Malformed,
}

impl From<Gone> for Error {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Closed => Self::DaemonGone,
            Gone::Malformed => Self::Malformed(PacketError),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Desk {
    last: u64,
    open: HashMap<u64, Entry>,
    /// The thread that is reading the socket.
    pub reader: Option<usize>,
    /// For the next reader; the one that reads has taken it.
    pub buffer: Option<Box<[u8]>>,
    /// Requests sent whose replies nobody awaits.
    told: u64,
    /// So many of these the daemon has surely handled: it has answered what was sent later.
    heard: u64,
    /// There will be no more replies.
    pub gone: Option<Gone>,
}

#[derive(Debug)]
struct Entry {
    inbox: VecDeque<Answer>,
    bell: Arc<Bell>,
    asleep: bool,
    undo: Option<Request>,
    /// Nobody waits any more; kept for the sake of `undo`.
    orphan: bool,
    /// If it goes through the socket: what had been told before.
    behind: Option<u64>,
}

impl Desk {
    /// In a forked child, which has none of the threads whose calls these are.
    /// Nothing is freed: they may have been about to allocate.
    pub fn forget(&mut self) {
        std::mem::forget(std::mem::take(&mut self.open));
        std::mem::forget(self.buffer.take());
        (self.reader, self.gone) = (None, None);
        (self.told, self.heard) = (0, 0);
    }

    /// A fresh number.
    pub fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Opens a call.
    pub fn open(&mut self, undo: Option<Request>) -> Result<(u64, Arc<Bell>)> {
        if let Some(gone) = self.gone {
            return Err(gone.into());
        }
        let number = self.number();
        let bell = Arc::new(Bell::default());
        let entry = Entry {
            inbox: VecDeque::new(),
            bell: Arc::clone(&bell),
            asleep: false,
            undo,
            orphan: false,
            behind: Some(self.told),
        };
        self.open.insert(number, entry);
        Ok((number, bell))
    }

    /// Something was sent whose reply nobody awaits.
    pub fn tell(&mut self) {
        self.told += 1;
    }

    /// So many of these the daemon may not have handled yet. Nothing may overtake them.
    pub fn unheard(&self) -> u64 {
        self.told - self.heard
    }

    /// This call goes another way than the socket: its answer says nothing of what was told.
    pub fn detour(&mut self, number: u64) {
        if let Some(entry) = self.open.get_mut(&number) {
            entry.behind = None;
        }
    }

    /// The daemon answered this call.
    pub fn answered(&mut self, number: u64) {
        let entry = self.open.get(&number);
        if let Some(behind) = entry.and_then(|entry| entry.behind) {
            self.heard = self.heard.max(behind);
        }
    }

    /// Closes a call. What it got unseen must be given back: now, by sending
    /// what this returns, or when it comes.
    pub fn close(&mut self, number: u64, answered: bool) -> Option<Request> {
        let entry = self.open.get_mut(&number)?;
        let waits = !answered && entry.undo.is_some() && self.gone.is_none();
        if waits && entry.inbox.is_empty() {
            entry.orphan = true;
            return None;
        }
        let entry = self.open.remove(&number)?;
        let got = |answer: &Answer| !matches!(answer.reply, Reply::Refused(_));
        entry.undo.filter(|_| waits && entry.inbox.iter().any(got))
    }

    /// The next reply to a call, if it has come.
    pub fn take(&mut self, number: u64) -> Option<Answer> {
        let answer = self.open.get_mut(&number)?.inbox.pop_front()?;
        self.answered(number);
        Some(answer)
    }

    /// Notes whether a call's thread sleeps.
    pub fn sleeps(&mut self, number: u64, asleep: bool) {
        if let Some(entry) = self.open.get_mut(&number) {
            entry.asleep = asleep;
        }
    }

    /// Puts a reply where its call finds it; a reply to nobody is dropped.
    /// Returns what to send in order to give back what nobody wants any more.
    pub fn deliver(&mut self, number: u64, answer: Answer) -> Option<Request> {
        let entry = self.open.get_mut(&number)?;
        if !entry.orphan {
            entry.inbox.push_back(answer);
            // Who reads looks here before it sleeps.
            if entry.asleep {
                entry.bell.ring();
            }
            return None;
        }
        let undo = self.open.remove(&number)?.undo;
        undo.filter(|_| !matches!(answer.reply, Reply::Refused(_)))
    }

    /// No more replies: everybody shall know.
    pub fn end(&mut self, gone: Gone) {
        self.gone = Some(gone);
        for entry in self.open.values() {
            entry.bell.ring();
        }
    }

    /// If nobody reads, wakes a thread that sleeps, to read. Called by whoever
    /// stops waiting, so that the chain does not break.
    pub fn appoint_reader(&self) {
        if self.reader.is_some() {
            return;
        }
        let sleeper = self
            .open
            .values()
            .find(|entry| entry.asleep && entry.inbox.is_empty());
        if let Some(entry) = sleeper {
            entry.bell.ring();
        }
    }
}
