//! Daemons that are killed and replaced: their programs see a pause. Where that
//! cannot be, they see errors, and never zeros.

use crate::stress::{Stage, shape, stress_with};
use crate::support::{Cluster, Player, eventually, finish_all, state, stress_time};
use pagemesh::Options;
use pagemesh_cli::sandbox::Plan;
use pagemesh_tests::dice::Dice;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const GRACE: Duration = Duration::from_secs(30);

/// Nodes whose programs wait for another daemon, which may be late on a busy host: no node is declared
/// dead meanwhile.
pub(crate) fn lasting(nodes: usize) -> Plan {
    let mut plan = Plan::new(nodes);
    plan.grace = GRACE;
    plan.experiment = "dead=30s".into();
    plan
}

/// How many daemons a test kills: `PAGEMESH_KILLS`, or two in a second.
pub(crate) fn kills() -> usize {
    let given = std::env::var("PAGEMESH_KILLS").ok();
    let some = || (stress_time().as_secs_f64() * 2.0).ceil() as usize;
    given.map_or_else(some, |text| text.parse().expect("a number of kills"))
}

/// Kills a daemon and starts another, which goes on.
pub(crate) fn strike(cluster: &Cluster, node: usize) {
    cluster.kill(node).unwrap();
    cluster.restart(node).unwrap();
}

/// The process that keeps a node's things.
fn keeper(cluster: &Cluster, node: usize) -> u32 {
    cluster.mesh(node).status().unwrap().keeper
}

fn send(process: u32, signal: Signal) {
    let process = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    kill_process(process, signal).unwrap();
}

/// A scripted node on each of two nodes, with a segment of four pages. This process has none: it
/// starts daemons, and a process that forks while its daemon is dead waits for another daemon.
fn scripted_nodes(cluster: &Cluster, name: &str) -> [Player; 2] {
    cluster.make_on(0, name, 4, Options::default());
    [0, 1].map(|node| cluster.scripted_node(node, name))
}

#[test]
fn readers_of_a_board_whose_daemons_are_killed_go_on() {
    let Some(cluster) = Cluster::of(lasting(2)) else {
        return;
    };
    let writer = cluster.player(0, "board board --seconds 3");
    writer.expect("ready");
    let readers = [0, 1].map(|node| {
        let reader = cluster.player(node, "board board");
        reader.expect("ready");
        reader
    });
    for node in [1, 0, 1] {
        std::thread::sleep(Duration::from_millis(300));
        strike(&cluster, node);
    }
    let last = writer.hear();
    for reader in &readers {
        assert_eq!(reader.hear(), last);
    }
    finish_all([writer].into_iter().chain(readers).collect());
}

#[test]
fn a_killed_daemon_is_replaced_and_its_programs_go_on() {
    let Some(cluster) = Cluster::of(lasting(2)) else {
        return;
    };
    let [mut one, mut two] = scripted_nodes(&cluster, "replaced");
    assert_eq!(one.ask("store 0 1"), "done");
    assert_eq!(two.ask("store 4096 2"), "done");
    let before = cluster.mesh(1).node();
    for node in [1, 0, 1] {
        strike(&cluster, node);
    }
    let status = cluster.mesh(1).status().unwrap();
    assert_eq!((status.node, status.takeovers), (before, 2));
    assert_eq!(two.ask("load 0"), "1");
    assert_eq!(one.ask("load 4096"), "2");
    assert_eq!(two.ask("store 0 3"), "done");
    assert_eq!(one.ask("load 0"), "3");
    assert_eq!(two.ask("lock 1"), "locked");
}

/// The daemon that dies has given the page's frame its memory, and no contents.
#[test]
fn a_page_under_way_when_its_daemon_dies_comes_whole() {
    let Some(cluster) = Cluster::of(lasting(2)) else {
        return;
    };
    let [mut one, mut two] = scripted_nodes(&cluster, "under-way");
    for (at, value) in [(0, "5"), (4096, "0")] {
        assert_eq!(one.ask(&format!("store {at} {value}")), "done");
        let frames = kept(keeper(&cluster, 1), "pagemesh:under-way");
        let holds = |at| {
            let mut word = [0; 8];
            frames.read_exact_at(&mut word, at).unwrap();
            u64::from_le_bytes(word)
        };
        assert_eq!(holds(at), 0, "nothing is there");
        cluster.signal(0, Signal::STOP).unwrap();
        two.tell(&format!("load {at}"));
        eventually("the frame is prepared", || holds(at) != 0);
        strike(&cluster, 1);
        assert_ne!(holds(at), 0, "nobody filled it");
        cluster.signal(0, Signal::CONT).unwrap();
        assert_eq!(two.hear(), value);
    }
}

