//! A trace, given to a real node: its private segment has less memory than the trace has pages, and
//! another node keeps what does not fit. Both are in this process, and datagrams arrive at once.

use super::trace::{Touch, Trace};
use anyhow::{Context, Result, bail, ensure};
use pagemesh_core::{
    Budgets, Config, Effect, Effects, Event, Input, Node, PageRange, Reply, Request, Rights,
    Source, Start, Time,
};
use pagemesh_wire::peer::{Access, Backing, Credentials, Policy, SegmentSpec};
use pagemesh_wire::{
    ByteLen, ClientId, ClusterId, Incarnation, MappingId, PAGE_SIZE, PageCount, PageIndex,
    PublicKey, SegmentId, Ticket,
};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// What replacement made of a trace.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// Faults of any kind.
    pub(super) all: u64,
    /// Faults at pages that had left their frames and were in memory: these are how ages are known.
    pub(super) soft: u64,
    /// Pages that came from the donor or the disk, those that were asked for ahead with them.
    pub(super) fetched: u64,
    /// Faults for which the program waited until a page came.
    pub(super) missed: u64,
}

const OWNER: usize = 0;
const NODES: usize = 2;
const MAPPING: MappingId = MappingId(1);
const CLIENT: ClientId = ClientId(1);

/// The program computes for so long between two touches.
const WORK: Duration = Duration::from_micros(1);

/// Deadlines until a node is a member, or has its answer, at most.
const PATIENCE: usize = 1000;

/// What happens next to a node.
enum Next {
    Datagram { from: usize, bytes: Vec<u8> },
    Stored(PageRange),
}

struct Cluster {
    nodes: Vec<Node>,
    now: Time,
    next: VecDeque<(usize, Next)>,
    segment: Option<SegmentId>,
    rights: Vec<Rights>,
    faults: Faults,
}

/// Replays a trace with so many pages of local memory.
pub(super) fn replay(trace: &Trace, local: u32) -> Result<Faults> {
    let mut cluster = Cluster::joined(trace.pages)?;
    cluster.open(trace.pages, local)?;
    for touch in &trace.touches {
        cluster.touch(*touch)?;
    }
    Ok(cluster.faults)
}

fn address(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8 + 1], 7300))
}

impl Cluster {
    /// Two members, of which the second lends enough.
    fn joined(pages: u32) -> Result<Self> {
        let config = |node: usize| {
            let start = match node {
                OWNER => Start::Found(ClusterId(1)),
                _ => Start::Join(address(OWNER)),
            };
            let incarnation = Incarnation(node as u64 + 1);
            Config::plain(format!("node{node}"), address(node), incarnation, start)
        };
        let mut cluster = Self {
            nodes: (0..NODES).map(|node| Node::new(config(node))).collect(),
            now: Time(1),
            next: VecDeque::new(),
            segment: None,
            rights: vec![Rights::None; pages as usize],
            faults: Faults::default(),
        };
        for node in 0..NODES {
            cluster.input(node, Input::Deadline)?;
        }
        cluster.wait_until("both are members", |cluster| {
            cluster.nodes.iter().all(|node| node.id().is_some())
        })?;
        for (node, lend) in [(OWNER, 0), (1, 2 * pages)] {
            let budgets = Budgets {
                lend: PageCount(lend),
                ..Budgets::default()
            };
            cluster.input(node, Input::Budgets(budgets))?;
        }
        Ok(cluster)
    }

    fn open(&mut self, pages: u32, local: u32) -> Result<()> {
        let spec = SegmentSpec {
            size: ByteLen(u64::from(pages) * PAGE_SIZE as u64),
            mode: 0o600,
            policy: Policy::Private {
                local: PageCount(local),
                backing: Backing::File,
            },
            replicas: 0,
        };
        let request = Request::Open {
            name: "trace".into(),
            create: Some(spec),
            exclusive: true,
            write: true,
            credentials: Credentials::root(),
        };
        let (ticket, client) = (Ticket(1), CLIENT);
        self.input(
            OWNER,
            Input::Request {
                ticket,
                client,
                request,
            },
        )?;
        self.wait_until("the segment is open", |cluster| cluster.segment.is_some())?;
        let segment = self.segment.context("it is open")?;
        let mapping = MAPPING;
        self.input(
            OWNER,
            Input::Mapped {
                mapping,
                segment,
                client,
            },
        )
    }

