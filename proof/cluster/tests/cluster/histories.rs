//! Loads and stores of real runs, with the moments when they began and ended,
//! before the judge of the simulator's.

use crate::support::{Cluster, finish_all};
use pagemesh::{Manager, Options, Policy, Window};
use pagemesh_cli::sandbox::Plan;
use pagemesh_history::{Access, check};
use pagemesh_os::impair::Impairment;
use pagemesh_tests::record;

const PROCESSES_EACH: usize = 2;

/// Runs the processes on all nodes; returns their accesses.
fn run(plan: Plan, options: Options) -> Vec<Access<usize>> {
    let nodes = plan.nodes;
    let Some(cluster) = Cluster::of(plan) else {
        return Vec::new();
    };
    cluster.make_on(0, "recorded", record::PAGES as u64, options);
    let parties = nodes * PROCESSES_EACH;
    let players = (0..parties).map(|place| {
        let arguments = format!(
            "record recorded --place {place} --parties {parties} --seed {}",
            std::process::id()
        );
        cluster.player(place % nodes, &arguments)
    });
    let said = finish_all(players.collect());
    said.iter()
        .flat_map(|lines| record::read(&lines[0]))
        .collect()
}

fn expect_one_memory(plan: Plan, options: Options) {
    let history = run(plan, options);
    if history.is_empty() {
        return;
    }
    let stores = history.iter().filter(|access| access.store).count();
    eprintln!("{} accesses, {stores} of them stores", history.len());
    match check(&history) {
        Ok(places) => assert_eq!(places, record::PLACES),
        Err(contradiction) => panic!("{contradiction}"),
    }
    expect_the_judge_to_notice(&history);
}

/// The same history with one load that saw an older value would be rejected.
fn expect_the_judge_to_notice(history: &[Access<usize>]) {
    let mut spoilt = 0;
    for at in (0..history.len())
        .filter(|at| !history[*at].store)
        .step_by(97)
    {
        let load = history[at];
        // A store that ended before another one began that ended before the load.
        let stores = history
            .iter()
            .filter(|other| other.store && other.place == load.place);
        let ended = |access: &Access<usize>| access.ended.unwrap_or(u64::MAX);
        let newest = stores.clone().filter(|store| ended(store) < load.began);
        let Some(newest) = newest.max_by_key(|store| store.began) else {
            continue;
        };
        let older = stores.filter(|store| ended(store) < newest.began);
        let Some(older) = older.max_by_key(|store| store.began) else {
            continue;
        };
        let mut stale = history.to_vec();
        stale[at].value = older.value;
        assert!(check(&stale).is_err(), "not noticed: {load}, with {older}");
        spoilt += 1;
        if spoilt == 20 {
            return;
        }
    }
    assert!(spoilt > 0, "nothing to spoil");
}

fn options(manager: Manager, window: Window) -> Options {
    Options {
        policy: Policy::Sequential { manager, window },
        ..Options::default()
    }
}

#[test]
fn two_nodes_have_one_memory() {
    expect_one_memory(Plan::new(2), Options::default());
}

#[test]
fn four_nodes_with_a_fixed_manager_and_no_window_have_one_memory() {
    expect_one_memory(Plan::new(4), options(Manager::Fixed, Window::Nanos(0)));
}

#[test]
fn three_nodes_on_a_bad_network_have_one_memory() {
    let mut plan = Plan::new(3);
    plan.impair = Impairment {
        loss: 0.1,
        dup: 0.05,
        reorder: 0.05,
        seed: 5,
        ..Impairment::default()
    };
    expect_one_memory(plan, options(Manager::Dynamic, Window::Nanos(0)));
}
