//! All operations at random on 2, 4 and 8 nodes; see the player for its checks.

use crate::support::{Cluster, OnDrop, Player, finish_all, stress_time};
use pagemesh::{Manager, Options, Policy, Window};
use pagemesh_cli::sandbox::{Netns, Plan};
use pagemesh_os::impair::Impairment;
use pagemesh_tests::dice::Dice;
use pagemesh_tests::stress::{Finals, Report, compare, compare_among_the_dead};
use rustix::process::Signal;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Pages of the players' ground.
const PAGES: u64 = 16;

/// The processes on the nodes.
pub(crate) struct Shape {
    processes: usize,
    threads: usize,
    options: Options,
}

pub(crate) fn shape(processes: usize, threads: usize) -> Shape {
    Shape {
        processes,
        threads,
        options: Options::default(),
    }
}

impl Shape {
    pub(crate) fn with(mut self, manager: Manager, window: Window) -> Self {
        self.options.policy = Policy::Sequential { manager, window };
        self
    }
}

pub(crate) fn bad_network(nodes: usize) -> Plan {
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

/// `PAGEMESH_STRESS_SEED`, or another one every time: one for all that is drawn.
pub(crate) fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        let given = std::env::var("PAGEMESH_STRESS_SEED").ok();
        let now = || {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_nanos() as u64
        };
        given.map_or_else(now, |text| text.parse().expect("a seed is a number"))
    })
}

fn stress(plan: Plan, shape: &Shape) {
    stress_with(plan, shape, 0, |_, _| {});
}

/// A stress test during which `trouble` is made, from another thread, until it
/// is told that all is over.
pub(crate) fn stress_with(
    plan: Plan,
    shape: &Shape,
    victims: usize,
    trouble: impl Fn(&Stage<'_>, &AtomicBool) + Sync,
) {
    let (nodes, seed) = (plan.nodes, seed());
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    eprintln!("PAGEMESH_STRESS_SEED={seed}");
    cluster.make_on(nodes - 1, "stress", PAGES, shape.options);
    let stage = Stage {
        cluster: &cluster,
        seed,
        processes: nodes * shape.processes,
        threads: shape.threads,
        victims,
    };
    let over = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        let players = (0..stage.processes).map(|place| stage.player(place, ""));
        let players = players.collect();
        scope.spawn(|| trouble(&stage, &over));
        let _over = OnDrop(&over);
        finish_all(players)
    });
    let reports: Vec<Report> = said.iter().map(|lines| read(&lines[0])).collect();
    let finals: Finals = read(&said[0][1]);
    let compare = if victims > 0 {
        compare_among_the_dead
    } else {
        compare
    };
    compare(&reports, &finals).unwrap();
    check_that_much_happened(&reports, &finals);
    for node in 0..nodes {
        for counter in ["frames_overwritten", "frames_punched", "placing_failed"] {
            assert_eq!(
                cluster.counter(node, counter),
                0,
                "{counter} on node {node}"
            );
        }
    }
}

/// Where the players play.
pub(crate) struct Stage<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) seed: u64,
    pub(crate) processes: usize,
    threads: usize,
    victims: usize,
}

