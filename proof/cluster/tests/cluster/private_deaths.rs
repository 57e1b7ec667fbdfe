//! Programs with private memory go on while hosts die: donors, the initiator of the epochs, the host
//! with the names of all segments, and two at once. (GR14, GB1, GB2.)
//!
//! `cargo xtask soak --only private_deaths --minutes 60` does so for an hour.

use crate::private_memory::resident;
use crate::stress::seed;
use crate::support::{Cluster, eventually, load, store, stress_time};
use pagemesh::{ByteLen, Mapping, Options, PAGE_SIZE, Policy};
use pagemesh_cli::sandbox::Plan;
use pagemesh_tests::dice::{Dice, mix};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Pages of the segment, of which so many may be in local memory.
const PAGES: u64 = 2048;
const LOCAL: u64 = 512;

/// Slots of the stash that stay allocated for the next pages.
const WARM: u64 = 1024;

/// The host with the program. It lends nothing, and does not die.
const OWNER: usize = 1;

/// The host that has the names of segments, and the others: all lend memory. Any two have room for
/// two copies of what the program cannot keep.
const NAMES: usize = 0;
const DONORS: Range<usize> = 2..6;
const LEND: &str = "16M";

/// Accesses between two deaths, and while hosts are dead: a few hundred a second, as long as a page
/// is first requested from a donor that nobody declares dead.
const BETWEEN: u64 = 3000;
const MEANWHILE: u64 = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    Disk,
    Copies,
}

fn cluster() -> Option<Cluster> {
    let mut plan = Plan::new(DONORS.end);
    plan.state = true;
    plan.daemon_args = ["--memory", "1G"].map(str::to_owned).to_vec();
    let lends = |node| if node == OWNER { "none" } else { LEND };
    let own = |node| vec!["--lend".to_owned(), lends(node).to_owned()];
    plan.own_args = (0..DONORS.end).map(own).collect();
    Cluster::of(plan)
}

fn segment(cluster: &Cluster, backing: Backing) -> Mapping {
    let name = match backing {
        Backing::Disk => "private",
        Backing::Copies => "private-copies",
    };
    let policy: Policy = name.parse().unwrap();
    let options = Options {
        policy: policy
            .with_local(ByteLen(LOCAL * PAGE_SIZE as u64))
            .unwrap(),
        ..Options::default()
    };
    let made = cluster.make_on(OWNER, "mortal", PAGES, options);
    made.map().unwrap()
}

/// What the program has done so far.
#[derive(Default)]
struct Progress {
    accesses: AtomicU64,
    /// The longest access since that was last asked, in nanoseconds.
    longest: AtomicU64,
    over: AtomicBool,
}

/// The program ends with this value, also if the test fails.
struct Ends<'a>(&'a Progress);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Relaxed);
    }
}

/// Loads and stores all over the segment. Every load must find what was stored last.
fn work(memory: &Mapping, progress: &Progress) {
    let mut dice = Dice::new(mix(seed() ^ 1));
    let mut stored = vec![0; PAGES as usize];
    let word = |page: usize| page * PAGE_SIZE + 8;
    let mut number = 0;
    while !progress.over.load(Relaxed) {
        let page = dice.below(PAGES as usize);
        let began = Instant::now();
        assert_eq!(load(memory, word(page)), stored[page], "page {page}");
        if dice.once_in(2) {
            number += 1;
            stored[page] = number;
            store(memory, word(page), number);
        }
        let took = began.elapsed().as_nanos() as u64;
        progress.longest.fetch_max(took, Relaxed);
        progress.accesses.fetch_add(1, Relaxed);
    }
    for (page, value) in stored.iter().enumerate() {
        assert_eq!(load(memory, word(page)), *value, "page {page}, in the end");
    }
}

