//! Segments of policy `release` with a replica: what another node has heard of outlives the node that
//! stored it.

use crate::counting::a_count_goes_on_from_where_it_was_seen;
use crate::release::{labelled, release};
use crate::replicas::is_kept;
use crate::support::Cluster;
use pagemesh::{Options, PAGE_SIZE};
use pagemesh_cli::sandbox::Plan;

fn with_replica() -> Options {
    Options {
        replicas: 1,
        ..release()
    }
}

#[test]
fn a_labelled_program_finds_the_same_with_a_replica() {
    labelled(Plan::new(4), 1, with_replica(), |_| {});
}

/// A node hears of stores by a lock, and does not look at them before their node is dead, which was
/// the home of the segment, too. Then the node that had the replica dies.
#[test]
fn stores_that_others_have_heard_of_outlive_one_node_after_the_other() {
    let Some(cluster) = Cluster::start(4) else {
        return;
    };
    cluster.make_on(1, "heard", 4, with_replica());
    let mut writer = cluster.scripted_node(1, "heard");
    // It uses the segment, and is the writer's backup.
    let mut other = cluster.scripted_node(2, "heard");
    assert_eq!(other.ask("lock 2"), "locked");
    assert_eq!(other.ask("unlock 2"), "done");
    let mut reader = cluster.scripted_node(3, "heard");
    assert_eq!(writer.ask("lock 1"), "locked");
    writer.ask("store 0 7");
    writer.ask(&format!("store {PAGE_SIZE} 8"));
    assert_eq!(writer.ask("unlock 1"), "done");
    assert_eq!(reader.ask("lock 1"), "locked");
    assert_eq!(reader.ask("unlock 1"), "done");
    // No other node learns of this store before the node dies.
    writer.ask(&format!("store {} 9", 2 * PAGE_SIZE));
    cluster.kill(1).unwrap();
    assert_eq!(reader.ask("load 0"), "7");
    assert_eq!(reader.ask(&format!("load {PAGE_SIZE}")), "8");
    assert_eq!(reader.ask(&format!("load {}", 2 * PAGE_SIZE)), "0");
    for node in [0, 2, 3] {
        is_kept(&cluster, node, "heard");
    }
    cluster.kill(2).unwrap();
    let mut late = cluster.scripted_node(0, "heard");
    for program in [&mut late, &mut reader] {
        let taken = program.ask("lock 1");
        assert!(["locked", "recovered"].contains(&&*taken), "{taken}");
        assert_eq!(program.ask("load 0"), "7");
        assert_eq!(program.ask(&format!("load {PAGE_SIZE}")), "8");
        assert_eq!(program.ask(&format!("load {}", 2 * PAGE_SIZE)), "0");
        assert_eq!(program.ask("unlock 1"), "done");
    }
}

#[test]
fn a_count_under_a_lock_goes_on_from_where_it_was_seen() {
    a_count_goes_on_from_where_it_was_seen(with_replica());
}
