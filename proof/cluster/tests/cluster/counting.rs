//! Four nodes that count in one word while two of them die: a scenario for every policy that keeps what
//! others have seen.

use crate::replicas::is_kept;
use crate::support::{Cluster, eventually, load, store};
use pagemesh::{Access, Options};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Counts with a lock until it is told to end. `most` is the most that a node which goes on has
/// found or stored.
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
pub(crate) fn a_count_goes_on_from_where_it_was_seen(options: Options) {
    let Some(cluster) = Cluster::start(4) else {
        return;
    };
    cluster.make_on(1, "counted", 1, options);
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
