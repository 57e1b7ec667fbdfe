//! Information for programs: probes, counters, time stamps, members, pages.

use crate::support::{Cluster, load, store};
use pagemesh::{Advice, Error, Health, NodeId, PAGE_SIZE, Refusal, StampKind};

#[test]
fn every_node_is_probed_and_strangers_are_not_there() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let nodes: Vec<_> = (0..3).map(|node| cluster.mesh(node).node()).collect();
    for from in 0..3 {
        for to in &nodes {
            assert!(!cluster.mesh(from).probe(*to).unwrap().is_zero());
        }
    }
    let nobody = NodeId(99);
    let probed = cluster.mesh(1).probe(nobody);
    let gone = Refusal::NodeGone(nobody);
    assert!(matches!(probed, Err(Error::Refused(why)) if why == gone));
}

#[test]
fn members_are_the_same_everywhere() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let seen = cluster.mesh(0).members().unwrap();
    assert_eq!(seen.members.len(), 3);
    for (index, member) in seen.members.iter().enumerate() {
        assert_eq!(member.health, Health::Alive);
        assert_eq!(member.address, cluster.node(index).address());
        assert_eq!(member.name, format!("node{index}"));
        let status = cluster.mesh(index).status().unwrap();
        assert_eq!((status.node, status.alive), (member.id, 3));
    }
    assert_eq!(cluster.mesh(2).members().unwrap(), seen);
}

/// How much a counter of a node grows while something is done.
fn growth(cluster: &Cluster, node: usize, names: &[&str], work: impl FnOnce()) -> Vec<u64> {
    let read = || names.iter().map(|name| cluster.counter(node, name));
    let before: Vec<_> = read().collect();
    work();
    read()
        .zip(before)
        .map(|(after, before)| after - before)
        .collect()
}

/// Asserts that counters of a node grow by this much, or more by what any node had to say
/// again meanwhile.
fn grows(cluster: &Cluster, node: usize, expected: &[(&str, u64)], work: impl FnOnce()) {
    let resent = || {
        (0..2)
            .map(|node| cluster.counter(node, "resent"))
            .sum::<u64>()
    };
    let names: Vec<&str> = expected.iter().map(|(name, _)| *name).collect();
    let before = resent();
    let grown = growth(cluster, node, &names, work);
    let again = resent() - before;
    for ((name, by), grown) in expected.iter().zip(grown) {
        let what = format!("{name} of node {node}: {grown}, {again} said again");
        assert!((*by..=by + again).contains(&grown), "{what}");
        assert!(*by > 0 || grown == 0, "{what}");
    }
}

#[test]
fn each_page_that_moves_is_counted_once_at_both_ends() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("counted", 8);
    for map in &maps {
        // A walk that is recognised has pages arrive without faults.
        let segment = map.segment();
        segment.advise(0..segment.size(), Advice::Random).unwrap();
    }
    for page in 0..8 {
        store(&maps[0], page * PAGE_SIZE, 1);
    }
    let out = [("pages_out", 5), ("copies_given", 5), ("downgrades", 5)];
    grows(&cluster, 0, &out, || {
        let come = [("pages_in", 5), ("faults_read", 5), ("copies_arrived", 5)];
        grows(&cluster, 1, &come, || {
            for page in 0..5 {
                assert_eq!(load(&maps[1], page * PAGE_SIZE), 1);
                assert_eq!(load(&maps[1], page * PAGE_SIZE), 1, "again, for nothing");
            }
        });
    });
}

#[test]
fn who_has_a_copy_gets_the_right_to_write_without_its_bytes() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("upgraded", 1);
    store(&maps[0], 0, 1);
    assert_eq!(load(&maps[1], 0), 1);
    let arrives = [
        ("faults_upgrade", 1),
        ("ownerships_arrived", 1),
        ("pages_in", 0),
    ];
    grows(&cluster, 1, &arrives, || store(&maps[1], 0, 2));
    // The reader is told to forget its copy.
    let told = [
        ("invalidations_in", 1),
        ("pages_out", 0),
        ("ownerships_given", 0),
    ];
    grows(&cluster, 0, &told, || {
        assert_eq!(load(&maps[0], 0), 2);
        store(&maps[1], 0, 3);
    });
}

#[test]
fn stores_to_ones_own_page_and_locks_of_ones_own_say_nothing() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("own", 1);
    store(&maps[1], 0, 1);
    let lock = maps[1].segment().lock(1);
    drop(lock.lock().unwrap());
    let names = [
        "asked",
        "pages_in",
        "pages_out",
        "kernel_faults",
        "tokens_in",
    ];
    let grown = growth(&cluster, 1, &names, || {
        for value in 0..1000 {
            let guard = lock.lock().unwrap();
            store(&maps[1], 0, value);
            drop(guard);
        }
    });
    assert_eq!(grown, [0; 5]);
}

#[test]
fn stamps_tell_in_order_what_happened_between_two_marks() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("stamped", 4);
    store(&maps[0], 3 * PAGE_SIZE, 1);
    let mesh = cluster.mesh(1);
    mesh.stamp(1001).unwrap();
    assert_eq!(load(&maps[1], 3 * PAGE_SIZE), 1);
    mesh.stamp(1002).unwrap();
    let mut stamps = Vec::new();
    loop {
        let from = stamps
            .last()
            .map_or(0, |last: &pagemesh::Stamp| last.number + 1);
        match mesh.stamps(from).unwrap() {
            some if some.is_empty() => break,
            some => stamps.extend(some),
        }
    }
    assert!(stamps.is_sorted_by_key(|stamp| (stamp.number, stamp.nanos)));
    let mark = |tag| {
        let is_mark =
            |stamp: &pagemesh::Stamp| (stamp.what, stamp.tag) == (StampKind::Program, tag);
        stamps.iter().position(is_mark).expect("the mark is there")
    };
    let between = &stamps[mark(1001)..mark(1002)];
    let page = |kind| {
        between
            .iter()
            .position(|stamp| (stamp.what, stamp.tag) == (kind, 3))
    };
    let story = [
        StampKind::Fault,
        StampKind::Asked,
        StampKind::Arrived,
        StampKind::Mapped,
    ];
    let places: Vec<_> = story.into_iter().map(page).collect();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{between:?}"
    );
}

#[test]
fn an_inspected_page_shows_its_owner_and_its_copies() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let maps = cluster.share("inspected", 4);
    store(&maps[1], PAGE_SIZE, 1);
    assert_eq!(load(&maps[2], PAGE_SIZE), 1);
    let report = |node: usize| cluster.mesh(node).inspect("inspected", 0, 10).unwrap();
    let owner = report(1);
    assert_eq!((owner.owned, owner.readable, owner.writable), (1, 1, 0));
    let line = &owner.pages[0];
    assert!(line.owner && line.page.0 == 1 && line.rights == 1);
    let copies: Vec<_> = line.copies.iter().collect();
    assert_eq!(copies, [cluster.mesh(2).node()]);
    let reader = report(2);
    assert_eq!((reader.owned, reader.readable), (0, 1));
    assert_eq!(reader.pages[0].hint, cluster.mesh(1).node());
}
