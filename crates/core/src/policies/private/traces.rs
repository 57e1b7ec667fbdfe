//! What replacement does for programs whose memory does not fit: the pages that four programs touch,
//! in the order in which they touch them, given to the policy and to true LRU. `--nocapture` prints
//! the table.

use super::tests::{DONOR, ME, with_donors};
use super::*;
use crate::effect::{Effects, PageRange};
use crate::policies::hooks::{Hooks as _, Who};
use crate::shell::Shell;
use core::time::Duration;
use pagemesh_wire::peer::{Backing, DonorReply, Global, Got, LentPage, Message, PageSeal, Put};
use pagemesh_wire::{ClientId, PageCount};
use std::collections::BTreeSet;

/// Pages in local memory, and words in a page.
const LOCAL: u32 = 512;
const WORDS: usize = 128;

/// A node that runs one program, and a donor that answers at once.
struct Host {
    shell: Shell,
    policy: Private,
    now: Time,
    pages: u32,
    rights: Vec<Rights>,
    next: VecDeque<Next>,
    counts: Counts,
}

/// What the policy is told next.
enum Next {
    Stored(PageRange),
    Comes(Message),
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    touches: u32,
    /// Faults for which the thread waited for a donor or the disk.
    misses: u32,
    /// Pages that came from the donor or the disk, those asked for ahead with them.
    fetched: u32,
    /// Faults at pages that were in memory.
    soft: u32,
    /// Faults at pages that left before their thread came to them.
    again: u32,
}