    fn touch(&mut self, touch: Touch) -> Result<()> {
        self.now = self.now + WORK;
        self.deadlines()?;
        let (access, least) = match touch.store {
            true => (Access::Write, Rights::Write),
            false => (Access::Read, Rights::Read),
        };
        let before = self.faults.fetched;
        let mut tries = 0;
        while self.rights[touch.page as usize] < least {
            ensure!(tries < PATIENCE, "page {} never comes", touch.page);
            if tries > 0 {
                self.go_on()?;
            }
            tries += 1;
            if tries == 1 || self.rights[touch.page as usize] < least {
                self.faults.all += u64::from(tries == 1);
                let (mapping, page) = (MAPPING, PageIndex(touch.page));
                self.input(
                    OWNER,
                    Input::Fault {
                        mapping,
                        page,
                        access,
                    },
                )?;
            }
        }
        self.faults.missed += u64::from(tries > 0 && self.faults.fetched > before);
        Ok(())
    }

    /// Goes on to the next deadline of a node.
    fn go_on(&mut self) -> Result<()> {
        let due = self.nodes.iter().filter_map(Node::next_deadline).min();
        self.now = due
            .context("nothing will ever happen again")?
            .max(self.now + WORK);
        self.deadlines()
    }

    fn deadlines(&mut self) -> Result<()> {
        for node in 0..NODES {
            let due = self.nodes[node].next_deadline();
            if due.is_some_and(|due| due <= self.now) {
                self.input(node, Input::Deadline)?;
            }
        }
        Ok(())
    }

    fn wait_until(&mut self, what: &str, so: impl Fn(&Self) -> bool) -> Result<()> {
        for _ in 0..PATIENCE {
            if so(self) {
                return Ok(());
            }
            self.go_on()?;
        }
        bail!("never so: {what}")
    }

    /// An input, and all that follows from it at once.
    fn input(&mut self, node: usize, input: Input<'_>) -> Result<()> {
        self.handle(node, input)?;
        while let Some((node, next)) = self.next.pop_front() {
            match next {
                Next::Stored(pages) => self.handle(node, Input::Stored { pages, done: true })?,
                Next::Datagram { from, bytes } => {
                    let input = Input::Datagram {
                        source: address(from),
                        key: PublicKey::NONE,
                        bytes: &bytes,
                    };
                    self.handle(node, input)?;
                }
            }
        }
        Ok(())
    }

    fn handle(&mut self, node: usize, input: Input<'_>) -> Result<()> {
        let mut effects = Effects::default();
        self.nodes[node].handle(self.now, input, &mut effects);
        effects
            .drain()
            .try_for_each(|effect| self.carry_out(node, effect))
    }

    fn carry_out(&mut self, node: usize, effect: Effect) -> Result<()> {
        match effect {
            Effect::Send {
                address: to,
                header,
                message,
                page,
            } => {
                let mut bytes = Vec::new();
                message.encode(header, &mut bytes);
                bytes.resize(bytes.len() + page.map_or(0, |_| PAGE_SIZE), 0);
                let to = (0..NODES).find(|node| address(*node) == to);
                let datagram = Next::Datagram { from: node, bytes };
                self.next.extend(to.map(|to| (to, datagram)));
            }
            Effect::Store { pages } => self.next.push_front((node, Next::Stored(pages))),
            Effect::Reply { reply, .. } => match *reply {
                Reply::Segment(info) => self.segment = Some(info.id),
                other => bail!("the node answers {other:?}"),
            },
            Effect::Fill { pages, source } => {
                let comes = matches!(source, Source::Disk | Source::Payload);
                self.faults.fetched += u64::from(comes) * u64::from(pages.count);
            }
            Effect::Map { pages, rights, .. } => {
                for (_, page) in pages.iter() {
                    let known = &mut self.rights[page.0 as usize];
                    *known = (*known).max(rights);
                }
            }
            Effect::Protect { pages, .. } => {
                for (_, page) in pages.iter() {
                    let known = &mut self.rights[page.0 as usize];
                    *known = (*known).min(Rights::Read);
                }
            }
            Effect::Evict { pages, .. } => {
                for (_, page) in pages.iter() {
                    self.rights[page.0 as usize] = Rights::None;
                }
            }
            Effect::Fail { page, why, .. } => bail!("{page} cannot be had: {why}"),
            Effect::Emit(Event::SoftFault { .. }) => self.faults.soft += 1,
            _ => {}
        }
        Ok(())
    }
}
