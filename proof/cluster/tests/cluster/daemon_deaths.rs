//! Daemons that are killed: what only they had is an error, all else goes on.

use crate::support::{Cluster, PATIENCE, eventually, load, store};
use pagemesh::{Health, Manager, Mapping, Options, PAGE_SIZE, Policy, Window};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

/// Pages of the test segment, by what becomes of them when node 2 dies.
const LOST: usize = 0;
const COPIED: usize = PAGE_SIZE;
const ELSEWHERE: usize = 2 * PAGE_SIZE;
const UNTOUCHED: usize = 3 * PAGE_SIZE;

/// A page that the nodes that live share.
const SHARED: usize = PAGE_SIZE;

/// How long an access waits for a first node that is silent.
const FORSAKEN: Duration = Duration::from_secs(60);

fn share(cluster: &Cluster, name: &str, manager: Manager) -> Vec<Mapping> {
    let window = Window::Auto;
    let options = Options {
        policy: Policy::Sequential { manager, window },
        ..Options::default()
    };
    let maps = cluster.share_with(name, 8, options);
    store(&maps[2], LOST, 1);
    store(&maps[2], COPIED, 2);
    assert_eq!(load(&maps[1], COPIED), 2);
    store(&maps[1], ELSEWHERE, 3);
    assert_eq!(load(&maps[2], ELSEWHERE), 3);
    maps
}

fn wait_for_the_funeral(cluster: &Cluster) {
    wait_for_the_dead(cluster, 1);
}

fn wait_for_the_dead(cluster: &Cluster, count: usize) {
    eventually("node 2 is declared dead", || {
        let members = cluster.mesh(1).members().unwrap().members;
        let dead = members
            .iter()
            .filter(|member| member.health == Health::Dead);
        dead.count() >= count
    });
}

#[test]
fn what_only_a_dead_node_had_is_an_error_and_all_else_goes_on() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let segments = [("dynamic", Manager::Dynamic), ("fixed", Manager::Fixed)];
    let maps = segments.map(|(name, manager)| share(&cluster, name, manager));
    let mut holder = cluster.scripted_node(2, "dynamic");
    assert_eq!(holder.ask("lock 1"), "locked");
    holder.tell("barrier 1 2");
    cluster.kill(2).unwrap();

    for ((name, _), maps) in segments.iter().zip(&maps) {
        // Asked before the death is known, and after.
        expect_sigbus(&cluster, 0, name);
        wait_for_the_funeral(&cluster);
        expect_sigbus(&cluster, 1, name);
        expect_survivors(maps);
    }
    expect_no_bad_address(&cluster);
    let log = cluster.node(0).log();
    let told = |line: &&str| line.contains("SIGBUS") && line.contains("page=0");
    let line = log
        .lines()
        .find(told)
        .unwrap_or_else(|| panic!("not told: {log}"));
    assert!(line.contains("n3"), "names the node: {line}");

    let mut successor = cluster.scripted_node(0, "dynamic");
    assert_eq!(successor.ask("lock 1"), "recovered");
    successor.tell("barrier 1 2");
    successor.expect_silence();
    cluster.scripted_node(1, "dynamic").ask("barrier 1 2");
    successor.expect("passed");
}

fn expect_sigbus(cluster: &Cluster, node: usize, name: &str) {
    for order in ["load 0", "store 0 5", "load 8"] {
        let mut scripted_node = cluster.scripted_node(node, name);
        scripted_node.tell(order);
        let status = scripted_node.end();
        let bus = Some(Signal::BUS.as_raw());
        assert_eq!(
            status.signal(),
            bus,
            "{name}, node {node}, {order}: {status}"
        );
    }
}

/// System calls fail where the program itself would crash.
fn expect_no_bad_address(cluster: &Cluster) {
    let mut scripted_node = cluster.scripted_node(1, "dynamic");
    let answer = scripted_node.ask("send 0 8");
    assert!(answer.starts_with("error: Bad address"), "{answer}");
    assert_eq!(scripted_node.ask(&format!("load {ELSEWHERE}")), "30");
}

fn expect_survivors(maps: &[Mapping]) {
    for (at, value) in [(COPIED, 2), (ELSEWHERE, 3), (UNTOUCHED, 0)] {
        assert_eq!(load(&maps[0], at), value);
        assert_eq!(load(&maps[1], at), value);
        store(&maps[0], at, value + 1);
        store(&maps[1], at, value * 10);
        assert_eq!(load(&maps[0], at), value * 10);
    }
}

