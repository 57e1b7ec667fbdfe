//! Litmus tests on several nodes: no outcome that sequential consistency forbids.

use crate::support::{Cluster, finish_all};
use pagemesh::Options;
use pagemesh_tests::litmus::{self, Litmus, Outcome};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Runs of a program between two barriers.
const RUNS: usize = 200;

/// Runs in all, for each layout: `PAGEMESH_LITMUS_ROUNDS`, or a few thousand.
fn rounds() -> usize {
    let given = std::env::var("PAGEMESH_LITMUS_ROUNDS").ok();
    given.map_or(3_000, |text| text.parse().expect("a number of rounds"))
}

fn run(litmus: &Litmus) {
    let Some(cluster) = Cluster::start(litmus.threads.len()) else {
        return;
    };
    // Places on different pages, and on the same one.
    for layout in ["pages", "words"] {
        let outcomes = play(&cluster, litmus, layout);
        let allowed = litmus.allowed();
        let mut table = format!("{}, {layout}:\n", litmus.name);
        for (outcome, count) in &outcomes {
            let verdict = if allowed.contains(outcome) {
                ""
            } else {
                "  <- FORBIDDEN"
            };
            let _ = writeln!(table, "{count:8}  {outcome}{verdict}");
        }
        eprint!("{table}");
        assert!(outcomes.keys().all(|seen| allowed.contains(seen)), "{table}");
        assert!(outcomes.len() > 1, "the threads never met: {table}");
    }
}

fn play(cluster: &Cluster, litmus: &Litmus, layout: &str) -> BTreeMap<Outcome, usize> {
    let batches = rounds().div_ceil(RUNS);
    let segment = format!("litmus-{layout}");
    let pages = 1 + RUNS * litmus.places;
    cluster.make_on(0, &segment, pages as u64, Options::default());
    let seed = std::process::id();
    let players = (0..litmus.threads.len())
        .map(|thread| {
            let arguments = format!(
                "litmus {segment} --test {} --thread {thread} --layout {layout} --runs {RUNS} \
                 --batches {batches} --seed {seed}",
                litmus.name
            );
            cluster.player(thread, &arguments)
        })
        .collect();
    count(litmus, &finish_all(players), RUNS * batches)
}

/// Puts together what the threads saw, run by run.
fn count(litmus: &Litmus, said: &[Vec<String>], runs: usize) -> BTreeMap<Outcome, usize> {
    let loads: Vec<_> = said.iter().map(|lines| digits(&lines[0], "loads")).collect();
    let finals = digits(&said[0][1], "finals");
    let mut outcomes = BTreeMap::new();
    for run in 0..runs {
        let part = |all: &[u8], each: usize| all[run * each..][..each].to_vec();
        let outcome = Outcome {
            loads: loads
                .iter()
                .enumerate()
                .map(|(thread, all)| part(all, litmus.loads_of(thread)))
                .collect(),
            finals: part(&finals, litmus.places),
        };
        *outcomes.entry(outcome).or_default() += 1;
    }
    outcomes
}

fn digits(line: &str, what: &str) -> Vec<u8> {
    let digits = line.strip_prefix(what).expect("the player says it");
    digits.trim().bytes().map(|digit| digit - b'0').collect()
}

#[test]
fn store_buffering() {
    run(&litmus::SB);
}

#[test]
fn message_passing() {
    run(&litmus::MP);
}

#[test]
fn load_buffering() {
    run(&litmus::LB);
}

#[test]
fn coherence_of_two_loads() {
    run(&litmus::CORR);
}

#[test]
fn coherence_of_two_stores() {
    run(&litmus::COWW);
}

#[test]
fn independent_reads_of_independent_writes() {
    run(&litmus::IRIW);
}

#[test]
fn two_writers_in_opposite_order() {
    run(&litmus::TWO_PLUS_TWO_W);
}
