//! Processes that fork.

use crate::counters::Count;
use crate::executor::DaemonExecutor;
use crate::keeper::Tag;
use crate::serve::Service;
use pagemesh_core::Input;
use pagemesh_os::seqpacket::Socket;
use pagemesh_wire::local::Reply;
use pagemesh_wire::{ClientId, NodeId};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

impl Service<'_> {
    /// A process is about to fork, and sent the socket for its child.
    pub(crate) fn forked(&mut self, socket: OwnedFd) -> io::Result<()> {
        let parent = self.client;
        let socket = Socket::adopt(socket)?;
        let (node, executor) = (&self.driver.node, &mut self.driver.executor);
        let inherited = |segment| node.is_inherited(segment);
        let child = executor
            .sessions
            .insert_child(parent, (socket, inherited), &executor.poll)?;
        self.driver.executor.count(Count::SessionsOpened, 1);
        tracing::debug!(client = %child, %parent, "a process forks");
        let welcome = Reply::Welcome {
            client: child,
            node: self.driver.node.id().unwrap_or(NodeId::NONE),
            device: false,
        };
        remember_child(&mut self.driver.executor, child);
        self.handled(&welcome);
        self.driver.feed(Input::Forked { parent, child });
        self.driver
            .executor
            .reply(child, WELCOME, welcome, Vec::new());
        Ok(())
    }
}

fn remember_child(executor: &mut DaemonExecutor, child: ClientId) {
    let Some(session) = executor.sessions.get(child) else {
        return;
    };
    let fd = session.socket.as_fd();
    executor.keeper.put(Tag::Session(child), Vec::new(), fd);
    for note in session.notes(child) {
        executor.recorder.note(&note);
    }
}

/// The number of the request that its parent made for a child.
pub(crate) const WELCOME: u64 = 0;
