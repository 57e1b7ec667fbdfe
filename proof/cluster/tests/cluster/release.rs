//! Policy `release`: what one process did before it released is there for who
//! acquires next, and nothing else has to be.

use crate::replacement::{kills, lasting, revive, strike};
use crate::stress::{bad_network, seed};
use crate::support::{
    Cluster, Player, at_best, eventually, expect, finish_all, load, store, stress_time,
};
use pagemesh::{Advice, Options, PAGE_SIZE, Policy};
use pagemesh_cli::sandbox::Plan;
use pagemesh_tests::dice::Dice;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Pages of the ground of labelled players.
const GROUND: u64 = 7;

/// The policy, asked for by name.
pub(crate) fn release() -> Options {
    named("release")
}

pub(crate) fn named(policy: &str) -> Options {
    Options {
        policy: policy.parse::<Policy>().unwrap(),
        ..Options::default()
    }
}

/// Properly labelled programs, so many processes on each node, until `trouble` ends.
pub(crate) fn labelled(
    plan: Plan,
    processes: usize,
    options: Options,
    trouble: impl FnOnce(&Cluster),
) {
    let (nodes, seed) = (plan.nodes, seed());
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    eprintln!("PAGEMESH_STRESS_SEED={seed}");
    cluster.make_on(nodes - 1, "labelled", GROUND, options);
    let parties = nodes * processes;
    let seconds = stress_time().as_secs_f64();
    let players: Vec<Player> = (0..parties)
        .map(|place| {
            let arguments = format!(
                "labelled labelled --place {place} --processes {parties} --seed {seed} \
                 --seconds {seconds}"
            );
            cluster.player(place % nodes, &arguments)
        })
        .collect();
    trouble(&cluster);
    let said = finish_all(players);
    let numbers = |line: &str| -> Vec<u64> {
        let words = line.split_whitespace();
        words.map(|word| word.parse().unwrap()).collect()
    };
    let turns: u64 = said.iter().map(|lines| numbers(&lines[0])[1]).sum();
    for lines in &said {
        assert_eq!(numbers(&lines[1]), [turns], "turns with locks");
    }
    let phases = numbers(&said[0][0])[0];
    assert!(phases >= 3, "only {phases} phases");
    eprintln!("{phases} phases, {turns} turns with locks");
    for node in 0..nodes {
        for counter in ["frames_overwritten", "placing_failed", "races_found"] {
            let count = cluster.counter(node, counter);
            assert_eq!(count, 0, "{counter} on node {node}");
        }
    }
}

#[test]
fn a_labelled_program_finds_what_it_must_on_two_nodes() {
    labelled(Plan::new(2), 1, release(), |_| {});
}

#[test]
fn a_labelled_program_finds_what_it_must_on_four_nodes() {
    labelled(Plan::new(4), 1, release(), |_| {});
}

#[test]
fn a_labelled_program_finds_what_it_must_on_eight_nodes() {
    labelled(Plan::new(8), 1, release(), |_| {});
}

#[test]
fn several_processes_of_a_node_are_one_to_all_others() {
    labelled(Plan::new(3), 3, release(), |_| {});
}

#[test]
fn a_labelled_program_finds_the_same_in_sequential_memory() {
    labelled(Plan::new(3), 1, Options::default(), |_| {});
    labelled(bad_network(2), 2, Options::default(), |_| {});
}

#[test]
fn a_labelled_program_finds_the_same_however_changes_travel() {
    for policy in ["eager", "hybrid", "invalidate"] {
        labelled(Plan::new(3), 1, named(policy), |_| {});
        labelled(bad_network(3), 1, named(policy), |_| {});
    }
}

/// Turns with a lock, in which each node stores what it found and one more.
fn turns(maps: &[pagemesh::Mapping], rounds: u64) {
    turns_from(maps, 0, rounds);
}

fn turns_from(maps: &[pagemesh::Mapping], first: u64, rounds: u64) {
    for round in first..first + rounds {
        let memory = &maps[round as usize % maps.len()];
        let guard = memory.segment().lock(1).lock().unwrap();
        assert_eq!(load(memory, 64), round);
        store(memory, 64, round + 1);
        guard.unlock();
    }
}

