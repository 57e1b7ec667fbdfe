//! One connected process.

use pagemesh_os::process::Process;
use pagemesh_os::seqpacket::Socket;
use pagemesh_recorder::{Note, Opening};
use pagemesh_wire::local::{Caller, MAX_PACKET, OLDEST_LOCAL_VERSION, Reply, ReplyPacket};
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ClientId, MappingId, SegmentId};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A process, as far as the daemon is concerned.
#[derive(Debug)]
pub(crate) struct Session {
    /// The socket.
    pub(crate) socket: Socket,
    /// The process, as the kernel names it.
    pub(crate) caller: Caller,
    /// The program, as it says.
    pub(crate) program: String,
    /// It said hello in the right version.
    pub(crate) greeted: bool,
    /// That version.
    pub(crate) version: u32,
    /// Segments it has open.
    pub(crate) open: HashMap<SegmentId, Opening>,
    /// Its mappings.
    pub(crate) mappings: Vec<MappingId>,
    /// Requests that wait for the core.
    pub(crate) waiting: usize,
    /// Those of them that wait for a state to change.
    pub(crate) watching: usize,
    /// The number of its last request that was acted upon, with its reply if
    /// that is not the node's business.
    pub(crate) handled: Option<(u64, Option<Reply>)>,
    /// The user of its last System V call that came through the socket.
    pub(crate) shown: Option<Caller>,
    /// It goes on, but as another program.
    pub(crate) outlived_by: Option<Process>,
    /// Its parent made its connection.
    child: bool,
    outbox: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
}

/// Packets kept for a process that does not read; then it is cut off.
const OUTBOX: usize = 4096;

/// The result of sending a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It left.
    All,
    /// It waits until the process reads.
    Queued,
    /// The process is gone, or never reads.
    Lost,
}

impl Session {
    /// A process that has just connected.
    pub(crate) fn new(socket: Socket, caller: Caller) -> Self {
        Self {
            socket,
            caller,
            program: String::new(),
            greeted: false,
            version: OLDEST_LOCAL_VERSION,
            open: HashMap::new(),
            mappings: Vec::new(),
            waiting: 0,
            watching: 0,
            handled: None,
            shown: None,
            outlived_by: None,
            child: false,
            outbox: VecDeque::new(),
        }
    }

    /// The child that this process is about to have. Its number is not known
    /// before one of its threads faults.
    pub(crate) fn child(&self, socket: Socket, inherited: impl Fn(SegmentId) -> bool) -> Self {
        let open = self.open.iter().filter(|(segment, _)| inherited(**segment));
        let caller = Caller {
            pid: 0,
            credentials: self.caller.credentials.clone(),
        };
        Self {
            program: self.program.clone(),
            greeted: true,
            version: self.version,
            child: true,
            open: open
                .map(|(segment, opening)| (*segment, *opening))
                .collect(),
            ..Self::new(socket, caller)
        }
    }

    /// A thread of the process faulted. If the process is not known otherwise,
    /// any of its threads will do to name it.
    pub(crate) fn process_of(&mut self, thread: u32) -> i32 {
        if self.caller.pid == 0 {
            self.caller.pid = i32::try_from(thread).unwrap_or(0);
        }
        self.caller.pid
    }

    /// Sends a packet, or queues it behind those the process has not read.
    pub(crate) fn send(&mut self, packet: &ReplyPacket, fds: Vec<OwnedFd>) -> Sent {
        let mut bytes = packet.encode();
        if bytes.len() > MAX_PACKET {
            let why = Refusal::Limit("the answer is too large for a packet".into());
            bytes = ReplyPacket {
                number: packet.number,
                reply: Reply::Refused(why),
            }
            .encode();
        }
        if !self.outbox.is_empty() {
            return self.queue(bytes, fds);
        }
        match put(&self.socket, &bytes, &fds) {
            Ok(()) => Sent::All,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.queue(bytes, fds),
            Err(error) if is_over(&error) => Sent::All,
            Err(_) => Sent::Lost,
        }
    }

    fn queue(&mut self, bytes: Vec<u8>, fds: Vec<OwnedFd>) -> Sent {
        if self.outbox.len() >= OUTBOX {
            return Sent::Lost;
        }
        self.outbox.push_back((bytes, fds));
        Sent::Queued
    }

