//! A cluster of frames, page by page: GMS's epochs beside N-chance forwarding, where there are more nodes
//! than processors. No protocol and no program is in it: a use of a page costs nothing if the page is
//! here, a network exchange if another node has it, a disk access else. The ratio of the costs is the
//! paper's. It is seeded: the same settings give the same figures.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Microseconds of a page from another node, from the disk, and of computing between two uses: the
/// paper's 2.1 ms and 14.3 ms of Table 3, and a tenth of the first.
pub(super) const REMOTE: u64 = 2_100;
pub(super) const DISK: u64 = 14_300;
const WORK: u64 = 210;

/// Pages older than this are idle, in microseconds.
const IDLE: u64 = 8_000_000;

/// The longest epoch.
const EPOCH: u64 = 5_000_000;

/// Fewer idle pages are not worth a message (GB7).
const LITTLE: u64 = 16;

/// Nodes that keep a page one after the other.
const ROUNDS: u8 = 2;

/// A page of the whole cluster.
type Page = u32;

/// How a node for a page is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placing {
    /// No node.
    Disk,
    Epoch,
    NChance,
}

/// A node of a plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Its frames.
    pub(super) frames: usize,
    /// Pages that its program uses, and uses of them until the program ends; a program without an end
    /// uses its pages in order, again and again.
    pub(super) pages: Vec<Page>,
    pub(super) uses: Option<u64>,
}

/// An experiment.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) parts: Vec<Part>,
    /// After each so many microseconds two nodes, in turn, change what they do.
    pub(super) switch: Option<(u64, Vec<(usize, usize)>)>,
}

/// What a run took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// Mean time of the programs with an end, in microseconds.
    pub(super) time: f64,
    /// Time of a use by the programs without one, over what it takes undisturbed.
    pub(super) slowdown: f64,
    /// Pages on the network.
    pub(super) transfers: u64,
    /// Disk accesses of programs with an end.
    pub(super) disk: u64,
    pub(super) epochs: u64,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    used: u64,
    /// Kept for others, by so many nodes still.
    rounds: Option<u8>,
}

#[derive(Default)]
struct Node {
    frames: usize,
    there: BTreeMap<Page, Frame>,
    local: BTreeSet<(u64, Page)>,
    global: BTreeSet<(u64, Page)>,
    program: Part,
    next: u64,
    ends: u64,
    uses: u64,
}

struct Cluster {
    nodes: Vec<Node>,
    placing: Placing,
    holders: BTreeMap<Page, Vec<usize>>,
    weights: Vec<u64>,
    total: u64,
    min_age: u64,
    until: u64,
    left: u64,
    rate: u64,
    chance: u64,
    now: u64,
    outcome: Outcome,
}

/// Runs a plan.
pub(super) fn run(plan: &Plan, placing: Placing) -> Outcome {
    let mut cluster = Cluster::new(plan, placing);
    let mut queue: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut ending = 0;
    for (index, part) in plan.parts.iter().enumerate() {
        if !part.pages.is_empty() {
            queue.push(Reverse((0, index)));
            ending += usize::from(part.uses.is_some());
        }
    }
    let programs = ending;
    let mut switches = plan.switch.as_ref().map_or(u64::MAX, |(each, _)| *each);
    let mut turn = 0;
    while ending > 0
        && let Some(Reverse((now, index))) = queue.pop()
    {
        cluster.now = now;
        if let Some((each, pairs)) = &plan.switch
            && now >= switches
        {
            switches += each;
            let (one, other) = pairs[turn % pairs.len()];
            turn += 1;
            cluster.switch(one, other);
            for node in [one, other] {
                if !cluster.nodes[node].program.pages.is_empty() {
                    queue.push(Reverse((now, node)));
                }
            }
        }
        let Some(took) = cluster.step(index) else {
            continue;
        };
        let node = &cluster.nodes[index];
        if node.program.uses == Some(node.uses) {
            ending -= 1;
            cluster.outcome.time += (now + took) as f64 / programs as f64;
        } else {
            queue.push(Reverse((now + took, index)));
        }
    }
    cluster.finish()
}

impl Cluster {
    fn new(plan: &Plan, placing: Placing) -> Self {
        let nodes: Vec<_> = plan
            .parts
            .iter()
            .map(|part| Node {
                frames: part.frames,
                program: part.clone(),
                ..Node::default()
            })
            .collect();
        Self {
            weights: vec![0; nodes.len()],
            nodes,
            placing,
            holders: BTreeMap::new(),
            total: 0,
            min_age: 0,
            until: 0,
            left: 0,
            rate: 0,
            chance: 7,
            now: 0,
            outcome: Outcome::default(),
        }
    }

