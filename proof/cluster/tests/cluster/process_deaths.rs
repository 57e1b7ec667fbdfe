//! Processes that are killed.

use crate::support::{Cluster, eventually, load, store};
use pagemesh::{Options, PAGE_SIZE};

#[test]
fn who_takes_a_lock_after_a_dead_holder_is_told_once() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    cluster.make_on(0, "dead-holder", 1, Options::default());
    // The holder is on the node of the next one, and on another one.
    for (lock, holder, next) in [(1, 1, 1), (2, 1, 2), (3, 0, 2), (4, 2, 0)] {
        let mut victim = cluster.scripted_node(holder, "dead-holder");
        assert_eq!(victim.ask(&format!("lock {lock}")), "locked");
        victim.kill();
        let mut successor = cluster.scripted_node(next, "dead-holder");
        assert_eq!(successor.ask(&format!("lock {lock}")), "recovered");
        assert_eq!(successor.ask(&format!("unlock {lock}")), "done");
        assert_eq!(
            successor.ask(&format!("lock {lock}")),
            "locked",
            "told once"
        );
        assert!(
            successor.end().success(),
            "a guard that is dropped is no death"
        );
        let mut last = cluster.scripted_node(holder, "dead-holder");
        assert_eq!(last.ask(&format!("lock {lock}")), "locked");
    }
}

#[test]
fn who_waits_for_a_lock_gets_it_from_a_holder_that_dies() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    cluster.make_on(0, "inherited", 1, Options::default());
    for end in ["kill", "end"] {
        let mut victim = cluster.scripted_node(1, "inherited");
        assert_eq!(victim.ask("lock 1"), "locked");
        let mut successors = [1, 2].map(|node| cluster.scripted_node(node, "inherited"));
        for successor in &mut successors {
            successor.tell("lock 1");
            successor.expect_silence();
        }
        match end {
            "kill" => victim.kill(),
            _ => {
                victim.tell("end");
                assert!(victim.end().success());
            }
        }
        let [mut first, mut second] = successors;
        first.expect("recovered");
        assert_eq!(first.ask("unlock 1"), "done");
        second.expect("locked");
        assert_eq!(second.ask("unlock 1"), "done");
    }
}

#[test]
fn who_dies_waiting_for_a_lock_stops_nobody() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    cluster.make_on(0, "dead-waiter", 1, Options::default());
    let mut holder = cluster.scripted_node(0, "dead-waiter");
    assert_eq!(holder.ask("lock 1"), "locked");
    for node in [0, 1, 2] {
        let mut victim = cluster.scripted_node(node, "dead-waiter");
        victim.tell("lock 1");
        victim.expect_silence();
        victim.kill();
    }
    let mut last = cluster.scripted_node(1, "dead-waiter");
    last.tell("lock 1");
    last.expect_silence();
    assert_eq!(holder.ask("unlock 1"), "done");
    last.expect("locked");
}

#[test]
fn the_pages_of_a_dead_process_live_on() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("survivors", 32)[0];
    let mut victim = cluster.scripted_node(1, "survivors");
    for page in 0..32 {
        victim.ask(&format!("store {} {}", page * PAGE_SIZE, page + 1));
    }
    victim.kill();
    for page in 0..32 {
        assert_eq!(load(here, page * PAGE_SIZE), page as u64 + 1);
    }
}

#[test]
fn a_process_killed_in_the_middle_of_faults_leaves_nothing_behind() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("killed", 1)[0];
    let clients = cluster.mesh(1).status().unwrap().clients;
    for round in 1..=15_u64 {
        // It would count for ever, against us.
        let arguments = "count killed --by atomic --rounds 1000000000 --parties 1 --at 8";
        let victim = cluster.player(1, arguments);
        let before = load(here, 8);
        eventually("it counts", || load(here, 8) > before);
        for _ in 0..20 {
            store(here, 0, round);
        }
        victim.kill();
        let counted = load(here, 8);
        assert!(counted > before);
        store(here, 0, round + 100);
        assert_eq!((load(here, 0), load(here, 8)), (round + 100, counted));
    }
    eventually("its node has forgotten them", || {
        cluster.mesh(1).status().unwrap().clients == clients
    });
}
