//! The coordinator dies or is cut off, and the standby takes over.

use crate::support::{Cluster, Joiner, OnDrop, eventually, load, store};
use crate::sysv::Stage;
use pagemesh::{Access, Mapping, Mesh, Options, PAGE_SIZE};
use pagemesh_cli::sandbox::{Netns, Plan};
use rustix::process::Signal;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

fn plan(nodes: usize, sealed: bool) -> Plan {
    let mut plan = Plan::new(nodes);
    plan.sealed = sealed;
    // Another daemon joins, which is not in a namespace of its own.
    plan.netns = Netns::Never;
    plan
}

/// Exit code and output of `pagemesh` on a node.
pub(crate) fn say(cluster: &Cluster, node: usize, words: &str) -> (Option<i32>, String) {
    let mut command = cluster.node(node).command(cluster.program());
    let output = command.args(words.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said + &why)
}

/// What a node says of the control plane.
pub(crate) fn control(cluster: &Cluster, node: usize) -> serde_json::Value {
    let (_, said) = say(cluster, node, "status -o json");
    let document: serde_json::Value = serde_json::from_str(&said).expect("a document");
    document["control"].clone()
}

pub(crate) fn wait_for_the_standby(cluster: &Cluster, coordinator: usize, standby: u16) {
    eventually("a standby is named, and knows everything", || {
        let control = control(cluster, coordinator);
        control["standby"] == standby && control["behind"] == 0
    });
}

fn wait_until_silent(cluster: &Cluster, node: usize) {
    eventually("the coordinator is silent", || {
        let (code, said) = say(cluster, node, "status");
        code == Some(4) && said.contains("the coordinator, has been silent")
    });
}

/// Two nodes take a lock in turn and count, until they are told to stop.
struct Load {
    rounds: AtomicU64,
    over: AtomicBool,
}

impl Load {
    fn work(&self, memory: &Mapping) -> u64 {
        let mut done = 0;
        while !self.over.load(Relaxed) {
            let guard = memory.segment().lock(1).lock().unwrap();
            store(memory, 0, load(memory, 0) + 1);
            drop(guard);
            done += 1;
            self.rounds.fetch_add(1, Relaxed);
        }
        done
    }

    /// Waits for more rounds. One of each node may have been under way.
    fn goes_on(&self, when: &str) {
        let before = self.rounds.load(Relaxed);
        eventually(&format!("the load goes on {when}"), || {
            self.rounds.load(Relaxed) > before + 2
        });
    }
}

/// The first node's daemon is killed while the others compute: the standby takes over, and
/// everything that the coordinator does works again.
#[test]
fn the_standby_takes_over_while_the_others_compute() {
    let Some(stage) = Stage::of(plan(3, false)) else {
        return;
    };
    let cluster = &stage.cluster;
    wait_for_the_standby(cluster, 0, 2);
    for (node, name) in [(0, "first"), (1, "count"), (2, "third")] {
        cluster.make_on(node, name, 2, Options::default());
    }
    let maps = [1, 2].map(|node| cluster.map(node, "count"));
    // Both nodes know each other as owner of the page and the lock.
    for memory in [&maps[0], &maps[1], &maps[0]] {
        let guard = memory.segment().lock(1).lock().unwrap();
        store(memory, 0, 0);
        drop(guard);
    }
    let mut players = [1, 2].map(|node| stage.scripted_node(node));
    let set = players[0].ask("semget 77 1 01600");
    assert_eq!(players[1].ask("semget 77 1 0"), set);

    let under_way = Load {
        rounds: AtomicU64::new(0),
        over: AtomicBool::new(false),
    };
    let counted = std::thread::scope(|scope| {
        let workers = maps
            .each_ref()
            .map(|memory| scope.spawn(|| under_way.work(memory)));
        let _over = OnDrop(&under_way.over);
        succeed(cluster, &under_way);
        assert_eq!(
            players[1].ask("semget 77 1 0"),
            set,
            "made on a living node"
        );
        let other = players[1].ask("semget 78 1 03600");
        assert_eq!(players[0].ask("semget 78 1 0"), other);
        names_go_on(cluster);
        under_way.goes_on("in the end");
        under_way.over.store(true, Relaxed);
        workers
            .map(|worker| worker.join().unwrap())
            .iter()
            .sum::<u64>()
    });
    assert_eq!(load(&maps[0], 0), counted, "no addition is lost");
    assert_eq!(load(&maps[1], 0), counted);
}