impl Stage<'_> {
    pub(crate) fn player(&self, place: usize, more: &str) -> Player {
        let Self {
            seed,
            processes,
            threads,
            victims,
            ..
        } = self;
        let seconds = stress_time().as_secs_f64();
        let arguments = format!(
            "stress stress --seed {seed} --seconds {seconds} --processes {processes} \
             --threads {threads} --place {place} --victims {victims} {more}"
        );
        self.cluster
            .player(place % self.cluster.nodes().len(), &arguments)
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
    let mut slots = reports.iter().flat_map(|report| &report.slots);
    assert!(slots.all(|(_, count)| *count > 0), "{:?}", finals.slots);
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
fn eight_nodes_on_a_bad_network() {
    stress(bad_network(8), &shape(1, 1));
}

#[test]
fn three_nodes_on_a_bad_network_with_a_fixed_manager() {
    let shape = shape(2, 1).with(Manager::Fixed, Window::Nanos(0));
    stress(bad_network(3), &shape);
}

#[test]
fn three_nodes_that_sleep_and_whose_packets_are_small() {
    let mut plan = Plan::new(3);
    plan.waiting = Some("block".to_owned());
    plan.mtu = 1500;
    stress(plan, &shape(1, 2));
}

/// Options of daemons and segments together, chosen at random: others in every run.
#[test]
fn options_as_the_dice_fall() {
    let mut dice = Dice::new(seed());
    let mut one_of = |names: &[&str]| names[dice.below(names.len())].to_owned();
    let nodes = one_of(&["2", "4", "8"]).parse().unwrap();
    let good = one_of(&["good", "good", "bad"]) == "good";
    let mut plan = if good {
        Plan::new(nodes)
    } else {
        bad_network(nodes)
    };
    // Eight that spin have no processors to spin on.
    let waits = if nodes == 8 { 2 } else { 3 };
    plan.waiting = Some(one_of(&["auto", "block", "spin"][..waits]));
    plan.compress = Some(one_of(&["off", "runs", "lz4", "auto"]));
    plan.sealed = one_of(&["open", "sealed"]) == "sealed";
    plan.mtu = one_of(&["1500", "9000"]).parse().unwrap();
    let manager = match one_of(&["dynamic", "fixed"]).as_str() {
        "fixed" => Manager::Fixed,
        _ => Manager::Dynamic,
    };
    let window = match one_of(&["auto", "0", "1000000"]).parse() {
        Ok(nanos) => Window::Nanos(nanos),
        Err(_) => Window::Auto,
    };
    let (waiting, compress) = (plan.waiting.as_deref(), plan.compress.as_deref());
    eprintln!(
        "{nodes} nodes, good network {good}, {waiting:?}, {compress:?}, sealed {}, mtu {}, \
         {manager:?}, {window:?}",
        plan.sealed, plan.mtu
    );
    stress(plan, &shape(1, 2).with(manager, window));
}

#[test]
fn three_nodes_without_namespaces() {
    let mut plan = Plan::new(3);
    plan.netns = Netns::Never;
    stress(plan, &shape(1, 2));
}

#[test]
fn processes_are_killed_again_and_again() {
    const VICTIMS: usize = 3;
    stress_with(Plan::new(3), &shape(1, 2), VICTIMS, |stage, over| {
        let mut dice = Dice::new(stage.seed);
        let start = |victim| stage.player(stage.processes + victim, "--victim");
        let mut victims: Vec<_> = (0..VICTIMS).map(start).collect();
        let mut killed = 0;
        while !over.load(Relaxed) {
            let which = dice.below(VICTIMS);
            let lives = Duration::from_millis(dice.below(60) as u64);
            if victims[which].hear_within(Duration::from_secs(5)).is_some() {
                std::thread::sleep(lives);
            }
            // Its slot is raised by one process at a time.
            victims.remove(which).kill();
            victims.insert(which, start(which));
            killed += 1;
        }
        eprintln!("{killed} were killed");
        assert!(killed > 0);
    });
}

#[test]
fn processes_that_may_only_read_look_on() {
    stress_with(Plan::new(3), &shape(1, 2), 0, |stage, over| {
        let onlookers: Vec<_> = (0..3)
            .map(|node| stage.player(node, "--onlooker"))
            .collect();
        for onlooker in &onlookers {
            onlooker.expect("playing");
        }
        while !over.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
        }
        for onlooker in &onlookers {
            // It would have ended at the first contradiction.
            onlooker.expect_silence();
        }
    });
}

#[test]
fn daemons_stand_still_again_and_again() {
    stress_with(Plan::new(3), &shape(1, 2), 0, |stage, over| {
        let mut dice = Dice::new(stage.seed);
        while !over.load(Relaxed) {
            let node = dice.below(3);
            stage.cluster.signal(node, Signal::STOP).unwrap();
            std::thread::sleep(Duration::from_millis(dice.below(150) as u64));
            stage.cluster.signal(node, Signal::CONT).unwrap();
            std::thread::sleep(Duration::from_millis(dice.below(150) as u64));
        }
    });
}
