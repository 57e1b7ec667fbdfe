//! A handful of nodes on a perfect wire, to look at exactly what they do.

use core::convert::Infallible;
use core::net::SocketAddr;
use core::time::Duration;
use pagemesh_core::{
    Config, DiffWork, Effect, Effects, Input, Kept, KeptEntry, Life, Node, Pace, PageRange, Reply,
    Request, Source, Start, Time,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::local::Advice;
use pagemesh_wire::peer::{
    self, Access, Credentials, DiffName, Manager, Message, Policy, SegmentInfo, SegmentSpec, Window,
};
use pagemesh_wire::{
    ByteLen, ClientId, ClusterId, Incarnation, MappingId, NodeId, PAGE_SIZE, PageCount, PageIndex,
    Program, PublicKey, RequestId, SegmentId, Ticket, Versions,
};
use std::collections::{BTreeSet, VecDeque};

/// One client and one mapping per node and segment.
pub const CLIENT: ClientId = ClientId(1);
/// See [`CLIENT`].
pub const MAPPING: MappingId = MappingId(1);

/// A datagram that did not come: its receiver, its sender's address, its bytes.
pub type Late = (NodeId, SocketAddr, Vec<u8>);

/// Nodes, the datagrams under way, and what happened.
pub struct Cluster {
    nodes: Vec<Node>,
    /// The clock.
    pub now: Time,
    wire: VecDeque<(NodeId, SocketAddr, Vec<u8>)>,
    /// Messages sent since the last look, as (from, to, message).
    pub sent: Vec<(NodeId, NodeId, Message)>,
    /// Other effects since the last look.
    pub done: Vec<(NodeId, Effect)>,
    /// Answers to requests.
    pub replies: Vec<(NodeId, Ticket, Reply)>,
    /// How many messages had been sent when each of them came.
    pub sent_before: Vec<usize>,
    /// The answer to `ConfirmUse`.
    pub used: bool,
    tickets: u64,
    /// Pages that threads have stored to since the last look at them.
    stored: BTreeSet<(NodeId, u32)>,
    /// Nodes that hear nothing, and of which nothing is heard.
    silent: Vec<NodeId>,
    /// Nodes whose deadlines are not looked at.
    stopped: Vec<NodeId>,
    /// Datagrams that were lost, for a test that delivers them late.
    pub lost: Vec<Late>,
    /// So many datagrams are delivered before this node dies.
    dies: Option<(usize, NodeId)>,
    pace: Pace,
    features: Features,
    /// The disk of each host, if they have any.
    disks: Vec<Disk>,
    /// Disks write only when no datagram is under way, or not at all.
    pub disk: DiskPace,
    lives: u64,
    /// The program of the next node.
    pub program: Program,
    /// Pairs of nodes between which nothing gets through.
    pub cut: Option<fn(NodeId, NodeId) -> bool>,
    /// Of the segments that are made.
    pub replicas: u8,
    /// Pages with frames, of each segment that becomes trapped.
    pub framed: Vec<PageRange>,
    /// Nodes that wait to hear of them.
    trapped: VecDeque<(NodeId, SegmentId)>,
}

/// What the nodes of a cluster may do.
#[derive(Clone, Copy, Debug, Default)]
struct Features {
    standby: bool,
    rejoin: bool,
    keeps: bool,
    elected: bool,
    traps_late: bool,
}

/// How fast disks are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskPace {
    /// What is given to a disk is there at once.
    #[default]
    AtOnce,
    /// When no datagram is under way.
    Slow,
    /// They write nothing.
    Stopped,
}

/// The disk of a host.
#[derive(Default)]
struct Disk {
    kept: Kept,
    /// Batches that it does not have for sure.
    waiting: VecDeque<(u64, Vec<KeptEntry>)>,
}

impl Disk {
    /// Writes the next batch.
    fn write(&mut self) -> Option<u64> {
        let (batch, entries) = self.waiting.pop_front()?;
        entries.into_iter().for_each(|entry| self.kept.apply(entry));
        Some(batch)
    }
}

/// *INV-send-before-reply*
fn sends_before_it_answers(effects: &[Effect]) {
    let answered = effects.iter().skip_while(|effect| match effect {
        Effect::Reply { reply, .. } => matches!(**reply, Reply::Waiting | Reply::Changed),
        _ => true,
    });
    let late: Vec<_> = answered
        .filter(|effect| match effect {
            Effect::Send { message, .. } => !message.is_receipt(),
            _ => false,
        })
        .collect();
    assert!(late.is_empty(), "INV-send-before-reply: {effects:?}");
}

