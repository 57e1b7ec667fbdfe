//! Sleeping until memory changes, and keeping it here for a while.

use crate::support::{A_WHILE, Cluster, load, store};
use pagemesh::{Error, Options, PAGE_SIZE};
use std::time::Duration;

#[test]
fn a_change_on_another_node_wakes_the_sleeper() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("changes", 2);
    for value in 1..=20_u8 {
        let (here, there) = (
            &maps[usize::from(value) % 2],
            &maps[1 - usize::from(value) % 2],
        );
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| there.wait_change(PAGE_SIZE + 5, value - 1, None));
            here.write(PAGE_SIZE + 5, &[value]).unwrap();
            assert_eq!(sleeper.join().unwrap().unwrap(), value);
        });
    }
}

#[test]
fn a_change_by_a_process_of_the_same_node_wakes_the_sleeper() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("at-home", 1);
    for (node, memory) in maps.iter().enumerate() {
        let value = node as u64 + 1;
        let mut sleeper = cluster.scripted_node(node, "at-home");
        sleeper.tell(&format!("change 0 {}", value - 1));
        sleeper.wait_until_it_sleeps_in("skb");
        store(memory, 0, value);
        sleeper.expect(&value.to_string());
    }
}

#[test]
fn a_process_that_may_only_read_sleeps_and_wakes_too() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("onlookers", 1);
    for node in 0..2 {
        let mut sleeper = cluster.scripted_node(node, "onlookers --read-only");
        for value in [1, 0] {
            sleeper.tell(&format!("change 0 {}", 1 - value));
            sleeper.expect_silence();
            store(&maps[0], 0, value);
            sleeper.expect(&value.to_string());
        }
    }
}

#[test]
fn other_changes_in_the_page_do_not_end_the_sleep() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("elsewhere", 1);
    let mut sleeper = cluster.scripted_node(1, "elsewhere");
    sleeper.tell("change 100 0");
    for value in 1..=20 {
        store(&maps[0], 0, value);
    }
    sleeper.expect_silence();
    maps[0].write(100, &[9]).unwrap();
    sleeper.expect("9");
    let short = Some(Duration::from_millis(50));
    let waited = maps[1].wait_change(100, 9, short);
    assert!(matches!(waited, Err(Error::TimedOut)), "{waited:?}");
    assert_eq!(
        maps[1].wait_change(100, 8, short).unwrap(),
        9,
        "differs already"
    );
}

#[test]
fn a_write_lock_keeps_a_series_of_stores_together() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("series", 3);
    for round in 0..10 {
        let first = round * 10 + 1;
        let keep = maps[0].write_lock(0..3 * PAGE_SIZE).unwrap();
        let began = std::time::Instant::now();
        let seen = std::thread::scope(|scope| {
            let reader = scope.spawn(|| load(&maps[1], 2 * PAGE_SIZE));
            for step in 0..5 {
                store(&maps[0], 2 * PAGE_SIZE, first + step);
                std::thread::sleep(A_WHILE / 20);
            }
            store(&maps[0], 2 * PAGE_SIZE, first + 9);
            drop(keep);
            reader.join().unwrap()
        });
        // The lease is a second. On a machine that was away so long, all bets are off.
        if began.elapsed() < Duration::from_millis(900) {
            assert_eq!(seen, first + 9, "round {round}: seen in the middle");
        }
    }
}

#[test]
fn a_forgotten_write_lock_does_not_last_for_ever() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("forgotten", 1);
    let keep = maps[0].write_lock(0..8).unwrap();
    store(&maps[0], 0, 1);
    store(&maps[1], 0, 2);
    assert_eq!(load(&maps[0], 0), 2);
    drop(keep);
    store(&maps[1], 0, 3);
    assert_eq!(load(&maps[0], 0), 3);
}

#[test]
fn write_locks_are_of_whole_pages_inside_the_segment() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let segment = cluster.make_on(0, "bounds", 2, Options::default());
    assert!(segment.write_lock(0..2 * 4096 + 1).is_err());
    assert!(segment.write_lock(10..10).is_err());
    let keep = segment.write_lock(10..20).unwrap();
    assert_eq!(keep.bytes(), 0..4096, "whole pages");
}
