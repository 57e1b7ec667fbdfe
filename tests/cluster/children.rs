//! Children of processes that have segments.

use crate::support::{Cluster, load, store};

#[test]
fn a_forked_child_connects_anew_and_its_parent_goes_on() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("forked", 1)[0];
    let mut parent = cluster.puppet(1, "forked");
    for value in 1..=10 {
        store(here, 0, value);
        assert_eq!(parent.ask("fork 0"), value.to_string());
        assert_eq!(parent.ask(&format!("store 8 {value}")), "done");
        assert_eq!(load(here, 8), value);
        assert_eq!(
            parent.ask("lock 1"),
            "locked",
            "the child's end is not the parent's"
        );
        assert_eq!(parent.ask("unlock 1"), "done");
    }
}

#[test]
fn a_forked_child_reads_no_zeros_where_its_parent_has_memory() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("inherited", 1)[0];
    store(here, 0, 5);
    let mut parent = cluster.puppet(1, "inherited");
    let seen = parent.ask("inherit 0");
    let crashed = format!("signal {}", libc::SIGSEGV);
    assert!(seen == crashed || seen == "5", "{seen}");
    assert_eq!(parent.ask("load 0"), "5");
}

#[test]
fn a_started_program_inherits_no_descriptors() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    cluster.make_on(0, "private", 1, pagemesh::Options::default());
    let mut parent = cluster.puppet(0, "private");
    assert_eq!(parent.ask("store 0 1"), "done");
    let list = parent.ask("descriptors");
    assert!(list.contains("/proc/"), "{list}");
    for private in ["userfaultfd", "memfd", "socket"] {
        assert!(!list.contains(private), "{list}");
    }
    assert_eq!(parent.ask("load 0"), "1");
}
