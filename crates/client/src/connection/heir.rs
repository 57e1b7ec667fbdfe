//! The connection of a child: made before the fork, so that it has open what its
//! parent has open at that moment, whatever the parent does next.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Instant;

use pagemesh_os::seqpacket::Socket;
use pagemesh_wire::ClientId;
use pagemesh_wire::local::{Reply, ReplyPacket, Request, RequestPacket};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::orphan::{Heir, Orphan};
use super::{Connection, PATIENCE};
use crate::bell::left;

/// Room for the short replies a child gets.
const SHORT: usize = 256;

impl Connection {
    /// Asks the daemon for a connection for the child, without waiting.
    pub fn expect_child(&self) {
        if self.is_ours() {
            *self.heir.while_forking() = Some(self.beget());
        }
    }

    fn beget(&self) -> Heir {
        let (ours, theirs) = Socket::pair().map_err(|error| Orphan::of("socketpair", &error))?;
        let number = self.desk.while_forking().number();
        let request = Request::Fork;
        let packet = RequestPacket { number, request }.encode();
        // Without room the daemon is in trouble; the fork does not wait for that.
        let sent = self.socket.send_now(&packet, &[theirs.as_fd()]);
        sent.map_err(|error| Orphan::of("sendmsg", &error))?;
        Ok(ours)
    }

    /// In the parent: the child has its connection.
    pub fn forget_child(&self) {
        *self.heir.while_forking() = None;
    }

    /// In the child: becomes its own connection, and says who it is now; or lets
    /// go of its parent's, which would seem alive as long as this process is.
    /// Nothing if it was not even the parent's own.
    pub fn inherit(&self) -> Option<Result<ClientId, Orphan>> {
        let heir = self.heir.while_forking().take()?;
        self.desk.while_forking().forget();
        let inherited = heir.and_then(|heir| self.become_heir(heir));
        if inherited.is_err() {
            // By something that is always there, even if no descriptor is to be had.
            let _ = self.socket.supplant(std::io::stderr());
        }
        Some(inherited)
    }

    fn become_heir(&self, heir: Socket) -> Result<ClientId, Orphan> {
        let supplanted = self.socket.supplant(&heir);
        supplanted.map_err(|error| Orphan::of("dup3", &error))?;
        drop(heir);
        self.hatch.forget(&self.socket);
        self.shown.forget();
        let Reply::Welcome { client, .. } = self.hear()? else {
            return Err(Orphan::Refused);
        };
        self.belongs.take_over();
        Ok(client)
    }

    /// In the child: asks and waits for the answer.
    pub fn exchange(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Reply, Orphan> {
        self.socket
            .send(packet, fds)
            .map_err(|error| Orphan::of("sendmsg", &error))?;
        loop {
            match self.hear()? {
                // Said again by a daemon that went on in the place of another.
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
