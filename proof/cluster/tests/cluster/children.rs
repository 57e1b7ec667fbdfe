//! Children of processes that have segments.

use crate::support::{Cluster, eventually, load, store};
use pagemesh::{Options, PAGE_SIZE};

#[test]
fn a_forked_child_keeps_its_segments() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("forked", 2)[0];
    let mut scripted_node = cluster.scripted_node(1, "forked");
    for value in 1..=10 {
        store(here, 0, value);
        assert_eq!(scripted_node.ask("fork"), "born");
        assert_eq!(scripted_node.ask("load 0"), value.to_string());
        assert_eq!(scripted_node.ask(&format!("store 4096 {value}")), "done");
        assert_eq!(load(here, PAGE_SIZE), value, "the child's store");
        store(here, PAGE_SIZE, value + 100);
        assert_eq!(scripted_node.ask("load 4096"), (value + 100).to_string());
        assert_eq!(scripted_node.ask("lock 1"), "locked");
        assert_eq!(scripted_node.ask("unlock 1"), "done");
        assert_eq!(scripted_node.ask("stat"), "done");
        assert_eq!(scripted_node.ask("bye"), "ended 0");
        assert_eq!(scripted_node.ask(&format!("store 8 {value}")), "done");
        assert_eq!(load(here, 8), value, "the parent goes on");
    }
    // The children are forgotten; the process that asks is a client, too.
    let clients = || cluster.mesh(1).status().unwrap().clients;
    eventually("only the parent is left", || clients() == 3);
}

#[test]
fn a_child_of_a_child_keeps_them_too() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("generations", 1)[0];
    let mut scripted_node = cluster.scripted_node(1, "generations");
    for generation in 1..=4 {
        assert_eq!(scripted_node.ask("fork"), "born");
        store(here, 0, generation);
        assert_eq!(scripted_node.ask("load 0"), generation.to_string());
        assert_eq!(scripted_node.ask(&format!("store 8 {generation}")), "done");
        assert_eq!(load(here, 8), generation);
    }
    for _ in 0..4 {
        assert_eq!(scripted_node.ask("bye"), "ended 0");
        assert_eq!(scripted_node.ask("load 8"), "4");
    }
}

#[test]
fn a_child_that_may_only_read_reads_on() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("read", 1)[0];
    let mut scripted_node = cluster.scripted_node(1, "read --read-only");
    assert_eq!(scripted_node.ask("fork"), "born");
    for value in 1..=20 {
        store(here, 0, value);
        assert_eq!(scripted_node.ask("load 0"), value.to_string());
    }
    scripted_node.tell("store 0 5");
    scripted_node.expect(&format!("ended -{}", libc::SIGSEGV));
    assert_eq!(scripted_node.ask("load 0"), "20");
}

#[test]
fn the_locks_of_a_parent_are_not_its_childs() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    cluster.make_on(0, "locks", 1, Options::default());
    let mut scripted_node = cluster.scripted_node(1, "locks");
    let mut other = cluster.scripted_node(0, "locks");
    assert_eq!(scripted_node.ask("lock 1"), "locked");
    assert_eq!(scripted_node.ask("fork"), "born");
    assert_eq!(scripted_node.ask("unlock 1"), "error: not held");
    assert_eq!(scripted_node.ask("try 1"), "busy");
    assert_eq!(scripted_node.ask("lock 2"), "locked");
    assert_eq!(other.ask("try 1"), "busy");
    assert_eq!(scripted_node.ask("bye"), "ended 0");
    assert_eq!(other.ask("try 1"), "busy", "the parent still holds it");
    assert_eq!(scripted_node.ask("unlock 1"), "done");
    assert_eq!(other.ask("lock 1"), "locked");
    assert_eq!(other.ask("lock 2"), "recovered", "the child died with it");
}

#[test]
fn a_child_outlives_its_parent_and_the_name_of_its_segment() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let mut scripted_node = cluster.scripted_node(1, "heritage --create 8192");
    assert_eq!(scripted_node.ask("store 0 5"), "done");
    assert_eq!(scripted_node.ask("remove"), "done");
    // No other node has it, and its parent ends while the child is being forked.
    assert_eq!(scripted_node.ask("vanish"), "born");
    assert_eq!(scripted_node.ask("load 0"), "5");
    assert_eq!(scripted_node.ask("store 4096 6"), "done");
    assert_eq!(scripted_node.ask("load 4096"), "6");
    assert_eq!(scripted_node.ask("lock 1"), "locked");
    let again = scripted_node.ask("again");
    assert!(again.contains("no segment of that name"), "{again}");
    scripted_node.tell("bye");
    let segments = || cluster.mesh(1).status().unwrap().segments;
    eventually("nothing is left of it", || segments() == 0);
}

#[test]
fn a_child_without_help_finds_nothing_rather_than_zeros() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("orphans", 1)[0];
    store(here, 0, 5);
    let mut scripted_node = cluster.scripted_node(1, "orphans");
    assert_eq!(scripted_node.ask("lock 1"), "locked");
    for how in ["orphan", "bare"] {
        assert_eq!(scripted_node.ask(how), "born");
        for order in ["lock 2", "stat", "unlock 1"] {
            let answer = scripted_node.ask(order);
            let refused = answer.contains("belongs to the parent") || answer.contains("not held");
            assert!(refused, "{how}, {order}: {answer}");
        }
        scripted_node.tell("load 0");
        scripted_node.expect(&format!("ended -{}", libc::SIGSEGV));
        assert_eq!(scripted_node.ask(how), "born");
        assert_eq!(scripted_node.ask("again"), "done", "{how}");
        assert_eq!(scripted_node.ask("load 0"), "5", "{how}");
        assert_eq!(scripted_node.ask("fork"), "born", "{how}");
        assert_eq!(scripted_node.ask("load 0"), "5", "{how}");
        assert_eq!(scripted_node.ask("bye"), "ended 0");
        assert_eq!(scripted_node.ask("bye"), "ended 0");
        assert_eq!(scripted_node.ask("load 0"), "5");
    }
    assert_eq!(scripted_node.ask("unlock 1"), "done");
}

#[test]
fn families_of_processes_with_threads_lose_no_step() {
    const PAGES: u64 = 4;
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("family", PAGES);
    store(&maps[0], 2 * PAGE_SIZE, 7);
    let arguments = "family family --children 4 --generations 2 --threads 3";
    let players = [1, 1, 0].map(|node| cluster.player(node, arguments));
    crate::support::finish_all(players.into());
    let [added, locked, members] = [0, PAGE_SIZE, 3 * PAGE_SIZE].map(|at| load(&maps[0], at));
    assert_eq!((added, locked), (members, members), "no step was lost");
    // 21 members, with three threads of at least 20 rounds each.
    assert!(added >= 3 * 21 * 3 * 20, "{added}");
}

#[test]
fn a_started_program_inherits_no_descriptors() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    cluster.make_on(0, "private", 1, Options::default());
    let mut parent = cluster.scripted_node(0, "private");
    assert_eq!(parent.ask("store 0 1"), "done");
    let list = parent.ask("descriptors");
    assert!(list.contains("/proc/"), "{list}");
    for private in ["userfaultfd", "memfd", "socket"] {
        assert!(!list.contains(private), "{list}");
    }
    assert_eq!(parent.ask("load 0"), "1");
}
