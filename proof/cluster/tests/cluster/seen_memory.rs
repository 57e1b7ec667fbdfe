//! Segments of policy `sequential` with a replica: what another node has seen outlives the node that
//! stored it, and so does what that had stored before.

use crate::replicas::is_kept;
use crate::support::{Cluster, eventually, load, store};
use pagemesh::{Access, Options, PAGE_SIZE};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

fn with_replica() -> Options {
    Options {
        replicas: 1,
        ..Options::default()
    }
}

/// A node stores to two pages, and another one looks at the second. Then the first one dies, which was
/// the home of the segment, too; then the node that had the replicas.
#[test]
fn memory_that_others_have_seen_outlives_one_node_after_the_other() {
    let Some(cluster) = Cluster::start(4) else {
        return;
    };
    cluster.make_on(1, "seen", 4, with_replica());
    let mut writer = cluster.scripted_node(1, "seen");
    let mut reader = cluster.scripted_node(3, "seen");
    writer.ask("store 0 7");
    writer.ask(&format!("store {PAGE_SIZE} 8"));
    assert_eq!(reader.ask(&format!("load {PAGE_SIZE}")), "8");
    assert_eq!(writer.ask("lock 1"), "locked");
    writer.ask(&format!("store {} 9", 2 * PAGE_SIZE));
    assert_eq!(writer.ask("unlock 1"), "done");
    assert_eq!(reader.ask("lock 1"), "locked");
    assert_eq!(reader.ask("unlock 1"), "done");
    cluster.kill(1).unwrap();
    let pages = [(0, "7"), (1, "8"), (2, "9"), (3, "0")];
    for (page, value) in pages {
        assert_eq!(reader.ask(&format!("load {}", page * PAGE_SIZE)), value);
    }
    for node in [0, 2, 3] {
        is_kept(&cluster, node, "seen");
    }
    cluster.kill(2).unwrap();
    let mut late = cluster.scripted_node(0, "seen");
    for program in [&mut late, &mut reader] {
        for (page, value) in pages {
            assert_eq!(program.ask(&format!("load {}", page * PAGE_SIZE)), value);
        }
    }
    late.ask("store 0 70");
    assert_eq!(reader.ask("load 0"), "70");
}

/// Counts in a word until it is told to end, while others do, too. `most` is the most that a node which
/// goes on has found or stored.
fn count(cluster: &Cluster, node: usize, most: &AtomicU64, ends: &AtomicBool) {
    let mesh = cluster.mesh(node);
    let segment = mesh.open("counted", Access::Writable).unwrap();
    let memory = segment.map().unwrap();
    let lock = segment.lock(5);
    while !ends.load(SeqCst) {
        let guard = lock.lock_timeout(Duration::from_secs(30)).unwrap();
        let before = most.load(SeqCst);
        let found = load(&memory, 0);
        assert!(found >= before, "{found} is found, {before} was seen");
        store(&memory, 0, found + 1);
        most.store(found + 1, SeqCst);
        guard.unlock();
    }
}

/// Ends the counting, also if the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Four nodes count in one word, and two of them die in the middle of it: no number that a node which
/// goes on has seen is lost.
#[test]
fn a_count_in_one_memory_goes_on_from_where_it_was_seen() {
    let Some(cluster) = Cluster::start(4) else {
        return;
    };
    cluster.make_on(1, "counted", 1, with_replica());
    let mut victims = [1, 2].map(|node| cluster.scripted_node(node, "counted"));
    let (most, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let grows = |what: &str| {
        let from = most.load(SeqCst);
        eventually(what, || most.load(SeqCst) > from + 200);
    };
    std::thread::scope(|scope| {
        let stop = Stop(&ends);
        let counters = [0, 3].map(|node| {
            let (cluster, most, ends) = (&cluster, &most, &ends);
            scope.spawn(move || count(cluster, node, most, ends))
        });
        for victim in &mut victims {
            victim.tell("count 5 0 100000000");
        }
        grows("all count");
        cluster.kill(1).unwrap();
        grows("three go on");
        for node in [0, 2, 3] {
            is_kept(&cluster, node, "counted");
        }
        cluster.kill(2).unwrap();
        grows("two go on");
        drop(stop);
        for counter in counters {
            counter.join().unwrap();
        }
    });
}
