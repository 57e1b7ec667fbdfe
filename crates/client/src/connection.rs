//! One socket to the daemon, shared by all threads of the process.
//!
//! Nobody reads the socket but threads that wait for a reply, one at a time: the
//! *reader* puts every packet into the inbox of the call it answers and rings
//! that call's bell. When the reader has what it waited for, it makes another
//! waiting thread the reader. So a lone thread pays one send and one receive,
//! and no thread of ours runs in the program.
//!
//! Brief requests of a process that asks often go past the socket, through its hatch ([`hatch`]).

mod call;
mod desk;
mod hatch;
#[cfg(test)]
mod hatch_tests;
mod heir;
#[cfg(test)]
mod tests;

pub use call::Call;
pub use desk::Answer;
pub use heir::Orphan;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use desk::{Desk, Gone};
use hatch::OurHatch;
use heir::Heir;
use pagemesh_os::kept::{Mark, kept};
use pagemesh_os::seqpacket::Socket;
use pagemesh_os::signals::aside;
use pagemesh_wire::local::{MAX_PACKET, Reply, ReplyPacket, Request, RequestPacket};
use rustix::event::{PollFd, PollFlags, poll};

use crate::bell::{after, left};
use crate::fork::{Belonging, Guarded};
use crate::{Error, Result};

/// Of so many requests whose replies nobody awaits, one is awaited after all,
/// lest they fill the socket.
const UNREAD_LIMIT: u64 = 32;

/// How long that may take.
const TELL_PATIENCE: Duration = Duration::from_secs(1);

/// How long a daemon may take to answer a process that is new to it. Longer than
/// the grace of one that died: whoever comes meanwhile gets to the next one.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// The process's end of the socket.
#[derive(Debug)]
pub struct Connection {
    _kept: Mark,
    socket: Socket,
    belongs: Belonging,
    desk: Guarded<Desk>,
    hatch: OurHatch,
    /// While this process forks: the connection of its child.
    heir: Guarded<Option<Heir>>,
}

impl Connection {
    /// A connection to whoever listens at `path`.
    pub fn connect(path: &Path) -> io::Result<Self> {
        Socket::connect_within(path, PATIENCE).map(Self::new)
    }

    /// A connection over a socket that exists.
    pub fn new(socket: Socket) -> Self {
        let (mark, socket) = kept(socket.into());
        Self {
            _kept: mark,
            socket: socket.into(),
            belongs: Belonging::new(),
            desk: Guarded::default(),
            hatch: OurHatch::default(),
            heir: Guarded::default(),
        }
    }

    /// Whether it is this process's own, not that of its parent.
    pub fn is_ours(&self) -> bool {
        self.belongs.is_ours()
    }

    /// Asks, and waits for the only reply. If time runs out or a signal comes,
    /// the request is withdrawn; a reply that was faster still counts.
    pub fn ask(&self, request: Request, until: Option<Instant>) -> Result<Answer> {
        self.start(request, &[], None)?.finish(until)
    }

    /// Asks; the replies come from the call.
    ///
    /// `undo` gives back what the request may still get after the caller has
    /// stopped waiting for it.
    pub fn start(
        &self,
        request: Request,
        fds: &[BorrowedFd<'_>],
        undo: Option<Request>,
    ) -> Result<Call<'_>> {
        if !self.is_ours() {
            return Err(Error::Forked);
        }
        let brief = fds.is_empty() && request.is_brief();
        if brief && self.hatch.is_wanted() {
            self.open_hatch()?;
        }
        let mut desk = self.desk.lock();
        let unheard = desk.unheard();
        let (number, bell) = desk.open(undo)?;
        drop(desk);
        let mut call = Call::new(self, number, bell);
        let packet = RequestPacket { number, request };
        if brief {
            call.way = self.hatch.way(number);
        }
        let sent = match &call.way {
            Some(way) if unheard == 0 && way.post(&packet.encode()) => {
                self.desk.lock().detour(number);
                if way.must_knock() {
                    self.knock();
                }
                Ok(())
            }
            _ => self.send(&packet, fds),
        };
        match sent {
            // A daemon that went may have said why; whoever reads will hear it.
            Ok(()) | Err(Error::DaemonGone) => Ok(call),
            Err(error) => {
                call.forget();
                Err(error)
            }
        }
    }