/// *INV-depart-first*
fn departs_first(effects: &[Effect]) {
    let departs = |effect: &Effect| {
        matches!(effect, Effect::Send { message, .. }
            if matches!(&**message, Message::Reply { body: peer::Reply::Depart(_), .. }))
    };
    let sends = |effect: &Effect| {
        let diffs = matches!(effect, Effect::Diffs(DiffWork::Send { .. }));
        diffs || matches!(effect, Effect::Send { .. })
    };
    for pair in effects.windows(2) {
        let late = departs(&pair[1]) && !sends(&pair[0]);
        assert!(!late, "INV-depart-first: {effects:?}");
    }
}

fn address(index: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1000 + index as u16))
}

impl Cluster {
    /// `count` members.
    pub fn new(count: usize) -> Self {
        Self::paced(count, Pace::default())
    }

    /// The same, at this pace.
    pub fn paced(count: usize, pace: Pace) -> Self {
        Self::of(count, pace, Features::default())
    }

    /// The same, whose nodes join again when they were declared dead.
    pub fn that_rejoins(count: usize) -> Self {
        let rejoin = Features {
            rejoin: true,
            ..Features::default()
        };
        Self::of(count, Pace::default(), rejoin)
    }

    /// The same, whose drivers trap late.
    pub fn that_traps_late(count: usize) -> Self {
        let late = Features {
            traps_late: true,
            rejoin: true,
            ..Features::default()
        };
        Self::of(count, Pace::default(), late)
    }

    /// The same, whose coordinator names a standby.
    pub fn with_standby(count: usize) -> Self {
        let standby = Features {
            standby: true,
            ..Features::default()
        };
        Self::of(count, Pace::default(), standby)
    }

    /// The same, whose hosts have disks.
    pub fn with_disks(count: usize) -> Self {
        let both = Features {
            standby: true,
            keeps: true,
            ..Features::default()
        };
        Self::of(count, Pace::default(), both)
    }

    /// The same, whose coordinator names no standby.
    pub fn with_disks_alone(count: usize) -> Self {
        let keeps = Features {
            keeps: true,
            ..Features::default()
        };
        Self::of(count, Pace::default(), keeps)
    }

    /// The same, whose coordinator is elected by a store that all share.
    pub fn elected(count: usize) -> Self {
        let elected = Features {
            keeps: true,
            elected: true,
            ..Features::default()
        };
        Self::of(count, Pace::default(), elected)
    }

    fn of(count: usize, pace: Pace, features: Features) -> Self {
        let mut cluster = Self {
            nodes: Vec::new(),
            now: Time(1_000_000),
            wire: VecDeque::new(),
            sent: Vec::new(),
            done: Vec::new(),
            replies: Vec::new(),
            sent_before: Vec::new(),
            used: true,
            tickets: 0,
            stored: BTreeSet::new(),
            silent: Vec::new(),
            stopped: Vec::new(),
            lost: Vec::new(),
            dies: None,
            pace,
            features,
            disks: Vec::new(),
            disk: DiskPace::AtOnce,
            lives: 0,
            program: Program::of(Versions::SPOKEN),
            cut: None,
            framed: Vec::new(),
            trapped: VecDeque::new(),
            replicas: 0,
        };
        for _ in 0..count {
            cluster.add_node(0);
        }
        cluster.forget();
        cluster
    }

    /// A member of each of these programs.
    pub fn of_programs(programs: &[Program]) -> Self {
        let mut cluster = Self::of(0, Pace::default(), Features::default());
        for program in programs {
            cluster.program = *program;
            cluster.add_node(0);
        }
        cluster.forget();
        cluster
    }

    /// One more host, which asks the host of this index for admission.
    pub fn add_node(&mut self, asks: usize) -> NodeId {
        let index = self.nodes.len();
        let start = if index == 0 {
            Start::Found(ClusterId(77))
        } else {
            Start::Join(address(asks))
        };
        let config = self.config(index, start);
        self.nodes.push(Node::new(config));
        self.disks.push(Disk::default());
        let node = NodeId(index as u16 + 1);
        self.input(node, Input::Deadline);
        self.settle();
        node
    }

    fn config(&mut self, index: usize, start: Start) -> Config {
        self.lives += 1;
        Config {
            pace: self.pace,
            standby: self.features.standby,
            rejoin: self.features.rejoin,
            keeps: self.features.keeps,
            elected: self.features.elected,
            traps_late: self.features.traps_late,
            program: self.program,
            ..Config::plain(
                format!("host{index}"),
                address(index),
                Incarnation(self.lives * 100),
                start,
            )
        }
    }