#[test]
fn numbers_of_the_dead_are_not_given_to_the_living() {
    let Some(cluster) = Cluster::of(lasting(2)) else {
        return;
    };
    let [_one, mut kept] = scripted_nodes(&cluster, "numbers");
    for _ in 0..8 {
        cluster.scripted_node(1, "numbers").kill();
    }
    strike(&cluster, 1);
    let mut late: Vec<Player> = (0..4)
        .map(|_| cluster.scripted_node(1, "numbers"))
        .collect();
    assert_eq!(kept.ask("store 0 7"), "done");
    strike(&cluster, 1);
    for player in &mut late {
        assert_eq!(player.ask("load 0"), "7");
    }
}

#[test]
fn whoever_waits_waits_on_and_gets_what_it_waits_for() {
    let Some(cluster) = Cluster::of(lasting(2)) else {
        return;
    };
    let [mut first, mut reader] = scripted_nodes(&cluster, "waiters");
    let mut waiters: Vec<Player> = (0..4)
        .map(|_| cluster.scripted_node(1, "waiters"))
        .collect();
    assert_eq!(first.ask("lock 1"), "locked");
    waiters[0].tell("lock 1");
    waiters[1].tell("barrier 1 2");
    assert_eq!(waiters[2].ask("lock 2"), "locked");
    waiters[2].tell("barrier 2 2");
    waiters[3].tell("change 104 0");
    for waiter in &waiters {
        waiter.wait_until_it_sleeps_in("skb");
    }
    for node in [0, 1, 0, 1] {
        strike(&cluster, node);
    }
    // And one whose page is asked for while there is no daemon.
    assert_eq!(first.ask("store 8192 7"), "done");
    cluster.kill(1).unwrap();
    reader.tell("load 8192");
    reader.wait_until_it_sleeps_in("userfault");
    cluster.restart(1).unwrap();
    reader.expect("7");
    for waiter in &waiters {
        waiter.expect_silence();
    }
    assert_eq!(first.ask("unlock 1"), "done");
    waiters[0].expect("locked");
    for (waiter, barrier) in [(1, "barrier 1 2"), (2, "barrier 2 2")] {
        assert_eq!(first.ask(barrier), "passed");
        waiters[waiter].expect("passed");
    }
    assert_eq!(first.ask("store 104 5"), "done");
    waiters[3].expect("5");
}

/// Kills daemons at random moments until all is over, or so often.
fn strike_at_random(stage: &Stage<'_>, over: &AtomicBool) {
    let mut dice = Dice::new(stage.seed);
    let nodes = stage.cluster.nodes().len();
    let mut struck = 0;
    while !over.load(Relaxed) && struck < kills() {
        std::thread::sleep(Duration::from_micros(dice.below(100_000) as u64));
        strike(stage.cluster, dice.below(nodes));
        struck += 1;
    }
    eprintln!("{struck} daemons were killed");
    assert!(struck > 0);
}

#[test]
fn two_nodes_whose_daemons_are_killed_again_and_again() {
    stress_with(lasting(2), &shape(2, 3), 0, |stage, over| {
        strike_at_random(stage, over);
    });
}

#[test]
fn four_nodes_whose_daemons_are_killed_again_and_again() {
    stress_with(lasting(4), &shape(1, 3), 0, |stage, over| {
        stage.cluster.make_on(0, "rounds", 4, Options::default());
        let first = stage.cluster.player(0, "rounds rounds --first");
        let second = stage.cluster.player(1, "rounds rounds");
        strike_at_random(stage, over);
        let rounds = finish_all(vec![first, second]);
        eprintln!("{} rounds", rounds[0][0]);
        assert_eq!(rounds[0], rounds[1]);
    });
}