    /// Asks for a hatch. Without one everything goes through the socket.
    fn open_hatch(&self) -> Result<()> {
        match self.ask(Request::Hatch, after(PATIENCE)) {
            Ok(mut answer) => {
                if let Some(memory) = answer.fds.pop() {
                    // What is no hatch is not used.
                    let _ = self.hatch.open(memory);
                }
                Ok(())
            }
            Err(Error::Refused(_)) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// The daemon may not look into the hatch.
    fn knock(&self) {
        let number = self.number();
        let request = Request::Knock;
        self.send_surely(&RequestPacket { number, request });
    }

    /// Says something whose reply does not matter. A daemon that is gone need
    /// not be told, and neither may a forked child tell its parent's.
    pub fn tell(&self, request: Request) {
        if !self.is_ours() {
            return;
        }
        let mut desk = self.desk.lock();
        if desk.unheard() + 1 < UNREAD_LIMIT {
            let number = desk.number();
            drop(desk);
            self.send_surely(&RequestPacket { number, request });
            // Only now: who is answered meanwhile may have asked before this.
            self.desk.lock().tell();
        } else {
            drop(desk);
            // Whoever waits reads what has come for all.
            let _ = self.ask(request, after(TELL_PATIENCE));
        }
    }

    /// Withdraws a call; there is no reply but the call's own.
    fn cancel(&self, number: u64) {
        let own = self.number();
        self.send_surely(&RequestPacket {
            number: own,
            request: Request::Cancel { number },
        });
    }

    /// A number for a request, never used before.
    pub fn number(&self) -> u64 {
        self.desk.lock().number()
    }

    /// Waits for the next reply to a call.
    fn next(&self, call: &mut Call<'_>, until: Option<Instant>) -> Result<Answer> {
        if let Some(way) = call.way.take() {
            let (came, stop) = way.wait(until);
            if let Some(bytes) = came {
                return self.came(call.number(), &bytes);
            }
            stop?;
        }
        let mut desk = self.desk.lock();
        let outcome = loop {
            if let Some(answer) = desk.take(call.number()) {
                break Ok(answer);
            }
            if let Some(gone) = desk.gone {
                break Err(gone.into());
            }
            let result;
            // A signal handler may be here while the call that it interrupts reads.
            let outer = desk.reader;
            if outer.is_some_and(|reader| reader != this_thread()) {
                let rings = call.bell().rings();
                desk.sleeps(call.number(), true);
                drop(desk);
                result = aside(|| call.bell().wait(rings, until));
                desk = self.desk.lock();
                desk.sleeps(call.number(), false);
            } else {
                desk.reader = Some(this_thread());
                let mut buffer = desk.buffer.take().unwrap_or_else(room);
                drop(desk);
                let packet = self.read(&mut buffer, until);
                desk = self.desk.lock();
                desk.reader = outer;
                desk.buffer = Some(buffer);
                result = packet.map(|packet| self.deliver(&mut desk, packet));
            }
            if let Err(stop) = result {
                break desk.take(call.number()).ok_or(stop);
            }
        };
        desk.appoint_reader();
        outcome
    }

    /// An answer that came through the hatch.
    fn came(&self, number: u64, bytes: &[u8]) -> Result<Answer> {
        let mut desk = self.desk.lock();
        match ReplyPacket::decode(bytes) {
            Ok(packet) if packet.number == number => {
                desk.answered(number);
                Ok(Answer {
                    reply: packet.reply,
                    fds: Vec::new(),
                })
            }
            _ => {
                desk.end(Gone::Malformed);
                Err(Gone::Malformed.into())
            }
        }
    }

    /// An answer that came through the hatch, and nobody waits for it any more.
    fn unseen(&self, number: u64, bytes: &[u8]) {
        if let Ok(answer) = self.came(number, bytes) {
            let mut desk = self.desk.lock();
            self.deliver(&mut desk, Packet::Answer(number, answer));
        }
    }

    /// Hands a packet to its call.
    fn deliver(&self, desk: &mut Desk, packet: Packet) {
        match packet {
            Packet::Answer(number, answer) => {
                if let Some(request) = desk.deliver(number, answer) {
                    // Must not wait, since others wait for us. A full socket
                    // means a daemon in trouble; the end of this process tells it.
                    let number = desk.number();
                    let packet = RequestPacket { number, request };
                    let _ = self.socket.send_now(&packet.encode(), &[]);
                    desk.tell();
                }
            }
            Packet::End(gone) => desk.end(gone),
        }
    }

    /// Reads one packet. Only for the reader.
    fn read(&self, buffer: &mut [u8], until: Option<Instant>) -> Result<Packet> {
        // A read without time limit goes on after handlers with SA_RESTART, poll
        // never does: as sem_wait and sem_timedwait do it.
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
                Ok(ReplyPacket { number, reply }) => Packet::Answer(
                    number,
                    Answer {
                        reply,
                        fds: received.fds,
                    },
                ),
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

    /// Stops waiting for a call's replies.
    fn close(&self, number: u64, answered: bool) {
        let undo = self.desk.lock().close(number, answered);
        if let Some(request) = undo {
            self.tell(request);
        }
    }

    /// Sends whatever signals come; a daemon that is gone is no failure.
    fn send_surely(&self, packet: &RequestPacket) {
        while let Err(Error::Interrupted) = self.send(packet, &[]) {}
    }

    fn send(&self, packet: &RequestPacket, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let bytes = packet.encode();
        if bytes.len() > MAX_PACKET {
            return Err(Error::Invalid("a name or list is too long for one request"));
        }
        let sent = if matches!(packet.request, Request::Sysv(_)) {
            self.socket.send_as_me(&bytes)
        } else {
            self.socket.send(&bytes, fds)
        };
        sent.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Error::DaemonGone,
            _ => stop(error),
        })
    }
}

/// This thread, as no other one is called while it is.
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

/// Where the reader puts packets.
fn room() -> Box<[u8]> {
    vec![0; MAX_PACKET].into()
}

type Receive = fn(&Socket, &mut [u8]) -> io::Result<Option<pagemesh_os::seqpacket::Received>>;

/// What the reader got.
enum Packet {
    /// A reply to this call.
    Answer(u64, Answer),
    /// There will be no more.
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
