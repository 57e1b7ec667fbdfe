//! Condition variables of the whole cluster.

use crate::support::{Cluster, Player, eventually, finish_all};
use pagemesh::{Error, Options};
use std::time::Duration;

#[test]
fn a_queue_between_nodes_loses_nothing_and_doubles_nothing() {
    const EACH: u64 = 150;
    let Some(cluster) = Cluster::start(4) else {
        return;
    };
    cluster.make_on(0, "numbers", 2, Options::default());
    let consumers: Vec<_> = (1..4)
        .map(|node| cluster.player(node, "consume numbers --last 0"))
        .collect();
    let producers: Vec<_> = (0..3)
        .map(|node| {
            let first = 1 + node as u64 * EACH;
            let arguments = format!("produce numbers --first {first} --count {EACH}");
            cluster.player(node, &arguments)
        })
        .collect();
    finish_all(producers);
    finish_all(vec![
        cluster.player(0, "produce numbers --first 0 --count 1"),
    ]);
    let mut taken: Vec<u64> = finish_all(consumers)
        .concat()
        .iter()
        .map(|line| line.parse().unwrap())
        .collect();
    taken.sort_unstable();
    assert_eq!(taken, (1..=3 * EACH).collect::<Vec<_>>());
}

#[test]
fn a_signal_without_waiters_is_forgotten() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("forgotten", 1);
    let condition = maps[1].segment().condition(3);
    assert_eq!(condition.signal().unwrap(), 0);
    assert_eq!(condition.broadcast().unwrap(), 0);
    let mut guard = maps[0].segment().lock(1).lock().unwrap();
    let waited = maps[0].segment().condition(3);
    let waited = waited.wait_timeout(&mut guard, Duration::from_millis(50));
    assert!(matches!(waited, Err(Error::TimedOut)));
    assert!(guard.is_held(), "the lock is held again");
    assert!(maps[1].segment().lock(1).try_lock().unwrap().is_none());
}

/// Scripted nodes on these nodes that wait for condition 3 under lock 1.
fn waiters(cluster: &Cluster, segment: &str, nodes: &[usize]) -> Vec<Player> {
    let wait = |node: &usize| {
        let mut scripted_node = cluster.scripted_node(*node, segment);
        assert_eq!(scripted_node.ask("lock 1"), "locked");
        scripted_node.tell("condition 3 1");
        scripted_node
    };
    nodes.iter().map(wait).collect()
}

#[test]
fn a_broadcast_wakes_all_and_a_signal_one() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let maps = cluster.share("woken", 1);
    let waiting = waiters(&cluster, "woken", &[1, 2, 1, 0]);
    // The last one waits as soon as its lock is free.
    drop(maps[0].segment().lock(1).lock().unwrap());
    let condition = maps[2].segment().condition(3);
    assert_eq!(condition.signal().unwrap(), 1);
    waiting[0].expect("woken");
    for other in &waiting[1..] {
        other.expect_silence();
    }
    assert_eq!(condition.broadcast().unwrap(), 3);
    for scripted_node in &waiting[1..] {
        scripted_node.expect("woken");
    }
}

#[test]
fn a_process_that_died_waiting_takes_no_signal() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("dead-waiter", 1);
    let mut waiting = waiters(&cluster, "dead-waiter", &[1, 1]);
    drop(maps[0].segment().lock(1).lock().unwrap());
    let clients = cluster.mesh(1).status().unwrap().clients;
    waiting.remove(0).kill();
    eventually("its node knows", || {
        cluster.mesh(1).status().unwrap().clients < clients
    });
    // The home learns of it in the order in which things happened.
    assert_eq!(maps[1].segment().condition(3).signal().unwrap(), 1);
    waiting[0].expect("woken");
}