    /// A daemon is killed, and what its disk had not written is lost.
    pub fn kill(&mut self, node: NodeId) {
        self.disks[usize::from(node.0) - 1].waiting.clear();
        self.dies.take_if(|(_, dying)| *dying == node);
        self.stop(node);
    }

    /// A killed daemon is started again, to go on from its disk, or to join that host's cluster.
    pub fn start_again(&mut self, node: NodeId, joins: Option<NodeId>) {
        let index = usize::from(node.0) - 1;
        let start = match joins {
            Some(host) => Start::Join(address(usize::from(host.0) - 1)),
            None => {
                let kept = &mut self.disks[index].kept;
                let cluster = kept.cluster();
                let (node, term) = kept.next_life().expect("there are more numbers");
                kept.apply(KeptEntry::Life {
                    cluster,
                    node,
                    term,
                });
                let kept = kept.clone();
                Start::Resume(Box::new(Life { kept, node, term }))
            }
        };
        let config = self.config(index, start);
        self.nodes[index] = Node::new(config);
        self.silent.retain(|other| *other != node);
        self.stopped.retain(|other| *other != node);
        self.input(node, Input::Deadline);
    }

    /// What a host's disk has for sure.
    pub fn kept(&self, node: NodeId) -> &Kept {
        &self.disks[usize::from(node.0) - 1].kept
    }

    /// Disks write what they were given.
    pub fn write_disks(&mut self) {
        for index in 0..self.disks.len() {
            let node = NodeId(index as u16 + 1);
            while !self.stopped.contains(&node)
                && let Some(batch) = self.disks[index].write()
            {
                self.input(node, Input::Kept { batch });
            }
        }
    }

    /// The node of a host.
    pub fn node(&self, node: NodeId) -> &Node {
        &self.nodes[usize::from(node.0) - 1]
    }

    /// Delivers a datagram that was lost.
    pub fn deliver_late(&mut self, (to, from, datagram): &Late) {
        self.input(
            *to,
            Input::Datagram {
                source: *from,
                key: PublicKey::NONE,
                bytes: datagram,
            },
        );
    }

    /// A node dies when so many more datagrams have been delivered.
    pub fn dies_after(&mut self, datagrams: usize, node: NodeId) {
        self.dies = Some((datagrams, node));
        self.count_down(0);
    }

    /// Whether a node that was to die has died.
    pub fn is_dead(&self, node: NodeId) -> bool {
        self.stopped.contains(&node)
    }

    fn count_down(&mut self, delivered: usize) {
        if let Some((left, node)) = &mut self.dies {
            *left -= delivered.min(*left);
            if *left == 0 {
                let node = *node;
                self.dies = None;
                self.kill(node);
            }
        }
    }

    /// The client of a node ends.
    pub fn client_gone(&mut self, node: NodeId) {
        self.input(node, Input::ClientGone { client: CLIENT });
        self.settle();
    }

    /// Feeds one input and carries out the effects.
    pub fn input(&mut self, node: NodeId, input: Input<'_>) {
        let mut effects = Effects::default();
        let now = self.now;
        self.nodes[usize::from(node.0) - 1].handle(now, input, &mut effects);
        sends_before_it_answers(effects.as_slice());
        departs_first(effects.as_slice());
        for effect in effects.drain().collect::<Vec<_>>() {
            self.carry_out(node, effect);
        }
        while let Some((node, segment)) = self.trapped.pop_front() {
            let pages = self.framed.clone();
            self.input(node, Input::Trapped { segment, pages });
        }
        if self.disk == DiskPace::AtOnce {
            self.write_disks();
        }
    }

    fn carry_out(&mut self, node: NodeId, effect: Effect) {
        match effect {
            Effect::Send {
                address,
                header,
                message,
                page,
            } => {
                let mut datagram = Vec::new();
                message.encode(header, &mut datagram);
                if page.is_some() {
                    datagram.extend_from_slice(&[0; PAGE_SIZE]);
                }
                let to = NodeId(address.port() - 999);
                self.sent.push((node, to, *message));
                let from = SocketAddr::from(([127, 0, 0, 1], 999 + node.0));
                self.wire.push_back((to, from, datagram));
            }
            Effect::ConfirmUse { segment, page } => {
                let used = self.used;
                self.input(
                    node,
                    Input::UseConfirmed {
                        segment,
                        page,
                        used,
                    },
                );
            }
            Effect::Diffs(DiffWork::Send {
                address,
                header,
                segment,
                request,
                names,
                ..
            }) => self.send_diffs((node, address), header, (segment, request), &names),
            Effect::SendNotice { address, notice } => {
                self.done
                    .push((node, Effect::SendNotice { address, notice }));
            }
            Effect::Reply { ticket, reply } => {
                self.replies.push((node, ticket, *reply));
                self.sent_before.push(self.sent.len());
            }
            Effect::Emit(_) => {}
            Effect::Keep { batch, entries } => {
                let disk = &mut self.disks[usize::from(node.0) - 1];
                disk.waiting.push_back((batch, entries));
            }
            Effect::Trap { segment } => {
                self.trapped.push_back((node, segment));
                self.done.push((node, effect));
            }
            other => self.done.push((node, other)),
        }
    }

