//! Hosts die one after the other while the programs of all write to one memory with a replica: what
//! the programs that go on have seen is never lost, and what they find is what some instant had.
//!
//! `cargo xtask soak --only replica_deaths --minutes 60` does so for an hour.

use crate::release::release;
use crate::replicas::is_kept;
use crate::stress::seed;
use crate::support::{Cluster, OnDrop, Player, eventually, stress_time};
use pagemesh::Options;
use pagemesh_cli::sandbox::Plan;
use pagemesh_tests::dice::{Dice, mix};
use pagemesh_tests::ledger::{ENTRIES, Entry, Ledger, PAGES};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// The host that does not die: this process writes on it, and remembers what it has seen.
const WITNESS: usize = 1;

/// The host with the names of segments, and the others, which all die. One of these makes the segment.
const NAMES: usize = 0;
const MORTAL: Range<usize> = 2..5;

/// Entries that the witness writes between two deaths, and while a host is dead.
const BETWEEN: u64 = 400;
const MEANWHILE: u64 = 100;

/// Writes, and looks whether all that was seen before is there.
fn witness(cluster: &Cluster, written: &AtomicU64, over: &AtomicBool) {
    let ledger = Ledger::new(cluster.map(WITNESS, "ledger"));
    let mut dice = Dice::new(mix(seed() ^ 1));
    let mut seen = [Entry::default(); ENTRIES];
    while !over.load(Relaxed) {
        let look = |number: usize, found: Entry, left| {
            let before = seen[number];
            assert!(
                found.first >= before.first && found.second >= before.second,
                "entry {number}: {found:?} is found, {before:?} was seen"
            );
            seen[number] = left;
        };
        ledger.write(&mut dice, look).unwrap();
        written.fetch_add(1, Relaxed);
    }
}

/// One death after the other, until it is time.
struct Reaper<'a> {
    cluster: &'a Cluster,
    written: &'a AtomicU64,
    dice: Dice,
    clerks: BTreeMap<usize, Player>,
    deaths: u64,
}

impl Reaper<'_> {
    /// Starts a program on a host.
    fn settle(&mut self, node: usize) {
        let seed = self.dice.throw();
        let clerk = self
            .cluster
            .player(node, &format!("ledger ledger --seed {seed}"));
        self.clerks.insert(node, clerk);
    }

    fn watch(&self, entries: u64) {
        let before = self.written.load(Relaxed);
        eventually("the witness writes", || {
            self.written.load(Relaxed) >= before + entries
        });
    }

    fn strike(&mut self) {
        self.watch(BETWEEN);
        let nodes = [NAMES, WITNESS].into_iter().chain(MORTAL);
        for node in nodes {
            is_kept(self.cluster, node, "ledger");
        }
        let mortal = MORTAL.len();
        let doomed = match self.dice.below(mortal + 1) {
            drawn if drawn == mortal => NAMES,
            drawn => MORTAL.start + drawn,
        };
        if let Some(clerk) = self.clerks.remove(&doomed) {
            clerk.kill();
        }
        self.cluster.kill(doomed).unwrap();
        // No node is declared dead while the host with the names is not there.
        if doomed != NAMES {
            self.watch(MEANWHILE);
        }
        self.cluster.restart(doomed).unwrap();
        self.deaths += 1;
        self.watch(MEANWHILE);
        for (node, clerk) in &self.clerks {
            assert!(!clerk.is_over(), "the program on node {node} has ended");
        }
        self.settle(doomed);
    }
}

fn all_hosts_die_and_come_back(options: Options) {
    let mut plan = Plan::new(MORTAL.end);
    plan.state = true;
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    let options = Options {
        replicas: 1,
        ..options
    };
    cluster.make_on(MORTAL.start, "ledger", PAGES as u64, options);
    let (written, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let witness = scope.spawn(|| witness(&cluster, &written, &over));
        let ends = OnDrop(&over);
        let mut reaper = Reaper {
            cluster: &cluster,
            written: &written,
            dice: Dice::new(mix(seed())),
            clerks: BTreeMap::new(),
            deaths: 0,
        };
        for node in [NAMES].into_iter().chain(MORTAL) {
            reaper.settle(node);
        }
        let end = Instant::now() + stress_time();
        while !witness.is_finished() && (reaper.deaths == 0 || Instant::now() < end) {
            reaper.strike();
        }
        eprintln!("{} hosts died", reaper.deaths);
        drop(ends);
        witness.join().unwrap();
    });
}

#[test]
fn sequential_memory_outlives_its_hosts() {
    all_hosts_die_and_come_back(Options::default());
}

#[test]
fn release_memory_outlives_its_hosts() {
    all_hosts_die_and_come_back(release());
}