/// Pages travel in bursts, and are placed and taken away many at a time; the daemon dies
/// in the midst of it.
#[test]
fn walks_go_on_though_daemons_are_killed_again_and_again() {
    const PAGES: u64 = 2048;
    const BASE: u64 = 1_000_000;
    let Some(cluster) = Cluster::of(lasting(2)) else {
        return;
    };
    cluster.make_on(0, "walked", PAGES, Options::default());
    let mut scripted_nodes = [0, 1].map(|node| cluster.scripted_node(node, "walked"));
    assert_eq!(scripted_nodes[0].ask(&format!("fill {BASE}")), "done");
    let mut dice = Dice::new(17);
    for round in 1..=kills().max(6) as u64 {
        let (before, after) = (round * BASE, (round + 1) * BASE);
        let [reader, writer] = [round, round + 1].map(|who| (who % 2) as usize);
        scripted_nodes[reader].tell(&format!("walk {before}"));
        std::thread::sleep(Duration::from_micros(dice.below(20_000) as u64));
        strike(&cluster, dice.below(2));
        assert_eq!(scripted_nodes[reader].hear(), "done");
        scripted_nodes[writer].tell(&format!("walk {before} {after}"));
        std::thread::sleep(Duration::from_micros(dice.below(20_000) as u64));
        strike(&cluster, dice.below(2));
        assert_eq!(scripted_nodes[writer].hear(), "done");
    }
}

#[test]
fn daemons_are_replaced_in_order_again_and_again() {
    stress_with(lasting(2), &shape(1, 3), 0, |stage, over| {
        let mut dice = Dice::new(stage.seed);
        let mut replaced = 0;
        while !over.load(Relaxed) && replaced < kills() {
            std::thread::sleep(Duration::from_micros(dice.below(100_000) as u64));
            stage.cluster.replace(dice.below(2)).unwrap();
            replaced += 1;
        }
        eprintln!("{replaced} daemons were replaced");
        assert!(replaced > 0);
    });
}

/// Effects at which daemons kill themselves, each counted when it is done and when it
/// was noted: odd numbers die between the two. Few enough for a game on a host that is busy.
const EFFECTS: [&str; 9] = [
    "Map:201",
    "Fill:130",
    "Send:401",
    "Evict:101",
    "Protect:40",
    "ConfirmUse:60",
    "Reply:31",
    "LendLock:16",
    "ReclaimLock:9",
];

