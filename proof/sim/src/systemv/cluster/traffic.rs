//! The inputs of nodes, their messages, and the network in between.

use super::super::home::{Cause, Key, Word as Said};
use super::super::{Mistake, keys};
use super::{Check, Cluster, Event, Host};
use crate::network::{Fate, kind};
use pagemesh_core::{Effect, Effects, Event as Happening, Input, Time};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Call, Message, Reply};
use pagemesh_wire::sysv::keys::{KeyRequest, Word};
use pagemesh_wire::sysv::{Id, News};
use pagemesh_wire::{CallId, ClientId, NodeId, PublicKey};
use std::net::SocketAddr;

/// Whether this is a call like that.
fn call(message: &Message, like: impl Fn(&Call) -> bool) -> bool {
    matches!(message, Message::Call { body, .. } if like(body))
}

impl Cluster {
    pub(super) fn arrives(&mut self, to: usize, source: SocketAddr, bytes: &[u8]) -> Check {
        let (header, message, _) = Message::decode(bytes).map_err(|why| why.to_string())?;
        self.note(to, || format!("<- {} {message:?}", header.from));
        let key = |call: CallId| Key::Of(header.from, call);
        let cause = match message {
            Message::Call { call, body, .. } => match body {
                Call::Sysv(ask) if self.is_fool(ask.who.client) => None,
                // Of which the judge of keys knows more.
                Call::Sysv(ask) if keys::get(&ask.op).is_some() => None,
                Call::Sysv(ask) => Some(Cause::Call(key(call), ask.who.client, ask.op)),
                Call::SysvNews(News::Exit { client, .. }) => {
                    Some(Cause::Exit(Some(key(call)), client))
                }
                _ => None,
            },
            Message::CancelCall { call } => Some(Cause::Withdrawal(key(call))),
            _ => None,
        };
        let input = Input::Datagram {
            source,
            key: PublicKey::NONE,
            bytes,
        };
        self.input(to, input, cause.into_iter().collect())
    }

    /// A node handles one input. If it is a home, its answers are checked.
    pub(super) fn input(&mut self, host: usize, input: Input<'_>, mut causes: Vec<Cause>) -> Check {
        let mut effects = Effects::default();
        let now = self.now;
        self.hosts[host].node.handle(now, input, &mut effects);
        let (mut words, mut replies) = (Vec::new(), Vec::new());
        for effect in effects.drain().collect::<Vec<_>>() {
            match effect {
                Effect::Send {
                    address,
                    header,
                    message,
                    ..
                } => {
                    if let Message::Reply { call, body } = &*message
                        && let Some(word) = Said::sent(body)
                    {
                        words.push((Key::Of(header.to, *call), word));
                    }
                    self.send(host, address, header, &message);
                }
                Effect::Reply { ticket, reply } => {
                    let known = self.tickets.get(&ticket).copied();
                    let Some((client, home)) = known else {
                        continue;
                    };
                    if home == Some(host)
                        && let Some(word) = Said::told(&reply)
                    {
                        words.push((Key::Here(ticket), word));
                    }
                    replies.push((client, ticket, reply));
                }
                Effect::Emit(Happening::Died { node }) => {
                    self.note(host, || format!("{node} is dead"));
                    causes.push(Cause::HostGone(self.clients_on(node)));
                }
                _ => {}
            }
        }
        self.mourn(host, &mut causes);
        self.judge(host, causes, &words)?;
        for (client, ticket, reply) in replies {
            self.hears(client, ticket, &reply)?;
        }
        let due = self.hosts[host].node.next_deadline();
        if let Some(due) = due.filter(|due| self.hosts[host].deadline.is_none_or(|at| *due < at)) {
            let at = due.max(Time(now.0 + 1));
            self.hosts[host].deadline = Some(at);
            self.schedule(at, Event::Deadline(host));
        }
        Ok(())
    }

    pub(super) fn is_fool(&self, client: ClientId) -> bool {
        self.fools.contains(&client)
    }

    pub(super) fn clients_on(&self, node: NodeId) -> Vec<ClientId> {
        let there = |host: &&Host| host.node.id() == Some(node);
        let found = self.hosts.iter().find(there);
        found.map_or_else(Vec::new, |host| host.clients.clone())
    }

