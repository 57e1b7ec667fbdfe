//! Processes that fork.

use crate::counters::Count;
use crate::driver::Driver;
use crate::keeper::Tag;
use crate::serve::Asked;
use pagemesh_core::Input;
use pagemesh_os::seqpacket::Socket;
use pagemesh_wire::local::Reply;
use pagemesh_wire::{ClientId, NodeId};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

impl Driver {
    /// A process is about to fork, and sent the socket for its child.
    pub(crate) fn forked(&mut self, asked: Asked, socket: OwnedFd) -> io::Result<()> {
        let parent = asked.client;
        let socket = Socket::adopt(socket)?;
        let (node, executor) = (&self.node, &mut self.executor);
        let inherited = |segment| node.is_inherited(segment);
        let child = executor
            .sessions
            .insert_child(parent, (socket, inherited), &executor.poll)?;
        self.executor.count(Count::SessionsOpened, 1);
        tracing::debug!(client = %child, %parent, "a process forks");
        let welcome = Reply::Welcome {
            client: child,
            node: self.node.id().unwrap_or(NodeId::NONE),
            device: false,
        };
        self.remember_child(child);
        self.handled(asked, &welcome);
        self.feed(Input::Forked { parent, child });
        self.executor.reply(child, WELCOME, welcome, Vec::new());
        Ok(())
    }

    fn remember_child(&mut self, child: ClientId) {
        let executor = &mut self.executor;
        let Some(session) = executor.sessions.get(child) else {
            return;
        };
        let fd = session.socket.as_fd();
        executor.keeper.put(Tag::Session(child), Vec::new(), fd);
        for note in session.notes(child) {
            executor.recorder.note(&note);
        }
    }
}

/// The number of the request that its parent made for a child.
pub(crate) const WELCOME: u64 = 0;
