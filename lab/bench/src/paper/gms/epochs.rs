//! GR5: what an epoch costs, with real nodes in one process: their messages, the bytes of these, and the
//! processor time in which nodes handle them. No kernel and no network is in it.

use super::super::figures::Figures;
use anyhow::{Context, Result, ensure};
use pagemesh_core::{Budgets, Config, Effect, Effects, Input, Node, Placement, Start, Time};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Global, LentPage, Message, PageSeal, Put};
use pagemesh_wire::{
    ClusterId, Incarnation, NodeId, PAGE_SIZE, PageCount, PageIndex, PublicKey, SegmentId, Version,
};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Numbers of nodes; a cluster has at most 127.
pub(super) const SIZES: [usize; 4] = [4, 16, 50, 100];

/// Pages that a node keeps for others while its scan is timed, as in the paper's table.
const KEPT: u32 = 2000;

/// Epochs that are timed; the median counts.
const EPOCHS: usize = 9;

struct Cluster {
    nodes: Vec<Node>,
    now: Time,
    /// Datagrams on their way: to, from, bytes.
    mail: VecDeque<(usize, usize, Vec<u8>)>,
    /// Headers of the last datagram from each node to the first one.
    headers: Vec<Option<Header>>,
    sent: u64,
    bytes: u64,
    spent: Vec<Duration>,
}

pub(super) fn measure(document: &mut Figures) -> Result<()> {
    for size in SIZES {
        let mut cluster = Cluster::joined(size)?;
        let mut epochs: Vec<_> = (0..EPOCHS)
            .map(|_| cluster.epoch())
            .collect::<Result<_>>()?;
        epochs.sort_by_key(|epoch| epoch.initiator);
        let epoch = &epochs[EPOCHS / 2];
        let mut put = |what: &str, value| document.put(format!("epochs {size} {what}"), value);
        put("messages", epoch.messages as f64);
        put("bytes", epoch.bytes as f64);
        put("initiator us", epoch.initiator.as_secs_f64() * 1e6);
        put("other us", epoch.other.as_secs_f64() * 1e6);
    }
    let mut cluster = Cluster::joined(3)?;
    let before = cluster.scan();
    cluster.keep()?;
    let scan = cluster.scan().saturating_sub(before);
    document.put("epochs scan us", scan.as_secs_f64() * 1e6 / f64::from(KEPT));
    Ok(())
}

struct Epoch {
    messages: u64,
    bytes: u64,
    initiator: Duration,
    /// The mean of the others.
    other: Duration,
}

fn address(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8 + 1], 7300))
}

fn node_at(address: SocketAddr) -> usize {
    match address {
        SocketAddr::V4(address) => usize::from(address.ip().octets()[3]) - 1,
        SocketAddr::V6(_) => 0,
    }
}

impl Cluster {
    /// Nodes that are all members of one cluster, and lend.
    fn joined(size: usize) -> Result<Self> {
        let config = |node: usize| {
            Config::plain(
                format!("node{node}"),
                address(node),
                Incarnation(node as u64 + 1),
                match node {
                    0 => Start::Found(ClusterId(1)),
                    _ => Start::Join(address(0)),
                },
            )
        };
        let mut cluster = Self {
            nodes: (0..size).map(|node| Node::new(config(node))).collect(),
            now: Time(1),
            mail: VecDeque::new(),
            headers: vec![None; size],
            sent: 0,
            bytes: 0,
            spent: vec![Duration::ZERO; size],
        };
        for node in 0..size {
            cluster.input(node, Input::Deadline);
            cluster.deliver();
        }
        // What was told late is told again.
        for _ in 0..200 {
            cluster.wait();
            if cluster.nodes.iter().all(|node| node.id().is_some()) {
                break;
            }
        }
        let joined = cluster
            .nodes
            .iter()
            .filter(|node| node.id().is_some())
            .count();
        ensure!(joined == size, "{joined} of {size} nodes are members");
        let budgets = Budgets {
            memory: PageCount(u32::MAX),
            lend: PageCount(KEPT + 100),
            placement: Placement::Epoch,
            ..Budgets::default()
        };
        for node in 0..size {
            cluster.input(node, Input::Budgets(budgets));
        }
        for _ in 0..50 {
            cluster.wait();
        }
        Ok(cluster)
    }