impl Host {
    fn new(pages: u32) -> Self {
        let segment = SegmentId::new(ME, 1);
        let chosen = Policy::Private {
            local: PageCount(LOCAL),
            backing: Backing::File,
        };
        Self {
            shell: with_donors(&[DONOR]),
            policy: Private::open(segment, pages, chosen).unwrap().unwrap(),
            now: Time(1_000_000),
            pages,
            rights: vec![Rights::None; pages as usize],
            next: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// A thread loads or stores.
    fn touch(&mut self, page: u32, access: Access) {
        self.now = self.now + Duration::from_micros(1);
        self.counts.touches += 1;
        if self.rights[page as usize] >= rights_for(access) {
            return;
        }
        let who = Who {
            mapping: MappingId(1),
            client: ClientId(1),
            pages: self.pages,
        };
        let before = self.counts.fetched;
        let mut tries = 0;
        while self.rights[page as usize] < rights_for(access) {
            self.act(&|policy, cx| policy.fault(cx, who, PageIndex(page), access));
            tries += 1;
            assert!(tries < 4, "{page}");
        }
        self.counts.again += tries - 1;
        match self.counts.fetched == before {
            true => self.counts.soft += 1,
            false => self.counts.misses += 1,
        }
    }

    /// Does something, and then all that follows from it.
    fn act(&mut self, work: &dyn Fn(&mut Private, &mut Cx<'_>)) {
        self.step(work);
        while let Some(next) = self.next.pop_front() {
            match next {
                Next::Stored(pages) => self.step(&|policy, cx| policy.stored(cx, pages, true)),
                Next::Comes(message) => {
                    self.step(&|policy, cx| policy.message(cx, DONOR, message.clone()));
                }
            }
        }
        assert!(
            self.policy.memory.held <= LOCAL,
            "{} pages",
            self.policy.memory.held
        );
    }

    fn step(&mut self, work: &dyn Fn(&mut Private, &mut Cx<'_>)) {
        let mut effects = Effects::default();
        let mut cx = Cx {
            now: self.now,
            shell: &mut self.shell,
            effects: &mut effects,
        };
        work(&mut self.policy, &mut cx);
        for effect in effects.drain() {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Map { pages, rights, .. } => self.grant(pages, rights),
            Effect::Evict { pages, .. } => {
                for (_, page) in pages.iter() {
                    self.rights[page.0 as usize] = Rights::None;
                }
            }
            Effect::Store { pages } => self.next.push_back(Next::Stored(pages)),
            Effect::Fill {
                source: Source::Disk | Source::Payload,
                ..
            } => self.counts.fetched += 1,
            Effect::Send { message, .. } => self.answer(*message),
            _ => {}
        }
    }

    fn grant(&mut self, pages: PageRange, rights: Rights) {
        for (_, page) in pages.iter() {
            let known = &mut self.rights[page.0 as usize];
            *known = (*known).max(rights);
        }
    }

    fn answer(&mut self, message: Message) {
        match message {
            Message::Global(Global::Get { segment, pages, .. }) => {
                for (page, version) in pages {
                    let lent = LentPage {
                        segment,
                        page,
                        version,
                    };
                    let seal = PageSeal::default();
                    let got = Message::Got(Got { lent, seal });
                    self.next.push_back(Next::Comes(got));
                }
            }
            Message::Put(Put {
                lent, answer: true, ..
            }) => {
                let kept = Message::DonorReply(DonorReply::Kept(lent));
                self.next.push_back(Next::Comes(kept));
            }
            _ => {}
        }
    }
}

/// Pages that true LRU has to fetch.
fn lru(trace: &[(u32, Access)]) -> u32 {
    let (mut used, mut order) = (LongMap::new(), BTreeSet::new());
    let mut seen = BTreeSet::new();
    let mut fetched = 0;
    for (time, (page, _)) in trace.iter().enumerate() {
        match used.insert(*page, time) {
            Some(before) => drop(order.remove(&(before, *page))),
            None => fetched += u32::from(!seen.insert(*page)),
        }
        order.insert((time, *page));
        if order.len() > LOCAL as usize
            && let Some((_, oldest)) = order.pop_first()
        {
            used.remove(&oldest);
        }
    }
    fetched
}

/// Pages that have to be fetched if they leave in the order in which they came, and come back from a
/// stage of an eighth without being fetched.
fn order_of_faults(trace: &[(u32, Access)]) -> u32 {
    let (stage, mut fetched) = ((LOCAL / 8) as usize, 0);
    let (mut mapped, mut staged) = (VecDeque::new(), VecDeque::new());
    let mut places: LongMap<u32, bool> = LongMap::new();
    let mut seen = BTreeSet::new();
    for (page, _) in trace {
        match places.insert(*page, true) {
            Some(true) => continue,
            Some(false) => staged.retain(|other| other != page),
            None => fetched += u32::from(!seen.insert(*page)),
        }
        mapped.push_back(*page);
        if mapped.len() > LOCAL as usize - stage
            && let Some(oldest) = mapped.pop_front()
        {
            places.insert(oldest, false);
            staged.push_back(oldest);
        }
        if staged.len() > stage
            && let Some(oldest) = staged.pop_front()
        {
            places.remove(&oldest);
        }
    }
    fetched
}

/// A number below `bound` (an xorshift generator).
fn draw(state: &mut u64, bound: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % bound
}

/// The memory of a program, which writes down what it touches.
#[derive(Default)]
struct Memory {
    words: Vec<u64>,
    trace: Vec<(u32, Access)>,
}

impl Memory {
    fn new(words: usize) -> Self {
        Self {
            words: vec![0; words],
            trace: Vec::new(),
        }
    }

    fn note(&mut self, at: usize, access: Access) {
        let touch = ((at / WORDS) as u32, access);
        if self.trace.last() != Some(&touch) {
            self.trace.push(touch);
        }
    }

    fn load(&mut self, at: usize) -> u64 {
        self.note(at, Access::Read);
        self.words[at]
    }

    fn store(&mut self, at: usize, word: u64) {
        self.note(at, Access::Write);
        self.words[at] = word;
    }

    fn fill(&mut self, words: usize) {
        let mut state = 88_172_645_463_325_252;
        for at in 0..words {
            let word = draw(&mut state, 1 << 40);
            self.store(at, word);
        }
    }
}

/// A vector that is scaled and summed up, again and again.
fn passes(pages: usize) -> Memory {
    let words = pages * WORDS;
    let mut memory = Memory::new(words);
    memory.fill(words);
    for _ in 0..8 {
        for at in 0..words {
            let word = memory.load(at);
            memory.store(at, word / 2);
        }
        let sum: u64 = (0..words).map(|at| memory.load(at)).sum();
        assert!(sum < 1 << 62);
    }
    memory
}

/// A merge sort between two halves of memory.
fn sort(pages: usize) -> Memory {
    let words = pages / 2 * WORDS;
    let mut memory = Memory::new(2 * words);
    memory.fill(words);
    let (mut from, mut to, mut run) = (0, words, 1);
    while run < words {
        for start in (0..words).step_by(2 * run) {
            let (middle, end) = ((start + run).min(words), (start + 2 * run).min(words));
            let (mut left, mut right) = (start, middle);
            for at in start..end {
                let take_left = left < middle
                    && (right >= end || memory.load(from + left) <= memory.load(from + right));
                let next = if take_left { &mut left } else { &mut right };
                let word = memory.load(from + *next);
                *next += 1;
                memory.store(to + at, word);
            }
        }
        (from, to, run) = (to, from, 2 * run);
    }
    assert!(memory.words[from..from + words].is_sorted());
    memory
}

/// A breadth-first search through a random graph: the edges, and a word for each node.
fn search(pages: usize) -> Memory {
    const DEGREE: usize = 7;
    let nodes = pages * WORDS / (DEGREE + 1);
    let mut memory = Memory::new(nodes * (DEGREE + 1));
    let mut state = 88_172_645_463_325_252;
    for at in 0..nodes * DEGREE {
        let word = draw(&mut state, nodes as u64);
        memory.store(at, word);
    }
    let mut next = VecDeque::from([0]);
    while let Some(node) = next.pop_back() {
        for edge in node * DEGREE..(node + 1) * DEGREE {
            let other = memory.load(edge) as usize;
            if memory.load(nodes * DEGREE + other) == 0 {
                memory.store(nodes * DEGREE + other, 1);
                next.push_front(other);
            }
            if next.len() > 4_000 {
                next.truncate(4_000);
            }
        }
        if memory.trace.len() > 400_000 {
            break;
        }
    }
    memory
}

/// A table whose rows are looked up, a few of them often, and that is scanned now and then.
fn table(pages: usize) -> Memory {
    let words = pages * WORDS;
    let mut memory = Memory::new(words);
    memory.fill(words);
    let mut state = 88_172_645_463_325_252;
    for _ in 0..4 {
        for _ in 0..20_000 {
            // The product of three numbers is small more often than not.
            let part = |state: &mut u64| draw(state, 1 << 16);
            let [one, two, three] = [0; 3].map(|_| part(&mut state));
            let row = (one * two * three) >> 16;
            let page = (row as usize * pages) >> 32;
            // Rows that are used together are not neighbours.
            let page = page * 7919 % pages;
            let at = page * WORDS + draw(&mut state, WORDS as u64) as usize;
            let word = memory.load(at);
            if draw(&mut state, 4) == 0 {
                memory.store(at, word + 1);
            }
        }
        for at in (0..words).step_by(WORDS) {
            memory.load(at);
        }
    }
    memory
}

fn run(trace: &[(u32, Access)], pages: u32) -> Counts {
    let mut host = Host::new(pages);
    for (page, access) in trace {
        host.touch(*page, *access);
    }
    host.counts
}

#[test]
fn pages_are_found_nearly_as_often_as_with_lru_and_far_more_often_in_a_loop() {
    let eighth = (LOCAL * 9 / 8) as usize;
    let all: [(&str, Memory, f64); 5] = [
        ("passes", passes(eighth), 0.5),
        ("sort", sort(eighth), 0.5),
        ("search", search(eighth), 1.25),
        ("table, an eighth too large", table(eighth), 1.4),
        ("table, twice as large", table(2 * LOCAL as usize), 1.35),
    ];
    println!("program | touches | LRU | order of faults | fetched | misses | soft faults");
    let mut wrong = Vec::new();
    for (name, memory, most) in &all {
        let pages = memory.words.len().div_ceil(WORDS) as u32;
        let counts = run(&memory.trace, pages);
        let lru = lru(&memory.trace);
        println!(
            "{name} | {} | {lru} | {} | {} | {} | {}",
            counts.touches,
            order_of_faults(&memory.trace),
            counts.fetched,
            counts.misses,
            counts.soft
        );
        assert!(
            counts.again < 10 + counts.misses / 100,
            "{name}: {counts:?}"
        );
        if f64::from(counts.fetched) > f64::from(lru) * most {
            wrong.push((name, counts, lru));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A page that is loaded from and stored to faults once.
#[test]
fn stores_that_follow_loads_do_not_fault() {
    let pages = 2 * LOCAL;
    let mut host = Host::new(pages);
    (0..pages).for_each(|page| host.touch(page, Access::Write));
    let mut order: Vec<_> = (0..pages).collect();
    let mut state = 88_172_645_463_325_252;
    for at in (1..order.len()).rev() {
        order.swap(at, draw(&mut state, at as u64 + 1) as usize);
    }
    for _ in 0..4 {
        host.counts = Counts::default();
        for page in &order {
            host.touch(*page, Access::Read);
            host.touch(*page, Access::Write);
        }
    }
    let Counts { misses, soft, .. } = host.counts;
    assert!(misses > 800 && soft < misses / 5, "{misses} {soft}");
    // Loads alone: what is fetched is not written to the disk again.
    for _ in 0..4 {
        host.counts = Counts::default();
        order
            .iter()
            .for_each(|page| host.touch(*page, Access::Read));
    }
    let stored = host
        .policy
        .memory
        .pages
        .values()
        .filter(|page| !page.on_disk);
    assert!(stored.count() < 70);
    let written = host
        .rights
        .iter()
        .filter(|rights| **rights == Rights::Write);
    assert!(written.count() < 70);
}