    /// Diffs of one byte each.
    fn send_diffs(
        &mut self,
        (from, address): (NodeId, SocketAddr),
        header: Header,
        (segment, request): (SegmentId, RequestId),
        names: &[DiffName],
    ) {
        let message = Message::Diffs(peer::Diffs {
            segment,
            request,
            diffs: names.iter().map(|name| (*name, 1)).collect(),
        });
        let mut datagram = Vec::new();
        message.encode(header, &mut datagram);
        datagram.extend(names.iter().map(|_| 0));
        let to = NodeId(address.port() - 999);
        self.sent.push((from, to, message));
        let source = SocketAddr::from(([127, 0, 0, 1], 999 + from.0));
        self.wire.push_back((to, source, datagram));
    }

    /// Delivers datagrams until none is under way; `false` from `keep` loses one.
    pub fn deliver(&mut self, mut keep: impl FnMut(NodeId, &Message) -> bool) {
        while let Some((to, from, datagram)) = self.wire.pop_front() {
            let (_, message, _) = Message::decode(&datagram).expect("our own datagrams");
            self.now = self.now + Duration::from_micros(10);
            let from_node = NodeId(from.port() - 999);
            let cut = self.cut.is_some_and(|cut| cut(from_node, to));
            let silent = cut || self.silent.contains(&to) || self.silent.contains(&from_node);
            if !silent && keep(to, &message) {
                self.deliver_late(&(to, from, datagram));
                self.count_down(1);
            } else {
                self.lost.push((to, from, datagram));
            }
            if self.wire.is_empty() && self.disk == DiskPace::Slow {
                self.write_disks();
            }
        }
    }

    /// Delivers everything.
    pub fn settle(&mut self) {
        self.deliver(|_, _| true);
    }

    /// Lets time pass; every node sees its deadlines, and everything is delivered.
    pub fn pass(&mut self, length: Duration) {
        self.pass_with(length, |_, _| true);
    }

    /// The same; `false` from `keep` loses a datagram.
    pub fn pass_with(&mut self, length: Duration, mut keep: impl FnMut(NodeId, &Message) -> bool) {
        let end = self.now + length;
        while self.now < end {
            self.now = (self.now + Duration::from_micros(50)).min(end);
            for index in 0..self.nodes.len() {
                let stopped = self.stopped.contains(&NodeId(index as u16 + 1));
                if !stopped
                    && self.nodes[index]
                        .next_deadline()
                        .is_some_and(|due| due <= self.now)
                {
                    self.input(NodeId(index as u16 + 1), Input::Deadline);
                }
            }
            self.deliver(&mut keep);
        }
    }

    /// Delivers a datagram that was lost, if its receiver and its sender live.
    pub fn deliver_late_to_living(&mut self, late: &Late) {
        let sender = NodeId(late.1.port() - 999);
        if !self.is_dead(late.0) && !self.is_dead(sender) {
            self.deliver_late(late);
        }
    }

    /// A daemon is stopped.
    pub fn stop(&mut self, node: NodeId) {
        self.silent.push(node);
        self.stopped.push(node);
    }

    /// It goes on, and as a driver does hears others before it looks at deadlines.
    pub fn go_on(&mut self, node: NodeId) {
        self.silent.retain(|other| *other != node);
        self.pass(Duration::from_millis(1200));
        self.stopped.retain(|other| *other != node);
    }

    /// Whether a node has something to do at once.
    pub fn is_due(&self, node: NodeId) -> bool {
        let due = self.nodes[usize::from(node.0) - 1].next_deadline();
        due.is_some_and(|due| due <= self.now)
    }

    /// Forgets what happened so far.
    pub fn forget(&mut self) {
        self.sent.clear();
        self.done.clear();
        self.replies.clear();
        self.sent_before.clear();
    }

