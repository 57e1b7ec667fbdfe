//! Brief requests that go through shared memory between a program and its daemon.

use crate::replacement::{lasting, strike};
use crate::support::{Cluster, Player, at_best, eventually, expect, finish_all};
use pagemesh::Options;
use pagemesh_tests::dice::Dice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Programs that count under one lock, two on each of two nodes.
fn counters(cluster: &Cluster, rounds: u64) -> Vec<Player> {
    let arguments = format!("count counted --by lock --rounds {rounds} --parties 4");
    (0..4)
        .map(|place| cluster.player(place % 2, &arguments))
        .collect()
}

fn counted(cluster: &Cluster) -> String {
    cluster.scripted_node(0, "counted").ask("load 0")
}

#[test]
fn locks_go_through_request_slots_while_daemons_are_awake() {
    const ROUNDS: u64 = 2000;
    let mut plan = lasting(2);
    plan.waiting = Some("spin".into());
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    cluster.make_on(0, "counted", 1, Options::default());
    let mut times = 0;
    // Programs that never run at once hand over the lock without their daemons.
    at_best(|| {
        times += 1;
        finish_all(counters(&cluster, ROUNDS));
        assert_eq!(counted(&cluster), (4 * ROUNDS * times).to_string());
        let by_request_slot = [0, 1].map(|node| cluster.counter(node, "requests_by_request_slot"));
        expect(
            by_request_slot.iter().all(|count| *count > 100),
            format!("{by_request_slot:?}"),
        )
    });
}

#[test]
fn what_lies_in_a_request_slot_outlives_the_daemon() {
    const ROUNDS: u64 = 6000;
    // Where daemons start slowly, programs get on only a little between two deaths.
    const STRIKES: u32 = 40;
    let mut plan = lasting(2);
    plan.waiting = Some("spin".into());
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    cluster.make_on(0, "counted", 1, Options::default());
    let players = counters(&cluster, ROUNDS);
    let mut dice = Dice::new(14);
    let mut struck = 0;
    while struck < STRIKES
        && players
            .iter()
            .any(|player| !matches!(player.state(), Some('Z') | None))
    {
        std::thread::sleep(std::time::Duration::from_micros(dice.below(60_000) as u64));
        strike(&cluster, dice.below(2));
        struck += 1;
    }
    finish_all(players);
    eprintln!("{struck} daemons were killed");
    assert_eq!(counted(&cluster), (4 * ROUNDS).to_string());
}

/// A daemon that sleeps looks into a request slot before it sleeps again, but not for ever.
#[test]
fn who_asks_all_the_time_keeps_no_other_node_waiting() {
    const ROUNDS: u32 = 300;
    let mut plan = lasting(2);
    plan.waiting = Some("block".into());
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    let maps = cluster.share("busy", 1);
    let alone = |node: usize, number| maps[node].segment().barrier(number, 1);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = SaysOver(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                alone(0, 1).wait().unwrap();
            }
        });
        at_best(|| {
            let began = Instant::now();
            (0..ROUNDS).for_each(|_| alone(1, 2).wait().unwrap());
            let each = began.elapsed() / ROUNDS;
            expect(each.as_millis() < 50, format!("{each:?}"))
        });
        // The daemon finds a request in the slot only if it looks there before it sleeps.
        eventually("the request slot was used", || {
            cluster.counter(0, "requests_by_request_slot") >= 100
        });
    });
}

/// Says that all is over when its block ends, however that ends: a scope waits for its threads.
struct SaysOver<'a>(&'a AtomicBool);

impl Drop for SaysOver<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