    fn finish(mut self) -> Outcome {
        let others = self
            .nodes
            .iter()
            .filter(|node| node.program.uses.is_none() && node.uses > 0);
        let (time, uses) = others.fold((0, 0), |(time, uses), node| {
            (time + node.ends, uses + node.uses)
        });
        self.outcome.slowdown = time as f64 / (uses.max(1) * WORK) as f64;
        self.outcome
    }

    /// A number below `bound` (splitmix64).
    fn draw(&mut self, bound: u64) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.chance;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    /// Two nodes change programs.
    fn switch(&mut self, one: usize, other: usize) {
        let program = std::mem::take(&mut self.nodes[one].program);
        let program = std::mem::replace(&mut self.nodes[other].program, program);
        self.nodes[one].program = program;
        for node in [one, other] {
            // Memory that nobody uses is free.
            if self.nodes[node].program.pages.is_empty() {
                let local: Vec<_> = self.nodes[node]
                    .local
                    .iter()
                    .map(|(_, page)| *page)
                    .collect();
                for page in local {
                    self.remove(node, page);
                }
            }
        }
    }

    /// The program of a node uses a page; returns how long that takes, computing included.
    fn step(&mut self, index: usize) -> Option<u64> {
        let node = &self.nodes[index];
        let count = node.program.pages.len() as u64;
        if count == 0 {
            return None;
        }
        let at = match node.program.uses {
            // A traversal here and there.
            Some(_) => self.draw(count),
            None => self.nodes[index].next % count,
        };
        let page = self.nodes[index].program.pages[at as usize];
        let took = WORK + self.access(index, page);
        let node = &mut self.nodes[index];
        node.next += 1;
        node.uses += 1;
        node.ends += took;
        Some(took)
    }

    fn access(&mut self, index: usize, page: Page) -> u64 {
        let fresh = Frame {
            used: self.now,
            rounds: None,
        };
        if let Some(frame) = self.nodes[index].there.get(&page).copied() {
            self.remove(index, page);
            self.insert(index, page, fresh);
            return if frame.rounds.is_some() { WORK / 10 } else { 0 };
        }
        let holder = self
            .holders
            .get(&page)
            .and_then(|holders| holders.first().copied());
        let cost = match holder {
            Some(holder) => {
                self.outcome.transfers += 1;
                if self.nodes[holder].there[&page].rounds.is_some() {
                    self.remove(holder, page);
                }
                REMOTE
            }
            None => {
                if self.nodes[index].program.uses.is_some() {
                    self.outcome.disk += 1;
                }
                DISK
            }
        };
        if self.nodes[index].there.len() >= self.nodes[index].frames {
            self.evict(index);
        }
        self.insert(index, page, fresh);
        cost
    }

    /// The oldest page of a node leaves, one that is kept for others first.
    fn evict(&mut self, index: usize) {
        let node = &self.nodes[index];
        let Some((used, page)) = node.global.first().or_else(|| node.local.first()).copied() else {
            return;
        };
        self.remove(index, page);
        if self.holders.contains_key(&page) {
            // A duplicate.
            return;
        }
        match self.placing {
            Placing::Disk => {}
            Placing::Epoch => self.put_by_weight(index, page, used),
            Placing::NChance => self.forward(index, page, ROUNDS),
        }
    }

    fn put_by_weight(&mut self, from: usize, page: Page, used: u64) {
        if self.now >= self.until || self.left == 0 {
            self.begin_epoch();
        }
        let total = self.total - self.weights[from];
        if self.now - used > self.min_age || total == 0 {
            return;
        }
        let mut place = self.draw(total);
        let chosen = (0..self.nodes.len())
            .filter(|node| *node != from)
            .find(|node| {
                let here = place < self.weights[*node];
                place = place.saturating_sub(self.weights[*node]);
                here
            });
        let Some(to) = chosen else { return };
        self.left -= 1;
        self.rate += 1;
        self.outcome.transfers += 1;
        if self.nodes[to].there.len() >= self.nodes[to].frames {
            // Its oldest page; one kept for others counts as twice as old.
            let node = &self.nodes[to];
            let age = |(used, page): (u64, Page), boost| ((self.now - used) * boost, page);
            let mine = node.local.first().map(|it| age(*it, 1));
            let others = node.global.first().map(|it| age(*it, 2));
            let Some((_, oldest)) = mine.max(others) else {
                return;
            };
            self.remove(to, oldest);
        }
        self.insert(
            to,
            page,
            Frame {
                used,
                rounds: Some(1),
            },
        );
    }

