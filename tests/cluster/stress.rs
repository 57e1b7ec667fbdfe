//! Everything at random on 2, 4 and 8 nodes; see the player for what it checks.

use crate::support::{Cluster, finish_all, stress_time};
use pagemesh::{Manager, Options, Policy, Window};
use pagemesh_cli::sandbox::Plan;
use pagemesh_os::impair::Impairment;
use pagemesh_tests::stress::{Finals, Report, compare};
use std::time::{SystemTime, UNIX_EPOCH};

/// Pages of the players' ground.
const PAGES: u64 = 16;

/// What runs on the nodes.
struct Shape {
    processes: usize,
    threads: usize,
    options: Options,
}

fn shape(processes: usize, threads: usize) -> Shape {
    Shape {
        processes,
        threads,
        options: Options::default(),
    }
}

impl Shape {
    fn with(mut self, manager: Manager, window: Window) -> Self {
        self.options.policy = Policy::Sequential { manager, window };
        self
    }
}

fn bad_network(nodes: usize) -> Plan {
    let mut plan = Plan::new(nodes);
    plan.impair = Impairment {
        loss: 0.1,
        dup: 0.05,
        reorder: 0.05,
        seed: seed(),
        ..Impairment::default()
    };
    plan
}

/// `PAGEMESH_STRESS_SEED`, or another one every time.
fn seed() -> u64 {
    let given = std::env::var("PAGEMESH_STRESS_SEED").ok();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    given.map_or_else(now, |text| text.parse().expect("a seed is a number"))
}

fn stress(plan: Plan, shape: &Shape) {
    let (nodes, seed) = (plan.nodes, seed());
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    eprintln!("PAGEMESH_STRESS_SEED={seed}");
    cluster.make_on(nodes - 1, "stress", PAGES, shape.options);
    let (processes, threads) = (nodes * shape.processes, shape.threads);
    let seconds = stress_time().as_secs_f64();
    let players = (0..processes)
        .map(|place| {
            let arguments = format!(
                "stress stress --seed {seed} --seconds {seconds} --processes {processes} \
                 --threads {threads} --place {place}"
            );
            cluster.player(place % nodes, &arguments)
        })
        .collect();
    let said = finish_all(players);
    let reports: Vec<Report> = said.iter().map(|lines| read(&lines[0])).collect();
    let finals: Finals = read(&said[0][1]);
    compare(&reports, &finals).unwrap();
    check_that_much_happened(&reports, &finals);
    for node in 0..nodes {
        for counter in ["frames_overwritten", "frames_punched", "placing_failed"] {
            assert_eq!(cluster.counter(node, counter), 0, "{counter} on node {node}");
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(line: &str) -> T {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// A test in which nothing happens finds nothing.
fn check_that_much_happened(reports: &[Report], finals: &Finals) {
    let read: u64 = reports.iter().map(|report| report.read).sum();
    let raised: u64 = finals.slots.iter().sum();
    let locked: u64 = finals.totals.iter().chain(&finals.patterns).sum();
    let added: u64 = finals.atomics.iter().sum();
    eprintln!("{raised} raised, {read} read, {locked} under locks, {added} added");
    assert!(raised > 0 && read > 0 && locked > 0 && added > 0);
    assert!(finals.slots.iter().all(|slot| *slot > 0), "{:?}", finals.slots);
}

#[test]
fn two_nodes() {
    stress(Plan::new(2), &shape(2, 3));
}

#[test]
fn four_nodes() {
    stress(Plan::new(4), &shape(2, 2));
}

#[test]
fn eight_nodes() {
    stress(Plan::new(8), &shape(1, 2));
}

#[test]
fn four_nodes_with_a_fixed_manager() {
    let shape = shape(2, 1).with(Manager::Fixed, Window::Auto);
    stress(Plan::new(4), &shape);
}

#[test]
fn four_nodes_without_a_window() {
    let shape = shape(1, 2).with(Manager::Dynamic, Window::Nanos(0));
    stress(Plan::new(4), &shape);
}

#[test]
fn four_nodes_with_a_fixed_manager_and_a_long_window() {
    let shape = shape(1, 2).with(Manager::Fixed, Window::Nanos(2_000_000));
    stress(Plan::new(4), &shape);
}

#[test]
fn four_nodes_on_a_bad_network() {
    stress(bad_network(4), &shape(1, 2));
}

#[test]
fn three_nodes_on_a_bad_network_with_a_fixed_manager() {
    let shape = shape(2, 1).with(Manager::Fixed, Window::Nanos(0));
    stress(bad_network(3), &shape);
}