#[test]
fn small_changes_go_along_with_the_lock() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let datagrams = |node| cluster.counter(node, "datagrams_out");
    let sent_in = |name: &str, policy: &str| {
        let maps = cluster.share_with(name, 1, named(policy));
        turns(&maps, 8);
        let before: u64 = (0..2).map(datagrams).sum();
        turns_from(&maps, 8, 40);
        (0..2).map(datagrams).sum::<u64>() - before
    };
    // A lock takes three datagrams, a request for the diffs and its answer two more. Lazily diffs
    // go along once both nodes have asked for each, and are asked for now and then.
    for (policy, most) in [("hybrid", 40 * 4 + 10), ("release", 40 * 4 + 20)] {
        let mut time = 0;
        at_best(|| {
            time += 1;
            let sent = sent_in(&format!("{policy} {time}"), policy);
            expect(
                sent < most,
                format!("{sent} datagrams in 40 turns, {policy}"),
            )
        });
    }
    // TreadMarks' own protocol asks for each.
    let sent = sent_in("invalidate", "invalidate");
    assert!(sent > 40 * 4 + 20, "{sent} datagrams in 40 turns");
}

#[test]
fn eager_changes_come_without_an_acquire() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share_with("pushed", 1, named("eager"));
    turns(&maps, 4);
    // A barrier of one party is a release, too; node 1 acquires nothing.
    let guard = maps[0].segment().lock(1).lock().unwrap();
    store(&maps[0], 64, 77);
    guard.unlock();
    maps[0].segment().barrier(9, 1).wait().unwrap();
    eventually("node 1 sees what node 0 released", || {
        load(&maps[1], 64) == 77
    });
}

#[test]
fn what_a_node_wrote_stays_when_it_leaves() {
    let Some(cluster) = Cluster::start(4) else {
        return;
    };
    // Node 2 is the home of one segment, and leaves first.
    let segments = [(2, "its own"), (1, "of another")];
    for (home, name) in segments {
        cluster.make_on(home, name, 16, release());
        for node in [3, 2, 1] {
            let memory = cluster.map(node, name);
            let guard = memory.segment().lock(5).lock().unwrap();
            for page in 0..16 {
                let at = page * PAGE_SIZE;
                store(&memory, at, load(&memory, at) + 1);
                store(&memory, at + 8 * node, 10 + page as u64);
            }
            guard.unlock();
        }
    }
    for leaver in [2, 3] {
        cluster.mesh(leaver).leave().unwrap();
    }
    for (_, name) in segments {
        for node in [0, 1] {
            let memory = cluster.map(node, name);
            let guard = memory.segment().lock(5).lock().unwrap();
            assert!(!guard.recovered(), "nobody died");
            for page in 0..16 {
                let at = page * PAGE_SIZE;
                assert_eq!(load(&memory, at), 3, "page {page} of {name}");
                for writer in 1..4 {
                    assert_eq!(load(&memory, at + 8 * writer), 10 + page as u64);
                }
            }
            guard.unlock();
        }
        let maps: Vec<_> = [0, 1].map(|node| cluster.map(node, name)).into();
        std::thread::scope(|scope| {
            for memory in &maps {
                scope.spawn(move || memory.segment().barrier(1, 2).wait().unwrap());
            }
        });
    }
}

#[test]
fn watches_and_pins_are_refused_with_what_to_do_instead() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let maps = cluster.share_with("refused", 1, release());
    let short = Some(Duration::from_secs(1));
    // Whether the byte is the expected one or not.
    for expected in [0, 1] {
        let why = maps[0].wait_change(0, expected, short).unwrap_err();
        assert!(why.to_string().contains("condition variable"), "{why}");
    }
    let Err(why) = maps[0].write_lock(0..8) else {
        panic!("pages of many writers are pinned");
    };
    assert!(why.to_string().contains("needs a lock"), "{why}");
}

#[test]
fn lost_datagrams_are_asked_for_again() {
    labelled(bad_network(3), 1, release(), |_| {});
}

#[test]
fn daemons_may_be_replaced_with_twins_and_diffs() {
    labelled(lasting(3), 1, release(), |cluster| {
        let mut dice = Dice::new(seed());
        for _ in 0..kills() {
            let pause = dice.below(400) as u64;
            std::thread::sleep(Duration::from_millis(pause));
            strike(cluster, dice.below(3));
        }
    });
}

/// Two players that rewrite pages, so many times.
fn rewriting(cluster: &Cluster, phases: u64) -> Vec<Player> {
    cluster.make_on(0, "rewritten", 48, release());
    let player = |place| {
        let arguments = format!("rewrite rewritten --place {place} --phases {phases}");
        cluster.player(place, &arguments)
    };
    vec![player(0), player(1)]
}

