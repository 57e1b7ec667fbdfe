//! A message queue on one host.

use super::Mistake;
use super::model::{Heard, Said};
use super::set::{done, failed};
use pagemesh_wire::ClientId;
use pagemesh_wire::sysv::{Errno, IPC_NOWAIT, Kind, MSG_EXCEPT, MSG_NOERROR, Outcome};

type Message = (Kind, Vec<u8>);

/// A request to receive: room, type, flags.
pub(super) type KeyRequest = (u64, Kind, i32);

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) messages: Vec<Message>,
    pub(super) limit: u64,
    pub(super) senders: Vec<(ClientId, Message)>,
    pub(super) receivers: Vec<(ClientId, KeyRequest)>,
    pub(super) mistake: Option<Mistake>,
}

fn wants((_, kind, flags): KeyRequest, (of, _): &Message) -> bool {
    match kind.0 {
        0 => true,
        below if below < 0 => of.0 <= -below,
        but if flags & MSG_EXCEPT != 0 => of.0 != but,
        exactly => of.0 == exactly,
    }
}

fn is_too_small((room, _, flags): KeyRequest, (_, text): &Message) -> bool {
    flags & MSG_NOERROR == 0 && text.len() as u64 > room
}

fn handed(client: ClientId, (room, ..): KeyRequest, (kind, mut text): Message) -> Heard {
    text.truncate(room as usize);
    (client, Said::Outcome(Outcome::Message { kind, text }))
}

impl Queue {
    pub(super) fn bytes(&self) -> u64 {
        self.messages
            .iter()
            .map(|(_, text)| text.len() as u64)
            .sum()
    }

    fn has_room(&self, (_, text): &Message) -> bool {
        self.bytes() + text.len() as u64 <= self.limit && (self.messages.len() as u64) < self.limit
    }

    pub(super) fn send(&mut self, client: ClientId, message: Message, flags: i32) -> Vec<Heard> {
        if self.has_room(&message) {
            let mut heard = vec![done(client)];
            heard.extend(self.arrives(message));
            heard
        } else if flags & IPC_NOWAIT != 0 {
            vec![failed(client, Errno::EAGAIN)]
        } else {
            self.senders.push((client, message));
            vec![(client, Said::Waits)]
        }
    }

    /// Gives a message to the first receiver that waits for it, else puts it behind all others.
    fn arrives(&mut self, message: Message) -> Vec<Heard> {
        let mut heard = Vec::new();
        while let Some(at) = self
            .receivers
            .iter()
            .position(|(_, request)| wants(*request, &message))
        {
            let (client, request) = self.receivers.remove(at);
            if !is_too_small(request, &message) {
                heard.push(handed(client, request, message));
                return heard;
            }
            heard.push(failed(client, Errno::E2BIG));
        }
        self.messages.push(message);
        heard
    }

    pub(super) fn receive(&mut self, client: ClientId, request: KeyRequest) -> Vec<Heard> {
        let mut wanted = (0..self.messages.len()).filter(|at| wants(request, &self.messages[*at]));
        let found = if request.1.0 < 0 {
            wanted.min_by_key(|at| self.messages[*at].0)
        } else if self.mistake == Some(Mistake::QueueTurned) {
            wanted.next_back()
        } else {
            wanted.next()
        };
        match found {
            Some(at) if is_too_small(request, &self.messages[at]) => {
                vec![failed(client, Errno::E2BIG)]
            }
            Some(at) => {
                let message = self.messages.remove(at);
                let mut heard = vec![handed(client, request, message)];
                heard.extend(self.let_in());
                heard
            }
            None if request.2 & IPC_NOWAIT != 0 => vec![failed(client, Errno::ENOMSG)],
            None => {
                self.receivers.push((client, request));
                vec![(client, Said::Waits)]
            }
        }
    }

    /// Lets waiting senders put their messages into the queue, if there is room for them.
    fn let_in(&mut self) -> Vec<Heard> {
        let mut heard = Vec::new();
        while let Some(at) = self
            .senders
            .iter()
            .position(|(_, message)| self.has_room(message))
        {
            let (client, message) = self.senders.remove(at);
            heard.push(done(client));
            heard.extend(self.arrives(message));
        }
        heard
    }

    pub(super) fn forget(&mut self, client: ClientId) {
        self.senders.retain(|(sender, _)| *sender != client);
        self.receivers.retain(|(receiver, _)| *receiver != client);
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = ClientId> {
        let senders = self.senders.iter().map(|(client, _)| *client);
        senders.chain(self.receivers.iter().map(|(client, _)| *client))
    }
}
