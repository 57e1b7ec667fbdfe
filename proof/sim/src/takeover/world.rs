//! The state of an explored takeover, and what may happen next.

use super::names::Names;
use super::setting::{Luck, Op, TakeoverMistake};
use crate::explore::timeless::Timeless;
use crate::small::search::State;
use crate::small::{Check, Driver, Packet, Turn};
use pagemesh_core::{At, Event, Mappings, Node, PageRange, Reply, Rights, Source, Time, limits};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Call, Health, Message, Refusal, Reply as PeerReply};
use pagemesh_wire::{ClusterId, MappingId, NodeId, SegmentId, Term, Ticket};
use std::collections::{BTreeMap, VecDeque};
use std::hash::Hash as _;
use std::rc::Rc;
use std::time::Duration;

mod programs;
mod setup;
mod steps;

const CLUSTER: ClusterId = ClusterId(1);
const COORDINATOR: usize = 0;
const STANDBY: usize = 1;
const HOSTS: usize = 3;

/// A step of all clocks: every repetition and every sign of life is due then.
const TICK: Duration = limits::JOIN_RETRY;

/// A node from which nothing came for longer counts as silent.
const SILENCE: Duration = Duration::from_millis(400);

/// Nodes measure from no longer ago, until a silence makes them refuse requests, which is not
/// explored.
const PAST: Duration = Duration::from_millis(700);

/// The person's request.
const PROMOTE: Ticket = Ticket(9000);

/// Calls of a node between two looks at its deadlines.
const ROUNDS: usize = 400;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Life {
    /// Its daemon has not been started.
    Unborn,
    Up,
    /// It stands still, and will go on.
    Still,
    Dead,
}

