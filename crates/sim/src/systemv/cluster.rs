//! Hosts, processes and the network between them, in one queue of events.

use super::home::{Cause, Home, Key, Word};
use super::model::Said;
use super::nonsense;
use super::program::{ROOM, Team};
use super::{Mistake, SystemV, Tried};
use crate::dice::Dice;
use crate::network::{Fate, Network, kind};
use crate::plan::{Profile, pace, weather};
use pagemesh_core::{
    Config, Effect, Effects, Event as Happening, Input, Node, Reply, Request, Start, Time,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Call, Credentials, Message, Refusal};
use pagemesh_wire::sysv::{Ask, Errno, Family, Id, Limits, News, Op, Outcome, Pick, Who};
use pagemesh_wire::{
    CallId, ClientId, ClusterId, Incarnation, NodeId, PublicKey, SegmentId, Ticket,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

struct Host {
    node: Node,
    gone: bool,
    deadline: Option<Time>,
    /// It stands still until then.
    still: Time,
    /// All processes it ever had.
    clients: Vec<ClientId>,
}

struct Process {
    host: usize,
    home: usize,
    /// Its call under way.
    call: Option<(Ticket, Op)>,
    attached: Vec<(Id, SegmentId)>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival {
        to: usize,
        source: SocketAddr,
        bytes: Vec<u8>,
    },
    Deadline(usize),
    Act(ClientId),
    Signal(ClientId, Ticket),
    Crash(usize),
    Pause(usize, u64),
}

pub(super) struct Cluster {
    options: SystemV,
    now: Time,
    queue: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
    hosts: Vec<Host>,
    processes: BTreeMap<ClientId, Process>,
    /// Who made which request, and of whose home.
    tickets: BTreeMap<Ticket, (ClientId, usize)>,
    clients: u32,
    /// Who calls nonsense, dead or alive.
    fools: BTreeSet<ClientId>,
    homes: BTreeMap<usize, (Home, Team)>,
    network: Network,
    dice: Dice,
    /// No process begins anything any more.
    winding_up: bool,
    log: VecDeque<String>,
    tried: Tried,
}

type Check<T = ()> = Result<T, String>;

/// The home of those who only call what no library would.
const NONE: usize = usize::MAX;

/// Living processes at most.
const CROWD: usize = 14;

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 7300))
}

const MILLI: u64 = 1_000_000;

impl Cluster {
    pub(super) fn new(options: SystemV) -> Self {
        let mut dice = Dice::stream(options.seed, "system v");
        let weather = weather(&mut dice, options.profile);
        let pace = pace(&mut dice);
        let hosts = dice.between(2, 4) as usize;
        let mut cluster = Self {
            options,
            now: Time(1_000),
            queue: BinaryHeap::new(),
            sequence: 0,
            hosts: Vec::new(),
            processes: BTreeMap::new(),
            tickets: BTreeMap::new(),
            clients: 0,
            fools: BTreeSet::new(),
            homes: BTreeMap::new(),
            network: Network::new(options.seed, weather, None),
            dice,
            winding_up: false,
            log: VecDeque::new(),
            tried: Tried::default(),
        };
        let id = ClusterId(cluster.dice.number() | 1);
        for host in 0..hosts {
            let start = match host {
                0 => Start::Found(id),
                _ => Start::Join(address(0)),
            };
            cluster.hosts.push(Host {
                node: Node::new(Config {
                    name: format!("host{host}"),
                    address: address(host),
                    incarnation: Incarnation(cluster.dice.number() | 1),
                    key: PublicKey::NONE,
                    start,
                    pace,
                    check_races: false,
                }),
                gone: false,
                deadline: None,
                still: Time(0),
                clients: Vec::new(),
            });
            cluster.schedule(Time(1_000 + host as u64), Event::Deadline(host));
        }
        cluster.populate();
        cluster.add_fool();
        cluster.trouble();
        cluster
    }

    /// A home with keys, perhaps one with private objects, and who uses them.
    fn populate(&mut self) {
        let private = self.dice.chance(600);
        let homes = [Some((0, 7)), private.then_some((1, 0))];
        for (home, key) in homes.into_iter().flatten() {
            let judge = Home::new(u64::from(ROOM), self.options.mistake);
            let team = Team {
                key,
                ..Team::default()
            };
            self.homes.insert(home, (judge, team));
            for host in 0..self.hosts.len() {
                // Somebody has to make private objects.
                let least = u64::from(host == home);
                for _ in 0..self.dice.between(least, 2) {
                    self.spawn(host, home);
                }
            }
        }
    }

    /// Somebody who calls nonsense, as long as it names nobody's objects.
    fn add_fool(&mut self) {
        if self.dice.chance(400) {
            let host = self.dice.index(self.hosts.len());
            self.spawn(host, NONE);
        }
    }