    /// It said hello to the daemon before.
    pub(crate) fn restore_hello(&mut self, program: String, child: bool, version: u32) {
        self.greeted = true;
        self.version = version;
        self.program = program;
        self.child = child;
        if child {
            self.caller.pid = 0;
        }
    }

    /// Packets that wait.
    pub(crate) fn queued(&self) -> usize {
        self.outbox.len()
    }

    /// The packet that waits since last.
    pub(crate) fn last_queued(&self) -> Option<&[u8]> {
        self.outbox.back().map(|(bytes, _)| &bytes[..])
    }

    /// A packet that waited when the previous daemon ended; the descriptors it lends are added
    /// later.
    pub(crate) fn restore_packet(&mut self, bytes: Vec<u8>) {
        self.outbox.push_back((bytes, Vec::new()));
    }

    /// As many packets were sent by the previous daemon.
    pub(crate) fn flushed(&mut self, count: usize) {
        self.outbox.drain(..count.min(self.outbox.len()));
    }

    /// Adds the descriptors of waiting packets anew.
    pub(crate) fn lend_again(&mut self, mut lend: impl FnMut(&Self, &Reply) -> Vec<OwnedFd>) {
        let mut outbox = std::mem::take(&mut self.outbox);
        for (bytes, fds) in &mut outbox {
            if let Ok(packet) = ReplyPacket::decode(bytes) {
                *fds = lend(self, &packet.reply);
            }
        }
        self.outbox = outbox;
    }

    /// Has the segment open so and not otherwise; not at all if its count is zero.
    pub(crate) fn set_opening(&mut self, segment: SegmentId, opening: Opening) {
        if opening.count == 0 {
            self.open.remove(&segment);
        } else {
            self.open.insert(segment, opening);
        }
    }

    /// All there is to know of it, but for its requests that wait.
    pub(crate) fn notes(&self, client: ClientId) -> Vec<Note> {
        let mut notes = Vec::new();
        if self.greeted {
            let program = self.program.clone();
            notes.push(Note::Greeted {
                client,
                program,
                child: self.child,
                version: self.version,
            });
        }
        notes.extend(self.open.iter().map(|(segment, opening)| Note::Opened {
            client,
            segment: *segment,
            opening: *opening,
        }));
        notes.extend(self.outbox.iter().map(|(packet, _)| Note::Queued {
            client,
            packet: packet.clone(),
        }));
        if let Some((number, reply)) = self.handled.clone() {
            notes.push(Note::Handled {
                client,
                number,
                reply,
            });
        }
        notes
    }

    /// Sends queued packets, as far as there is room.
    pub(crate) fn flush(&mut self) -> Sent {
        while let Some((bytes, fds)) = self.outbox.front() {
            match put(&self.socket, bytes, fds) {
                Ok(()) => drop(self.outbox.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Sent::Queued,
                Err(error) if is_over(&error) => self.outbox.clear(),
                Err(_) => return Sent::Lost,
            }
        }
        Sent::All
    }
}

/// The process reads no more. Its earlier requests are still to be read, and then the end of the
/// connection.
fn is_over(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

fn put(socket: &Socket, bytes: &[u8], fds: &[OwnedFd]) -> io::Result<()> {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    loop {
        match socket.send_now(bytes, &fds) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_read_is_given_up() {
        let (one, other) = Socket::pair().unwrap();
        let caller = one.peer().unwrap();
        let mut session = Session::new(one, caller);
        let packet = |number| ReplyPacket {
            number,
            reply: Reply::Done,
        };
        let mut queued = 0;
        let sent = loop {
            match session.send(&packet(queued), Vec::new()) {
                Sent::Lost => break queued,
                _ => queued += 1,
            }
        };
        assert!(sent as usize > OUTBOX);
        let mut buffer = [0; 256];
        for number in 0..sent {
            if number % 16 == 0 {
                session.flush();
            }
            let got = other.recv_now(&mut buffer).unwrap().unwrap();
            assert_eq!(
                ReplyPacket::decode(&buffer[..got.len]).unwrap(),
                packet(number)
            );
        }
        assert_eq!(session.flush(), Sent::All);
        drop(other);
        let sent = session.send(&packet(0), Vec::new());
        assert_eq!(sent, Sent::All, "its end is heard elsewhere");
    }
}
