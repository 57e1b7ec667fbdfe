//! Every order of events of three nodes and a private segment of two pages of which one fits into
//! memory, on the real code: datagrams overtake each other, get lost and come twice, donors vanish,
//! the disk is full, timers fire early and late.

use super::memory::{bytes_of, value_of};
use crate::explore::timeless::Timeless;
use crate::small::search::{self, every_state};
use crate::small::{self, Check, Driver, Turn, address};
use pagemesh_core::{
    At, Budgets, Input, Mappings, Node, Pace, PageRange, Placement, Reply, Request, Rights, Source,
    Time,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Access, Backing, Credentials, Message, Policy, Refusal, SegmentSpec};
use pagemesh_wire::{
    ByteLen, ClientId, ClusterId, MappingId, PAGE_SIZE, PageCount, PageIndex, PublicKey, SegmentId,
    Ticket,
};
use std::collections::BTreeMap;
use std::hash::Hash as _;
use std::net::SocketAddr;
use std::time::Duration;

/// What may still go wrong.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Misfortune {
    pub(super) lost: u8,
    pub(super) twice: u8,
    pub(super) crashes: u8,
    /// Timers that fire while datagrams are under way.
    pub(super) early: u8,
    /// Writes that the disk refuses.
    pub(super) full: u8,
}

/// Memory and disk of one host. Contents are their value; what donors keep are whole datagrams'
/// pages, which are not sealed here: random runs do that.
#[derive(Clone, Default, Hash)]
struct Keep {
    frames: BTreeMap<At, (u64, Rights)>,
    stash: BTreeMap<At, u64>,
    disk: BTreeMap<At, u64>,
}

#[derive(Clone)]
struct World {
    nodes: Vec<Option<Node>>,
    keeps: Vec<Keep>,
    /// Receiver, sender, datagram.
    flying: Vec<(usize, SocketAddr, Vec<u8>)>,
    now: Time,
    /// Accesses that are left; an access that faulted stays in front.
    script: Vec<(u32, Access)>,
    faulted: bool,
    stored: BTreeMap<u32, u64>,
    last: u64,
    segment: Option<SegmentId>,
    left: Misfortune,
}

const MAPPING: MappingId = MappingId(1);

impl World {
    fn value(&self, turn: Turn<'_>, at: At, source: Source) -> Check<u64> {
        let keep = &self.keeps[turn.host];
        let value = match source {
            Source::Zero => Some(0),
            Source::Payload => (!turn.behind.is_empty()).then(|| value_of(turn.behind)),
            Source::Stash => keep.stash.get(&at).copied(),
            Source::Disk => keep.disk.get(&at).copied(),
            Source::Frame
            | Source::Twin
            | Source::Prefix(_)
            | Source::Kept(_)
            | Source::Replica(_) => None,
        };
        value.ok_or_else(|| format!("{at:?} is taken from {source:?}, where there is nothing"))
    }
}

impl Driver for World {
    fn now(&self) -> Time {
        self.now
    }

    fn node(&mut self, host: usize) -> Option<&mut Node> {
        self.nodes[host].as_mut()
    }

