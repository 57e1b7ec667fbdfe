//! Declared ranges: nodes accumulate in them without a lock.

use crate::release::release;
use crate::stress::bad_network;
use crate::support::{Cluster, load};
use pagemesh::{Kind, Merge, Options};
use pagemesh_cli::sandbox::Plan;
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
    // Anybody may declare, everybody has to know.
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
