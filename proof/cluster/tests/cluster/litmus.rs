//! Litmus tests on several nodes: no outcome that sequential consistency forbids.

use crate::support::{Cluster, finish_all};
use pagemesh::{Manager, Options, Policy, Window};
use pagemesh_tests::litmus::{self, Litmus, Outcome};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Runs of a program between two barriers.
const RUNS: usize = 200;

/// Runs of each program in each shape: `PAGEMESH_LITMUS_ROUNDS`, or a thousand.
fn rounds() -> usize {
    let given = std::env::var("PAGEMESH_LITMUS_ROUNDS").ok();
    given.map_or(1_000, |text| text.parse().expect("a number of rounds"))
}

/// Places on different pages or on the same one, under either manager, with a
/// window and without; and in consistent views, of which the same is promised.
const SHAPES: [(&str, Policy); 6] = [
    ("pages", sequential(Manager::Dynamic, Window::Auto)),
    ("pages", sequential(Manager::Fixed, Window::Nanos(0))),
    ("words", sequential(Manager::Dynamic, Window::Nanos(0))),
    ("words", sequential(Manager::Fixed, Window::Auto)),
    ("pages", Policy::Views { prefix: 32 }),
    ("words", Policy::Views { prefix: 32 }),
];

const fn sequential(manager: Manager, window: Window) -> Policy {
    Policy::Sequential { manager, window }
}

fn run(litmus: &Litmus) {
    let Some(cluster) = Cluster::start(litmus.threads.len()) else {
        return;
    };
    for (layout, policy) in SHAPES {
        let outcomes = play(&cluster, litmus, layout, policy);
        let allowed = litmus.allowed();
        let played = outcomes.values().sum::<usize>();
        let mut table = format!("{}, {layout}, {policy:?}, {played} rounds:\n", litmus.name);
        for (outcome, count) in &outcomes {
            let verdict = if allowed.contains(outcome) {
                ""
            } else {
                "  <- FORBIDDEN"
            };
            let _ = writeln!(table, "{count:8}  {outcome}{verdict}");
        }
        eprint!("{table}");
        assert!(
            outcomes.keys().all(|seen| allowed.contains(seen)),
            "{table}"
        );
        assert!(outcomes.len() > 1, "the threads never met: {table}");
        assert!(played >= rounds(), "{played} rounds of {}", litmus.name);
    }
}

fn play(
    cluster: &Cluster,
    litmus: &Litmus,
    layout: &str,
    policy: Policy,
) -> BTreeMap<Outcome, usize> {
    let batches = rounds().div_ceil(RUNS);
    let pages = 1 + RUNS * litmus.places;
    let options = Options {
        policy,
        ..Options::default()
    };
    cluster.make_on(0, "litmus", pages as u64, options);
    let seed = std::process::id();
    let players = (0..litmus.threads.len())
        .map(|thread| {
            let arguments = format!(
                "litmus litmus --test {} --thread {thread} --layout {layout} --runs {RUNS} \
                 --batches {batches} --seed {seed}",
                litmus.name
            );
            cluster.player(thread, &arguments)
        })
        .collect();
    let said = finish_all(players);
    cluster.mesh(0).remove("litmus").unwrap();
    count(litmus, &said, RUNS * batches)
}

/// Puts together what the threads saw, run by run.
fn count(litmus: &Litmus, said: &[Vec<String>], runs: usize) -> BTreeMap<Outcome, usize> {
    let loads: Vec<_> = said
        .iter()
        .map(|lines| digits(&lines[0], "loads"))
        .collect();
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
