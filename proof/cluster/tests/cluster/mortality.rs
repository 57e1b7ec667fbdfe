//! Processes and daemons are killed at random, at once, under options that the
//! seed draws: a soak meets all of them. See the player for what is checked.

use crate::replacement::{kills, lasting, strike};
use crate::stress::{Shape, Stage, bad_network, seed, shape, stress_with};
use crate::support::Player;
use pagemesh::{Manager, Window};
use pagemesh_cli::sandbox::Plan;
use pagemesh_tests::dice::{Dice, mix};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Processes that live to be killed.
const VICTIMS: usize = 2;

/// Of so many deaths one is a daemon's.
const DAEMONS: usize = 3;

/// The cluster, and the shape of its players' memory, drawn from the seed.
fn drawn(nodes: usize, threads: usize) -> (Plan, Shape) {
    let mut dice = Dice::new(mix(seed()));
    let mut plan = lasting(nodes);
    if dice.once_in(2) {
        plan.impair = bad_network(nodes).impair;
    }
    plan.sealed = dice.once_in(2);
    plan.waiting = dice.once_in(3).then(|| "block".to_owned());
    plan.mtu = if dice.once_in(3) { 1500 } else { plan.mtu };
    let manager = [Manager::Dynamic, Manager::Fixed][dice.below(2)];
    let windows = [Window::Auto, Window::Nanos(0), Window::Nanos(2_000_000)];
    let window = windows[dice.below(windows.len())];
    eprintln!(
        "{manager:?}, {window:?}, sealed {}, {:?}, waiting {:?}, mtu {}",
        plan.sealed, plan.impair, plan.waiting, plan.mtu
    );
    (plan, shape(1, threads).with(manager, window))
}

/// All processes except the players whose sums are compared may die at any time.
fn all_are_mortal(nodes: usize, threads: usize) {
    let (plan, shape) = drawn(nodes, threads);
    let sealed = plan.sealed;
    stress_with(plan, &shape, VICTIMS, |stage, over| {
        reap(stage, over, sealed)
    });
}

fn reap(stage: &Stage<'_>, over: &AtomicBool, sealed: bool) {
    let mut dice = Dice::new(stage.seed);
    let start = |victim| stage.player(stage.processes + victim, "--victim");
    let mut victims: Vec<Player> = (0..VICTIMS).map(start).collect();
    let (mut daemons, mut processes) = (0, 0);
    // On a busy host all may be over before anything has died.
    while !over.load(Relaxed) || daemons == 0 || processes == 0 {
        std::thread::sleep(Duration::from_micros(dice.below(60_000) as u64));
        if daemons < kills() && dice.once_in(DAEMONS) {
            strike(stage.cluster, dice.below(stage.cluster.nodes().len()));
            daemons += 1;
        } else {
            let which = dice.below(VICTIMS);
            // One that has just begun may die as well, but not all of them.
            let _ = victims[which].hear_within(Duration::from_millis(200));
            // Its slot is raised by one process at a time.
            victims.remove(which).kill();
            victims.insert(which, start(which));
            processes += 1;
        }
    }
    eprintln!("{daemons} daemons and {processes} processes were killed");
    if sealed {
        expect_no_forgeries(stage);
    }
}

/// No daemon that went on for another used a key twice, or was taken for a forger.
fn expect_no_forgeries(stage: &Stage<'_>) {
    for node in 0..stage.cluster.nodes().len() {
        let forged = stage.cluster.counter(node, "seal_forged");
        assert_eq!(forged, 0, "seal_forged on node {node}");
    }
}

#[test]
fn two_nodes_on_which_all_are_mortal() {
    all_are_mortal(2, 2);
}

#[test]
fn four_nodes_on_which_all_are_mortal() {
    all_are_mortal(4, 1);
}

#[test]
fn eight_nodes_on_which_all_are_mortal() {
    all_are_mortal(8, 1);
}

#[test]
fn sealed_daemons_are_killed_again_and_again() {
    let mut plan = lasting(2);
    plan.sealed = true;
    stress_with(plan, &shape(1, 3), VICTIMS, |stage, over| {
        reap(stage, over, true);
    });
}
