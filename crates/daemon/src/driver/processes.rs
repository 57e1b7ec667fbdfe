//! The processes of this host: connect, state, end.

use super::Driver;
use crate::counters::Count;
use crate::keeper::Tag;
use crate::listener;
use pagemesh_core::Input;
use pagemesh_os::seqpacket::Socket;
use pagemesh_recorder::Note;
use pagemesh_wire::ClientId;
use std::io;
use std::os::fd::AsFd as _;

impl Driver {
    /// A process connected.
    pub(crate) fn connected(&mut self, socket: Socket) -> io::Result<()> {
        let uid = socket.peer()?.credentials.uid;
        if let Err(why) = self.executor.check_descriptors(uid, 1) {
            listener::refuse(&socket, why);
            self.executor.count(Count::SessionsTurnedAway, 1);
            return Ok(());
        }
        let client = self.executor.sessions.insert(socket, &self.executor.poll)?;
        if let Some(session) = self.executor.sessions.get(client) {
            let fd = session.socket.as_fd();
            self.executor
                .keeper
                .put(Tag::Session(client), Vec::new(), fd);
        }
        self.executor.count(Count::SessionsOpened, 1);
        tracing::debug!(%client, "a process connected");
        Ok(())
    }

    /// Disconnects the processes that misbehaved.
    pub(crate) fn cut_off(&mut self) {
        while let Some(client) = self.executor.sessions.next_doomed() {
            self.gone(client);
        }
    }

    /// A process ended or was disconnected: releases its resources.
    pub(crate) fn gone(&mut self, client: ClientId) {
        let Some(session) = self.executor.sessions.remove(client) else {
            return;
        };
        tracing::debug!(%client, program = %session.program, "a process is gone");
        let _ = self.executor.poll.remove(&session.socket);
        for mapping in &session.mappings {
            self.executor.unmap(*mapping);
        }
        self.executor.tickets.forget(client);
        self.executor
            .faults
            .threads
            .process_gone(session.caller.pid);
        // The successor repeats all of this or nothing if this daemon ends in between.
        self.executor.note(&Note::Gone { client });
        for key in self.executor.pages.segments.locks_held_by(client) {
            self.executor.follow(Input::LockReturned {
                key,
                recovered: true,
            });
        }
        self.feed(Input::ClientGone { client });
        for segment in session.open.into_keys() {
            self.closed(segment);
        }
        for mapping in session.mappings {
            self.executor.keeper.drop(Tag::Mapping(mapping));
        }
        if self.executor.sessions.request_slots.close(client) {
            self.executor.keeper.drop(Tag::RequestSlot(client));
        }
        self.executor.keeper.drop(Tag::Session(client));
    }
}