/// A program asks for a barrier; its daemon looks for pages that have changed, and dies.
#[test]
fn a_request_outlives_a_daemon_that_died_before_its_input() {
    let mut plan = lasting(2);
    plan.daemon_args.push("--die-after=Untouched:12".into());
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    let players = rewriting(&cluster, 40);
    let over = AtomicBool::new(false);
    let died = std::thread::scope(|scope| {
        let reviving = scope.spawn(|| revive(&cluster, &over));
        finish_all(players);
        over.store(true, Relaxed);
        reviving.join().unwrap()
    });
    assert!(died > 0);
}

/// Diffs of rewritten pages are deferred; daemons die meanwhile.
#[test]
fn rewritten_pages_outlive_their_daemons() {
    const PHASES: u64 = 400;
    let Some(cluster) = Cluster::of(lasting(2)) else {
        return;
    };
    let seed = seed();
    eprintln!("PAGEMESH_STRESS_SEED={seed}");
    let mut dice = Dice::new(seed);
    let players = rewriting(&cluster, PHASES);
    for _ in 0..kills() {
        std::thread::sleep(Duration::from_millis(dice.below(200) as u64));
        strike(&cluster, dice.below(2));
    }
    finish_all(players);
}

#[test]
fn neighbouring_bytes_of_a_word_may_have_different_writers() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let options = release();
    let maps = cluster.share_with("bytes", 1, options);
    for round in 1..=20u8 {
        std::thread::scope(|scope| {
            for (node, memory) in maps.iter().enumerate() {
                scope.spawn(move || {
                    let barrier = memory.segment().barrier(1, 2);
                    for at in (node..16).step_by(2) {
                        memory.atomic_u8(at).unwrap().store(round, Relaxed);
                    }
                    barrier.wait().unwrap();
                    for at in 0..16 {
                        assert_eq!(memory.atomic_u8(at).unwrap().load(Relaxed), round);
                    }
                    barrier.wait().unwrap();
                });
            }
        });
    }
}

#[test]
fn a_store_is_seen_when_its_lock_has_come_and_not_asked_for_before() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let options = release();
    let maps = cluster.share_with("lazy", 2, options);
    let lock = |node: usize| maps[node].segment().lock(1).lock().unwrap();
    let first = lock(0);
    store(&maps[0], 0, 1);
    first.unlock();
    let second = lock(1);
    assert_eq!(load(&maps[1], 0), 1);
    second.unlock();
    let third = lock(0);
    store(&maps[0], 0, 2);
    third.unlock();
    // No synchronization, no datagram: the copy is still good for node 1.
    at_best(|| {
        let before = cluster.counter(1, "datagrams_out");
        assert_eq!(load(&maps[1], 0), 1);
        let sent = cluster.counter(1, "datagrams_out") - before;
        expect(sent <= 2, format!("{sent}, not only signs of life"))
    });
    let fourth = lock(1);
    assert_eq!(load(&maps[1], 0), 2);
    fourth.unlock();
    assert!(cluster.counter(0, "diffs_sent") >= 1);
}

/// Of memory that node 1 has used before, too: then only diffs are lacking. (From the third
/// round on they would come without being asked for.)
#[test]
fn what_is_announced_is_there_before_it_is_touched() {
    const PAGES: usize = 64;
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share_with("announced", PAGES as u64, release());
    let segment = maps[1].segment();
    for round in 1..3 {
        for page in 0..PAGES {
            store(&maps[0], page * PAGE_SIZE, round);
        }
        meet(&maps);
        let came = cluster.counter(1, "came_ahead");
        let faults = || cluster.counter(1, "faults_read") + cluster.counter(1, "faults_local");
        segment.advise(0..segment.size(), Advice::WillNeed).unwrap();
        eventually("what will be needed comes", || {
            cluster.counter(1, "came_ahead") == came + PAGES as u64
        });
        let before = faults();
        for page in 0..PAGES {
            assert_eq!(load(&maps[1], page * PAGE_SIZE), round, "page {page}");
        }
        assert_eq!(faults(), before, "everything was there in round {round}");
        meet(&maps);
    }
}

/// A barrier of all of them.
fn meet(maps: &[pagemesh::Mapping]) {
    let parties = u32::try_from(maps.len()).unwrap();
    std::thread::scope(|scope| {
        for map in maps {
            scope.spawn(move || map.segment().barrier(1, parties).wait().unwrap());
        }
    });
}

