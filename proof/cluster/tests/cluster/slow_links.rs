//! Links that carry less than nodes ask for.

use crate::support::{Cluster, load, store};
use pagemesh::{Advice, Mapping, PAGE_SIZE};
use pagemesh_cli::sandbox::Plan;
use std::thread;

/// So much is written on one node and read on all others.
const PAGES: u64 = 2048;

/// What the link's queue holds: less than a reader asks for at once, and more than a daemon gives the
/// kernel.
const LIMIT: &str = "600kb";

/// A command of iproute2 on node 0; what it printed, if it succeeded.
fn tc(cluster: &Cluster, arguments: &str) -> Option<String> {
    let mut tc = cluster.node(0).command("tc");
    let output = tc.args(arguments.split(' ')).output().ok()?;
    let said = output.status.success().then_some(output.stdout)?;
    String::from_utf8(said).ok()
}

/// Three nodes, of which the first sends at 200 Mbit/s; none where that cannot be had.
fn cluster(sealed: bool) -> Option<Cluster> {
    let mut plan = Plan::new(3);
    (plan.mtu, plan.sealed) = (1500, sealed);
    plan.compress = Some("off".into());
    let cluster = Cluster::of(plan)?;
    let shape = format!("qdisc replace dev mesh0 root tbf rate 200mbit burst 128kb limit {LIMIT}");
    if !cluster.isolated() || tc(&cluster, &shape).is_none() {
        eprintln!("skipped: no links to shape here; run as root, with iproute2");
        return None;
    }
    Some(cluster)
}

fn read_all(memory: &Mapping) {
    let segment = memory.segment();
    segment.advise(0..segment.size(), Advice::WillNeed).unwrap();
    for page in 0..PAGES as usize {
        assert_eq!(load(memory, page * PAGE_SIZE + 8), page as u64 + 1);
    }
}

/// The queue of a link drops without a word what it cannot hold, and the daemons wait for it.
#[test]
fn the_queue_of_a_slow_link_drops_nothing() {
    for sealed in [false, true] {
        let Some(cluster) = cluster(sealed) else {
            return;
        };
        let maps = cluster.share("slow", PAGES);
        for page in 0..PAGES as usize {
            store(&maps[0], page * PAGE_SIZE + 8, page as u64 + 1);
        }
        thread::scope(|scope| {
            for memory in &maps[1..] {
                scope.spawn(|| read_all(memory));
            }
        });
        let queue = tc(&cluster, "-s qdisc show dev mesh0").expect("it was shaped");
        assert!(queue.contains("(dropped 0,"), "{queue}");
        let held = cluster.counter(0, "datagrams_held");
        assert!(held > 0, "{queue}");
        assert_eq!(cluster.counter(1, "seal_replayed"), 0);
    }
}