    pub(super) fn judge(
        &mut self,
        host: usize,
        causes: Vec<Cause>,
        words: &[(Key, Said)],
    ) -> Check {
        let processes = &self.processes;
        let attached = |id: Id| {
            let mut all = processes.values().flat_map(|process| &process.attached);
            all.any(|(of, _)| *of == id)
        };
        let Some(home) = self.homes.get_mut(&host) else {
            return Ok(());
        };
        home.judge(causes, words, attached, &mut self.tried)?;
        for (family, id) in home.removed.drain(..) {
            self.keys.removed(family, id);
        }
        Ok(())
    }

    /// Operations to undo of a dead process are undone as soon as its own node knows all of them.
    fn mourn(&mut self, host: usize, causes: &mut Vec<Cause>) {
        let Host { node, clients, .. } = &self.hosts[host];
        let over = |client: &ClientId| clients.contains(client) && node.to_undo(*client).is_none();
        let over: Vec<_> = self.mourned.iter().copied().filter(over).collect();
        for client in over {
            self.mourned.remove(&client);
            // Before the consequences of a host's death for others.
            let is_host = |cause: &Cause| matches!(cause, Cause::HostGone(_));
            let at = causes.iter().position(is_host);
            let at = at.unwrap_or(causes.len());
            causes.insert(at, Cause::Exit(None, client));
        }
    }

    pub(super) fn send(
        &mut self,
        host: usize,
        address: SocketAddr,
        header: Header,
        message: &Message,
    ) {
        if self.is_lost(message) {
            return;
        }
        let twisted = self.twisted(header.to, message);
        let message = twisted.as_ref().unwrap_or(message);
        self.tried.lent += u64::from(call(message, |body| matches!(body, Call::SysvLend { .. })));
        let recalls = |body: &Call| matches!(body, Call::SysvRecall { .. });
        self.tried.recalled += u64::from(call(message, recalls));
        self.post(host, address, header, message);
        if self.options.mistake == Some(Mistake::CalledTwice)
            && let Message::Call { call, floor, body } = message
            && matches!(body, Call::Sysv(_))
        {
            let again = Message::Call {
                call: CallId(call.0 + (1 << 32)),
                floor: *floor,
                body: body.clone(),
            };
            self.post(host, address, header, &again);
        }
    }

    /// The messages that never arrive, if that is the mistake.
    fn is_lost(&self, message: &Message) -> bool {
        match self.options.mistake {
            Some(Mistake::ExitLost) => call(message, |body| {
                matches!(body, Call::SysvNews(News::Exit { .. }))
            }),
            Some(Mistake::StrikeLost) => call(message, |body| {
                let Call::SysvKey { request, .. } = body else {
                    return false;
                };
                matches!(request, KeyRequest::Drop { .. })
            }),
            _ => false,
        }
    }

    /// The messages that arrive as others, if that is the mistake.
    fn twisted(&self, to: NodeId, message: &Message) -> Option<Message> {
        let Message::Reply { call, body } = message else {
            return None;
        };
        let body = match (self.options.mistake?, body) {
            (Mistake::TwoWinners, Reply::SysvKey(Word::Theirs(id))) if id.home() != Some(to) => {
                Reply::SysvKey(Word::Yours)
            }
            (Mistake::EntriesLost, Reply::SysvEntries { .. }) => Reply::SysvEntries {
                entries: Vec::new(),
                more: false,
            },
            _ => return None,
        };
        let call = *call;
        Some(Message::Reply { call, body })
    }

    pub(super) fn post(
        &mut self,
        host: usize,
        address: SocketAddr,
        header: Header,
        message: &Message,
    ) {
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        self.tried.datagrams += 1;
        let to = match address {
            SocketAddr::V4(address) => usize::from(address.ip().octets()[3]) - 1,
            SocketAddr::V6(_) => return,
        };
        let source = super::address(host);
        if let Fate::Arrives(first, second) = self.network.fate(self.now, host, to, kind(message)) {
            for delay in [Some(first), second].into_iter().flatten() {
                let bytes = bytes.clone();
                self.later(delay.max(1), Event::Arrival { to, source, bytes });
            }
        }
    }
}