    fn input(&mut self, node: usize, input: Input<'_>) {
        let mut effects = Effects::default();
        let began = Instant::now();
        self.nodes[node].handle(self.now, input, &mut effects);
        self.spent[node] += began.elapsed();
        for effect in effects.drain() {
            let Effect::Send {
                address,
                header,
                message,
                page,
            } = effect
            else {
                continue;
            };
            let mut bytes = Vec::new();
            message.encode(header, &mut bytes);
            bytes.resize(bytes.len() + if page.is_some() { PAGE_SIZE } else { 0 }, 0);
            self.sent += 1;
            self.bytes += bytes.len() as u64;
            let to = node_at(address);
            if to == 0 {
                self.headers[node] = Some(header);
            }
            self.mail.push_back((to, node, bytes));
        }
    }

    fn deliver(&mut self) {
        while let Some((to, from, bytes)) = self.mail.pop_front() {
            self.now = self.now + Duration::from_micros(1);
            let input = Input::Datagram {
                source: address(from),
                key: PublicKey::NONE,
                bytes: &bytes,
            };
            self.input(to, input);
        }
    }

    /// Goes on to the next deadline of a node.
    fn wait(&mut self) {
        let due = self.nodes.iter().filter_map(Node::next_deadline).min();
        let Some(due) = due else { return };
        self.now = due.max(self.now + Duration::from_micros(1));
        for node in 0..self.nodes.len() {
            if self.nodes[node]
                .next_deadline()
                .is_some_and(|due| due <= self.now)
            {
                self.input(node, Input::Deadline);
            }
        }
        self.deliver();
    }

    /// Has a node say that the epoch is to end, and counts what follows at once.
    fn epoch(&mut self) -> Result<Epoch> {
        // Heartbeats go on meanwhile.
        let soon = self.now + Duration::from_millis(200);
        while self.now < soon {
            self.wait();
        }
        let header = self.headers[1].context("a member has said nothing")?;
        let number = self.nodes[0].memory().epoch;
        let mut bytes = Vec::new();
        Message::Global(Global::EndEpoch { epoch: number }).encode(header, &mut bytes);
        (self.sent, self.bytes) = (1, bytes.len() as u64);
        self.spent.fill(Duration::ZERO);
        self.mail.push_back((0, 1, bytes));
        self.deliver();
        ensure!(
            self.nodes
                .iter()
                .all(|node| node.memory().epoch == number + 1),
            "no epoch has begun"
        );
        let others = self.spent[1..].iter().sum::<Duration>() / (self.nodes.len() - 1) as u32;
        Ok(Epoch {
            messages: self.sent,
            bytes: self.bytes,
            initiator: self.spent[0],
            other: others,
        })
    }

    /// Pages of the second node come to be kept by the first.
    fn keep(&mut self) -> Result<()> {
        let header = self.headers[1].context("a member has said nothing")?;
        for page in 0..KEPT {
            let put = Put {
                lent: LentPage {
                    segment: SegmentId::new(NodeId(2), 1),
                    page: PageIndex(page),
                    version: Version(1),
                },
                seal: PageSeal::default(),
                on_disk: true,
                answer: false,
                age: 1000,
            };
            let mut bytes = Vec::new();
            Message::Put(put).encode(header, &mut bytes);
            bytes.resize(bytes.len() + PAGE_SIZE, 0);
            self.mail.push_back((0, 1, bytes));
            self.deliver();
        }
        let kept = self.nodes[0].pages_borrowed();
        ensure!(kept == u64::from(KEPT), "{kept} pages are kept");
        Ok(())
    }

    /// The time in which the first node answers for its ages.
    fn scan(&mut self) -> Duration {
        let mut times: Vec<_> = (0..EPOCHS)
            .filter_map(|_| {
                let header = self.headers[1]?;
                let mut bytes = Vec::new();
                Message::Global(Global::Summarize { epoch: 1 << 40 }).encode(header, &mut bytes);
                self.spent[0] = Duration::ZERO;
                let input = Input::Datagram {
                    source: address(1),
                    key: PublicKey::NONE,
                    bytes: &bytes,
                };
                self.input(0, input);
                self.mail.clear();
                Some(self.spent[0])
            })
            .collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }
}