#[test]
fn after_the_grace_a_killed_daemon_comes_back_as_a_new_node() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let maps = cluster.share("returned", 4);
    store(&maps[0], 0, 1);
    store(&maps[2], PAGE_SIZE, 2);
    let before = cluster.mesh(2).node();
    cluster.kill(2).unwrap();
    cluster.restart(2).unwrap();
    assert_ne!(cluster.mesh(2).node(), before);
    wait_for_the_funeral(&cluster);
    let back = cluster.map(2, "returned");
    assert_eq!(load(&back, 0), 1);
    store(&back, 0, 3);
    assert_eq!(load(&maps[1], 0), 3);
    let mut scripted_node = cluster.scripted_node(2, "returned");
    scripted_node.tell(&format!("load {PAGE_SIZE}"));
    assert_eq!(
        scripted_node.end().signal(),
        Some(Signal::BUS.as_raw()),
        "lost with its former life"
    );
}

/// A new node at the address of a dead one is another node: it does not take the dead one's state
/// for its own, and nodes that remember the address find the new one.
#[test]
fn a_new_node_at_the_address_of_a_dead_one_shares_memory() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let maps = cluster.share("recycled", 4);
    let mut nodes = vec![cluster.mesh(2).node()];
    for value in 1..=2 {
        // So that all others believe the page to be at this address.
        let own = cluster.map(2, "recycled");
        store(&own, SHARED, value);
        assert_eq!(load(&maps[0], SHARED), value);
        assert_eq!(load(&maps[1], SHARED), value);
        drop(own.segment().lock(value).lock().unwrap());
        drop(own);
        cluster.kill(2).unwrap();
        if value == 2 {
            wait_for_the_dead(&cluster, 2);
        }
        cluster.restart(2).unwrap();
        nodes.push(cluster.mesh(2).node());
        let back = cluster.map(2, "recycled");
        assert_eq!(load(&back, SHARED), value, "regained from a copy");
        for (memory, more) in [(&back, 10), (&maps[1], 20), (&maps[0], 30), (&back, 40)] {
            let guard = memory.segment().lock(value).lock().unwrap();
            store(memory, SHARED, value + more);
            drop(guard);
            for reader in [&maps[0], &back, &maps[1]] {
                assert_eq!(load(reader, SHARED), value + more);
            }
        }
        wait_for_the_dead(&cluster, value as usize);
    }
    nodes.dedup();
    assert_eq!(nodes.len(), 3, "{nodes:?}");
    let members = cluster.mesh(1).members().unwrap().members;
    let address = cluster.node(2).address();
    let there = members.iter().filter(|member| member.address == address);
    assert_eq!(there.count(), 3, "{members:?}");
}

#[test]
fn the_last_node_alive_knows_what_is_lost() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("widow", 2);
    store(&maps[1], 0, 1);
    store(&maps[0], PAGE_SIZE, 2);
    assert_eq!(load(&maps[1], PAGE_SIZE), 2);
    cluster.kill(1).unwrap();
    expect_sigbus(&cluster, 0, "widow");
    store(&maps[0], PAGE_SIZE, 3);
    assert_eq!(load(&maps[0], PAGE_SIZE), 3);
}

#[test]
fn without_the_first_node_memory_goes_on() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    cluster.make_on(1, "headless", 2, Options::default());
    let maps = [1, 2].map(|node| cluster.map(node, "headless"));
    cluster.kill(0).unwrap();
    for value in 1..=20 {
        let (here, there) = (&maps[value as usize % 2], &maps[1 - value as usize % 2]);
        let guard = here.segment().lock(1).lock().unwrap();
        store(here, 0, value);
        drop(guard);
        assert_eq!(load(there, 0), value);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| maps[0].segment().barrier(1, 2).wait().unwrap());
        maps[1].segment().barrier(1, 2).wait().unwrap();
    });
}

