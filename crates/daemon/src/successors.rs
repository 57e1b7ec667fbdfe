//! Processes that have executed another program. The connection has ended with the former program,
//! and so have its mappings; but operations that System V is to undo at the end of the process wait
//! for that end (semop(2)).

use crate::driver::Driver;
use crate::keeper::Tag;
use crate::token::Token;
use pagemesh_core::Input;
use pagemesh_os::process::Process;
use pagemesh_recorder::{Note, Opening};
use pagemesh_wire::ClientId;

impl Driver {
    /// A connection has ended: its process has, or goes on as another program.
    pub(crate) fn hung_up(&mut self, client: ClientId) {
        if self.outlives(client) {
            self.forget_memory(client);
        } else {
            self.gone(client);
        }
    }

    /// Whether the process goes on and owes something. One that is being killed may
    /// seem to; its end is told in a moment.
    fn outlives(&mut self, client: ClientId) -> bool {
        let Some(session) = self.executor.sessions.get_mut(client) else {
            return false;
        };
        if let Some(process) = &session.outlived_by {
            return !process.has_ended();
        }
        let process = self.node.to_undo(client);
        let process = process.and_then(|pid| Process::open(pid).ok());
        let Some(process) = process.filter(|process| !process.has_ended()) else {
            return false;
        };
        let poll = &self.executor.poll;
        let token = Token::Session(client).encode();
        let _ = poll.remove(&session.socket);
        if poll.add(&process, token).is_err() {
            return false;
        }
        session.outlived_by = Some(process);
        true
    }

    /// Drops the mappings, segments and requests of the former program. Done step by step: should
    /// this daemon end in between, the next daemon finds the connection ended, too.
    fn forget_memory(&mut self, client: ClientId) {
        for ticket in self.executor.tickets.of(client) {
            self.feed(Input::Cancel { ticket });
        }
        let Some(session) = self.executor.sessions.get_mut(client) else {
            return;
        };
        let mappings = std::mem::take(&mut session.mappings);
        let open: Vec<_> = session.open.iter().map(|(id, how)| (*id, *how)).collect();
        for mapping in mappings {
            self.executor.unmap(mapping);
            self.executor.note(&Note::Unmapped { mapping });
            self.feed(Input::Unmapped { mapping });
            self.executor.keeper.drop(Tag::Mapping(mapping));
        }
        for (segment, opening) in open {
            for count in (0..opening.count).rev() {
                let opening = Opening { count, ..opening };
                self.executor.set_opening(client, segment, opening);
                self.feed(Input::Closed { segment, client });
            }
            self.closed(segment);
        }
    }
}
