//! Programs that change the mapping of a segment behind the library's back. The
//! C library's calls are guarded (`c_examples.rs`); these are not.

use crate::support::{Cluster, Player, load, store};
use pagemesh::PAGE_SIZE;

const PAGES: usize = 4;

/// Damage that one process on node 1 does to its pages 1 and 2, all of which it has stored to,
/// harms no other process, there or elsewhere.
fn tamper(name: &str, order: &str, heard: &str, then: impl Fn(&mut Player)) {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share(name, PAGES as u64)[0];
    let mut neighbour = cluster.scripted_node(1, name);
    let mut scripted_node = cluster.scripted_node(1, name);
    for page in 0..PAGES {
        let at = page * PAGE_SIZE;
        assert_eq!(
            scripted_node.ask(&format!("store {at} {}", page + 1)),
            "done"
        );
    }
    let heard_then = scripted_node.ask(&format!("{order} {PAGE_SIZE} {}", 2 * PAGE_SIZE));
    assert_eq!(heard_then, heard);
    for round in 0..3 {
        for page in 0..PAGES {
            let at = page * PAGE_SIZE;
            let value = (page + 1 + 10 * round) as u64;
            assert_eq!(load(here, at), value, "page {page} on node 0");
            assert_eq!(neighbour.ask(&format!("load {at}")), value.to_string());
            assert_eq!(neighbour.ask(&format!("store {at} {}", value + 5)), "done");
            assert_eq!(load(here, at), value + 5);
            store(here, at, value + 10);
        }
        // The rest of its mapping goes on.
        let last = (PAGES - 1) * PAGE_SIZE;
        assert_eq!(
            scripted_node.ask(&format!("load {last}")),
            load(here, last).to_string()
        );
    }
    then(&mut scripted_node);
}

#[test]
fn pages_said_to_be_unneeded_come_back() {
    tamper("discarded", "discard", "done", |scripted_node| {
        assert_eq!(scripted_node.ask("load 4096"), "32");
        assert_eq!(scripted_node.ask("store 4096 7"), "done");
        assert_eq!(scripted_node.ask("load 4096"), "7");
    });
}

#[test]
fn who_unmaps_pages_crashes_there() {
    tamper("unmapped", "unmap", "done", |scripted_node| {
        scripted_node.tell("load 4096");
        assert!(!scripted_node.is_well());
    });
}

#[test]
fn who_maps_something_over_a_segment_has_that() {
    tamper("buried", "map_over", "done", |scripted_node| {
        assert_eq!(scripted_node.ask("load 4096"), "0");
        assert_eq!(scripted_node.ask("store 4096 666"), "done");
    });
}

#[test]
fn who_moves_a_segment_loses_it() {
    tamper("moved", "move", "2", |scripted_node| {
        scripted_node.tell("load 4096");
        assert!(!scripted_node.is_well());
    });
}

#[test]
fn removed_pages_are_zeros_and_stop_nobody() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("removed", 2)[0];
    let mut scripted_node = cluster.scripted_node(1, "removed");
    assert_eq!(scripted_node.ask("store 0 5"), "done");
    assert_eq!(scripted_node.ask("store 4096 6"), "done");
    assert_eq!(scripted_node.ask("punch 0 4096"), "done");
    assert_eq!((load(here, 0), load(here, PAGE_SIZE)), (0, 6));
    store(here, 0, 7);
    assert_eq!(scripted_node.ask("load 0"), "7");
}