/// Starts every daemon again that has ended, until all is over.
pub(crate) fn revive(cluster: &Cluster, over: &AtomicBool) -> usize {
    let mut died = 0;
    while !over.load(Relaxed) {
        for (number, node) in cluster.nodes().iter().enumerate() {
            if matches!(state(node.pid()), Some('Z') | None) {
                died += 1;
                // It may die again as it goes on.
                eventually("it is back", || cluster.restart(number).is_ok());
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    died
}

#[test]
fn daemons_die_between_any_two_effects() {
    EFFECTS.into_iter().for_each(die_of);
}

#[test]
fn daemons_die_when_a_stash_is_dropped() {
    die_of("DropStash:101");
}

fn die_of(effect: &str) {
    let mut plan = lasting(2);
    plan.daemon_args.push(format!("--die-after={effect}"));
    stress_with(plan, &shape(1, 3), 0, |stage, over| {
        let died = revive(stage.cluster, over);
        eprintln!("{died} daemons died of {effect}");
        assert!(died > 0, "of {effect}");
        // With counts that begin anew, they outlive the test.
        (0..2).for_each(|node| strike(stage.cluster, node));
    });
}

#[test]
fn a_killed_keeper_is_replaced_by_the_daemon() {
    let Some(cluster) = Cluster::of(lasting(2)) else {
        return;
    };
    let [mut one, mut two] = scripted_nodes(&cluster, "unkept");
    assert_eq!(two.ask("store 0 1"), "done");
    for value in 2..5 {
        let before = keeper(&cluster, 1);
        send(before, Signal::KILL);
        eventually("there is another keeper", || {
            let now = keeper(&cluster, 1);
            now != 0 && now != before
        });
        strike(&cluster, 1);
        assert_eq!(two.ask(&format!("store 0 {value}")), "done");
        assert_eq!(one.ask("load 0"), value.to_string());
    }
}

#[test]
fn without_daemon_and_keeper_programs_wait_and_see_no_zeros() {
    let Some(cluster) = Cluster::of(lasting(2)) else {
        return;
    };
    let [mut one, mut orphan] = scripted_nodes(&cluster, "unkept-orphans");
    assert_eq!(one.ask("store 0 1"), "done");
    send(keeper(&cluster, 1), Signal::KILL);
    cluster.kill(1).unwrap();
    orphan.tell("load 0");
    orphan.wait_until_it_sleeps_in("userfault");
    orphan.expect_silence();
    orphan.signal(Signal::INT);
    assert_eq!(orphan.end().signal(), Some(Signal::INT.as_raw()));
}

/// Scripted nodes on node 1 that wait for a page, two of them in the kernel; that wait for a call;
/// and that do nothing. The data that only node 1 has is at byte 4096.
fn orphans(cluster: &Cluster, name: &str) -> Vec<Player> {
    let [mut one, other] = scripted_nodes(cluster, name);
    let more = (0..5).map(|_| cluster.scripted_node(1, name));
    let mut orphans: Vec<Player> = std::iter::once(other).chain(more).collect();
    assert_eq!(orphans[5].ask("store 4096 8"), "done");
    assert_eq!(one.ask("store 0 7"), "done");
    orphans[3].tell("barrier 1 2");
    orphans[3].wait_until_it_sleeps_in("skb");
    cluster.kill(1).unwrap();
    for (orphan, order) in orphans.iter_mut().zip(["load 0", "store 0 9", "send 0 8"]) {
        orphan.tell(order);
        orphan.wait_until_it_sleeps_in("userfault");
    }
    orphans
}

fn expect_errors_and_no_zeros(mut orphans: Vec<Player>) {
    let waits = orphans[3].hear();
    assert!(waits.contains("daemon is gone"), "{waits}");
    let sent = orphans[2].hear();
    assert!(sent.starts_with("error: Bad address"), "{sent}");
    let call = orphans[4].ask("lock 1");
    assert!(call.contains("daemon is gone"), "{call}");
    orphans[4].tell("load 8192");
    orphans[5].tell("load 4096");
    for place in [5, 4, 1, 0] {
        let status = orphans.remove(place).end();
        let bus = Some(Signal::BUS.as_raw());
        assert_eq!(status.signal(), bus, "orphan {place}: {status}");
    }
}

#[test]
fn after_the_grace_programs_get_errors_and_no_zeros() {
    let mut plan = lasting(2);
    plan.grace = Duration::from_secs(1);
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    // The grace does not begin before all of them wait.
    let keeper = keeper(&cluster, 1);
    send(keeper, Signal::STOP);
    let orphans = orphans(&cluster, "orphans");
    for orphan in &orphans {
        orphan.expect_silence();
    }
    send(keeper, Signal::CONT);
    expect_errors_and_no_zeros(orphans);
}

#[test]
fn ctrl_c_ends_a_program_that_waits_for_another_daemon() {
    let Some(cluster) = Cluster::of(lasting(2)) else {
        return;
    };
    for orphan in orphans(&cluster, "interrupted").drain(..4) {
        orphan.expect_silence();
        orphan.signal(Signal::INT);
        assert_eq!(orphan.end().signal(), Some(Signal::INT.as_raw()));
    }
}

#[test]
fn where_the_journal_is_damaged_programs_get_errors_and_no_zeros() {
    let mut plan = lasting(2);
    // The new node is admitted when the one before it is dead.
    plan.experiment.clear();
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    let before = cluster.mesh(1).node();
    let journal = kept(keeper(&cluster, 1), "pagemesh-journal");
    let orphans = orphans(&cluster, "damaged");
    let size = journal.metadata().unwrap().len();
    // Somewhere in each of the two slots.
    for slot in [0, size / 2] {
        let mut word = [0; 8];
        journal.read_exact_at(&mut word, slot + 256).unwrap();
        journal
            .write_all_at(&word.map(|byte| !byte), slot + 256)
            .unwrap();
    }
    cluster.restart(1).unwrap();
    assert_ne!(cluster.mesh(1).node(), before, "a new node");
    assert!(cluster.node(1).log().contains("cannot be gone on with"));
    expect_errors_and_no_zeros(orphans);
}

/// An item that a keeper keeps, by the name of its memory. It may not have read the order yet.
fn kept(keeper: u32, name: &str) -> File {
    let named = |path: &PathBuf| {
        let target = std::fs::read_link(path).unwrap_or_default();
        target.to_string_lossy().contains(name)
    };
    let find = || {
        let all = std::fs::read_dir(format!("/proc/{keeper}/fd")).unwrap();
        all.map(|entry| entry.unwrap().path()).find(named)
    };
    eventually("it is kept", || find().is_some());
    let path = find().expect("it is kept");
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_daemon_that_lives_is_not_replaced_unless_so_ordered() {
    let Some(cluster) = Cluster::of(lasting(1)) else {
        return;
    };
    let node = cluster.node(0);
    let second = |more: &[&str]| {
        let mut command = node.command(cluster.program());
        command.args(["daemon", "--no-config", "--socket"]);
        command.arg(node.socket()).args(more);
        command.output().unwrap()
    };
    let refused = second(&[]);
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && why.contains("--replace"),
        "{why}"
    );
    assert_eq!(cluster.mesh(0).status().unwrap().takeovers, 0);
}
