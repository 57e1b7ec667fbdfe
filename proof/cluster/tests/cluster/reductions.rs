//! Declared ranges: nodes accumulate in them without a lock.

use crate::release::{named, release};
use crate::stress::bad_network;
use crate::support::{Cluster, load, store};
use pagemesh::{Kind, Mapping, Merge, Options};
use pagemesh_cli::sandbox::Plan;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// N nodes add to the same numbers, none of them with a lock.
fn accumulate(plan: Plan) {
    const ROUNDS: u64 = 6;
    let nodes = plan.nodes;
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    let maps = cluster.share_with("sums", 2, release());
    let parties = nodes as u32;
    let [sums, reals, least] = [0..4096, 4096..4104, 4104..4108];
    // Any node may declare, and all nodes have to know.
    let segment = maps[nodes - 1].segment();
    segment.reduce(sums, Merge::Sum, Kind::U64).unwrap();
    segment.reduce(reals, Merge::Sum, Kind::F64).unwrap();
    segment.reduce(least, Merge::Min, Kind::I32).unwrap();
    std::thread::scope(|scope| {
        for (node, memory) in maps.iter().enumerate() {
            scope.spawn(move || {
                let barrier = memory.segment().barrier(1, parties);
                let me = node as u64 + 1;
                for round in 1..=ROUNDS {
                    for slot in 0..512 {
                        let sum = memory.atomic_u64(8 * slot).unwrap();
                        sum.fetch_add(me + slot as u64, Relaxed);
                    }
                    let more = |real| Some((f64::from_bits(real) + 0.5).to_bits());
                    let real = memory.atomic_u64(4096).unwrap();
                    real.fetch_update(Relaxed, Relaxed, more).unwrap();
                    let low = memory.atomic_u32(4104).unwrap();
                    let value = -(round as i32) * (node as i32 + 1);
                    let lower = |old: u32| Some(old.cast_signed().min(value).cast_unsigned());
                    low.fetch_update(Relaxed, Relaxed, lower).unwrap();
                    // Neighbours that are not declared are bytes as ever.
                    memory
                        .atomic_u8(4108 + node)
                        .unwrap()
                        .store(round as u8, Relaxed);
                    barrier.wait().unwrap();
                    let all = u64::from(parties * (parties + 1) / 2);
                    for slot in 0..512 {
                        let sum = round * (all + u64::from(parties) * slot as u64);
                        assert_eq!(load(memory, 8 * slot), sum, "slot {slot}, round {round}");
                    }
                    let real = 0.5 * f64::from(parties) * round as f64;
                    assert_eq!(load(memory, 4096), real.to_bits());
                    let least = -(round as i32) * parties as i32;
                    assert_eq!(low.load(Relaxed).cast_signed(), least);
                    for other in 0..nodes {
                        let byte = memory.atomic_u8(4108 + other).unwrap().load(Relaxed);
                        assert_eq!(byte, round as u8, "byte of node {other}");
                    }
                    barrier.wait().unwrap();
                }
            });
        }
    });
}

#[test]
fn nodes_accumulate_without_a_lock() {
    accumulate(Plan::new(4));
}

#[test]
fn nodes_accumulate_without_a_lock_though_datagrams_are_lost() {
    accumulate(bad_network(3));
}

/// Two threads on each node add with a lock, by a load and a store, and beside that without one, by
/// atomic operations, in the same pages.
fn accumulate_beside_locks(plan: Plan, policy: &str) {
    const ROUNDS: u64 = 5;
    const TURNS: u64 = 20;
    // A number of the declared range, which is only added to with the lock; one outside of the
    // range; and one on another page.
    const GUARDED: [usize; 3] = [0, 2048, 4096];
    // The range goes on with numbers that are accumulated.
    const SUMS: std::ops::Range<usize> = 1..128;
    const THREADS: u64 = 2;
    let players = THREADS * plan.nodes as u64;
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    let maps = cluster.share_with("beside", 2, named(policy));
    let range = 0..8 * SUMS.end as u64;
    let segment = maps[1].segment();
    segment.reduce(range, Merge::Sum, Kind::U64).unwrap();
    let turns = &AtomicU64::new(0);
    let play = &|memory: &Mapping, me: u64| {
        let segment = memory.segment();
        let barrier = segment.barrier(1, players as u32);
        for round in 1..=ROUNDS {
            for turn in 0..TURNS {
                let guard = segment.lock(1).lock().unwrap();
                let so_far = turns.fetch_add(1, Relaxed);
                for at in GUARDED {
                    assert_eq!(load(memory, at), so_far, "{at} in a turn of player {me}");
                    store(memory, at, so_far + 1);
                }
                guard.unlock();
                for slot in SUMS.skip(turn as usize % 3).step_by(3) {
                    let sum = memory.atomic_u64(8 * slot).unwrap();
                    sum.fetch_add(me + slot as u64, Relaxed);
                }
            }
            barrier.wait().unwrap();
            for at in GUARDED {
                assert_eq!(load(memory, at), round * players * TURNS, "{at}");
            }
            for slot in SUMS {
                let times = (0..TURNS).filter(|turn| slot as u64 % 3 == (turn + 1) % 3);
                let once = players * slot as u64 + players * (players + 1) / 2;
                let sum = round * times.count() as u64 * once;
                assert_eq!(load(memory, 8 * slot), sum, "slot {slot}, round {round}");
            }
            barrier.wait().unwrap();
        }
    };
    std::thread::scope(|scope| {
        for (memory, me) in maps.iter().cycle().zip(1..=players) {
            scope.spawn(move || play(memory, me));
        }
    });
}

#[test]
fn nodes_accumulate_beside_numbers_that_a_lock_guards() {
    for policy in ["release", "eager", "hybrid"] {
        accumulate_beside_locks(Plan::new(3), policy);
    }
}

#[test]
fn nodes_accumulate_beside_locks_though_datagrams_are_lost() {
    accumulate_beside_locks(bad_network(3), "release");
}

#[test]
fn ranges_that_cannot_be_are_refused_with_the_reason() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let segment = cluster.make_on(0, "ranges", 1, release());
    let why = |bytes, merge, kind| {
        let refused = segment.reduce(bytes, merge, kind).unwrap_err();
        refused.to_string()
    };
    assert!(why(4090..4104, Merge::Sum, Kind::U8).contains("beyond"));
    assert!(why(4..12, Merge::Sum, Kind::U64).contains("multiple of 8"));
    assert!(why(0..8, Merge::Or, Kind::F64).contains("integers"));
    segment.reduce(0..8, Merge::Max, Kind::I64).unwrap();
    assert!(why(4..8, Merge::Sum, Kind::U32).contains("in common"));
    let other = cluster.make_on(0, "sequential", 1, Options::default());
    let refused = other.reduce(0..8, Merge::Sum, Kind::U64).unwrap_err();
    assert!(
        refused.to_string().contains("atomic operations"),
        "{refused}"
    );
}
