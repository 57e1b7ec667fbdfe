//! The processes of this host: connect, state, end.

use super::Driver;
use crate::counters::Count;
use crate::keeper::Tag;
use crate::listener;
use crate::note::Note;
use crate::session::Session;
use crate::waiter::Programs;
use pagemesh_core::Input;
use pagemesh_os::process;
use pagemesh_os::seqpacket::Socket;
use pagemesh_wire::{ClientId, SyncKey};
use std::io;
use std::os::fd::AsFd as _;

/// Programs whose CPU time is read, at most: each read costs a system call.
const ASKED: usize = 4;

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
        for key in self.locks_of(client) {
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

    /// The locks that a dead process held.
    fn locks_of(&self, client: ClientId) -> Vec<SyncKey> {
        let segments = self.executor.pages.segments.iter();
        let mut keys: Vec<_> = segments
            .flat_map(|(id, segment)| {
                let numbers = segment.locks.held_by(client);
                numbers.into_iter().map(move |number| SyncKey {
                    segment: id,
                    number,
                })
            })
            .collect();
        keys.sort_unstable();
        keys
    }

    /// State of this host's programs.
    pub(crate) fn programs(&self) -> Programs {
        let (faults, sessions) = (&self.executor.faults.open, &self.executor.sessions);
        let mut sharing = sessions
            .iter()
            .filter(|(_, session)| !session.mappings.is_empty())
            .peekable();
        let stands = |(client, session): (ClientId, &Session)| {
            let mut mappings = session.mappings.iter();
            session.waiting > 0
                || sessions.request_slots.is_watched(client)
                || mappings.any(|mapping| faults.has_stopped(*mapping))
        };
        if sharing.peek().is_none() {
            Programs::Absent
        } else if sharing.all(stands) {
            let watches = |session: &Session| session.waiting == session.watching;
            let mut sessions = sessions.iter().map(|(_, session)| session);
            match faults.is_empty() && sessions.all(watches) {
                true => Programs::Watch,
                false => Programs::Wait,
            }
        } else if faults.is_empty() {
            Programs::Run
        } else {
            Programs::Fault
        }
    }

    /// CPU time of this host's programs that share memory. `None` if it is not known for each of
    /// them, or if they are too many.
    pub(crate) fn computed(&self) -> Option<u64> {
        let sessions = self.executor.sessions.iter().map(|(_, session)| session);
        let mut sharing = sessions.filter(|session| !session.mappings.is_empty());
        let asked = sharing.by_ref().take(ASKED);
        let computed = asked
            .map(|session| process::computed(session.caller.pid))
            .sum();
        sharing.next().is_none().then_some(computed)?
    }
}