    fn send(
        &mut self,
        turn: Turn<'_>,
        (to, header): (usize, Header),
        message: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Check {
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        if let Some((at, source)) = page {
            let value = self.value(turn, at, source)?;
            bytes.extend_from_slice(&bytes_of(value)[..]);
        }
        if self.nodes[to].is_some() {
            self.flying.push((to, address(turn.host), bytes));
        }
        Ok(())
    }

    fn fill(&mut self, turn: Turn<'_>, pages: PageRange, source: Source) -> Check {
        for at in pages.iter() {
            let value = self.value(turn, at, source)?;
            let frames = &mut self.keeps[turn.host].frames;
            frames.insert(at, (value, Rights::None));
        }
        Ok(())
    }

    fn map(&mut self, host: usize, _: Mappings, pages: PageRange, rights: Rights) -> Check {
        for at in pages.iter() {
            let frame = self.keeps[host].frames.get_mut(&at);
            let frame = frame.ok_or_else(|| format!("INV-fill-before-map: {at:?}"))?;
            frame.1 = frame.1.max(rights);
            let front = self.script.first();
            if front.is_some_and(|(page, _)| PageIndex(*page) == at.1) {
                self.faulted = false;
            }
        }
        Ok(())
    }

    fn evict(&mut self, host: usize, pages: PageRange, keep: bool) -> Check {
        for at in pages.iter() {
            let frame = self.keeps[host].frames.remove(&at);
            let (value, _) = frame.ok_or_else(|| format!("{at:?} has no frame"))?;
            if keep {
                self.keeps[host].stash.insert(at, value);
            }
        }
        Ok(())
    }

    fn drop_stash(&mut self, host: usize, at: At) -> Check {
        let dropped = self.keeps[host].stash.remove(&at);
        dropped
            .map(drop)
            .ok_or_else(|| format!("{at:?} is not in the stash"))
    }

    fn fail(&mut self, _: usize, _: MappingId, at: At, why: Refusal) -> Check {
        Err(format!("INV-private-kept: {at:?} cannot be had: {why}"))
    }

    fn forget(&mut self, host: usize, segment: SegmentId) -> Check {
        self.keeps[host].stash.retain(|at, _| at.0 != segment);
        Ok(())
    }

    fn reply(&mut self, _: usize, _: Ticket, reply: Reply) -> Check {
        match reply {
            Reply::Segment(info) => self.segment = Some(info.id),
            other => return Err(format!("the segment is not opened: {other:?}")),
        }
        Ok(())
    }

    fn stow(&mut self, turn: Turn<'_>, at: At) -> Check {
        let value = self.value(turn, at, Source::Payload)?;
        self.keeps[turn.host].stash.insert(at, value);
        Ok(())
    }

    fn store(&mut self, host: usize, pages: PageRange) -> Check<bool> {
        if self.left.full > 0 {
            self.left.full -= 1;
            return Ok(false);
        }
        for at in pages.iter() {
            let value = self.keeps[host].stash.get(&at).copied();
            let value = value.ok_or_else(|| format!("{at:?} is not in the stash"))?;
            self.keeps[host].disk.insert(at, value);
        }
        Ok(true)
    }

    fn handled(&mut self, _: usize) -> Check {
        self.holds()
    }
}

impl World {
    /// Three members, the first of which has a private segment of two pages.
    fn new(backing: Backing, script: &[(u32, Access)], left: Misfortune) -> Check<Self> {
        let pace = Pace {
            resend_first: Duration::from_millis(10),
            resend_soonest: Duration::from_millis(10),
            resend_ceiling: Duration::from_millis(10),
            heartbeat: Duration::from_secs(1_000_000),
            dead_after: Duration::from_secs(10_000_000),
            ahead: 0,
            ..Pace::default()
        };
        let node = |host| Node::new(small::config(host, ClusterId(1), host as u64 + 1, pace));
        let none = Misfortune {
            lost: 0,
            twice: 0,
            crashes: 0,
            early: 0,
            full: 0,
        };
        let mut world = Self {
            nodes: (0..3).map(|host| Some(node(host))).collect(),
            keeps: vec![Keep::default(); 3],
            flying: Vec::new(),
            now: Time(1_000),
            script: script.to_vec(),
            faulted: false,
            stored: BTreeMap::new(),
            last: 0,
            segment: None,
            left: none,
        };
        for host in 0..3 {
            small::input(&mut world, host, Input::Deadline)?;
            world.calm()?;
        }
        let budgets = Budgets {
            lend: PageCount(100),
            placement: Placement::Random,
            ..Budgets::default()
        };
        for host in 0..3 {
            small::input(&mut world, host, Input::Budgets(budgets))?;
        }
        world.open(backing)?;
        world.left = left;
        Ok(world)
    }

    fn open(&mut self, backing: Backing) -> Check {
        let local = PageCount(1);
        let client = ClientId(1);
        let create = SegmentSpec {
            size: ByteLen(2 * PAGE_SIZE as u64),
            mode: 0o600,
            policy: Policy::Private { local, backing },
            replicas: 0,
        };
        let request = Request::Open {
            name: "memory".into(),
            create: Some(create),
            exclusive: true,
            write: true,
            credentials: Credentials::root(),
        };
        let ticket = Ticket(1);
        let input = Input::Request {
            ticket,
            client,
            request,
        };
        small::input(self, 0, input)?;
        self.calm()?;
        let segment = self.segment.ok_or("the segment is not opened")?;
        let mapping = MAPPING;
        let input = Input::Mapped {
            mapping,
            segment,
            client,
        };
        small::input(self, 0, input)
    }

    /// Delivers everything in order.
    fn calm(&mut self) -> Check {
        while !self.flying.is_empty() {
            self.deliver(0, false)?;
        }
        Ok(())
    }

    /// The invariants of a state.
    fn holds(&self) -> Check {
        let own = &self.keeps[0];
        if let Some(at) = own.frames.keys().find(|at| own.stash.contains_key(*at)) {
            return Err(format!(
                "INV-one-authority: {at:?} is in its frame and in the stash"
            ));
        }
        if own.frames.len() + own.stash.len() > 1 {
            return Err("INV-budget: one page may be in memory".into());
        }
        Ok(())
    }