/// The first node is not declared dead, since it may come back; but no access waits for it for ever
/// either.
#[test]
fn what_only_a_silent_first_node_has_is_an_error_in_time() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let maps = cluster.share("overdue", 2);
    store(&maps[0], LOST, 1);
    store(&maps[1], SHARED, 0);
    assert_eq!(load(&maps[2], SHARED), 0);
    let mut reader = cluster.scripted_node(1, "overdue");
    let mut writer = cluster.scripted_node(2, "overdue");
    let mut locker = cluster.scripted_node(2, "overdue");
    assert_eq!(reader.ask(&format!("load {SHARED}")), "0");
    assert_eq!(locker.ask(&format!("load {SHARED}")), "0");
    cluster.kill(0).unwrap();
    let began = Instant::now();
    reader.tell("load 0");
    writer.tell("store 0 5");
    locker.tell("lock 1");
    // All else goes on, meanwhile and afterwards.
    for value in 1..=FORSAKEN.as_secs() {
        let (here, there) = (&maps[1 + value as usize % 2], &maps[2 - value as usize % 2]);
        store(here, SHARED, value);
        assert_eq!(load(there, SHARED), value);
        if began.elapsed() < FORSAKEN - Duration::from_secs(3) {
            // Where the host is busy, a thread that wakes for a moment may be found awake.
            eventually("the reader waits", || reader.state() == Some('S'));
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    let bus = Some(Signal::BUS.as_raw());
    assert_eq!(reader.end().signal(), bus);
    assert_eq!(writer.end().signal(), bus);
    let answer = locker.hear();
    assert!(answer.contains("n1"), "names who is gone: {answer}");
    assert!(began.elapsed() < FORSAKEN + PATIENCE);
    let log = cluster.node(1).log();
    let told = |line: &&str| line.contains("SIGBUS") && line.contains("page=0");
    let line = log.lines().find(told).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("n1") && line.contains("cure"), "{line}");
}

#[test]
fn without_the_first_node_names_are_errors() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    cluster.make_on(1, "nameless", 1, Options::default());
    let mut scripted_node = cluster.scripted_node(1, "nameless");
    assert_eq!(scripted_node.ask("stat"), "done");
    cluster.kill(0).unwrap();
    let answer = scripted_node.ask("stat");
    assert!(answer.contains("n1"), "names who is gone: {answer}");
}

/// Output and exit code of `pagemesh` on a node.
fn say(cluster: &Cluster, node: usize, words: &str) -> (Option<i32>, String) {
    let mut command = cluster.node(node).command(cluster.program());
    let output = command.args(words.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said + &why)
}

#[test]
fn an_expelled_node_says_so_and_a_dead_one_is_missed_until_it_is_forgotten() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let healthy = (Some(0), "healthy: 3 nodes alive, 0 dead");
    let (code, said) = say(&cluster, 2, "status");
    assert!(
        code == healthy.0 && said.starts_with(healthy.1),
        "{code:?}: {said}"
    );
    let (code, why) = say(&cluster, 0, "members forget n3");
    assert!(
        code == Some(1) && why.contains("is alive"),
        "{code:?}: {why}"
    );
    cluster.signal(2, Signal::STOP).unwrap();
    wait_for_the_funeral(&cluster);
    let (code, said) = say(&cluster, 0, "status");
    assert!(
        code == Some(4) && said.contains("members forget n3"),
        "{code:?}: {said}"
    );
    for _ in 0..2 {
        // Any node passes it on, and once is enough.
        let (code, said) = say(&cluster, 1, "members forget 3");
        assert_eq!(code, Some(0), "{said}");
    }
    let (code, said) = say(&cluster, 0, "status");
    assert!(
        code == Some(0) && said.starts_with("healthy: 2 nodes alive, 0 dead"),
        "{said}"
    );
    let (_, shown) = say(&cluster, 0, "members");
    assert!(
        !shown.contains("forgotten") && !shown.contains("dead"),
        "{shown}"
    );
    let (_, shown) = say(&cluster, 0, "members --all");
    assert!(shown.contains("forgotten"), "{shown}");
    // It joins again, and stays out only when it is revoked.
    cluster.signal(2, Signal::CONT).unwrap();
    eventually("the stopped node is a member again", || {
        let (code, said) = say(&cluster, 2, "status");
        code == Some(0) && said.starts_with("healthy: 3 nodes alive")
    });
    let (code, said) = say(&cluster, 0, "key revoke 4");
    assert_eq!(code, Some(0), "{said}");
    eventually("the revoked node says so", || {
        let (code, said) = say(&cluster, 2, "status");
        code == Some(4) && said.starts_with("out:") && !said.contains("alive")
    });
}
