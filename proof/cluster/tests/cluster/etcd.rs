//! An etcd of three members has what the coordinator decides, and elects it.

use crate::coordinators::{control, say};
use crate::resuming::names;
use crate::support::{Cluster, Joiner, OnDrop, PATIENCE, eventually, load, store};
use anyhow::anyhow;
use pagemesh::{Mapping, Options, PAGE_SIZE};
use pagemesh_cli::sandbox::{Etcd, Netns, Plan, etcd_is_installed};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// The coordinator of so many nodes dies as it writes down the admission of one more. It has written
/// down the cluster and each node, and each time counts twice.
fn plan_that_admits(nodes: usize) -> Plan {
    let mut plan = plan(nodes);
    plan.own_args = vec![vec![format!("--die-after=Keep:{}", nodes * 2 + 1)]];
    plan
}

/// Whether what these tests need is there.
pub(crate) fn can_run() -> bool {
    if !etcd_is_installed() {
        eprintln!("skipped: there is no etcd; scripts/setup --etcd installs it");
        return false;
    }
    let program = Path::new(env!("CARGO_BIN_EXE_pagemesh-under-test"));
    if !program.with_file_name("pagemesh-etcd").is_file() {
        eprintln!("skipped: pagemesh-etcd is not built beside the program; scripts/test builds it");
        return false;
    }
    true
}

fn plan(nodes: usize) -> Plan {
    let mut plan = Plan::new(nodes);
    plan.netns = Netns::Never;
    plan.etcd = true;
    plan
}

fn start(nodes: usize) -> Option<Cluster> {
    can_run().then(|| Cluster::of(plan(nodes))).flatten()
}

fn etcd(cluster: &Cluster) -> &Etcd {
    cluster.etcd().expect("the plan has one")
}

/// How long a control call takes: a segment is made and removed. The aim is 2 s, where hosts share no
/// processors with other tests.
pub(crate) fn control_call(cluster: &Cluster, node: usize, name: &str) -> Duration {
    let start = Instant::now();
    let mesh = cluster.mesh(node);
    while let Err(error) = mesh.create(name, PAGE_SIZE as u64, Options::default()) {
        assert!(start.elapsed() < PATIENCE, "{name}: {error}");
        thread::sleep(Duration::from_millis(10));
    }
    let took = start.elapsed();
    mesh.remove(name).unwrap();
    took
}

/// Two nodes store and load by turns until it is over.
fn page_traffic(maps: &[Mapping; 2], over: &AtomicBool, turns: &AtomicU64) {
    while !over.load(Relaxed) {
        let guard = maps[0].segment().lock(1).lock().unwrap();
        store(&maps[0], 0, load(&maps[1], 0) + 1);
        drop(guard);
        store(&maps[1], 0, load(&maps[0], 0) + 1);
        turns.fetch_add(1, Relaxed);
    }
}

/// Does something while pages move between two nodes. They go on moving when `failure` has happened:
/// pages do not need the coordinator, whoever fails. Then it does the rest.
fn while_pages_move(maps: &[Mapping; 2], failure: impl FnOnce(), rest: impl FnOnce()) {
    let (over, turns) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| page_traffic(maps, &over, &turns));
        let _over = OnDrop(&over);
        failure();
        let before = turns.load(Relaxed);
        // One may have been under way.
        eventually("pages go on", || turns.load(Relaxed) > before + 1);
        rest();
    });
}

pub(crate) fn wait_for_coordinator(cluster: &Cluster, nodes: &[usize]) -> u64 {
    let mut known = 0;
    eventually("all know one coordinator that lives", || {
        let all: Vec<_> = nodes.iter().map(|node| control(cluster, *node)).collect();
        known = all[0]["coordinator"].as_u64().unwrap_or(0);
        let lives = all.iter().any(|one| one["silent_seconds"] == 0.0);
        lives && all.iter().all(|one| one["coordinator"] == known)
    });
    known
}

/// The coordinator, the leader of etcd, and any other daemon are killed, one after the other. Names
/// go on, and pages never stop.
#[test]
fn names_go_on_whoever_is_killed() {
    let Some(cluster) = start(4) else {
        return;
    };
    for (node, name) in [(0, "first"), (1, "count"), (3, "third")] {
        cluster.make_on(node, name, 1, Options::default());
    }
    let maps = [2, 3].map(|node| cluster.map(node, "count"));
    store(&maps[0], 0, 0);
    assert_eq!(load(&maps[1], 0), 0);
    let goes_on = |node, name| {
        println!(
            "control calls go on {:?} {name}",
            control_call(&cluster, node, name)
        )
    };
    while_pages_move(
        &maps,
        || cluster.kill(0).unwrap(),
        || goes_on(3, "after the coordinator's end"),
    );
    assert_ne!(wait_for_coordinator(&cluster, &[1, 2, 3]), 1);
    assert_eq!(names(&cluster, 2), ["count", "first", "third"]);
    cluster.restart(0).unwrap();
    assert_eq!(names(&cluster, 0), ["count", "first", "third"]);
    while_pages_move(
        &maps,
        || {
            let mut leader = Err(anyhow!("not asked"));
            eventually("a member leads", || {
                leader = etcd(&cluster).leader();
                leader.is_ok()
            });
            etcd(&cluster).kill(leader.unwrap()).unwrap();
        },
        || goes_on(3, "after the end of etcd's leader"),
    );
    while_pages_move(
        &maps,
        || cluster.kill(0).unwrap(),
        || goes_on(1, "after a daemon's end"),
    );
    assert_eq!(names(&cluster, 3), ["count", "first", "third"]);
}

