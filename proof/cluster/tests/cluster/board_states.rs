//! Boards with real daemons: whole states, the newest ones, whatever gets lost or dies.

use crate::support::{Cluster, OnDrop, eventually};
use pagemesh::{Access, Board, BoardOptions, Error, TypedBoard};
use pagemesh_cli::sandbox::Plan;
use pagemesh_os::impair::Impairment;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A state that shows which it is, everywhere in it.
fn state(number: u64, size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ bytes.len() as u64;
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

fn board(cluster: &Cluster, node: usize, name: &str, size: usize) -> Board {
    Board::create(&cluster.mesh(node), name, size, BoardOptions::default()).unwrap()
}

/// Follows a board until `over`, and counts states; every state is whole, and none is older than the
/// one before.
fn follow(reader: &mut Board, size: usize, seen: &AtomicU64, over: &AtomicBool) {
    let mut last = 0;
    while !over.load(Ordering::Acquire) {
        match reader.wait(last, Some(Duration::from_millis(100))) {
            Ok(_) => {}
            Err(Error::TimedOut) => continue,
            Err(error) => panic!("{error}"),
        }
        if let Some(found) = reader.read().unwrap() {
            assert!(found.number >= last, "{} after {last}", found.number);
            assert!(
                found.bytes == state(found.number, size),
                "{} is torn",
                found.number
            );
            seen.fetch_add(u64::from(found.number > last), Ordering::Relaxed);
            last = found.number;
        }
    }
}

fn never_torn(plan: Plan, size: usize, states: u64) {
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    let mut writer = board(&cluster, 0, "state", size);
    let mut readers: Vec<_> = [0, 1, 2]
        .map(|node| Board::open(&cluster.mesh(node), "state", Access::ReadOnly).unwrap())
        .into();
    let (over, seen) = (AtomicBool::new(false), [0; 3].map(AtomicU64::new));
    std::thread::scope(|scope| {
        let _over = OnDrop(&over);
        for (reader, seen) in readers.iter_mut().zip(&seen) {
            scope.spawn(|| follow(reader, size, seen, &over));
        }
        for number in 1..=states {
            assert_eq!(writer.publish(&state(number, size)).unwrap(), number);
            std::thread::sleep(Duration::from_millis(4));
        }
        eventually("each has seen something", || {
            seen.iter().all(|seen| seen.load(Ordering::Relaxed) > 0)
        });
    });
    for reader in &mut readers {
        eventually("the last state is everywhere", || {
            reader
                .read()
                .unwrap()
                .is_some_and(|found| found.number == states)
        });
    }
}

fn lossy() -> Plan {
    let mut plan = Plan::new(3);
    plan.impair = Impairment {
        loss: 0.05,
        ..Impairment::default()
    };
    plan
}

#[test]
fn eb4_states_of_one_page_are_whole() {
    never_torn(Plan::new(3), 32, 200);
}

#[test]
fn eb4_states_of_64_kib_are_whole_under_loss() {
    never_torn(lossy(), 64 << 10, 100);
}

#[test]
fn eb4_states_of_1_mib_are_whole_under_loss() {
    never_torn(lossy(), 1 << 20, 25);
}

#[test]
fn a_late_joiner_has_the_newest_state_and_missed_ones_are_counted() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let size = 10_000;
    let mut writer = board(&cluster, 0, "late", size);
    for number in 1..=9 {
        writer.publish(&state(number, size)).unwrap();
    }
    let mut reader = Board::open(&cluster.mesh(1), "late", Access::ReadOnly).unwrap();
    let found = reader.read().unwrap().unwrap();
    assert_eq!((found.number, found.missed), (9, 8));
    assert!(found.bytes == state(9, size));
    assert!(matches!(reader.publish(b"no"), Err(Error::Invalid(_))));
    let none = reader.wait(9, Some(Duration::from_millis(50)));
    assert!(matches!(none, Err(Error::TimedOut)), "{none:?}");
}

#[test]
fn writers_take_turns() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let size = 5_000;
    let mut writers: Vec<_> = (0..3)
        .map(|node| board(&cluster, node, "turns", size))
        .collect();
    let last = std::thread::scope(|scope| {
        let workers: Vec<_> = writers
            .iter_mut()
            .map(|writer| {
                scope.spawn(move || {
                    let numbers = (0..20).map(|_| publish_at_last(writer, &[7; 5_000]));
                    numbers.collect::<Vec<_>>()
                })
            })
            .collect();
        let mut all: Vec<_> = workers
            .into_iter()
            .flat_map(|w| w.join().unwrap())
            .collect();
        all.sort_unstable();
        all
    });
    // A writer that was away for a second is passed over, with the numbers it may have had.
    let own = last.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(own, "every state has its own number: {last:?}");
}

