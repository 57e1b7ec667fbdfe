//! One socket to the daemon, shared by all threads of the process.
//!
//! Only threads that wait for a reply read the socket, one at a time: the *reader* puts every
//! packet into the inbox of the call it answers and rings that call's bell. When the reader has its
//! own reply, it makes another waiting thread the reader. A lone thread therefore needs one send
//! and one receive, and the library runs no thread of its own in the program.
//!
//! A process that often sends brief requests uses its request slot instead of the socket
//! ([`request_slot`]).

mod call;
mod orphan;
mod request_slot;
#[cfg(test)]
mod request_slot_tests;
mod router;
mod shown;
mod successor;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod undo_tests;

pub use orphan::Orphan;
pub use router::Answer;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use orphan::Successor;
use pagemesh_os::kept::{Mark, kept};
use pagemesh_os::seqpacket::Socket;
use pagemesh_os::signals::aside;
use pagemesh_wire::local::{MAX_PACKET, Reply, ReplyPacket, Request, RequestPacket};
use request_slot::{OurRequestSlot, Watch};
use router::{Gone, ReplyRouter};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use shown::Shown;

use crate::bell::left;
use crate::fork::{Belonging, Guarded};
use crate::{Error, Result};

/// How long a daemon may take to answer a new connection. Longer than the grace period of a daemon
/// that died, so that a process that connects meanwhile reaches its successor.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// The process's end of the socket.
#[derive(Debug)]
pub struct Connection {
    _kept: Mark,
    socket: Socket,
    belongs: Belonging,
    router: Guarded<ReplyRouter>,
    request_slot: OurRequestSlot,
    /// The user and group with which this process last made a System V call through the socket.
    shown: Shown,
    /// While this process forks: the connection for its child.
    successor: Guarded<Option<Successor>>,
}

impl Connection {
    /// Connects to the daemon that listens at `path`.
    pub fn connect(path: &Path) -> io::Result<Self> {
        Socket::connect_within(path, PATIENCE).map(Self::new)
    }

    /// A connection over an existing socket.
    pub fn new(socket: Socket) -> Self {
        let (mark, socket) = kept(socket.into());
        Self {
            _kept: mark,
            socket: socket.into(),
            belongs: Belonging::new(),
            router: Guarded::default(),
            request_slot: OurRequestSlot::default(),
            shown: Shown::default(),
            successor: Guarded::default(),
        }
    }

    /// True if the connection belongs to this process, not to its parent.
    pub fn is_ours(&self) -> bool {
        self.belongs.is_ours()
    }

    /// Sends the next System V call through the socket, so that the kernel tells the daemon who
    /// makes it.
    pub fn show_again(&self) {
        self.shown.forget();
    }

    /// Announces that this thread is about to sleep until states change that other nodes publish.
    /// `None` if it must watch by a request: at first, or since the daemon has no room for it.
    pub fn watch(&self) -> Option<Watch> {
        if !self.is_ours() {
            return None;
        }
        if self.request_slot.is_wanted() {
            self.ask_for_slot();
        }
        self.request_slot.watch()
    }

