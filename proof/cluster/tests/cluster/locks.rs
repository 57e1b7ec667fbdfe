//! Locks of the whole cluster.

use crate::support::{A_WHILE, Cluster, PATIENCE, Player, finish_all, load};
use pagemesh::{Error, Options};
use pagemesh_wire::lockword::LOCAL_TURNS;
use rustix::process::Signal;
use std::time::Duration;

#[test]
fn a_lock_keeps_a_counter_whole_over_four_nodes() {
    let Some(cluster) = Cluster::start(4) else {
        return;
    };
    let memory = &cluster.share("counted", 1)[0];
    let rounds = 300;
    let players = (0..8)
        .map(|place| {
            let arguments = format!("count counted --by lock --rounds {rounds} --parties 8");
            cluster.player(place % 4, &arguments)
        })
        .collect();
    finish_all(players);
    assert_eq!(load(memory, 0), 8 * rounds);
    assert!(cluster.counter(1, "tokens_in") > 0, "the lock travelled");
}

#[test]
fn a_held_lock_is_refused_to_those_who_do_not_want_to_wait() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("held", 1);
    let lock = |node: usize| maps[node].segment().lock(7);
    let neighbour = cluster.map(0, "held").segment().lock(7);
    let guard = lock(0).lock().unwrap();
    for other in [&lock(1), &lock(0), &neighbour] {
        assert!(other.try_lock().unwrap().is_none());
        let timed = other.lock_timeout(Duration::from_millis(50));
        assert!(matches!(timed, Err(Error::TimedOut)));
    }
    drop(guard);
    // A token that is on the other node may take longer than one try.
    for other in [&lock(1), &neighbour, &lock(0)] {
        let guard = other.lock_timeout(PATIENCE).unwrap();
        assert!(guard.is_held() && !guard.recovered());
    }
    assert!(
        lock(0).try_lock().unwrap().is_some(),
        "last held here, and free"
    );
}

#[test]
fn a_lock_that_was_given_up_waiting_for_goes_to_the_next() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let maps = cluster.share("given-up", 1);
    let lock = |node: usize| maps[node].segment().lock(1);
    for _ in 0..20 {
        let guard = lock(0).lock().unwrap();
        assert!(lock(1).lock_timeout(Duration::from_millis(5)).is_err());
        drop(guard);
        drop(lock(2).lock_timeout(PATIENCE).unwrap());
        drop(lock(0).lock_timeout(PATIENCE).unwrap());
    }
}

#[test]
fn locks_of_different_numbers_and_segments_are_different() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let (one, two) = (cluster.share("one", 1), cluster.share("two", 1));
    let numbers = [0, 1, u64::MAX, 1 << 63];
    let guards: Vec<_> = numbers
        .iter()
        .flat_map(|number| {
            [
                one[0].segment().lock(*number),
                two[1].segment().lock(*number),
            ]
        })
        .map(|lock| lock.lock_timeout(PATIENCE).unwrap())
        .collect();
    assert_eq!(guards.len(), 8);
    assert!(
        one[1]
            .segment()
            .lock(u64::MAX)
            .try_lock()
            .unwrap()
            .is_none()
    );
}

#[test]
fn ten_thousand_locks_are_made_by_using_them() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("many", 1);
    for number in 0..10_000 {
        let node = number as usize % 2;
        drop(
            maps[node]
                .segment()
                .lock(number)
                .lock_timeout(PATIENCE)
                .unwrap(),
        );
    }
    for number in (0..10_000).step_by(997) {
        let guard = maps[0]
            .segment()
            .lock(number)
            .lock_timeout(PATIENCE)
            .unwrap();
        assert!(!guard.recovered());
    }
}

#[test]
fn those_who_wait_on_other_nodes_are_served_in_their_order() {
    let Some(cluster) = Cluster::start(4) else {
        return;
    };
    cluster.make_on(0, "queue", 1, Options::default());
    let mut first = cluster.scripted_node(0, "queue");
    assert_eq!(first.ask("lock 1"), "locked");
    let mut waiting = Vec::new();
    for node in [2, 1, 3] {
        let mut scripted_node = cluster.scripted_node(node, "queue");
        scripted_node.tell("lock 1");
        // No node tells how long its queue is: give the request time to arrive.
        std::thread::sleep(A_WHILE);
        waiting.push(scripted_node);
    }
    assert_eq!(first.ask("unlock 1"), "done");
    while !waiting.is_empty() {
        let mut next = waiting.remove(0);
        next.expect("locked");
        for other in &waiting {
            other.expect_silence();
        }
        assert_eq!(next.ask("unlock 1"), "done");
    }
}

#[test]
fn a_process_takes_a_lock_so_often_and_no_oftener_without_its_daemon() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let mut greedy = holder_of_a_token(&cluster, "greedy");
    assert_eq!(turns_without_a_daemon(&cluster, &mut greedy), LOCAL_TURNS);
}

#[test]
fn a_lock_is_free_again_once_its_daemon_goes_on() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let mut greedy = holder_of_a_token(&cluster, "freed");
    turns_without_a_daemon(&cluster, &mut greedy);
    // The process that gave up waiting makes no request meanwhile: what it may have got late, it
    // does not keep.
    let memory = cluster.map(1, "freed");
    let guard = memory.segment().lock(3).lock_timeout(PATIENCE).unwrap();
    assert!(!guard.recovered());
    drop(guard);
    assert_eq!(greedy.ask("lock 3"), "locked");
    assert_eq!(greedy.ask("unlock 3"), "done");
}

/// A process on node 0 that took lock 3 of a new segment last.
fn holder_of_a_token(cluster: &Cluster, name: &str) -> Player {
    // This process is no client of the daemon that will be stopped, because its forks wait for
    // all of its daemons.
    cluster.make_on(1, name, 1, Options::default());
    let mut scripted_node = cluster.scripted_node(0, name);
    assert_eq!(scripted_node.ask("lock 3"), "locked");
    assert_eq!(scripted_node.ask("unlock 3"), "done");
    scripted_node
}

/// How often that process takes the lock while its daemon gets no processor at all.
fn turns_without_a_daemon(cluster: &Cluster, greedy: &mut Player) -> u32 {
    cluster.signal(0, Signal::STOP).unwrap();
    let turns = greedy.ask("turns 3");
    cluster.signal(0, Signal::CONT).unwrap();
    turns.parse().expect("a number")
}
