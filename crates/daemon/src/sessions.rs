//! All connected processes.

mod permissions;
mod programs;

use crate::request_slots::RequestSlots;
use crate::segment::Segments;
use crate::session::{Sent, Session};
use crate::token::Token;
use pagemesh_os::poll::Poll;
use pagemesh_os::seqpacket::Socket;
use pagemesh_recorder::Note;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::local::{Reply, ReplyPacket};
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::{ClientId, SegmentId};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Sessions by the number of their process.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_id: SortedMap<ClientId, Session>,
    /// The request slots of those that have one.
    pub(crate) request_slots: RequestSlots,
    last: u32,
    /// To be cut off when the effects under way are done.
    doomed: Vec<ClientId>,
}

impl Sessions {
    /// Takes in a process that connected.
    pub(crate) fn insert(&mut self, socket: Socket, poll: &Poll) -> io::Result<ClientId> {
        let caller = socket.peer()?;
        let client = self.next_id();
        poll.add(&socket, Token::Session(client).encode())?;
        self.by_id.insert(client, Session::new(socket, caller));
        Ok(client)
    }

    /// Takes in the child of a process, which is about to fork, with all that
    /// its parent has open.
    pub(crate) fn insert_child(
        &mut self,
        parent: ClientId,
        (socket, inherited): (Socket, impl Fn(SegmentId) -> bool),
        poll: &Poll,
    ) -> io::Result<ClientId> {
        let client = self.next_id();
        let parent = self.by_id.get(&parent).ok_or(io::ErrorKind::NotFound)?;
        let child = parent.child(socket, inherited);
        poll.add(&child.socket, Token::Session(client).encode())?;
        self.by_id.insert(client, child);
        Ok(client)
    }

    /// Numbers come again only after half a thousand million others.
    fn next_id(&mut self) -> ClientId {
        loop {
            self.last = self.last % LockWord::MAX_CLIENT + 1;
            if !self.by_id.contains_key(&ClientId(self.last)) {
                return ClientId(self.last);
            }
        }
    }

    /// The session of a process.
    pub(crate) fn get(&self, client: ClientId) -> Option<&Session> {
        self.by_id.get(&client)
    }

    /// The session of a process.
    pub(crate) fn get_mut(&mut self, client: ClientId) -> Option<&mut Session> {
        self.by_id.get_mut(&client)
    }

    /// Removes the session of a process that is gone.
    pub(crate) fn remove(&mut self, client: ClientId) -> Option<Session> {
        let session = self.by_id.remove(&client)?;
        // Others may hold its socket, and the process shall know.
        session.socket.hang_up();
        Some(session)
    }

    /// Whether there is but one.
    pub(crate) fn is_one(&self) -> bool {
        self.by_id.len() == 1
    }

    /// The packet that was looked at has been handled.
    pub(crate) fn took_packet(&mut self, client: ClientId) {
        if let Some(session) = self.by_id.get(&client)
            && session.socket.skip_now().is_err()
        {
            self.doom(client);
        }
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClientId, &Session)> {
        self.by_id
            .iter()
            .map(|(client, session)| (*client, session))
    }