/// From whom the first host is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Cut {
    None,
    One(usize),
    All,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Mode {
    Runs,
    /// It waits for the answer to its call.
    Asks,
    /// It waits until its host is admitted.
    Joins,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Thread {
    /// Steps done.
    at: usize,
    mode: Mode,
}

/// A node, and what an observer knows of it.
#[derive(Clone)]
struct Host {
    node: Node,
    clock: Time,
    /// What it has told another node that it believes no older coordinator than, and until when.
    promised: (Term, Time),
    /// The newest view that it had.
    age: (Term, u64),
    digest: u128,
}

impl Host {
    fn refresh(&mut self) {
        let mut hasher = Timeless::since(self.clock, PAST);
        (&self.node, self.promised, self.age).hash(&mut hasher);
        self.digest = hasher.digest();
    }

    /// A coordinator of an older term counts for nothing here.
    fn fence(&self) -> Term {
        let (promised, until) = self.promised;
        let known = self.node.view().term;
        if self.clock < until {
            known.max(promised)
        } else {
            known
        }
    }

    fn coordinates(&self) -> bool {
        let coordinator = self.node.view().term.coordinator();
        self.node.id() == Some(coordinator) && self.node.out().is_none()
    }

    fn counts_as_alive(&self, host: usize) -> bool {
        let member = self.node.view().member(number(host));
        member.is_some_and(|member| member.health == Health::Alive)
    }
}

#[derive(Clone)]
pub(super) struct World {
    programs: Rc<[(usize, Vec<Op>)]>,
    mistake: Option<TakeoverMistake>,
    hosts: Vec<Rc<Host>>,
    lives: [Life; HOSTS],
    cut: Cut,
    /// By sender and receiver.
    wires: Vec<VecDeque<Packet>>,
    late: Vec<Packet>,
    /// Signs of life: they arrive at once, or never.
    beats: VecDeque<Packet>,
    threads: Vec<Thread>,
    /// What programs were told.
    names: Names,
    /// The same without what was told on hosts that knew that the standby counts as dead: that may
    /// be lost if it is promoted nevertheless.
    solid: Names,
    made: BTreeMap<u8, SegmentId>,
    /// The person waits for an answer.
    asked: bool,
    luck: Luck,
    /// The host whose input is handled.
    at: usize,
    /// The node at work has taken over.
    promoted: bool,
}

impl Driver for World {
    fn now(&self) -> Time {
        self.hosts[self.at].clock
    }

    fn node(&mut self, host: usize) -> Option<&mut Node> {
        (self.lives[host] == Life::Up).then(|| &mut self.host(host).node)
    }

    fn send(
        &mut self,
        turn: Turn<'_>,
        (to, header): (usize, Header),
        message: Box<Message>,
        _: Option<(At, Source)>,
    ) -> Check {
        let from = turn.host;
        self.overhear_promise(from, turn.message, &message);
        if !matches!(self.lives[to], Life::Up | Life::Still) || self.is_cut(from, to) {
            return Ok(());
        }
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        let bytes = bytes.into();
        let packet = Packet { from, to, bytes };
        let is_beat = matches!(
            *message,
            Message::Heartbeat { .. } | Message::HeartbeatAck { .. }
        );
        if !is_beat {
            // A host that stands still keeps one of equal datagrams: repetitions would have no end.
            let waits = self.lives[to] == Life::Still;
            let wire = self.wire(from, to);
            if !waits || !wire.contains(&packet) {
                wire.push_back(packet);
            }
        } else if self.lives[to] == Life::Up {
            self.beats.push_back(packet);
        }
        Ok(())
    }

    fn fill(&mut self, _: Turn<'_>, pages: PageRange, _: Source) -> Check {
        Err(format!("nobody has mapped {pages:?}"))
    }

    fn map(&mut self, _: usize, _: Mappings, pages: PageRange, _: Rights) -> Check {
        Err(format!("nobody has mapped {pages:?}"))
    }

    fn evict(&mut self, _: usize, pages: PageRange, _: bool) -> Check {
        Err(format!("nobody has mapped {pages:?}"))
    }

    fn drop_stash(&mut self, _: usize, at: At) -> Check {
        Err(format!("{at:?} is not in the stash"))
    }

    fn fail(&mut self, _: usize, _: MappingId, at: At, why: Refusal) -> Check {
        Err(format!("nobody waits for {at:?}: {why}"))
    }

    fn reply(&mut self, host: usize, ticket: Ticket, reply: Reply) -> Check {
        self.replied(host, ticket, &reply)
    }

    fn emit(&mut self, host: usize, event: Event) -> Check {
        match event {
            Event::Promoted {} => self.promoted = true,
            Event::Admitted { .. } => self.admitted(host),
            _ => {}
        }
        Ok(())
    }

    fn handled(&mut self, host: usize) -> Check {
        let age = self.hosts[host].node.view().age();
        let known = self.hosts[host].age;
        if age < known {
            let why = format!("h{} goes back from {known:?} to {age:?}", host + 1);
            return Err(format!("INV-fenced: {why}"));
        }
        self.host(host).age = age;
        let coordinates = |host: &Rc<Host>| host.coordinates().then(|| host.node.view().term);
        let mut terms: Vec<_> = self.hosts.iter().filter_map(coordinates).collect();
        let coordinators = terms.len();
        terms.sort_unstable();
        terms.dedup();
        if terms.len() < coordinators {
            return Err("INV-fenced: two nodes coordinate in one term".into());
        }
        Ok(())
    }
}

impl World {
    fn host(&mut self, host: usize) -> &mut Host {
        Rc::make_mut(&mut self.hosts[host])
    }

    fn wire(&mut self, from: usize, to: usize) -> &mut VecDeque<Packet> {
        &mut self.wires[from * HOSTS + to]
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        match self.cut {
            Cut::None => false,
            Cut::One(host) => [(COORDINATOR, host), (host, COORDINATOR)].contains(&(from, to)),
            Cut::All => [from, to].contains(&COORDINATOR),
        }
    }

    /// A host takes part, as far as its own node knows.
    fn takes_part(&self, host: usize) -> bool {
        self.lives[host] == Life::Up && self.hosts[host].node.out().is_none()
    }

    /// Nothing will happen before the clocks have run.
    fn is_still(&self) -> bool {
        let waits = |packet: &Packet| self.lives[packet.to] == Life::Still;
        let blocked =
            |thread: usize| self.threads[thread].mode != Mode::Runs || self.is_done(thread);
        self.wires.iter().flatten().all(waits) && (0..self.threads.len()).all(blocked)
    }

    fn is_done(&self, thread: usize) -> bool {
        let (host, ops) = &self.programs[thread];
        let ended = match self.lives[*host] {
            Life::Dead => true,
            Life::Unborn | Life::Still => false,
            Life::Up => self.hosts[*host].node.out().is_some(),
        };
        ended || self.threads[thread].at == ops.len() || self.cannot_join(thread)
    }

    /// A host that was to be admitted knows only the address of a host that is dead, or is none of
    /// the members.
    fn cannot_join(&self, thread: usize) -> bool {
        self.threads[thread].mode == Mode::Joins
            && !(self.takes_part(COORDINATOR) || self.lives[COORDINATOR] == Life::Still)
    }

    /// All living hosts follow one coordinator that lives, or there is nobody left who could be one.
    fn is_settled(&self) -> bool {
        let members = || (0..HOSTS).filter(|host| self.is_member(*host));
        let coordinators = members().filter(|host| self.hosts[*host].coordinates());
        let coordinators: Vec<_> = coordinators.collect();
        match coordinators[..] {
            [one] => members().all(|host| {
                let term = self.hosts[host].node.view().term;
                term == self.hosts[one].node.view().term
            }),
            [] => members().all(|host| !self.could_take_over(host)),
            _ => false,
        }
    }

    fn is_member(&self, host: usize) -> bool {
        self.takes_part(host) && self.hosts[host].node.id().is_some()
    }

    /// A person who looks at this host finds the standby of a coordinator that is gone.
    fn could_take_over(&self, host: usize) -> bool {
        let node = &self.hosts[host].node;
        let view = node.view();
        let coordinator = host_of(view.term.coordinator());
        let reachable = self
            .hosts
            .get(coordinator)
            .is_some_and(|host| host.coordinates())
            && self.lives[coordinator] == Life::Up
            && !self.is_cut(host, coordinator);
        self.is_member(host)
            && node.id() == Some(view.standby)
            && !self.hosts[host].coordinates()
            && !reachable
    }

    fn tell(packet: &Packet) -> String {
        let (from, to) = (packet.from + 1, packet.to + 1);
        let said = match Message::decode(&packet.bytes) {
            Ok((_, Message::Call { body, .. }, _)) => format!("Call {}", word(&body)),
            Ok((_, Message::Reply { body, .. }, _)) => format!("Reply {}", word(&body)),
            Ok((_, message, _)) => word(&message),
            Err(_) => "?".into(),
        };
        format!("n{from}->n{to} {said}")
    }

    /// Notes a node's word that it believes no older coordinator.
    fn overhear_promise(&mut self, from: usize, cause: Option<&Message>, said: &Message) {
        let term = match (cause, said) {
            (
                _,
                Message::Call {
                    body: Call::TakeOver { term },
                    ..
                },
            ) => *term,
            (
                Some(Message::Call {
                    body: Call::TakeOver { term },
                    ..
                }),
                Message::Reply {
                    body: PeerReply::Members(_),
                    ..
                },
            ) => *term,
            _ => return,
        };
        let until = self.hosts[from].clock + SILENCE * limits::FORSAKEN;
        let host = self.host(from);
        if term > host.promised.0 {
            host.promised = (term, until);
        }
    }
}

/// The name of a variant.
fn word(what: &impl std::fmt::Debug) -> String {
    let text = format!("{what:?}");
    let end = text.find(|c: char| !c.is_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}

fn number(host: usize) -> NodeId {
    NodeId(host as u16 + 1)
}

fn host_of(node: NodeId) -> usize {
    usize::from(node.0).wrapping_sub(1)
}

impl State for World {
    fn digest(&self) -> u128 {
        let mut all = Timeless::at(Time::ZERO);
        for host in &self.hosts {
            host.digest.hash(&mut all);
        }
        (&self.lives, self.cut, &self.wires, &self.late).hash(&mut all);
        (&self.threads, &self.names, &self.solid, &self.made).hash(&mut all);
        (self.asked, self.luck).hash(&mut all);
        all.digest()
    }

    fn is_over(&self) -> bool {
        self.is_still()
            && self.late.is_empty()
            && self.cut == Cut::None
            && !self.lives.contains(&Life::Still)
            && !self.asked
            && (0..self.threads.len()).all(|thread| self.is_done(thread))
            && self.is_settled()
    }

    fn next(&self) -> Vec<(String, Check<Self>)> {
        let mut all = Vec::new();
        let mut add = |what: String, act: &dyn Fn(&mut Self) -> Check| {
            let mut next = self.clone();
            let result = act(&mut next).and_then(|()| next.settle_beats());
            for (host, before) in next.hosts.iter_mut().zip(&self.hosts) {
                if !Rc::ptr_eq(host, before) {
                    Rc::make_mut(host).refresh();
                }
            }
            all.push((what, result.map(|()| next)));
        };
        self.network(&mut add);
        self.people(&mut add);
        self.misfortunes(&mut add);
        if self.is_still() && (self.late.is_empty() || self.luck.patience > 0) {
            add("wait".into(), &|world| {
                world.luck.patience -= u8::from(!world.late.is_empty());
                world.wait()
            });
        }
        all
    }
}

/// Adds a possible step.
type Add<'a> = &'a mut dyn FnMut(String, &dyn Fn(&mut World) -> Check);