/// The host that takes most pages: it is the next initiator.
fn initiator(cluster: &Cluster) -> usize {
    let program = env!("CARGO_BIN_EXE_pagemesh-under-test");
    let weight = |node: &usize| {
        let mut command = cluster.node(*node).command(program);
        let output = command.args(["memory", "-o", "json"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let document: serde_json::Value = serde_json::from_str(&text).expect(&text);
        let me = document["node"].as_u64();
        let nodes = document["nodes"].as_array().expect(&text).iter();
        let mine = nodes.clone().find(|known| known["node"].as_u64() == me);
        mine.expect(&text)["memory"]["weight"]
            .as_u64()
            .expect(&text)
    };
    DONORS.max_by_key(weight).expect("there are donors")
}

/// Waits until no page is with one donor alone: a second one has it, or the disk of its home.
fn doubled(cluster: &Cluster) {
    let mesh = cluster.mesh(OWNER);
    let lone = || {
        let report = mesh.inspect("mortal", 0, PAGES as u32).unwrap();
        let out = report.pages.iter().filter(|line| line.hint != mesh.node());
        out.filter(|line| line.copies.iter().count() < 2).count()
    };
    eventually("two have each page", || lone() == 0);
}

/// One death after the other, until it is time.
struct Reaper<'a> {
    cluster: &'a Cluster,
    progress: &'a Progress,
    backing: Backing,
    dice: Dice,
    deaths: usize,
    /// Accesses and nanoseconds, between deaths and around them.
    quiet: (u64, u64),
    dying: (u64, u64),
}

impl Reaper<'_> {
    /// Those that die next, at once.
    fn draw(&mut self) -> Vec<usize> {
        let donor = DONORS.start + self.dice.below(DONORS.len());
        match self.dice.below(4) {
            0 => vec![donor],
            1 => vec![initiator(self.cluster)],
            2 => vec![NAMES],
            // With two copies of a page both might go.
            _ if self.backing == Backing::Copies => vec![donor],
            _ => {
                let other = [
                    NAMES,
                    DONORS.start + (donor - DONORS.start + 1) % DONORS.len(),
                ];
                vec![donor, other[self.dice.below(2)]]
            }
        }
    }

    /// Waits while the program does so much, and counts that.
    fn watch(&self, accesses: u64) -> (u64, u64) {
        let (began, before) = (Instant::now(), self.progress.accesses.load(Relaxed));
        eventually("the program goes on", || {
            self.progress.accesses.load(Relaxed) >= before + accesses
        });
        let done = self.progress.accesses.load(Relaxed) - before;
        (done, began.elapsed().as_nanos() as u64)
    }

    fn strike(&mut self) {
        let quiet = self.watch(BETWEEN);
        if self.backing == Backing::Copies {
            doubled(self.cluster);
        }
        let mut doomed = self.draw();
        // The others join at the host with the names.
        doomed.sort_unstable();
        self.progress.longest.store(0, Relaxed);
        for node in &doomed {
            self.cluster.kill(*node).unwrap();
        }
        let dying = self.watch(MEANWHILE);
        for node in &doomed {
            self.cluster.restart(*node).unwrap();
        }
        self.deaths += doomed.len();
        self.quiet = (self.quiet.0 + quiet.0, self.quiet.1 + quiet.1);
        self.dying = (self.dying.0 + dying.0, self.dying.1 + dying.1);
        let longest = Duration::from_nanos(self.progress.longest.load(Relaxed));
        eprintln!("{doomed:?} died: the longest access took {longest:?}");
        let pid = self.cluster.node(OWNER).pid();
        let here = resident(pid, &["pagemesh:mortal", "pagemesh-stash"]);
        assert!(here <= LOCAL + WARM, "{here} pages are resident");
    }
}

fn all_die_and_come_back(backing: Backing) {
    let Some(cluster) = cluster() else {
        return;
    };
    let memory = segment(&cluster, backing);
    let progress = Progress::default();
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&memory, &progress));
        let ends = Ends(&progress);
        let mut reaper = Reaper {
            cluster: &cluster,
            progress: &progress,
            backing,
            dice: Dice::new(mix(seed())),
            deaths: 0,
            quiet: (0, 0),
            dying: (0, 0),
        };
        let end = Instant::now() + stress_time();
        while !worker.is_finished() && (reaper.deaths == 0 || Instant::now() < end) {
            reaper.strike();
        }
        drop(ends);
        worker.join().unwrap();
        let rate = |(accesses, nanos): (u64, u64)| accesses as f64 * 1e9 / nanos.max(1) as f64;
        eprintln!(
            "{} hosts died: {:.0} accesses a second between deaths, {:.0} after them",
            reaper.deaths,
            rate(reaper.quiet),
            rate(reaper.dying)
        );
    });
    assert!(
        cluster.counter(OWNER, "pages_in") > 0,
        "donors gave pages back"
    );
    assert_eq!(cluster.counter(OWNER, "pages_forged"), 0);
}

#[test]
fn hosts_die_and_come_back_while_pages_are_on_the_disk_too() {
    all_die_and_come_back(Backing::Disk);
}

#[test]
fn hosts_die_and_come_back_while_two_donors_have_each_page() {
    all_die_and_come_back(Backing::Copies);
}
