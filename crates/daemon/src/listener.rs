//! Where processes come in, and where they are turned away when this daemon has
//! no file descriptor left.

use pagemesh_os::seqpacket::{Listener, Socket};
use pagemesh_wire::local::{Reply, ReplyPacket};
use pagemesh_wire::peer::Refusal;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The daemon's socket.
#[derive(Debug)]
pub(crate) struct ProgramListener {
    listener: Listener,
    /// Closed for a moment in order to tell a process that there is no descriptor left.
    spare: Option<File>,
    /// No connection is accepted before then.
    shut_until: Option<u64>,
}

/// The result of accepting a connection.
#[derive(Debug)]
pub(crate) enum Visit {
    /// A process.
    Came(Socket),
    /// A process, for which there is no descriptor; it was told.
    TurnedAway,
    /// No connection waits any more.
    Nobody,
    /// The kernel refuses, and would do so again at once.
    Failed(io::Error),
}

/// How long the listener stays shut after a failure, in nanoseconds.
const SHUT: u64 = 100_000_000;

/// The first request on every socket, which is the one to answer.
const HELLO: u64 = 1;

impl ProgramListener {
    /// A listener with this socket.
    pub(crate) fn new(listener: Listener) -> Self {
        Self {
            listener,
            spare: spare(),
            shut_until: None,
        }
    }

    /// Leaves the socket's path to another daemon, which goes on.
    pub(crate) fn leave(self) {
        self.listener.leave();
    }

    /// Lets the next one in.
    pub(crate) fn open(&mut self, now: u64) -> Visit {
        let visit = match self.listener.accept() {
            Ok(socket) => Visit::Came(socket),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Visit::Nobody,
            Err(error) if is_full(&error) => self.turn_away(error),
            Err(error) => Visit::Failed(error),
        };
        if matches!(visit, Visit::Failed(_)) {
            self.shut_until = Some(now + SHUT);
        }
        visit
    }

    /// Refuses a waiting connection, which would otherwise wait in vain.
    fn turn_away(&mut self, full: io::Error) -> Visit {
        drop(self.spare.take());
        let accepted = self.listener.accept();
        if let Ok(socket) = &accepted {
            refuse(socket, no_descriptor());
        }
        drop(accepted.ok());
        self.spare = spare();
        if self.spare.is_some() {
            Visit::TurnedAway
        } else {
            Visit::Failed(full)
        }
    }

    /// When to open the listener again, if it is shut.
    pub(crate) fn shut_until(&self) -> Option<u64> {
        self.shut_until
    }

    /// The listener is open again.
    pub(crate) fn reopen(&mut self) {
        self.shut_until = None;
    }
}

impl AsFd for ProgramListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Tells a process why it is not let in. One that does not hear it sees the socket close.
pub(crate) fn refuse(socket: &Socket, why: Refusal) {
    let packet = ReplyPacket {
        number: HELLO,
        reply: Reply::Refused(why),
    };
    let _ = socket.send_now(&packet.encode(), &[]);
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Whether no file descriptor was left.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// The refusal for a process when this daemon has no file descriptor left.
pub(crate) fn no_descriptor() -> Refusal {
    Refusal::Limit(
        "the daemon's file descriptors (raise LimitNOFILE= of its unit, or `ulimit -n`, and \
         restart it)"
            .into(),
    )
}
