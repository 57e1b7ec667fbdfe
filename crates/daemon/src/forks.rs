//! Processes that fork.

use crate::driver::Driver;
use crate::tally::Count;
use pagemesh_core::Input;
use pagemesh_os::seqpacket::Socket;
use pagemesh_wire::local::Reply;
use pagemesh_wire::{ClientId, NodeId};
use std::io;
use std::os::fd::OwnedFd;

impl Driver {
    /// A process is about to fork, and sent the socket for its child.
    pub(crate) fn forked(&mut self, parent: ClientId, socket: OwnedFd) -> io::Result<()> {
        let socket = Socket::adopt(socket)?;
        let hands = &mut self.hands;
        let child = hands.sessions.insert_child(parent, socket, &hands.poll)?;
        self.hands.count(Count::SessionsOpened, 1);
        tracing::debug!(client = %child, %parent, "a process forks");
        self.feed(Input::Forked { parent, child });
        let welcome = Reply::Welcome {
            client: child,
            node: self.node.id().unwrap_or(NodeId::NONE),
            device: false,
        };
        let hands = &mut self.hands;
        hands
            .sessions
            .reply(child, 0, welcome, Vec::new(), &hands.poll);
        Ok(())
    }
}
