//! The processes of this host: connect, state, end.

use super::Driver;
use crate::door;
use crate::keeper::Tag;
use crate::note::Note;
use crate::session::Session;
use crate::tally::Count;
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
        if let Err(why) = self.hands.check_descriptors(uid, 1) {
            door::refuse(&socket, why);
            self.hands.count(Count::SessionsTurnedAway, 1);
            return Ok(());
        }
        let client = self.hands.sessions.insert(socket, &self.hands.poll)?;
        if let Some(session) = self.hands.sessions.get(client) {
            let fd = session.socket.as_fd();
            self.hands.keeper.put(Tag::Session(client), Vec::new(), fd);
        }
        self.hands.count(Count::SessionsOpened, 1);
        tracing::debug!(%client, "a process connected");
        Ok(())
    }

    /// Disconnects the processes that misbehaved.
    pub(crate) fn cut_off(&mut self) {
        while let Some(client) = self.hands.sessions.next_doomed() {
            self.gone(client);
        }
    }

    /// A process ended or was disconnected: releases what it had.
    pub(crate) fn gone(&mut self, client: ClientId) {
        let Some(session) = self.hands.sessions.remove(client) else {
            return;
        };
        tracing::debug!(%client, program = %session.program, "a process is gone");
        let _ = self.hands.poll.remove(&session.socket);
        for mapping in &session.mappings {
            self.hands.unmap(*mapping);
        }
        self.hands.tickets.forget(client);
        self.hands.faults.threads.bury(session.caller.pid);
        // The successor repeats all of this or nothing if this daemon ends in between.
        self.hands.note(&Note::Gone { client });
        for key in self.locks_of(client) {
            self.hands.follow(Input::LockReturned {
                key,
                recovered: true,
            });
        }
        self.feed(Input::ClientGone { client });
        for segment in session.open.into_keys() {
            self.closed(segment);
        }
        for mapping in session.mappings {
            self.hands.keeper.drop(Tag::Mapping(mapping));
        }
        if self.hands.sessions.hatches.close(client) {
            self.hands.keeper.drop(Tag::Hatch(client));
        }
        self.hands.keeper.drop(Tag::Session(client));
    }

    /// The locks that a dead process held.
    fn locks_of(&self, client: ClientId) -> Vec<SyncKey> {
        let segments = self.hands.pages.segments.iter();
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
        let (faults, sessions) = (&self.hands.faults.open, &self.hands.sessions);
        let mut sharing = sessions
            .iter()
            .map(|(_, session)| session)
            .filter(|session| !session.mappings.is_empty())
            .peekable();
        let stands = |session: &Session| {
            let mut mappings = session.mappings.iter();
            session.waiting > 0 || mappings.any(|mapping| faults.has_stopped(*mapping))
        };
        if sharing.peek().is_none() {
            Programs::Absent
        } else if sharing.all(stands) {
            Programs::Wait
        } else if faults.is_empty() {
            Programs::Run
        } else {
            Programs::Fault
        }
    }

    /// CPU time of this host's programs that share memory. `None` if it is not known for each of
    /// them, or if they are too many.
    pub(crate) fn computed(&self) -> Option<u64> {
        let sessions = self.hands.sessions.iter().map(|(_, session)| session);
        let mut sharing = sessions.filter(|session| !session.mappings.is_empty());
        let asked = sharing.by_ref().take(ASKED);
        let computed = asked
            .map(|session| process::computed(session.caller.pid))
            .sum();
        sharing.next().is_none().then_some(computed)?
    }
}