    fn deliver(&mut self, index: usize, again: bool) -> Check {
        let (to, source, bytes) = if again {
            self.flying[index].clone()
        } else {
            self.flying.remove(index)
        };
        let input = Input::Datagram {
            source,
            key: PublicKey::NONE,
            bytes: &bytes,
        };
        small::input(self, to, input)
    }

    /// The program takes its next step.
    fn step(&mut self) -> Check {
        let (page, access) = self.script[0];
        let segment = self.segment.expect("it was opened");
        let at = (segment, PageIndex(page));
        let frame = self.keeps[0].frames.get_mut(&at);
        let needed = match access {
            Access::Read => Rights::Read,
            Access::Write => Rights::Write,
        };
        let Some(frame) = frame.filter(|frame| frame.1 >= needed) else {
            self.faulted = true;
            let (mapping, page) = (MAPPING, PageIndex(page));
            let input = Input::Fault {
                mapping,
                page,
                access,
            };
            return small::input(self, 0, input);
        };
        self.script.remove(0);
        if access == Access::Write {
            self.last += 1;
            frame.0 = self.last;
            self.stored.insert(page, self.last);
            return Ok(());
        }
        let wanted = self.stored.get(&page).copied().unwrap_or_default();
        if frame.0 == wanted {
            return Ok(());
        }
        Err(format!(
            "INV-private-version: p{page} is {}, where {wanted} is",
            frame.0
        ))
    }

    /// The earliest timer fires, as far as it is not a sign of life.
    fn pass_time(&mut self) -> Option<Check> {
        let due = |node: &Option<Node>| node.as_ref().and_then(Node::next_deadline);
        let dues = self.nodes.iter().map(due).enumerate();
        let dues = dues.filter_map(|(host, due)| Some((due?, host)));
        let (due, host) = dues.min()?;
        if due > self.now + Duration::from_secs(1000) {
            return None;
        }
        self.now = due.max(self.now);
        Some(small::input(self, host, Input::Deadline))
    }
}

impl search::State for World {
    fn digest(&self) -> u128 {
        let mut hasher = Timeless::at(self.now);
        self.nodes.hash(&mut hasher);
        self.keeps.hash(&mut hasher);
        let mut flying = self.flying.clone();
        flying.sort();
        flying.hash(&mut hasher);
        (self.script.len(), self.faulted, self.left).hash(&mut hasher);
        hasher.digest()
    }

    /// The death of a donor is never noticed here: after it the program may wait.
    fn is_over(&self) -> bool {
        self.script.is_empty() || self.nodes.iter().any(Option::is_none)
    }

    fn next(&self) -> Vec<(String, Result<Self, String>)> {
        let mut all = Vec::new();
        let mut add = |what: String, act: &dyn Fn(&mut Self) -> Check| {
            let mut next = self.clone();
            let result = act(&mut next);
            all.push((what, result.map(|()| next)));
        };
        if !self.faulted && !self.script.is_empty() {
            add("step".into(), &Self::step);
        }
        for index in 0..self.flying.len() {
            add(format!("deliver {index}"), &|world| {
                world.deliver(index, false)
            });
            if self.left.twice > 0 {
                add(format!("deliver {index} and again"), &|world| {
                    world.left.twice -= 1;
                    world.deliver(index, true)
                });
            }
            if self.left.lost > 0 {
                add(format!("lose {index}"), &|world| {
                    world.left.lost -= 1;
                    world.flying.remove(index);
                    Ok(())
                });
            }
        }
        for host in 1..3 {
            if self.left.crashes > 0 && self.nodes[host].is_some() {
                add(format!("crash {host}"), &|world| {
                    world.left.crashes -= 1;
                    world.nodes[host] = None;
                    world.flying.retain(|(to, ..)| *to != host);
                    Ok(())
                });
            }
        }
        let idle = self.flying.is_empty() && (self.faulted || self.script.is_empty());
        if (idle && self.faulted) || (!idle && self.left.early > 0) {
            let mut next = self.clone();
            next.left.early -= u8::from(!idle);
            if let Some(result) = next.pass_time() {
                all.push(("time".into(), result.map(|()| next)));
            }
        }
        if all.is_empty() && !self.script.is_empty() {
            let why = "INV-progress: the program waits for ever";
            all.push(("nothing".into(), Err(why.into())));
        }
        all
    }
}

/// Visits every state. Returns how many there are.
pub(super) fn explore(
    backing: Backing,
    script: &[(u32, Access)],
    left: Misfortune,
) -> Check<usize> {
    let visited = every_state(World::new(backing, script, left)?, LIMIT)?;
    Ok(visited.states)
}

/// More than any exploration has.
const LIMIT: usize = 1_000_000;