/// Publishes, again if two writers were away for a second.
fn publish_at_last(writer: &mut Board, bytes: &[u8]) -> u64 {
    loop {
        match writer.publish(bytes) {
            Err(Error::TimedOut) => {}
            published => return published.unwrap(),
        }
    }
}

#[test]
fn a_board_of_a_type_has_values_of_that_type() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let options = BoardOptions::default();
    let mut writer = TypedBoard::<[f64; 3]>::create(&cluster.mesh(0), "typed", options).unwrap();
    let mut reader =
        TypedBoard::<[f64; 3]>::open(&cluster.mesh(1), "typed", Access::ReadOnly).unwrap();
    assert!(reader.read().unwrap().is_none());
    writer.publish(&[1.5, -2.0, 1e300]).unwrap();
    reader.wait(0, Some(Duration::from_secs(20))).unwrap();
    let (value, state) = reader.read().unwrap().unwrap();
    assert_eq!((value, state.number), ([1.5, -2.0, 1e300], 1));
    let larger = TypedBoard::<[f64; 4000]>::open(&cluster.mesh(1), "typed", Access::ReadOnly);
    assert!(matches!(larger, Err(Error::Invalid(_))));
    let mut other = Board::open(&cluster.mesh(1), "typed", Access::Writable).unwrap();
    other.publish(b"short").unwrap();
    reader.wait(1, Some(Duration::from_secs(20))).unwrap();
    assert!(matches!(reader.read(), Err(Error::Invalid(_))));
}

#[test]
fn the_end_of_a_writers_process_is_told() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let mut reader = board(&cluster, 0, "end", 32);
    // Writers in this process stand for processes: each has a connection of its own.
    let mut writers = [0, 1, 1].map(|node| board(&cluster, node, "end", 32));
    for round in 0..3 {
        for (place, writer) in writers.iter_mut().enumerate() {
            let number = writer.publish(&[place as u8; 32]).unwrap();
            reader
                .wait(number - 1, Some(Duration::from_secs(20)))
                .unwrap();
            let found = reader.read().unwrap().unwrap();
            assert_eq!(found.number, number);
            assert!(!reader.last_writer_is_gone().unwrap(), "round {round}");
        }
    }
    let [_, _, last] = writers;
    drop(last);
    eventually("the writer's end is told", || {
        reader.last_writer_is_gone().unwrap()
    });
    assert_eq!(reader.read().unwrap().unwrap().bytes, [2; 32], "it stays");
}

#[test]
fn a_reader_sleeps_for_states_without_requests() {
    const STATES: u64 = 300;
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let mut writer = board(&cluster, 0, "quiet", 32);
    let reader = Board::open(&cluster.mesh(1), "quiet", Access::ReadOnly).unwrap();
    let requests = cluster.counter(1, "requests");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=STATES {
                writer.publish(&number.to_le_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(1 + number % 4));
            }
        });
        let mut seen = 0;
        while seen < STATES {
            seen = reader.wait(seen, Some(Duration::from_secs(20))).unwrap();
        }
    });
    assert!(cluster.counter(1, "views_changed") >= STATES);
    let requests = cluster.counter(1, "requests") - requests;
    assert!(requests < STATES / 3, "{requests} requests");
}

#[test]
fn a_killed_daemon_leaves_the_last_state_of_its_board() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let size = 64 << 10;
    let mut writer = board(&cluster, 1, "legacy", size);
    let mut reader = Board::open(&cluster.mesh(2), "legacy", Access::ReadOnly).unwrap();
    assert!(reader.read().unwrap().is_none());
    for number in 1..=6 {
        writer.publish(&state(number, size)).unwrap();
    }
    reader.wait(5, Some(Duration::from_secs(20))).unwrap();
    cluster.kill(1).unwrap();
    let found = reader.read().unwrap().unwrap();
    assert!(found.number == 6 && found.bytes == state(6, size));
    eventually("the writer's death is told", || {
        reader.writer_is_gone(&found).unwrap()
    });
    let began = Instant::now();
    let mut heir = Board::open(&cluster.mesh(0), "legacy", Access::Writable).unwrap();
    assert_eq!(heir.publish(&state(7, size)).unwrap(), 7);
    reader.wait(6, Some(Duration::from_secs(20))).unwrap();
    assert!(began.elapsed() < Duration::from_secs(30));
}
