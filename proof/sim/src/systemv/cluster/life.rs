//! Processes: they are born, call, hear, fork and die, alone or with their host.

use super::super::home::{Cause, Key};
use super::super::model::Said;
use super::super::{keys, nonsense};
use super::{CROWD, Check, Cluster, Event, MILLI, Process, ask};
use pagemesh_core::{Input, Reply, Request};
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::sysv::{Errno, Id, Op, Outcome, Pick};
use pagemesh_wire::{ClientId, Ticket};

impl Cluster {
    pub(super) fn spawn(&mut self, host: usize, team: Option<usize>) -> ClientId {
        self.clients += 1;
        let client = ClientId(self.clients);
        self.processes.insert(
            client,
            Process {
                host,
                team,
                call: None,
                attached: Vec::new(),
            },
        );
        self.hosts[host].clients.push(client);
        if team.is_none() {
            self.fools.insert(client);
        }
        let wait = self.dice.between(1, 10) * MILLI;
        self.later(wait, Event::Act(client));
        client
    }

    /// A process does something, unless it waits.
    pub(super) fn act(&mut self, client: ClientId) -> Check {
        let process = &self.processes[&client];
        let (host, team) = (process.host, process.team);
        if process.call.is_some() || self.winding_up {
            return Ok(());
        }
        let wait = self.dice.between(100_000, 20 * MILLI);
        if self.hosts[host].node.id().is_none() {
            self.later(wait, Event::Act(client));
            return Ok(());
        }
        let forks = team.is_some() && self.processes.len() < CROWD;
        match (self.dice.below(60), team) {
            (0, _) => {
                self.die(client)?;
                self.spawn(host, team);
                Ok(())
            }
            (1, _) if forks => self.fork(client),
            (2..=6, Some(_)) if !self.processes[&client].attached.is_empty() => self.detach(client),
            (_, Some(team)) => {
                let op = self.teams[team].draws(&mut self.dice);
                if self.knows(host, &op) {
                    return self.calls(client, op);
                }
                self.later(wait, Event::Act(client));
                Ok(())
            }
            (_, None) => {
                self.tried.nonsense += 1;
                let known = self.teams.iter().flat_map(|team| {
                    let ids = team.ids.iter().flatten();
                    ids.chain(team.old.iter().flatten())
                });
                let spared: Vec<Id> = known.copied().collect();
                let op = nonsense(&mut self.dice, &spared, 0);
                self.calls(client, op)
            }
        }
    }

    /// Whether a host has heard of the home of the call's object, which may have joined just now.
    /// Objects with keys may be asked for anywhere.
    fn knows(&self, host: usize, op: &Op) -> bool {
        let home = id_of(op).and_then(Id::home);
        let mut members = self.hosts[host].node.view().members.iter();
        home.is_none_or(|home| members.any(|member| member.id == home))
    }

    /// The host that keeps an object; none if it has vanished.
    pub(super) fn host_of(&self, id: Id) -> Option<usize> {
        let home = id.home()?;
        let is_home = |host: &super::Host| !host.gone && host.node.id() == Some(home);
        self.hosts.iter().position(is_home)
    }

    pub(super) fn calls(&mut self, client: ClientId, op: Op) -> Check {
        let ticket = Ticket(self.tickets.len() as u64 + 1);
        let Some(process) = self.processes.get_mut(&client) else {
            return Ok(());
        };
        let (host, team) = (process.host, process.team);
        process.call = Some((ticket, op.clone()));
        let home = id_of(&op).filter(|_| team.is_some());
        let home = home.and_then(|id| self.host_of(id));
        self.tickets.insert(ticket, (client, home));
        for judge in self.homes.values_mut() {
            judge.begins(client);
        }
        if team.is_some() {
            self.keys.asks(client, &op);
        }
        self.note(host, || format!("{client} calls {op:?}"));
        let cause =
            (Some(host) == home).then(|| Cause::Call(Key::Here(ticket), client, op.clone()));
        let request = Request::Sysv(Box::new(ask(client, self.now, op)));
        let input = Input::Request {
            ticket,
            client,
            request,
        };
        self.input(host, input, cause.into_iter().collect())?;
        // A signal, before the answer, with it, or after it; or much later, lest all
        // wait for each other.
        let soon = self.dice.chance(150);
        let wait = self.dice.below(if soon { 20 } else { 600 } * MILLI);
        self.later(wait, Event::Signal(client, ticket));
        Ok(())
    }

    /// A process gets the result of its call.
    pub(super) fn hears(&mut self, client: ClientId, ticket: Ticket, reply: &Reply) -> Check {
        let Some(process) = self.processes.get_mut(&client) else {
            return Err(format!("{client} is dead and hears {reply:?}"));
        };
        let Some((_, op)) = process.call.take_if(|(of, _)| *of == ticket) else {
            return Err(format!("{client} hears {reply:?}, and has not asked"));
        };
        let (host, team) = (process.host, process.team);
        let Some(team) = team else {
            let wait = self.dice.between(20, 60) * MILLI;
            self.later(wait, Event::Act(client));
            return Ok(());
        };
        if let (Op::ShmAttach { id, .. }, Reply::Segment(info)) = (&op, reply) {
            process.attached.push((*id, info.id));
        }
        self.note(host, || format!("{client} hears {reply:?}"));
        let home = self.tickets[&ticket].1;
        let judged = home.filter(|home| self.homes.contains_key(home));
        match (reply, judged) {
            (Reply::Sysv(outcome), _) if keys::get(&op).is_some() => {
                self.finds(client, &op, outcome)?;
            }
            (_, Some(home)) => self.confirm(home, client, &op, reply)?,
            // Its home is gone.
            (Reply::Sysv(Outcome::Failed(Errno::EINVAL)), None) => {}
            (Reply::Refused(Refusal::NodeGone(_) | Refusal::Cancelled), None) => {}
            // It had answered before.
            (_, None) if home.is_some() => {}
            (other, None) => return Err(format!("{client} hears {other:?} of {op:?}")),
        }
        let team = &mut self.teams[team];
        match reply {
            Reply::Sysv(Outcome::Number(_)) if matches!(op, Op::Remove { .. }) => team.lost(&op),
            Reply::Sysv(Outcome::Number(number)) => team.learns(&op, *number),
            Reply::Sysv(Outcome::Failed(Errno::EIDRM | Errno::EINVAL))
            | Reply::Refused(Refusal::NodeGone(_)) => team.lost(&op),
            _ => {}
        }
        let wait = self.dice.between(10_000, 15 * MILLI);
        self.later(wait, Event::Act(client));
        Ok(())
    }

