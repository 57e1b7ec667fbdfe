//! Segments that several nodes share and that do not fit into the memory of one. (F14, FB6)

use crate::private_memory::resident;
use crate::release::release;
use crate::support::{Cluster, PAGE, eventually, load, store};
use pagemesh::{Mapping, PAGE_SIZE};
use pagemesh_cli::sandbox::Plan;
use std::ops::Range;
use std::thread;

/// Pages of the segment, and frames that each of four daemons should have.
const PAGES: u64 = 8192;
const FRAMES: u64 = 3072;

/// What a node may have beyond its frames: pages on their way, and those that came unasked within one
/// epoch.
const SLACK: u64 = FRAMES / 2;

fn plan() -> Plan {
    let mut plan = Plan::new(4);
    let memory = (FRAMES * PAGE).to_string();
    let arguments = [
        "--memory",
        &memory,
        "--lend",
        &memory,
        "--placement",
        "random",
    ];
    plan.daemon_args = arguments.iter().map(|one| (*one).to_owned()).collect();
    plan
}

fn fill(memory: &Mapping, salt: u64) {
    fill_pages(memory, 0..PAGES, salt);
}

fn fill_pages(memory: &Mapping, pages: Range<u64>, salt: u64) {
    for page in pages {
        store(memory, page as usize * PAGE_SIZE + 8, salt + page);
    }
}

fn check(memory: &Mapping, salt: u64) {
    for page in 0..PAGES {
        let found = load(memory, page as usize * PAGE_SIZE + 8);
        assert_eq!(found, salt + page, "page {page}");
    }
}

/// One node stores to more pages than it has memory for, another one reads all of them, and both find
/// what was stored. No page is lost, and every node keeps near its budget.
#[test]
fn f14_a_segment_that_is_larger_than_a_node_spreads_over_all() {
    let Some(cluster) = Cluster::of(plan()) else {
        return;
    };
    let nodes = cluster.share("wide", PAGES);
    // Owners and readers of a page are known to know the segment.
    for (node, memory) in nodes.iter().enumerate() {
        store(memory, node * PAGE_SIZE, 1);
    }
    for round in 1..3 {
        fill(&nodes[0], round * 1_000_000);
        let frames = || resident(cluster.node(0).pid(), &["pagemesh:wide"]);
        eventually("the writer keeps near its budget", || {
            frames() <= FRAMES + SLACK
        });
        check(&nodes[2], round * 1_000_000);
    }
    check(&nodes[0], 2_000_000);
    assert!(cluster.counter(0, "pages_pressed_out") > PAGES / 2);
    let total = || -> u64 {
        (0..4)
            .map(|node| resident(cluster.node(node).pid(), &["pagemesh:wide"]))
            .sum()
    };
    eventually("all nodes keep near their budgets", || {
        total() <= 4 * (FRAMES + SLACK)
    });
}

/// Each of four nodes stores to a quarter of the pages and reads all of them, three times. What the
/// others stored does not fit beside it: copies are dropped, and come again.
#[test]
fn f14_a_full_node_drops_copies_of_release_pages() {
    let Some(cluster) = Cluster::of(plan()) else {
        return;
    };
    let nodes = cluster.share_with("phases", PAGES, release());
    let phase = |node: u64, memory: &Mapping, salt| {
        let all_are_here = || memory.segment().barrier(1, 4).wait().unwrap();
        fill_pages(memory, node * PAGES / 4..(node + 1) * PAGES / 4, salt);
        all_are_here();
        check(memory, salt);
        all_are_here();
    };
    for round in 1..4 {
        thread::scope(|scope| {
            for (node, memory) in (0..).zip(&nodes) {
                scope.spawn(move || phase(node, memory, round * 1_000_000));
            }
        });
        for node in cluster.nodes() {
            eventually("every node keeps near its budget", || {
                resident(node.pid(), &["pagemesh:phases"]) <= FRAMES + SLACK
            });
        }
    }
    for node in 0..4 {
        let dropped = cluster.counter(node, "pages_pressed_out");
        assert!(dropped > PAGES / 4, "{dropped} by node {node}");
    }
}