    /// Hosts stand still, and one vanishes.
    fn trouble(&mut self) {
        if self.options.profile == Profile::Calm {
            return;
        }
        for _ in 0..self.dice.below(4) {
            let at = Time(self.dice.between(400, 2500) * MILLI);
            let host = self.dice.index(self.hosts.len());
            let length = self.dice.between(1, 300) * MILLI;
            self.schedule(at, Event::Pause(host, length));
        }
        if self.hosts.len() > 2 && self.dice.chance(500) {
            let host = self.dice.between(1, self.hosts.len() as u64 - 1) as usize;
            let at = Time(self.dice.between(500, 2500) * MILLI);
            self.schedule(at, Event::Crash(host));
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence, event)));
    }

    fn later(&mut self, nanos: u64, event: Event) {
        self.schedule(Time(self.now.0 + nanos), event);
    }

    fn note(&mut self, host: usize, what: impl FnOnce() -> String) {
        if self.log.len() == 300 {
            self.log.pop_front();
        }
        let line = format!("{:>12} h{} {}", self.now.0, host + 1, what());
        self.log.push_back(line);
    }

    pub(super) fn run(mut self) -> Result<Tried, String> {
        match self.phases() {
            Ok(()) => {
                let judges = self.homes.values().map(|(home, _)| &home.model);
                for model in judges {
                    self.tried.orphaned += model.orphaned;
                    self.tried.undone += model.undone;
                }
                Ok(self.tried)
            }
            Err(why) => {
                let log: Vec<_> = self.log.into_iter().collect();
                Err(format!("{}\n{why}", log.join("\n")))
            }
        }
    }

    /// Trouble, calm, the end of all processes.
    fn phases(&mut self) -> Check {
        self.run_for(Duration::from_secs(3))?;
        self.network.heal();
        self.winding_up = true;
        // Deaths are noticed, and what was begun comes to an end or to a wait.
        self.run_for(Duration::from_secs(12))?;
        let waiting: Vec<_> = self
            .processes
            .iter()
            .filter_map(|(client, process)| Some((*client, process.call.as_ref()?.0)))
            .collect();
        for (client, ticket) in waiting {
            self.later(1, Event::Signal(client, ticket));
        }
        self.run_for(Duration::from_secs(5))?;
        self.nobody_waits()?;
        self.count_attachments()?;
        for client in self.processes.keys().copied().collect::<Vec<_>>() {
            self.die(client)?;
        }
        self.run_for(Duration::from_secs(5))?;
        for (home, _) in self.homes.values() {
            if let Some(why) = home.model.left_behind(|_| false) {
                return Err(why);
            }
        }
        self.count_attachments()
    }

    fn run_for(&mut self, length: Duration) -> Check {
        let end = self.now + length;
        while self
            .queue
            .peek()
            .is_some_and(|Reverse((at, ..))| *at <= end)
        {
            let Some(Reverse((at, _, event))) = self.queue.pop() else {
                break;
            };
            self.now = at;
            self.happen(event)?;
        }
        self.now = end;
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Check {
        let host = match &event {
            Event::Arrival { to, .. } => *to,
            Event::Deadline(host) | Event::Crash(host) | Event::Pause(host, _) => *host,
            Event::Act(client) | Event::Signal(client, _) => match self.processes.get(client) {
                Some(process) => process.host,
                None => return Ok(()),
            },
        };
        if self.hosts[host].gone {
            return Ok(());
        }
        if self.hosts[host].still > self.now {
            let at = self.hosts[host].still;
            self.schedule(at, event);
            return Ok(());
        }
        match event {
            Event::Pause(host, length) => {
                self.note(host, || format!("stands still for {length} ns"));
                self.tried.paused += 1;
                self.hosts[host].still = Time(self.now.0 + length);
                Ok(())
            }
            Event::Crash(host) => {
                self.crash(host);
                Ok(())
            }
            Event::Arrival { to, source, bytes } => self.arrives(to, source, &bytes),
            Event::Deadline(host) => {
                self.hosts[host].deadline = None;
                self.input(host, Input::Deadline, Vec::new())
            }
            Event::Act(client) => self.act(client),
            Event::Signal(client, ticket) => {
                self.note(host, || format!("a signal for {client}"));
                let here = self.processes[&client].home == host;
                let cause = here.then_some(Cause::Withdrawal(Key::Here(ticket)));
                self.input(host, Input::Cancel { ticket }, cause.into_iter().collect())
            }
        }
    }

    fn arrives(&mut self, to: usize, source: SocketAddr, bytes: &[u8]) -> Check {
        let (header, message, _) = Message::decode(bytes).map_err(|why| why.to_string())?;
        self.note(to, || format!("<- {} {message:?}", header.from));
        let key = |call: CallId| Key::Of(header.from, call);
        let cause = match message {
            Message::Call { call, body, .. } => match body {
                Call::Sysv(ask) if self.is_fool(ask.who.client) => None,
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

    /// A node handles one input. If it is a home it is judged by what it says then.
    fn input(&mut self, host: usize, input: Input<'_>, mut causes: Vec<Cause>) -> Check {
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
                        && let Some(word) = Word::sent(body)
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
                    if home == host
                        && let Some(word) = Word::told(&reply)
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

    fn is_fool(&self, client: ClientId) -> bool {
        self.fools.contains(&client)
    }

    fn clients_on(&self, node: NodeId) -> Vec<ClientId> {
        let there = |host: &&Host| host.node.id() == Some(node);
        let found = self.hosts.iter().find(there);
        found.map_or_else(Vec::new, |host| host.clients.clone())
    }

    fn judge(&mut self, host: usize, causes: Vec<Cause>, words: &[(Key, Word)]) -> Check {
        let processes = &self.processes;
        let attached = |id: Id| {
            let mut all = processes.values().flat_map(|process| &process.attached);
            all.any(|(of, _)| *of == id)
        };
        let Some((home, _)) = self.homes.get_mut(&host) else {
            return Ok(());
        };
        home.judge(causes, words, attached, &mut self.tried)
    }

    fn send(&mut self, host: usize, address: SocketAddr, header: Header, message: &Message) {
        let exit = |body: &Call| matches!(body, Call::SysvNews(News::Exit { .. }));
        let lost = self.options.mistake == Some(Mistake::ExitLost)
            && matches!(message, Message::Call { body, .. } if exit(body));
        if lost {
            return;
        }
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

    fn post(&mut self, host: usize, address: SocketAddr, header: Header, message: &Message) {
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        self.tried.datagrams += 1;
        let to = match address {
            SocketAddr::V4(address) => usize::from(address.ip().octets()[3]) - 1,
            SocketAddr::V6(_) => return,
        };
        let source = self::address(host);
        if let Fate::Arrives(first, second) = self.network.fate(self.now, host, to, kind(message)) {
            for delay in [Some(first), second].into_iter().flatten() {
                let bytes = bytes.clone();
                self.later(delay.max(1), Event::Arrival { to, source, bytes });
            }
        }
    }
}

/// Processes.
impl Cluster {
    fn spawn(&mut self, host: usize, home: usize) -> ClientId {
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
    fn act(&mut self, client: ClientId) -> Check {
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
    fn knows(&self, host: usize, home: usize) -> bool {
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

    fn calls(&mut self, client: ClientId, op: Op) -> Check {
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
    fn hears(&mut self, client: ClientId, ticket: Ticket, reply: &Reply) -> Check {
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

    fn detach(&mut self, client: ClientId) -> Check {
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

    fn fork(&mut self, parent: ClientId) -> Check {
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

    fn die(&mut self, client: ClientId) -> Check {
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
    fn crash(&mut self, host: usize) {
        self.note(host, || "vanishes".into());
        self.tried.crashed += 1;
        self.hosts[host].gone = true;
        self.homes.remove(&host);
        self.processes.retain(|_, process| process.host != host);
    }

    /// Everybody has been answered or interrupted.
    fn nobody_waits(&self) -> Check {
        let judged = |home: &usize| *home == NONE || self.homes.contains_key(home);
        let waits = self
            .processes
            .iter()
            .find(|(_, process)| process.call.is_some() && judged(&process.home));
        match waits {
            Some((client, process)) => Err(format!(
                "{client} got a signal and waits still: {:?}",
                process.call
            )),
            None => Ok(()),
        }
    }

    /// Every segment has as many attachments as there are, and is gone if it is removed
    /// and has none.
    fn count_attachments(&mut self) -> Check {
        let homes: Vec<usize> = self.homes.keys().copied().collect();
        for home in homes {
            let segments: Vec<_> = self.homes[&home].0.model.segments().collect();
            for (id, removed) in segments {
                let attached = self.processes.values();
                let attached = attached.flat_map(|process| &process.attached);
                let expected = attached.filter(|(of, _)| *of == id).count() as u64;
                let counted = self.stat(home, id)?;
                let gone = removed && expected == 0;
                if counted != (!gone).then_some(expected) {
                    return Err(format!(
                        "{id:?}, removed: {removed}, has {expected} attachments, and its home counts {counted:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// How many attachments the home of a segment counts; none if it is gone.
    fn stat(&mut self, home: usize, id: Id) -> Check<Option<u64>> {
        self.clients += 1;
        let client = ClientId(self.clients);
        let op = Op::Stat {
            family: Family::Shm,
            pick: Pick::Id(id),
        };
        let request = Request::Sysv(Box::new(ask(client, self.now, op)));
        let ticket = Ticket(u64::MAX - u64::from(self.clients));
        let input = Input::Request {
            ticket,
            client,
            request,
        };
        let mut effects = Effects::default();
        self.hosts[home].node.handle(self.now, input, &mut effects);
        for effect in effects.drain() {
            if let Effect::Reply { reply, .. } = effect {
                return match *reply {
                    Reply::Sysv(Outcome::Shm(stat)) => Ok(Some(stat.nattch)),
                    Reply::Sysv(Outcome::Failed(_)) => Ok(None),
                    other => Err(format!("{other:?}")),
                };
            }
        }
        Err("no answer".into())
    }
}

fn ask(client: ClientId, now: Time, op: Op) -> Ask {
    Ask {
        who: Who {
            client,
            pid: client.0 as i32,
            credentials: Credentials {
                uid: 0,
                gid: 0,
                groups: Vec::new(),
            },
        },
        wall: now.0 / 1_000_000_000,
        limits: Limits {
            msgmnb: ROOM,
            ..Limits::default()
        },
        op,
    }
}
