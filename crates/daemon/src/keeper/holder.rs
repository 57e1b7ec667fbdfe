//! The keeper's process.

use super::items::{Item, Items};
use super::orphaned::Orphaned;
use super::words::{Answer, OLDEST_VERSION, Order, PACKET, Tag, VERSION, decode, encode};
use crate::quota::is_master;
use anyhow::{Context as _, Result};
use pagemesh_os::clock;
use pagemesh_os::poll::{Poll, Ready};
use pagemesh_os::seqpacket::{Listener, Socket};
use pagemesh_os::signals::Signals;
use pagemesh_sorted::SortedMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// How long a new daemon may take to take something.
const PATIENCE: Duration = Duration::from_secs(10);

/// The first connection's token; those of later ones count up.
const FIRST: u64 = 16;
const LISTENER: u64 = 1;
const SIGNALS: u64 = 2;

/// Runs as the keeper of the daemon that is at the other end of `first`, until no process needs it
/// any more.
///
/// # Errors
/// If it cannot listen at `path`.
pub fn keep(first: OwnedFd, path: &Path, grace: Duration) -> Result<()> {
    stand_alone();
    let signals = Signals::catch(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
    let listener = Listener::bind(path, 0o600)
        .with_context(|| format!("cannot listen at {}", path.display()))?;
    let poll = Poll::new()?;
    poll.add(&listener, LISTENER)?;
    poll.add(&signals, SIGNALS)?;
    let mut holder = Holder {
        items: Items::new(),
        poll,
        signals,
        listener,
        connections: SortedMap::new(),
        daemon: None,
        last: FIRST,
        grace: u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX),
        deadline: None,
        over: false,
        buffer: vec![0; PACKET],
    };
    let first = Socket::from(first);
    first.send_surely(&encode(&Answer::Ready), &[])?;
    holder.connect(first)?;
    holder.daemon = Some(FIRST);
    holder.run()?;
    Orphaned::over(holder.finish())?.run()
}

/// Away from the daemon's terminal, directory and fate.
fn stand_alone() {
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    // Where it is allowed: small, and everything depends on it.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-900");
    crate::process::raise_limits();
}

struct Holder {
    items: Items,
    poll: Poll,
    signals: Signals,
    listener: Listener,
    connections: SortedMap<u64, Socket>,
    /// The connection of the daemon, if it lives.
    daemon: Option<u64>,
    last: u64,
    grace: u64,
    /// When the grace of a dead daemon ends. One that takes over and ends
    /// before it has settled gets no new one.
    deadline: Option<u64>,
    over: bool,
    buffer: Vec<u8>,
}

impl Holder {
    fn run(&mut self) -> Result<()> {
        let mut ready = Vec::new();
        while !self.over {
            let now = clock::monotonic();
            let waiting = self.deadline.filter(|_| self.daemon.is_none());
            if waiting.is_some_and(|deadline| deadline <= now) {
                tracing::error!("no daemon has come in time; its processes get errors");
                return Ok(());
            }
            let timeout = waiting.map(|deadline| deadline - now);
            self.poll.wait(timeout, &mut ready)?;
            for event in ready.drain(..) {
                self.dispatch(event);
            }
        }
        Ok(())
    }

    /// Before the orphaned: a daemon that starts now starts anew, with the
    /// addresses it likes.
    fn finish(mut self) -> Items {
        self.items
            .retain(|tag, _| matches!(tag, Tag::Session(_) | Tag::Memory(_) | Tag::Mapping(_)));
        self.items
    }

    fn dispatch(&mut self, event: Ready) {
        match event.token {
            LISTENER => match self.listener.accept() {
                Ok(socket) if is_of_master(&socket) => drop(self.connect(socket)),
                // A process of another user: the socket's mode was to keep it away.
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "nobody came"),
            },
            SIGNALS => self.signal(),
            token => self.hear(token),
        }
    }

    /// A daemon that lives decides itself when to end.
    fn signal(&mut self) {
        while let Ok(Some(number)) = self.signals.next() {
            if number == libc::SIGTERM && self.daemon.is_none() {
                self.over = true;
            }
        }
    }

    fn connect(&mut self, socket: Socket) -> io::Result<()> {
        let token = self.last;
        self.last += 1;
        self.poll.add(&socket, token)?;
        self.connections.insert(token, socket);
        Ok(())
    }

    fn hear(&mut self, token: u64) {
        loop {
            let Some(socket) = self.connections.get(&token) else {
                return;
            };
            match socket.recv_now(&mut self.buffer) {
                Ok(Some(packet)) => {
                    let order = decode(&self.buffer[..packet.len]);
                    self.obey(token, order, packet.fds);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(None) | Err(_) => return self.part(token),
            }
        }
    }

    fn obey(&mut self, token: u64, order: Option<Order>, fds: Vec<OwnedFd>) {
        // Perhaps its daemon has just died, and this was not noticed yet.
        if let Some(daemon) = self.daemon.filter(|daemon| *daemon != token) {
            self.hear(daemon);
        }
        let mine = self.daemon == Some(token);
        let fd = fds.into_iter().next();
        match (order, fd) {
            (Some(Order::Adopt { version }), None) if !mine => self.adopt(token, version),
            (Some(Order::Put { tag, note }), Some(fd)) if mine => {
                self.items.insert(tag, Item { note, fd });
            }
            (Some(Order::Drop { tag }), None) if mine => drop(self.items.remove(&tag)),
            (Some(Order::Settled), None) if mine => self.deadline = None,
            (Some(Order::End), None) if mine => {
                self.over = true;
            }
            (Some(Order::Dismiss), None) if self.daemon.is_none() => {
                self.items.clear();
                self.over = true;
            }
            (order, _) => {
                tracing::debug!(?order, "not an order of its daemon");
                self.part(token);
            }
        }
    }

    /// Gives everything to a new daemon.
    fn adopt(&mut self, token: u64, version: u32) {
        let refusal = if self.daemon.is_some() {
            Some(Answer::Busy)
        } else if !(OLDEST_VERSION..=VERSION).contains(&version) {
            Some(Answer::Foreign)
        } else {
            None
        };
        let Some(socket) = self.connections.get(&token) else {
            return;
        };
        if let Some(refusal) = refusal {
            let _ = socket.send_now(&encode(&refusal), &[]);
            return self.part(token);
        }
        match give(socket, &self.items) {
            Ok(()) => self.daemon = Some(token),
            Err(error) => {
                tracing::warn!(%error, "a new daemon did not take over");
                self.part(token);
            }
        }
    }

    fn part(&mut self, token: u64) {
        if let Some(socket) = self.connections.remove(&token) {
            let _ = self.poll.remove(&socket);
        }
        if self.daemon == Some(token) {
            self.daemon = None;
            let end = clock::monotonic().saturating_add(self.grace);
            self.deadline.get_or_insert(end);
        }
    }
}

fn give(socket: &Socket, items: &Items) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_send_timeout(PATIENCE)?;
    for (tag, item) in items {
        let answer = Answer::Item {
            tag: *tag,
            note: item.note.clone(),
        };
        socket.send_surely(&encode(&answer), &[item.fd.as_fd()])?;
    }
    socket.send_surely(&encode(&Answer::All), &[])
}

/// Only root and the daemon's own user.
fn is_of_master(socket: &Socket) -> bool {
    let peer = socket.peer();
    peer.is_ok_and(|peer| is_master(peer.credentials.uid))
}
