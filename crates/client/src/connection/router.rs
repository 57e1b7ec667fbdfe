//! The open calls of a connection, and the threads that wait for their replies.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use pagemesh_wire::local::{PacketError, Reply, Request};

use crate::bell::Bell;
use crate::{Error, Result};

/// A reply, and the descriptors that came with it.
#[derive(Debug)]
pub struct Answer {
    /// The reply itself.
    pub reply: Reply,
    /// The descriptors that the daemon lent.
    pub fds: Vec<OwnedFd>,
}

/// Why no more replies will come.
#[derive(Clone, Copy, Debug)]
pub enum Gone {
    /// The daemon closed its end.
    Closed,
    /// The daemon sent a malformed packet.
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

/// The table of open calls; see the module.
#[derive(Debug, Default)]
pub struct ReplyRouter {
    last: u64,
    open: HashMap<u64, Entry>,
    /// The thread that is reading the socket.
    pub reader: Option<usize>,
    /// The receive buffer for the next reader; the present reader has taken it.
    pub buffer: Option<Box<[u8]>>,
    /// Number of requests sent whose replies are not awaited.
    told: u64,
    /// How many of these the daemon has certainly handled, because it has answered a later request.
    heard: u64,
    /// Set once no more replies will come.
    pub gone: Option<Gone>,
}

#[derive(Debug)]
struct Entry {
    inbox: VecDeque<Answer>,
    bell: Arc<Bell>,
    asleep: bool,
    undo: Option<Request>,
    /// No thread waits for the call any more; it is kept because of `undo`.
    orphan: bool,
    /// For a call through the socket: the value of `told` when it was sent.
    behind: Option<u64>,
}

impl ReplyRouter {
    /// In a forked child, which has none of the threads that made these calls: forgets them.
    /// Nothing is freed, because those threads may have been inside the allocator.
    pub fn forget(&mut self) {
        std::mem::forget(std::mem::take(&mut self.open));
        std::mem::forget(self.buffer.take());
        (self.reader, self.gone) = (None, None);
        (self.told, self.heard) = (0, 0);
    }

    /// A fresh request number.
    pub fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Opens a call whose thread sleeps on this bell.
    pub fn open(&mut self, undo: Option<Request>, bell: &Arc<Bell>) -> Result<u64> {
        if let Some(gone) = self.gone {
            return Err(gone.into());
        }
        let number = self.number();
        let entry = Entry {
            inbox: VecDeque::new(),
            bell: Arc::clone(bell),
            asleep: false,
            undo,
            orphan: false,
            behind: Some(self.told),
        };
        self.open.insert(number, entry);
        Ok(number)
    }

    /// Counts a sent request whose reply is not awaited.
    pub fn tell(&mut self) {
        self.told += 1;
    }

    /// How many of these the daemon may not have handled yet. No request may overtake them.
    pub fn unheard(&self) -> u64 {
        self.told - self.heard
    }

    /// This call goes through the request slot: its answer does not show that earlier requests on
    /// the socket were handled.
    pub fn detour(&mut self, number: u64) {
        if let Some(entry) = self.open.get_mut(&number) {
            entry.behind = None;
        }
    }

    /// Notes that the daemon answered this call.
    pub fn answered(&mut self, number: u64) {
        let entry = self.open.get(&number);
        if let Some(behind) = entry.and_then(|entry| entry.behind) {
            self.heard = self.heard.max(behind);
        }
    }

    /// Closes a call. A result that its thread has not seen must be given back: now, by sending the
    /// returned request, or when the result comes.
    pub fn close(&mut self, number: u64, answered: bool) -> Option<Request> {
        let entry = self.open.get_mut(&number)?;
        let waits = !answered && entry.undo.is_some() && self.gone.is_none();
        // The daemon refuses the release of a lock that the process does not hold. So it is sent at
        // once, behind the request: this process may never read a late reply.
        let harmless = matches!(entry.undo, Some(Request::Unlock { .. }));
        let unanswered = entry.inbox.is_empty();
        if waits && unanswered && !harmless {
            entry.orphan = true;
            return None;
        }
        let entry = self.open.remove(&number)?;
        let got = |answer: &Answer| !matches!(answer.reply, Reply::Refused(_));
        let undone = unanswered || entry.inbox.iter().any(got);
        entry.undo.filter(|_| waits && undone)
    }

    /// The next reply to a call, if it has come.
    pub fn take(&mut self, number: u64) -> Option<Answer> {
        let answer = self.open.get_mut(&number)?.inbox.pop_front()?;
        self.answered(number);
        Some(answer)
    }

    /// Notes whether the call's thread sleeps.
    pub fn sleeps(&mut self, number: u64, asleep: bool) {
        if let Some(entry) = self.open.get_mut(&number) {
            entry.asleep = asleep;
        }
    }

    /// Puts a reply into the inbox of its call; a reply to an unknown call is dropped. Returns the
    /// request that gives back a result which is no longer wanted.
    pub fn deliver(&mut self, number: u64, answer: Answer) -> Option<Request> {
        let entry = self.open.get_mut(&number)?;
        if !entry.orphan {
            entry.inbox.push_back(answer);
            // The reader checks its inbox before it sleeps, so only a sleeping thread is woken.
            if entry.asleep {
                entry.bell.ring();
            }
            return None;
        }
        let undo = self.open.remove(&number)?.undo;
        undo.filter(|_| !matches!(answer.reply, Reply::Refused(_)))
    }

    /// Notes that no more replies come, and wakes all waiting threads.
    pub fn end(&mut self, gone: Gone) {
        self.gone = Some(gone);
        for entry in self.open.values() {
            entry.bell.ring();
        }
    }

    /// If no thread reads, wakes a sleeping thread to become the reader. Every thread that stops
    /// waiting calls this; otherwise no thread would read.
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
