//! The state of an explored cluster, and what may happen next.

use super::super::host::Memory;
use super::setting::{Luck, Op};
use crate::explore::timeless::Timeless;
use crate::network::kind;
use crate::small::search::State;
use crate::small::{self, Check, Driver, Packet, Turn, address};
use pagemesh_core::{
    At, Event, Input, Mappings, Node, PageRange, Reply, Request, Rights, Source, Time,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::local::View;
use pagemesh_wire::peer::{Message, Refusal};
use pagemesh_wire::{ClientId, ClusterId, MappingId, PageIndex, PublicKey, SegmentId, Ticket};
use std::collections::VecDeque;
use std::hash::Hash as _;
use std::rc::Rc;
use std::time::Duration;

#[cfg(test)]
mod hostile;
mod setup;
mod steps;
#[cfg(test)]
pub(in crate::views) use hostile::suffer;

const CLUSTER: ClusterId = ClusterId(1);
const CLIENT: ClientId = ClientId(1);
const PAGE: PageIndex = PageIndex(0);

/// The ticket of a request to publish is as much greater as the value that is published.
const PUBLISHED: Ticket = Ticket(1000);

/// A step of a clock: every repetition is due then.
const TICK: Duration = Duration::from_millis(12);

/// The silence after which the first host gives another one up.
const SILENCE: Duration = Duration::from_secs(1000);

/// Steps of a clock between two looks at an end.
const ROUNDS: usize = 400;

/// The mappings of every host, by their numbers.
const VIEWS: [View; 4] = [
    view(true, false, false),
    view(false, false, false),
    view(false, true, false),
    view(false, true, true),
];

const fn view(consistent: bool, short: bool, data_driven: bool) -> View {
    View {
        consistent,
        short,
        data_driven,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Life {
    Up,
    /// It has vanished, and the others do not know.
    Silent,
    Dead,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Thread {
    /// Steps done.
    at: usize,
    /// It waits for a page.
    stopped: bool,
}

/// What the programs have done, as one memory would know it.
#[derive(Clone, Hash)]
struct Golden {
    /// The last value stored.
    value: u64,
    /// The value that the consistent copy has; none if a death left open which it is.
    last: Option<u64>,
    /// Then, the newest copy left.
    floor: u64,
    published: u64,
    /// What is on a second node, as a program was told; none if the segment has no replicas.
    kept: Option<u64>,
    /// The greatest values that each host has seen, by word.
    seen: Vec<[u64; 2]>,
    /// What had been stored when each host last purged the prefix, and the whole page: views on
    /// demand show nothing older.
    purged: Vec<[u64; 2]>,
    /// A host has died.
    death: bool,
}

#[derive(Clone)]
pub(super) struct World {
    programs: Rc<[(usize, Vec<Op>)]>,
    nodes: Vec<Node>,
    clocks: Vec<Time>,
    memory: Vec<Memory>,
    lives: Vec<Life>,
    /// By sender and receiver.
    wires: Vec<VecDeque<Packet>>,
    late: Vec<Packet>,
    threads: Vec<Thread>,
    golden: Golden,
    luck: Luck,
    segment: Option<SegmentId>,
    /// The host whose input is handled.
    at: usize,
}

impl Driver for World {
    fn now(&self) -> Time {
        self.clocks[self.at]
    }

    fn node(&mut self, host: usize) -> Option<&mut Node> {
        (self.lives[host] == Life::Up).then_some(&mut self.nodes[host])
    }

    fn send(
        &mut self,
        turn: Turn<'_>,
        (to, header): (usize, Header),
        message: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Check {
        let from = turn.host;
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        if let Some(((_, page), source)) = page {
            bytes.extend(self.memory[from].contents(page, source)?);
        }
        if self.lives[to] == Life::Up {
            let bytes = bytes.into();
            self.wire(from, to).push_back(Packet { from, to, bytes });
        }
        Ok(())
    }

    fn fill(&mut self, turn: Turn<'_>, pages: PageRange, source: Source) -> Check {
        for (_, page) in pages.iter() {
            self.memory[turn.host].fill(page, source, turn.behind)?;
        }
        Ok(())
    }

    fn map(&mut self, host: usize, who: Mappings, pages: PageRange, rights: Rights) -> Check {
        for (_, page) in pages.iter() {
            for mapping in (1..=4).map(MappingId).filter(|id| who.contains(*id)) {
                self.memory[host].map(mapping, page, rights)?;
            }
        }
        self.wake(host);
        Ok(())
    }

    fn protect(&mut self, host: usize, who: Mappings, pages: PageRange) -> Check {
        for (_, page) in pages.iter() {
            self.memory[host].protect(who, page);
        }
        Ok(())
    }

    fn evict(&mut self, host: usize, pages: PageRange, keep: bool) -> Check {
        for (_, page) in pages.iter() {
            self.memory[host].evict(page, keep)?;
        }
        self.wake(host);
        Ok(())
    }

    fn drop_stash(&mut self, host: usize, at: At) -> Check {
        self.memory[host].drop_stash(at.1);
        Ok(())
    }

    /// A page is lost if no copy is left; the thread goes on without it.
    fn fail(&mut self, host: usize, _: MappingId, at: At, why: Refusal) -> Check {
        let left = self
            .living()
            .any(|living| self.memory[living].frame(PAGE).is_some());
        let kept = self.golden.kept.is_some();
        if !self.golden.death || left || kept || !matches!(why, Refusal::NodeGone(_)) {
            return Err(format!("h{} fails at {}: {why}", host + 1, at.1));
        }
        self.golden.last = None;
        for (number, (at, ops)) in self.programs.clone().iter().enumerate() {
            let thread = &mut self.threads[number];
            if *at == host && thread.stopped && thread.at < ops.len() {
                thread.at += 1;
                thread.stopped = false;
            }
        }
        Ok(())
    }

    fn reply(&mut self, _: usize, ticket: Ticket, reply: Reply) -> Check {
        match reply {
            Reply::Done if ticket > PUBLISHED => {
                let value = ticket.0 - PUBLISHED.0;
                self.golden.kept = self.golden.kept.map(|kept| kept.max(value));
            }
            Reply::Segment(info) => self.segment = Some(info.id),
            Reply::Done => {}
            other => return Err(format!("a program is told {other:?}")),
        }
        Ok(())
    }

    fn emit(&mut self, _: usize, _: Event) -> Check {
        Ok(())
    }

    fn handled(&mut self, _: usize) -> Check {
        let writers = self.living().filter(|h| self.memory[*h].is_writable(PAGE));
        let writers: Vec<_> = writers.map(|host| host + 1).collect();
        if writers.len() > 1 {
            return Err(format!("hosts {writers:?} may store at once"));
        }
        Ok(())
    }
}

impl World {
    fn input(&mut self, host: usize, input: Input<'_>) -> Check {
        self.at = host;
        small::input(self, host, input)
    }

    fn ask(&mut self, host: usize, request: Request) -> Check {
        self.ask_as(host, Ticket(1), request)
    }

    fn ask_as(&mut self, host: usize, ticket: Ticket, request: Request) -> Check {
        let input = Input::Request {
            ticket,
            client: CLIENT,
            request,
        };
        self.input(host, input)
    }

    fn living(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).filter(|host| self.lives[*host] == Life::Up)
    }

    fn wire(&mut self, from: usize, to: usize) -> &mut VecDeque<Packet> {
        let hosts = self.nodes.len();
        &mut self.wires[from * hosts + to]
    }

    fn wake(&mut self, host: usize) {
        let threads = self.programs.iter().zip(&mut self.threads);
        for ((at, _), thread) in threads {
            thread.stopped &= *at != host;
        }
    }

    fn arrive(&mut self, packet: &Packet) -> Check {
        let input = Input::Datagram {
            source: address(packet.from),
            key: PublicKey::NONE,
            bytes: &packet.bytes,
        };
        self.input(packet.to, input)
    }

    fn tick(&mut self, host: usize) -> Check {
        self.clocks[host] = self.clocks[host] + TICK;
        self.deadlines(host)
    }

    /// Calls the node as long as it has something to do now.
    fn deadlines(&mut self, host: usize) -> Check {
        for _ in 0..ROUNDS {
            let due = self.nodes[host].next_deadline();
            if due.is_none_or(|due| due > self.clocks[host]) {
                return Ok(());
            }
            self.input(host, Input::Deadline)?;
        }
        Err(format!("h{} has a deadline that does not move", host + 1))
    }

    /// All clocks run.
    fn wait(&mut self) -> Check {
        for host in 0..self.nodes.len() {
            if self.lives[host] == Life::Up {
                self.tick(host)?;
            }
        }
        Ok(())
    }

    /// Nothing will happen before some clock has run.
    fn is_still(&self) -> bool {
        let idle = |number: usize| self.threads[number].stopped || self.is_done(number);
        self.wires.iter().all(VecDeque::is_empty) && (0..self.threads.len()).all(idle)
    }

    fn is_done(&self, number: usize) -> bool {
        let (host, ops) = &self.programs[number];
        self.lives[*host] != Life::Up || self.threads[number].at == ops.len()
    }

    /// In the end, INV-published-survives can stand the next death.
    fn is_replicated(&self) -> Check {
        let segment = self.segment.unwrap_or_default();
        for host in self.living() {
            let found = self.nodes[host].inspect(segment, PAGE, 1);
            let lacking = found.map_or(0, |found| found.unreplicated);
            if lacking > 0 {
                let why = format!("h{} has {lacking} pages that no second node has", host + 1);
                return Err(why);
            }
        }
        Ok(())
    }

    /// In the end, without deaths, every mapped copy is the one published last.
    fn is_settled(&self) -> Check {
        for host in self.living().filter(|_| !self.golden.death) {
            let mapped =
                (2..=4).any(|id| self.memory[host].rights(MappingId(id), PAGE) > Rights::None);
            if let Some(frame) = self.memory[host].frame(PAGE).filter(|_| mapped)
                && frame[0] < self.golden.published
            {
                return Err(format!(
                    "h{} still has {frame:?}, {} was published",
                    host + 1,
                    self.golden.published
                ));
            }
        }
        Ok(())
    }

    fn tell(packet: &Packet) -> String {
        let kind = Message::decode(&packet.bytes).map_or("?", |(_, message, _)| kind(&message));
        format!("n{}->n{} {kind}", packet.from + 1, packet.to + 1)
    }
}

impl State for World {
    fn digest(&self) -> u128 {
        let mut all = Timeless::at(Time::ZERO);
        for (node, clock) in self.nodes.iter().zip(&self.clocks) {
            let mut one = Timeless::at(*clock);
            node.hash(&mut one);
            one.digest().hash(&mut all);
        }
        (&self.memory, &self.lives, &self.wires, &self.late).hash(&mut all);
        (&self.threads, &self.golden, &self.luck).hash(&mut all);
        all.digest()
    }

    fn is_over(&self) -> bool {
        self.is_still()
            && self.late.is_empty()
            && (0..self.threads.len()).all(|number| self.is_done(number))
            && !self.lives.contains(&Life::Silent)
    }

    fn next(&self) -> Vec<(String, Check<Self>)> {
        let mut all = Vec::new();
        let mut add = |what: String, act: &dyn Fn(&mut Self) -> Check| {
            let mut next = self.clone();
            let result = act(&mut next);
            all.push((what, result.map(|()| next)));
        };
        for wire in 0..self.wires.len() {
            if let Some(packet) = self.wires[wire].front() {
                self.fates(wire, &Self::tell(packet), &mut add);
            }
        }
        for index in 0..self.late.len() {
            let what = format!("late {}", Self::tell(&self.late[index]));
            add(what, &|world| {
                let packet = world.late.remove(index);
                world.arrive(&packet)
            });
        }
        for number in 0..self.threads.len() {
            if !self.threads[number].stopped && !self.is_done(number) {
                let (host, op) = self.op(number);
                add(format!("run n{} {op}", host + 1), &|world| {
                    world.step(number)
                });
            }
        }
        for host in self.living() {
            if self.luck.crash > 0 && host > 0 {
                add(format!("crash n{}", host + 1), &|world| {
                    world.crash(host);
                    Ok(())
                });
            }
            if self.luck.early > 0 {
                add(format!("tick n{}", host + 1), &|world| {
                    world.luck.early -= 1;
                    world.tick(host)
                });
            }
        }
        let mut silent = (0..self.nodes.len()).filter(|host| self.lives[*host] == Life::Silent);
        if let Some(host) = silent.next() {
            add(format!("declare n{} dead", host + 1), &|world| {
                world.declare_dead(host)
            });
        } else if self.is_still() && (self.late.is_empty() || self.luck.patience > 0) {
            add("wait".into(), &|world| {
                world.luck.patience -= u8::from(!world.late.is_empty());
                world.wait()?;
                if world.is_over() && world.digest() == self.digest() {
                    world.is_settled()?;
                    world.is_replicated()?;
                }
                Ok(())
            });
        }
        all
    }
}

/// What befalls a datagram.
type Fate<'a> = &'a dyn Fn(&mut World) -> Check;

impl World {
    /// The possible fates of the oldest datagram of a wire.
    fn fates(&self, wire: usize, told: &str, add: &mut dyn FnMut(String, Fate<'_>)) {
        let take = |world: &mut Self| world.wires[wire].pop_front();
        let arrive = |world: &mut Self| take(world).map_or(Ok(()), |packet| world.arrive(&packet));
        add(format!("deliver {told}"), &arrive);
        if self.luck.lost > 0 {
            add(format!("lose {told}"), &|world| {
                world.luck.lost -= 1;
                take(world);
                Ok(())
            });
        }
        if self.luck.twice > 0 {
            add(format!("deliver {told}, and later again"), &|world| {
                world.luck.twice -= 1;
                world.late.extend(world.wires[wire].front().cloned());
                world.late.sort();
                arrive(world)
            });
        }
        if self.luck.late > 0 {
            add(format!("hold {told}"), &|world| {
                world.luck.late -= 1;
                let held = take(world);
                world.late.extend(held);
                world.late.sort();
                Ok(())
            });
        }
    }
}