    /// Ages of all nodes, weights and MinAge (G9).
    fn begin_epoch(&mut self) {
        self.outcome.epochs += 1;
        let mut ages: Vec<(u64, usize)> = Vec::new();
        let mut free = 0;
        for (index, node) in self.nodes.iter().enumerate() {
            let room = node.frames - node.there.len();
            free += room as u64;
            self.weights[index] = room as u64;
            let old = |(used, _): &&(u64, Page)| self.now - used > IDLE;
            let all = node
                .local
                .iter()
                .take_while(old)
                .chain(node.global.iter().take_while(old));
            ages.extend(all.map(|(used, _)| (*used, index)));
        }
        let idle = free + ages.len() as u64;
        let expected = (2 * self.rate).max(LITTLE);
        self.rate = 0;
        self.until = self.now + EPOCH;
        if idle < LITTLE {
            self.weights.fill(0);
            (self.total, self.min_age, self.left) = (0, 0, u64::MAX);
            return;
        }
        let wanted = expected.min(idle);
        self.left = wanted;
        self.min_age = u64::MAX;
        if free < wanted {
            ages.sort_unstable();
            ages.truncate((wanted - free) as usize);
            for (used, index) in ages {
                self.weights[index] += 1;
                self.min_age = self.now - used;
            }
        }
        self.total = self.weights.iter().sum();
    }

    /// N-chance: any node, whose victim is a duplicate, else the oldest page that it keeps for others,
    /// else a page of its own that is very old; without one the page goes on, or is dropped.
    fn forward(&mut self, from: usize, page: Page, rounds: u8) {
        let others = self.nodes.len() as u64 - 1;
        if rounds == 0 || others == 0 {
            return;
        }
        let to = self.draw(others) as usize;
        let to = to + usize::from(to >= from);
        self.outcome.transfers += 1;
        let node = &self.nodes[to];
        if node.there.len() >= node.frames {
            let holders = &self.holders;
            let several = |(_, page): &&(u64, Page)| holders[page].len() > 1;
            let duplicate = node.local.iter().find(several);
            let old = node
                .local
                .first()
                .filter(|(used, _)| self.now - used > IDLE);
            let Some((_, victim)) = duplicate.or(node.global.first()).or(old).copied() else {
                return self.forward(to, page, rounds - 1);
            };
            let kept = node.there[&victim].rounds;
            self.remove(to, victim);
            if let Some(rounds) = kept {
                self.forward(to, victim, rounds - 1);
            }
        }
        if self.nodes[to].there.len() < self.nodes[to].frames {
            let frame = Frame {
                used: self.now,
                rounds: Some(rounds),
            };
            self.insert(to, page, frame);
        }
    }

    fn insert(&mut self, index: usize, page: Page, frame: Frame) {
        let node = &mut self.nodes[index];
        node.there.insert(page, frame);
        let ages = match frame.rounds {
            Some(_) => &mut node.global,
            None => &mut node.local,
        };
        ages.insert((frame.used, page));
        self.holders.entry(page).or_default().push(index);
    }

    fn remove(&mut self, index: usize, page: Page) {
        let node = &mut self.nodes[index];
        if let Some(frame) = node.there.remove(&page) {
            node.local.remove(&(frame.used, page));
            node.global.remove(&(frame.used, page));
        }
        if let Some(holders) = self.holders.get_mut(&page) {
            holders.retain(|holder| *holder != index);
            if holders.is_empty() {
                self.holders.remove(&page);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(frames: usize, pages: u32) -> Part {
        Part {
            frames,
            pages: (0..pages).collect(),
            uses: Some(4_000),
        }
    }

    fn idle(frames: usize) -> Part {
        Part {
            frames,
            ..Part::default()
        }
    }

    #[test]
    fn idle_memory_takes_the_place_of_the_disk() {
        let plan = Plan {
            parts: vec![client(100, 200), idle(60), idle(60)],
            switch: None,
        };
        let disk = run(&plan, Placing::Disk);
        assert!(disk.transfers == 0 && disk.disk > 1_900, "{disk:?}");
        for placing in [Placing::Epoch, Placing::NChance] {
            let with = run(&plan, placing);
            assert!(with.disk < 400, "{placing:?}: {with:?}");
            assert!(disk.time / with.time > 3.0, "{placing:?}: {with:?}");
        }
        assert_eq!(run(&plan, Placing::Epoch), run(&plan, Placing::Epoch));
    }

    #[test]
    fn without_idle_memory_epochs_send_nothing() {
        let busy = Part {
            frames: 50,
            pages: (1000..1050).collect(),
            uses: None,
        };
        let plan = Plan {
            parts: vec![client(100, 200), busy],
            switch: None,
        };
        let with = run(&plan, Placing::Epoch);
        assert!(with.slowdown < 5.0 && with.transfers < 200, "{with:?}");
    }
}