#[test]
fn only_what_changed_travels() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let options = release();
    let maps = cluster.share_with("small", 64, options);
    let turn = |node: usize, value: u64| {
        let guard = maps[node].segment().lock(1).lock().unwrap();
        for page in 0..64 {
            let expected = value.saturating_sub(1);
            assert_eq!(load(&maps[node], page * PAGE_SIZE), expected);
            store(&maps[node], page * PAGE_SIZE, value);
        }
        guard.unlock();
    };
    turn(0, 1);
    turn(1, 2);
    turn(0, 3);
    let before = cluster.counter(0, "bytes_out");
    turn(1, 4);
    let sent = cluster.counter(0, "bytes_out") - before;
    // Whole pages would be 256 KiB.
    assert!(sent < 64 * 1024, "{sent} bytes for 64 words");
}

/// Diffs of a program that only uses locks are collected: each node makes many more than it may
/// keep (`NOTICES_KEPT`, of both nodes together). A turn changes a quarter of each page: of pages
/// that change as a whole copies travel, and no diffs are kept. The control, with the bound off, is
/// the simulator's `hours_of_locks_alone_stay_under_the_bound_and_pass_it_if_it_is_off`.
#[test]
fn a_program_of_locks_alone_does_not_fill_the_memory() {
    const PAGES: usize = 32;
    const TURNS: usize = 768;
    const QUARTER: usize = PAGE_SIZE / 4;
    // Both nodes' diffs of a quarter page each, and those made while some are collected.
    const MOST: u64 = (1 << 14) * (QUARTER as u64 + 160) * 5 / 4;
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share_with("day", PAGES as u64, release());
    let mut most = [0; 2];
    for turn in 0..2 * TURNS {
        let memory = &maps[turn % 2];
        let guard = memory.segment().lock(3).lock().unwrap();
        for page in 0..PAGES {
            let place = page * PAGE_SIZE + turn % 4 * QUARTER;
            let mut bytes = [0; QUARTER];
            memory.read(place, &mut bytes).unwrap();
            let before = (turn / 4) as u8;
            assert_eq!(bytes, [before; QUARTER], "turn {turn}, page {page}");
            memory
                .write(place, &[before.wrapping_add(1); QUARTER])
                .unwrap();
        }
        guard.unlock();
        if turn % 16 == 0 {
            for (node, most) in most.iter_mut().enumerate() {
                *most = cluster.counter(node, "diff_bytes_held").max(*most);
            }
        }
    }
    let made = |node| cluster.counter(node, "diffs_made") * QUARTER as u64;
    // What a node would hold if nothing were collected: its own diffs, and those that it got.
    let all = made(0) + made(1);
    assert!(
        all > 3 * MOST / 2,
        "{all} bytes of diffs would not show a leak"
    );
    for (node, most) in most.into_iter().enumerate() {
        assert!(
            most > MOST / 4,
            "node {node} held {most} bytes: no diffs are kept here"
        );
        assert!(most < MOST, "node {node} held {most} bytes of {all}");
    }
}

#[test]
fn a_lock_comes_back_from_the_dead_with_what_they_wrote() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let options = release();
    cluster.make_on(0, "dead", 1, options);
    let mut victim = cluster.scripted_node(1, "dead");
    assert_eq!(victim.ask("lock 1"), "locked");
    victim.ask("store 0 7");
    victim.kill();
    let mut successor = cluster.scripted_node(0, "dead");
    assert_eq!(successor.ask("lock 1"), "recovered");
    assert_eq!(successor.ask("load 0"), "7");
}

#[test]
fn a_dead_daemon_leaves_errors_and_no_old_data() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let options = release();
    let maps = cluster.share_with("funeral", 2, options);
    let guard = maps[2].segment().lock(1).lock().unwrap();
    store(&maps[2], 0, 5);
    guard.unlock();
    let guard = maps[1].segment().lock(1).lock().unwrap();
    // Node 1 knows that there is a 5, and has not asked for it.
    guard.unlock();
    cluster.kill(2).unwrap();
    eventually("node 2 is declared dead", || {
        let members = cluster.mesh(0).members().unwrap().members;
        members
            .iter()
            .any(|member| member.health == pagemesh::Health::Dead)
    });
    let mut successor = cluster.scripted_node(1, "funeral");
    let locked = successor.ask("lock 1");
    assert!(locked == "locked" || locked == "recovered", "{locked}");
    successor.tell("load 0");
    let status = successor.end();
    assert!(!status.success(), "what is lost is not read");
}
