//! Nodes that leave in order.

use crate::support::{A_WHILE, Cluster, eventually, load, store};
use pagemesh::{Error, Health, Manager, Options, PAGE_SIZE, Policy, Refusal, Window};
use rustix::process::Signal;

const PAGES: usize = 100;

/// Node 2 holds the only copy of every page, and the token of lock 5.
fn entrust_to_node_2(cluster: &Cluster, name: &str, manager: Manager) {
    let window = Window::Auto;
    let options = Options {
        policy: Policy::Sequential { manager, window },
        ..Options::default()
    };
    cluster.make_on(1, name, PAGES as u64, options);
    let memory = cluster.map(2, name);
    for page in 0..PAGES {
        store(&memory, page * PAGE_SIZE, page as u64 + 1);
    }
    drop(memory.segment().lock(5).lock().unwrap());
}

fn check_on_others(cluster: &Cluster, name: &str) {
    for node in [0, 1] {
        let memory = cluster.map(node, name);
        for page in 0..PAGES {
            assert_eq!(
                load(&memory, page * PAGE_SIZE),
                page as u64 + 1,
                "page {page}"
            );
            store(&memory, page * PAGE_SIZE + 8, 1);
        }
        let guard = memory.segment().lock(5).lock().unwrap();
        assert!(!guard.recovered(), "nobody died");
    }
}

fn health_of_node_2(cluster: &Cluster) -> Health {
    let members = cluster.mesh(0).members().unwrap().members;
    members
        .iter()
        .find(|member| member.name == "node2")
        .unwrap()
        .health
}

#[test]
fn a_node_that_leaves_hands_over_pages_and_locks() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    for (name, manager) in [("dynamic", Manager::Dynamic), ("fixed", Manager::Fixed)] {
        entrust_to_node_2(&cluster, name, manager);
    }
    cluster.mesh(2).leave().unwrap();
    assert_eq!(health_of_node_2(&cluster), Health::Left);
    for name in ["dynamic", "fixed"] {
        check_on_others(&cluster, name);
    }
}

#[test]
fn a_daemon_told_to_end_leaves_first() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    for (name, manager) in [("dynamic", Manager::Dynamic), ("fixed", Manager::Fixed)] {
        entrust_to_node_2(&cluster, name, manager);
    }
    let daemon = cluster.node(2).pid();
    cluster.signal(2, Signal::TERM).unwrap();
    eventually("the daemon has ended", || {
        matches!(crate::support::state(daemon), Some('Z') | None)
    });
    assert_eq!(health_of_node_2(&cluster), Health::Left);
    for name in ["dynamic", "fixed"] {
        check_on_others(&cluster, name);
    }
    assert!(
        !cluster.node(2).socket().exists(),
        "its socket is gone with it"
    );
}

#[test]
fn the_coordinator_leaves_last() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    match cluster.mesh(0).leave() {
        Err(Error::Refused(Refusal::CannotLeave(why))) => {
            assert!(why.contains("coordinator"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    cluster.mesh(1).leave().unwrap();
    eventually("nobody else is left", || cluster.mesh(0).leave().is_ok());
}

/// In the segment made by node 2, node 2 has stored to even pages, node 1 to odd ones; pages from
/// `PAGES` on were not stored to.
fn use_the_home(cluster: &Cluster, name: &str, manager: Manager) {
    let window = Window::Auto;
    let options = Options {
        policy: Policy::Sequential { manager, window },
        ..Options::default()
    };
    cluster.make_on(2, name, 2 * PAGES as u64, options);
    for node in [1, 2] {
        let memory = cluster.map(node, name);
        for page in (0..PAGES).filter(|page| page % 2 == node % 2) {
            store(&memory, page * PAGE_SIZE, page as u64 + 1);
        }
        let number = node as u64;
        drop(memory.segment().lock(number).lock().unwrap());
    }
}

#[test]
fn a_home_that_leaves_hands_over_its_role() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    for (name, manager) in [("dynamic", Manager::Dynamic), ("fixed", Manager::Fixed)] {
        use_the_home(&cluster, name, manager);
    }
    let [mut party, mut waiter] = [1, 1].map(|node| cluster.scripted_node(node, "dynamic"));
    party.tell("barrier 1 2");
    party.expect_silence();
    assert_eq!(waiter.ask("lock 9"), "locked");
    waiter.tell("condition 3 9");
    waiter.expect_silence();
    cluster.mesh(2).leave().unwrap();
    assert_eq!(health_of_node_2(&cluster), Health::Left);
    for name in ["dynamic", "fixed"] {
        let memory = cluster.map(0, name);
        for page in 0..2 * PAGES {
            let expected = if page < PAGES { page as u64 + 1 } else { 0 };
            assert_eq!(load(&memory, page * PAGE_SIZE), expected, "page {page}");
            store(&memory, page * PAGE_SIZE + 8, 1);
        }
        for number in [1, 2, 77] {
            let guard = memory.segment().lock(number).lock().unwrap();
            assert!(!guard.recovered(), "nobody died");
        }
    }
    let memory = cluster.map(0, "dynamic");
    memory.segment().barrier(1, 2).wait().unwrap();
    party.expect("passed");
    assert_eq!(memory.segment().condition(3).signal().unwrap(), 1);
    waiter.expect("woken");
    party.tell("barrier 8 2");
    memory.segment().barrier(8, 2).wait().unwrap();
    party.expect("passed");
}

#[test]
#[ignore = "takes time that grows with the square of the pages, and 5 s at most"]
fn a_daemon_with_much_to_hand_over_takes_its_time() {
    const MANY: usize = 20_000;
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("heavy", MANY as u64)[0];
    let memory = cluster.map(1, "heavy");
    for page in 0..MANY {
        store(&memory, page * PAGE_SIZE, page as u64 + 1);
    }
    let daemon = cluster.node(1).pid();
    cluster.signal(1, Signal::TERM).unwrap();
    eventually("the daemon has ended", || {
        matches!(crate::support::state(daemon), Some('Z') | None)
    });
    for page in 0..MANY {
        assert_eq!(load(here, page * PAGE_SIZE), page as u64 + 1);
    }
}

#[test]
fn a_daemon_that_cannot_leave_ends_all_the_same() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let daemon = cluster.node(0).pid();
    cluster.signal(0, Signal::TERM).unwrap();
    eventually("the daemon has ended", || {
        matches!(crate::support::state(daemon), Some('Z') | None)
    });
    let log = cluster.node(0).log();
    assert!(log.contains("coordinator"), "says what kept it: {log}");
}

#[test]
fn a_process_of_a_node_that_left_gets_no_zeros() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("stranded", 2)[0];
    store(here, 0, 1);
    let mut scripted_node = cluster.scripted_node(1, "stranded");
    assert_eq!(scripted_node.ask("load 0"), "1");
    cluster.mesh(1).leave().unwrap();
    store(here, 0, 2);
    scripted_node.tell("load 0");
    let heard = scripted_node.hear_within(A_WHILE);
    // SIGBUS while the daemon ends, no answer once it has ended.
    assert!(heard.is_none(), "{heard:?}");
}