    /// All of them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (ClientId, &mut Session)> {
        let all = self.by_id.iter_mut();
        all.map(|(client, session)| (*client, session))
    }

    /// Goes on with a process that the daemon before had connected.
    pub(crate) fn restore(
        &mut self,
        client: ClientId,
        socket: Socket,
        poll: &Poll,
    ) -> io::Result<()> {
        let caller = socket.peer()?;
        poll.add(&socket, Token::Session(client).encode())?;
        self.by_id.insert(client, Session::new(socket, caller));
        self.skip_to(client.0);
        Ok(())
    }

    /// Lends what packets were to lend that wait for their processes.
    pub(crate) fn lend_again(
        &mut self,
        device: Option<&OwnedFd>,
        segments: &Segments,
        poll: &Poll,
    ) {
        let mut waiting = Vec::new();
        for (client, session) in self.iter_mut() {
            session.lend_again(|session, reply| match reply {
                Reply::Welcome { device: true, .. } => {
                    let device = device.and_then(|fd| fd.try_clone().ok());
                    device.into_iter().collect()
                }
                Reply::Opened { info } => {
                    let write = session.open.get(&info.id).is_some_and(|open| open.write);
                    let segment = segments.get(info.id);
                    segment.and_then(|s| s.lend(write).ok()).unwrap_or_default()
                }
                Reply::Capability { segment, write } => {
                    let segment = segments.get(*segment);
                    let fd = segment.and_then(|s| s.capability(*write).ok());
                    fd.into_iter().collect()
                }
                _ => Vec::new(),
            });
            if session.queued() > 0 {
                waiting.push(client);
            }
        }
        for client in waiting {
            self.want_write(client, true, poll);
        }
    }

    /// The number given last.
    pub(crate) fn last(&self) -> u32 {
        self.last
    }

    /// Gives no number up to this one.
    pub(crate) fn skip_to(&mut self, last: u32) {
        self.last = self.last.max(last);
    }

    /// Descriptors of their sockets and request slots.
    pub(crate) fn descriptors(&self) -> u64 {
        (self.by_id.len() + self.request_slots.len()) as u64
    }

    /// Whether a process here has the segment open.
    pub(crate) fn has_open(&self, segment: SegmentId) -> bool {
        let mut sessions = self.by_id.values();
        sessions.any(|session| session.open.contains_key(&segment))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Sends an answer; a process that cannot take it is doomed. The result is to be noted.
    pub(crate) fn reply(
        &mut self,
        client: ClientId,
        number: u64,
        reply: Reply,
        fds: Vec<OwnedFd>,
        poll: &Poll,
    ) -> Option<Note> {
        let session = self.by_id.get_mut(&client)?;
        if session.outlived_by.is_some() {
            return None;
        }
        let reply = reply.in_version(session.version);
        let packet = ReplyPacket { number, reply };
        if fds.is_empty() && self.request_slots.answer(client, &packet) {
            return None;
        }
        match session.send(&packet, fds) {
            Sent::All => None,
            Sent::Queued => {
                self.want_write(client, true, poll);
                let packet = self.by_id.get(&client)?.last_queued()?.to_vec();
                Some(Note::Queued { client, packet })
            }
            Sent::Lost => {
                self.doom(client);
                None
            }
        }
    }

    /// There is room: sends the packets that wait for it.
    pub(crate) fn flush(&mut self, client: ClientId, poll: &Poll) -> Option<Note> {
        let session = self.by_id.get_mut(&client)?;
        let before = session.queued();
        let sent = session.flush();
        let count = before - session.queued();
        match sent {
            Sent::All => self.want_write(client, false, poll),
            Sent::Lost => self.doom(client),
            Sent::Queued => {}
        }
        (count > 0).then_some(Note::Flushed { client, count })
    }

    /// Waits for room in the socket of a process, or not.
    pub(crate) fn want_write(&mut self, client: ClientId, write: bool, poll: &Poll) {
        let Some(session) = self.by_id.get(&client) else {
            return;
        };
        let token = Token::Session(client).encode();
        if poll
            .want_write(session.socket.as_fd(), token, write)
            .is_err()
        {
            self.doom(client);
        }
    }

    /// Cuts a process off, as soon as the effects under way are done.
    pub(crate) fn doom(&mut self, client: ClientId) {
        if !self.doomed.contains(&client) {
            self.doomed.push(client);
        }
    }

    /// One that is to be cut off now.
    pub(crate) fn next_doomed(&mut self) -> Option<ClientId> {
        self.doomed.pop()
    }

    /// Whether the process still waits for a state to change.
    pub(crate) fn count_watching(&mut self, client: ClientId, change: isize) {
        if let Some(session) = self.by_id.get_mut(&client) {
            session.watching = session.watching.saturating_add_signed(change);
        }
    }

    /// Whether the process still waits for something of the core.
    pub(crate) fn count_waiting(&mut self, client: ClientId, change: isize) {
        if let Some(session) = self.by_id.get_mut(&client) {
            session.waiting = session.waiting.saturating_add_signed(change);
        }
    }
}
