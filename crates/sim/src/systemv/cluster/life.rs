//! Processes: they are born, call, hear, fork and die, alone or with their host.

use super::super::home::{Cause, Key};
use super::super::model::Said;
use super::super::nonsense;
use super::{CROWD, Check, Cluster, Event, MILLI, NONE, Process, ask};
use pagemesh_core::{Input, Reply, Request};
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::sysv::{Errno, Id, Op, Outcome};
use pagemesh_wire::{ClientId, Ticket};

impl Cluster {
    pub(super) fn spawn(&mut self, host: usize, home: usize) -> ClientId {
        self.clients += 1;
        let client = ClientId(self.clients);
        self.processes.insert(
            client,
            Process {
                host,
                home,
                call: None,
                attached: Vec::new(),
            },
        );
        self.hosts[host].clients.push(client);
        if home == NONE {
            self.fools.insert(client);
        }
        let wait = self.dice.between(1, 10) * MILLI;
        self.later(wait, Event::Act(client));
        client
    }

    /// A process does something, unless it waits.
    pub(super) fn act(&mut self, client: ClientId) -> Check {
        let process = &self.processes[&client];
        let (host, home) = (process.host, process.home);
        let homeless = home != NONE && !self.homes.contains_key(&home);
        if process.call.is_some() || self.winding_up || homeless {
            return Ok(());
        }
        let wait = self.dice.between(100_000, 20 * MILLI);
        if !self.knows(host, home) {
            self.later(wait, Event::Act(client));
            return Ok(());
        }
        match self.dice.below(60) {
            0 => {
                let (host, home) = (process.host, process.home);
                self.die(client)?;
                self.spawn(host, home);
                Ok(())
            }
            1 if home != NONE && self.processes.len() < CROWD => self.fork(client),
            2..=6 if home != NONE && !process.attached.is_empty() => self.detach(client),
            _ if home == NONE => {
                self.tried.nonsense += 1;
                let teams = self.homes.values().map(|(_, team)| team);
                let known = teams
                    .flat_map(|team| team.ids.iter().flatten().chain(team.old.iter().flatten()));
                let spared: Vec<Id> = known.copied().collect();
                let op = nonsense(&mut self.dice, &spared, 0);
                self.calls(client, op)
            }
            _ => {
                let op = self.homes[&home]
                    .1
                    .draws(&mut self.dice, home == 0 || host == home);
                match op {
                    Some(op) => self.calls(client, op),
                    None => {
                        self.later(wait, Event::Act(client));
                        Ok(())
                    }
                }
            }
        }
    }

    /// Whether a host has heard of this home; both may have joined just now.
    pub(super) fn knows(&self, host: usize, home: usize) -> bool {
        let node = &self.hosts[host].node;
        if home == NONE {
            return node.id().is_some();
        }
        let Some(home) = self.hosts[home].node.id() else {
            return false;
        };
        let mut members = node.view().members.iter();
        node.id().is_some() && members.any(|member| member.id == home)
    }

    pub(super) fn calls(&mut self, client: ClientId, op: Op) -> Check {
        let ticket = Ticket(self.tickets.len() as u64 + 1);
        let Some(process) = self.processes.get_mut(&client) else {
            return Ok(());
        };
        let (host, home) = (process.host, process.home);
        process.call = Some((ticket, op.clone()));
        self.tickets.insert(ticket, (client, home));
        if let Some((judge, _)) = self.homes.get_mut(&home) {
            judge.begins(client);
        }
        self.note(host, || format!("{client} calls {op:?}"));
        let cause = (host == home).then(|| Cause::Call(Key::Here(ticket), client, op.clone()));
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

    /// A process hears what became of its call.
    pub(super) fn hears(&mut self, client: ClientId, ticket: Ticket, reply: &Reply) -> Check {
        let Some(process) = self.processes.get_mut(&client) else {
            return Err(format!("{client} is dead and hears {reply:?}"));
        };
        let Some((_, op)) = process.call.take_if(|(of, _)| *of == ticket) else {
            return Err(format!("{client} hears {reply:?}, and has not asked"));
        };
        let host = process.host;
        if process.home == NONE {
            let wait = self.dice.between(20, 60) * MILLI;
            self.later(wait, Event::Act(client));
            return Ok(());
        }
        if !self.homes.contains_key(&process.home) {
            // Its home is gone: it is told so, and does nothing any more.
            return Ok(());
        }
        let said = match reply {
            Reply::Sysv(outcome) => Said::Outcome(outcome.clone()),
            Reply::Segment(_) => Said::Attached,
            Reply::Refused(Refusal::Cancelled) => Said::Withdrawn,
            other => return Err(format!("{client} hears {other:?} of {op:?}")),
        };
        if let (Op::ShmAttach { id, .. }, Reply::Segment(info)) = (&op, reply) {
            process.attached.push((*id, info.id));
        }
        let home = process.home;
        self.note(host, || format!("{client} hears {said:?}"));
        let Some((judge, team)) = self.homes.get_mut(&home) else {
            return Ok(());
        };
        let attaches = matches!(op, Op::ShmAttach { .. });
        // An attachment that nobody wants any more comes late, and is given back.
        let promised = judge.promised.get(&client);
        let promised = promised.filter(|said| attaches || **said != Said::Attached);
        let given_back = attaches && said == Said::Withdrawn;
        let fits = match promised {
            Some(promised) => *promised == said || given_back,
            None => said == Said::Withdrawn,
        };
        if !fits {
            return Err(format!(
                "{client} hears {said:?} of {op:?}; its home said {promised:?}"
            ));
        }
        match &said {
            Said::Outcome(Outcome::Number(number)) if matches!(op, Op::Remove { .. }) => {
                debug_assert_eq!(*number, 0);
                team.lost(&op);
            }
            Said::Outcome(Outcome::Number(number)) => team.learns(&op, *number),
            Said::Outcome(Outcome::Failed(Errno::EIDRM | Errno::EINVAL)) => team.lost(&op),
            _ => {}
        }
        let wait = self.dice.between(10_000, 15 * MILLI);
        self.later(wait, Event::Act(client));
        Ok(())
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
        let (host, home, attached) = (process.host, process.home, process.attached.clone());
        let child = self.spawn(host, home);
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
        let mut causes = Vec::new();
        if host == process.home {
            let ticket = process.call.map(|(ticket, _)| ticket);
            causes.extend(ticket.map(|ticket| Cause::Withdrawal(Key::Here(ticket))));
            causes.push(Cause::Exit(None, client));
        }
        self.input(host, Input::ClientGone { client }, causes)
    }

    /// A host vanishes, with its processes, and with the objects that it keeps.
    pub(super) fn crash(&mut self, host: usize) {
        self.note(host, || "vanishes".into());
        self.tried.crashed += 1;
        self.hosts[host].gone = true;
        self.homes.remove(&host);
        self.processes.retain(|_, process| process.host != host);
    }
}