/// Without a quorum control calls wait, and `status` says why; pages and locks go on.
#[test]
fn without_a_quorum_names_wait_and_pages_go_on() {
    let Some(cluster) = start(3) else {
        return;
    };
    cluster.make_on(1, "count", 1, Options::default());
    let maps = [1, 2].map(|node| cluster.map(node, "count"));
    store(&maps[0], 0, 0);
    assert_eq!(load(&maps[1], 0), 0);
    let before = wait_for_coordinator(&cluster, &[0, 1, 2]);
    for member in [0, 1] {
        etcd(&cluster).kill(member).unwrap();
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            cluster.make_on(2, "late", 1, Options::default());
            done.store(true, Relaxed);
        });
        let state_is_named = || {
            eventually("status names the state", || {
                let (code, said) = say(&cluster, 0, "status");
                code == Some(4) && said.contains("no-quorum: etcd does not answer")
            });
        };
        while_pages_move(&maps, state_is_named, || {
            assert!(!done.load(Relaxed), "nothing is decided without a quorum");
            for node in 0..3 {
                assert_eq!(
                    control(&cluster, node)["coordinator"],
                    before,
                    "nor elected"
                );
            }
        });
        cluster.restart_etcd(0).unwrap();
        waiting.join().unwrap();
    });
    eventually("the state is over", || {
        say(&cluster, 0, "status").0 == Some(0)
    });
    assert_eq!(names(&cluster, 1), ["count", "late"]);
}

/// All daemons are killed at once, and whoever is started first goes on with the names.
#[test]
fn names_go_on_from_etcd_after_all_daemons_were_killed() {
    let Some(cluster) = start(3) else {
        return;
    };
    cluster.make_on(1, "one", 1, Options::default());
    cluster.make_on(2, "two", 1, Options::default());
    for node in 0..3 {
        cluster.kill(node).unwrap();
    }
    for node in [2, 0, 1] {
        cluster.restart(node).unwrap();
        assert_eq!(names(&cluster, node), ["one", "two"]);
    }
    let map = cluster.map(0, "one");
    assert!(map.segment().lock(1).lock().is_ok());
    cluster.mesh(1).remove("two").unwrap();
    assert_eq!(names(&cluster, 2), ["one"]);
}

/// The coordinator and a member are killed at once: the elected node does not wait for the member's
/// promise as long as for a member that lives.
#[test]
fn names_go_on_when_a_member_dies_with_the_coordinator() {
    let Some(cluster) = start(4) else {
        return;
    };
    for (node, name) in [(0, "first"), (1, "count"), (3, "third")] {
        cluster.make_on(node, name, 1, Options::default());
    }
    cluster.kill(0).unwrap();
    cluster.kill(1).unwrap();
    let took = control_call(&cluster, 3, "after two");
    println!("control calls went on {took:?} after the end of coordinator and member");
    wait_for_coordinator(&cluster, &[2, 3]);
    let view = say(&cluster, 2, "members").1;
    // On a starved host one that lives may have been declared dead, too, and have joined again.
    for name in ["node0", "node1"] {
        let mut lives = view.lines().filter(|line| line.contains(name));
        assert!(lives.all(|line| line.contains("dead")), "{view}");
    }
    assert_eq!(names(&cluster, 2), ["count", "first", "third"]);
}

/// The coordinator dies as it admits a host, which hears from etcd of the next one.
#[test]
fn a_host_that_joins_when_the_coordinator_dies_joins_the_next_one() {
    if !can_run() {
        return;
    }
    let Some(cluster) = Cluster::of(plan_that_admits(3)) else {
        return;
    };
    assert_eq!(wait_for_coordinator(&cluster, &[0, 1, 2]), 1);
    let url = etcd(&cluster).url();
    let joiner = Joiner::with(&cluster, "late", &[&format!("--control={url}")]);
    eventually("the host has joined", || joiner.is_member());
    assert_ne!(wait_for_coordinator(&cluster, &[1, 2]), 1);
    cluster.make_on(1, "one", 1, Options::default());
    let names = joiner.mesh().list().unwrap();
    assert_eq!(names.len(), 1);
}

/// The same, and there is no other member: the host goes on with what etcd has.
#[test]
fn a_host_that_joins_when_the_only_node_dies_goes_on_alone() {
    if !can_run() {
        return;
    }
    let Some(cluster) = Cluster::of(plan_that_admits(1)) else {
        return;
    };
    assert_eq!(wait_for_coordinator(&cluster, &[0]), 1);
    let url = etcd(&cluster).url();
    let joiner = Joiner::with(&cluster, "late", &[&format!("--control={url}")]);
    eventually("the host has begun anew", || joiner.is_member());
    assert!(joiner.says("beginning anew"));
    let mesh = joiner.mesh();
    mesh.create("one", PAGE_SIZE as u64, Options::default())
        .unwrap();
    assert_eq!(mesh.list().unwrap().len(), 1);
}
