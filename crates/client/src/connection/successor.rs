//! The connection of a forked child. It is made before the fork, so that the child has open what
//! its parent has open at that moment, whatever the parent does next.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Instant;

use pagemesh_os::seqpacket::Socket;
use pagemesh_wire::ClientId;
use pagemesh_wire::local::{Reply, ReplyPacket, Request, RequestPacket};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::orphan::{Orphan, Successor};
use super::{Connection, PATIENCE};
use crate::bell::left;

/// Buffer size in bytes for the short replies that a child gets.
const SHORT: usize = 256;

impl Connection {
    /// Asks the daemon for a connection for the child, without waiting.
    pub fn expect_child(&self) {
        if self.is_ours() {
            *self.successor.while_forking() = Some(self.beget());
        }
    }

    fn beget(&self) -> Successor {
        let (ours, theirs) = Socket::pair().map_err(|error| Orphan::of("socketpair", &error))?;
        let number = self.router.while_forking().number();
        let request = Request::Fork;
        let packet = RequestPacket { number, request }.encode();
        // If the socket is full, the daemon has a problem; the fork does not wait for it.
        let sent = self.socket.send_now(&packet, &[theirs.as_fd()]);
        sent.map_err(|error| Orphan::of("sendmsg", &error))?;
        Ok(ours)
    }

    /// In the parent: drops its copy of the child's connection.
    pub fn forget_child(&self) {
        *self.successor.while_forking() = None;
    }

    /// In the child: replaces the inherited connection by the child's own and introduces the
    /// process to the daemon; or closes the parent's, which would seem alive as long as this
    /// process is. `None` if the connection was not even the parent's own.
    pub fn inherit(&self) -> Option<Result<ClientId, Orphan>> {
        let successor = self.successor.while_forking().take()?;
        self.router.while_forking().forget();
        let inherited = successor.and_then(|successor| self.become_successor(successor));
        if inherited.is_err() {
            // Replace the descriptor by one that always exists, even if no new descriptor can be
            // opened.
            let _ = self.socket.supplant(std::io::stderr());
        }
        Some(inherited)
    }

    fn become_successor(&self, successor: Socket) -> Result<ClientId, Orphan> {
        let supplanted = self.socket.supplant(&successor);
        supplanted.map_err(|error| Orphan::of("dup3", &error))?;
        drop(successor);
        self.request_slot.forget(&self.socket);
        self.shown.forget();
        let Reply::Welcome { client, .. } = self.hear()? else {
            return Err(Orphan::Refused);
        };
        self.belongs.take_over();
        Ok(client)
    }

    /// In the child: sends a request and waits for the answer.
    pub fn exchange(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Reply, Orphan> {
        self.socket
            .send(packet, fds)
            .map_err(|error| Orphan::of("sendmsg", &error))?;
        loop {
            match self.hear()? {
                // A successor of the daemon repeats this reply.
                Reply::Welcome { .. } => {}
                reply => return Ok(reply),
            }
        }
    }

    fn hear(&self) -> Result<Reply, Orphan> {
        let until = Some(Instant::now() + PATIENCE);
        let mut buffer = [0; SHORT];
        loop {
            let timeout = left(until).map_err(|_| Orphan::Silent)?;
            match poll(
                &mut [PollFd::new(&self.socket, PollFlags::IN)],
                timeout.as_ref(),
            ) {
                Ok(0) => return Err(Orphan::Silent),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(Orphan::System("poll", errno)),
            }
            let received = self.socket.recv_now(&mut buffer);
            let received = received.map_err(|error| Orphan::of("recvmsg", &error))?;
            let length = received.ok_or(Orphan::Closed)?.len;
            let packet = ReplyPacket::decode(&buffer[..length]);
            return Ok(packet.map_err(|_| Orphan::Refused)?.reply);
        }
    }
}