    /// A client of `node` asks; returns the ticket.
    pub fn ask(&mut self, node: NodeId, request: Request) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.input(
            node,
            Input::Request {
                ticket,
                client: CLIENT,
                request,
            },
        );
        ticket
    }

    /// A client of `node` says how it will use `count` pages from `first` on.
    pub fn advise(
        &mut self,
        node: NodeId,
        segment: SegmentId,
        (first, count): (u32, u32),
        advice: Advice,
    ) {
        let request = Request::Advise {
            segment,
            first: PageIndex(first),
            count: PageCount(count),
            advice,
        };
        self.ask(node, request);
    }

    /// The last answer to a ticket.
    pub fn reply(&self, ticket: Ticket) -> Option<&Reply> {
        self.replies
            .iter()
            .rev()
            .find(|(_, of, _)| *of == ticket)
            .map(|(_, _, reply)| reply)
    }

    /// Creates (on the first node of the list) and opens a segment everywhere, and maps it.
    pub fn segment(&mut self, manager: Manager, window: Window) -> SegmentInfo {
        self.segment_of(Policy::Sequential { manager, window })
    }

    /// The same under any policy.
    pub fn segment_of(&mut self, policy: Policy) -> SegmentInfo {
        self.segment_of_pages(policy, 16)
    }

    /// The same with so many pages.
    pub fn segment_of_pages(&mut self, policy: Policy, pages: u64) -> SegmentInfo {
        let all = 1..=self.nodes.len() as u16;
        self.segment_on(all.map(NodeId), policy, pages)
    }

    /// The same on these nodes only; the first one is its home.
    pub fn segment_on(
        &mut self,
        nodes: impl IntoIterator<Item = NodeId>,
        policy: Policy,
        pages: u64,
    ) -> SegmentInfo {
        let spec = SegmentSpec {
            size: ByteLen(pages * PAGE_SIZE as u64),
            mode: 0o600,
            policy,
            replicas: self.replicas,
        };
        let mut opened = None;
        for node in nodes {
            let open = Request::Open {
                name: "a".into(),
                create: Some(spec.clone()),
                exclusive: false,
                write: true,
                credentials: Credentials::root(),
            };
            let ticket = self.ask(node, open);
            self.settle();
            let Some(Reply::Segment(info)) = self.reply(ticket).cloned() else {
                panic!("not opened: {:?}", self.reply(ticket));
            };
            self.input(
                node,
                Input::Mapped {
                    mapping: MAPPING,
                    segment: info.id,
                    client: CLIENT,
                },
            );
            opened = Some(info);
        }
        self.forget();
        opened.expect("at least one node")
    }

    /// Looks at the pages that are kept writable, before `node` comes to a barrier: those that its
    /// threads have not stored to since the last look have not changed.
    pub fn look(&mut self, node: NodeId, segment: SegmentId) {
        let kept_writable = self.nodes[usize::from(node.0) - 1].kept_writable(segment);
        let is_untouched =
            |cluster: &Self, page: PageIndex| !cluster.stored.contains(&(node, page.0));
        let report = |cluster: &mut Self, pages| {
            cluster.input(node, Input::Untouched { segment, pages });
            Ok::<_, Infallible>(())
        };
        let Ok(pages) = kept_writable.look(self, is_untouched, report);
        self.stored.retain(|(of, _)| *of != node);
        self.input(node, Input::Untouched { segment, pages });
    }

    /// A thread of `node` touches a page; returns once everything was delivered.
    pub fn touch(&mut self, node: NodeId, page: u32, access: Access) {
        if access == Access::Write {
            self.stored.insert((node, page));
        }
        self.input(
            node,
            Input::Fault {
                mapping: MAPPING,
                page: PageIndex(page),
                access,
            },
        );
        self.settle();
    }

    /// Whether the last thing that happened to the page on that node was a grant.
    pub fn mapped(&self, node: NodeId) -> bool {
        self.done
            .iter()
            .any(|(of, effect)| *of == node && matches!(effect, Effect::Map { .. }))
    }

    /// How many of the datagrams sent carried a page.
    pub fn pages_sent(&self) -> usize {
        self.sent
            .iter()
            .filter(|(_, _, message)| message.carries_page())
            .count()
    }

    /// Fills of a node since the last look, by source.
    pub fn fills(&self, node: NodeId) -> Vec<Source> {
        self.done
            .iter()
            .filter_map(|(of, effect)| match effect {
                Effect::Fill { source, .. } if *of == node => Some(*source),
                _ => None,
            })
            .collect()
    }
}