/// Kills the first node's daemon, and promotes the second node. The load does not need a coordinator.
fn succeed(cluster: &Cluster, under_way: &Load) {
    let (code, why) = say(cluster, 1, "promote");
    assert_eq!(code, Some(1), "the coordinator is alive: {why}");
    assert!(why.contains("n1") && why.contains("heard"), "{why}");
    cluster.kill(0).unwrap();
    wait_until_silent(cluster, 2);
    under_way.goes_on("without a coordinator");
    let (_, said) = say(cluster, 2, "status");
    let cure = "run `pagemesh promote` on the host of the standby, n2 (node1, ";
    assert!(said.contains(cure), "{said}");
    let (code, why) = say(cluster, 2, "promote");
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("not the standby: n2 is"), "{why}");
    let (code, said) = say(cluster, 1, "promote");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("n2 coordinates the cluster now (term 2), in the place of n1"));
    under_way.goes_on("after the promotion");
    let (code, said) = say(cluster, 1, "promote");
    assert_eq!((code, said.contains("already")), (Some(0), true), "{said}");
}

/// Names, members and permissions at the new coordinator.
fn names_go_on(cluster: &Cluster) {
    wait_for_the_standby(cluster, 1, 3);
    for node in [1, 2] {
        let segments = cluster.mesh(node).list().unwrap();
        let names: Vec<_> = segments.iter().map(|info| info.name.as_str()).collect();
        assert_eq!(names, ["count", "first", "third"]);
    }
    let here = control(cluster, 2);
    assert_eq!(
        (&here["coordinator"], &here["term"]),
        (&2.into(), &2.into())
    );
    let joiner = Joiner::through(cluster, 2, "late", &[]);
    eventually("a host joins through a member", || joiner.is_member());
    let late = Mesh::connect_to(&joiner.socket).unwrap();
    let made = late.create("late", PAGE_SIZE as u64, Options::default());
    let made = made.expect("names are given").map().unwrap();
    store(&made, 0, 9);
    assert_eq!(load(&cluster.map(2, "late"), 0), 9);
    let third = late.open("third", Access::Writable).unwrap().map().unwrap();
    store(&third, 0, 5);
    assert_eq!(load(&cluster.map(1, "third"), 0), 5);
    std::thread::scope(|scope| {
        let memory = cluster.map(1, "third");
        scope.spawn(move || memory.segment().barrier(1, 2).wait().unwrap());
        third.segment().barrier(1, 2).wait().unwrap();
    });
    cluster
        .mesh(2)
        .remove("first")
        .expect("its owner removes it");
    cluster.make_on(2, "first", 1, Options::default());
    let (code, said) = say(cluster, 2, "status");
    assert_eq!(code, Some(4), "n1 is dead: {said}");
    let (code, said) = say(cluster, 2, "members forget n1");
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = say(cluster, 2, "status");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("coordinator: n2 (term 2); standby: n3"),
        "{said}"
    );
}

/// The first node's daemon is stopped, replaced by the standby, and goes on.
fn an_old_coordinator_is_put_out(sealed: bool) {
    let Some(cluster) = Cluster::of(plan(3, sealed)) else {
        return;
    };
    wait_for_the_standby(&cluster, 0, 2);
    cluster.make_on(0, "old", 1, Options::default());
    cluster.signal(0, Signal::STOP).unwrap();
    wait_until_silent(&cluster, 1);
    let (code, said) = say(&cluster, 1, "promote");
    assert_eq!(code, Some(0), "{said}");
    cluster.make_on(1, "new", 1, Options::default());
    let before = cluster.mesh(2).members().unwrap().members;
    cluster.signal(0, Signal::CONT).unwrap();
    eventually("the old coordinator says that it is none", || {
        let (code, said) = say(&cluster, 0, "status");
        let why = "n2 coordinates the cluster now, and this node, which did before, is no member";
        code == Some(4) && said.starts_with("out:") && said.contains(why)
    });
    let (_, said) = say(&cluster, 0, "status -o json");
    let document: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&document["health"], &document["member"]),
        (&"out".into(), &false.into())
    );
    assert_eq!(document["states"], serde_json::json!(["not-member"]));
    let log = cluster.node(0).log();
    let told = "another node coordinates the cluster, and this node, which did, is no member";
    assert!(log.contains(told), "{log}");
    let refused = cluster.mesh(0).open("old", Access::Writable).unwrap_err();
    assert!(refused.to_string().contains("n2"), "{refused}");
    let after = cluster.mesh(2).members().unwrap().members;
    assert_eq!(before.len(), after.len(), "it has changed nothing");
    assert_eq!(control(&cluster, 2)["coordinator"], 2);
    cluster.make_on(2, "newer", 1, Options::default());
    assert_eq!(load(&cluster.map(1, "newer"), 0), 0);
}

#[test]
fn an_old_coordinator_that_goes_on_is_told() {
    an_old_coordinator_is_put_out(false);
}

#[test]
fn an_old_coordinator_is_told_through_seals() {
    an_old_coordinator_is_put_out(true);
}