    /// A process hears which object it gets.
    fn finds(&mut self, client: ClientId, op: &Op, outcome: &Outcome) -> Check {
        let is_new = self.keys.hears(client, outcome)?;
        self.tried.gets += 1;
        let (Outcome::Number(number), Some(((family, _), _))) = (outcome, keys::get(op)) else {
            return Ok(());
        };
        if !is_new {
            return Ok(());
        }
        self.tried.made += 1;
        let home = self.host_of(Id(*number));
        match home.and_then(|home| self.homes.get_mut(&home)) {
            Some(judge) => judge.model.make(family, Id(*number)),
            None => {
                self.keys.removed(family, Id(*number));
                Ok(())
            }
        }
    }

    /// A process gets the answer of an object's home.
    fn confirm(&mut self, home: usize, client: ClientId, op: &Op, reply: &Reply) -> Check {
        let said = match reply {
            Reply::Sysv(outcome) => Said::Outcome(outcome.clone()),
            Reply::Segment(_) => Said::Attached,
            Reply::Refused(Refusal::Cancelled) => Said::Withdrawn,
            other => return Err(format!("{client} hears {other:?} of {op:?}")),
        };
        let judge = &self.homes[&home];
        let attaches = matches!(op, Op::ShmAttach { .. });
        // An attachment that is not needed any more comes late, and is given back.
        let promised = judge.promised.get(&client);
        let promised = promised.filter(|said| attaches || **said != Said::Attached);
        let given_back = attaches && said == Said::Withdrawn;
        let fits = match promised {
            Some(promised) => *promised == said || given_back,
            None => said == Said::Withdrawn,
        };
        if fits {
            return Ok(());
        }
        Err(format!(
            "{client} hears {said:?} of {op:?}; its home said {promised:?}"
        ))
    }

    pub(super) fn detach(&mut self, client: ClientId) -> Check {
        let Some(process) = self.processes.get_mut(&client) else {
            return Ok(());
        };
        let host = process.host;
        if let Some((_, segment)) = process.attached.pop() {
            self.note(host, || format!("{client} detaches {segment:?}"));
            self.input(host, Input::Closed { segment, client }, Vec::new())?;
        }
        self.later(MILLI, Event::Act(client));
        Ok(())
    }

    pub(super) fn fork(&mut self, parent: ClientId) -> Check {
        let process = &self.processes[&parent];
        let (host, team, attached) = (process.host, process.team, process.attached.clone());
        let child = self.spawn(host, team);
        self.note(host, || format!("{parent} forks {child}"));
        if let Some(process) = self.processes.get_mut(&child) {
            process.attached = attached;
        }
        self.later(MILLI, Event::Act(parent));
        self.input(host, Input::Forked { parent, child }, Vec::new())
    }

    pub(super) fn die(&mut self, client: ClientId) -> Check {
        let Some(process) = self.processes.remove(&client) else {
            return Ok(());
        };
        self.tried.died += 1;
        let host = process.host;
        self.note(host, || format!("{client} dies"));
        self.keys.dies(client);
        let ticket = process.call.map(|(ticket, _)| ticket);
        let here = ticket.filter(|ticket| self.tickets[ticket].1 == Some(host));
        let causes = here.map(|ticket| Cause::Withdrawal(Key::Here(ticket)));
        if self.hosts[host].node.to_undo(client).is_some() {
            self.mourned.insert(client);
        }
        let causes = causes.into_iter().collect();
        self.input(host, Input::ClientGone { client }, causes)
    }

    /// A host vanishes, with its processes, and with the objects that it keeps.
    pub(super) fn crash(&mut self, host: usize) {
        self.note(host, || "vanishes".into());
        self.tried.crashed += 1;
        self.hosts[host].gone = true;
        let node = self.hosts[host].node.id();
        self.homes.remove(&host);
        for client in &self.hosts[host].clients {
            self.keys.dies(*client);
        }
        self.keys.vanished(|id| node.is_some() && id.home() == node);
        self.processes.retain(|_, process| process.host != host);
    }
}

/// The object that a call names by its number.
fn id_of(op: &Op) -> Option<Id> {
    match op {
        Op::SemOp { id, .. }
        | Op::SemGetOne { id, .. }
        | Op::SemGetAll { id }
        | Op::SemSetOne { id, .. }
        | Op::SemSetAll { id, .. }
        | Op::MsgSend { id, .. }
        | Op::MsgReceive { id, .. }
        | Op::ShmAttach { id, .. }
        | Op::Remove { id, .. }
        | Op::Stat {
            pick: Pick::Id(id), ..
        } => Some(*id),
        _ => None,
    }
}