    /// True if the daemon has closed its end, and no successor has it.
    pub fn is_closed(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::empty())];
        let polled = poll(&mut fds, Some(&Timespec::default()));
        polled.is_ok_and(|count| count > 0)
    }

    /// A number for a request, never used before.
    pub fn number(&self) -> u64 {
        self.router.lock().number()
    }

    /// Decodes an answer that came through the request slot.
    fn came(&self, number: u64, bytes: &[u8]) -> Result<Answer> {
        let mut router = self.router.lock();
        match ReplyPacket::decode(bytes) {
            Ok(packet) if packet.number == number => {
                router.answered(number);
                Ok(Answer {
                    reply: packet.reply,
                    fds: Vec::new(),
                })
            }
            _ => {
                router.end(Gone::Malformed);
                Err(Gone::Malformed.into())
            }
        }
    }

    /// Handles an answer that came through the request slot when no thread waits for it any more.
    fn unseen(&self, number: u64, bytes: &[u8]) {
        if let Ok(answer) = self.came(number, bytes) {
            let mut router = self.router.lock();
            self.deliver(&mut router, Packet::Answer(number, answer));
        }
    }

    /// Hands a packet to the call it belongs to.
    fn deliver(&self, router: &mut ReplyRouter, packet: Packet) {
        match packet {
            Packet::Answer(number, answer) => {
                if let Some(request) = router.deliver(number, answer) {
                    // Do not block here, because other threads wait for the reader. If the socket
                    // is full, the daemon has a problem; it learns of the undo when this process
                    // ends.
                    let number = router.number();
                    let packet = RequestPacket { number, request };
                    let _ = self.socket.send_now(&packet.encode(), &[]);
                    router.tell();
                }
            }
            Packet::End(gone) => router.end(gone),
        }
    }

    /// Reads one packet. Only the reader calls this.
    fn read(&self, buffer: &mut [u8], until: Option<Instant>) -> Result<Packet> {
        // A read without time limit continues after handlers with SA_RESTART, poll never does:
        // sem_wait and sem_timedwait behave the same way.
        if until.is_none() {
            return self.receive(buffer, Socket::recv).map_err(stop);
        }
        loop {
            let timeout = left(until)?;
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            match aside(|| poll(&mut fds, timeout.as_ref())) {
                Ok(0) => return Err(Error::TimedOut),
                Ok(_) => {}
                Err(error) => return Err(stop(error.into())),
            }
            match self.receive(buffer, Socket::recv_now) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result.map_err(stop),
            }
        }
    }

    fn receive(&self, buffer: &mut [u8], how: Receive) -> io::Result<Packet> {
        match how(&self.socket, buffer) {
            Ok(Some(received)) => Ok(match ReplyPacket::decode(&buffer[..received.len]) {
                Ok(ReplyPacket { number, reply }) => {
                    let mut fds = received.fds;
                    self.request_slot.came(number, &mut fds);
                    Packet::Answer(number, Answer { reply, fds })
                }
                Err(_) => Packet::End(Gone::Malformed),
            }),
            Ok(None) => Ok(Packet::End(Gone::Closed)),
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => Err(error),
                io::ErrorKind::InvalidData => Ok(Packet::End(Gone::Malformed)),
                _ => Ok(Packet::End(Gone::Closed)),
            },
        }
    }

    /// Closes a call: its thread no longer waits for replies.
    fn close(&self, number: u64, answered: bool) {
        let undo = self.router.lock().close(number, answered);
        if let Some(request) = undo {
            self.tell(request);
        }
    }

    /// Sends in spite of signals; a daemon that is gone is not an error.
    fn send_surely(&self, packet: &RequestPacket) {
        while let Err(Error::Interrupted) = self.send(packet, &[]) {}
    }

    fn send(&self, packet: &RequestPacket, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let bytes = packet.encode();
        if bytes.len() > MAX_PACKET {
            return Err(Error::Invalid("a name or list is too long for one request"));
        }
        let sent = if matches!(packet.request, Request::Sysv(_)) {
            let sent = self.socket.send_as_me(&bytes);
            sent.inspect(|()| self.shown.now())
        } else {
            self.socket.send(&bytes, fds)
        };
        sent.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Error::DaemonGone,
            _ => stop(error),
        })
    }
}

/// An identifier of this thread, unique among the live threads.
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

/// A buffer for the reader's packets.
fn room() -> Box<[u8]> {
    vec![0; MAX_PACKET].into()
}

type Receive = fn(&Socket, &mut [u8]) -> io::Result<Option<pagemesh_os::seqpacket::Received>>;

/// A packet that the reader received.
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time is under way, and is taken apart at once"
)]
enum Packet {
    /// A reply to this call.
    Answer(u64, Answer),
    /// The connection ended; no more replies come.
    End(Gone),
}

fn stop(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::Interrupted {
        Error::Interrupted
    } else {
        Error::System(error)
    }
}

/// The error for a reply that does not fit its request.
pub fn unexpected(_: &Reply) -> Error {
    Error::Malformed(pagemesh_wire::local::PacketError)
}
