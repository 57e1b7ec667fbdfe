//! One to many: several nodes that read the same pages at once serve each other.

use crate::common::Cluster;
use core::time::Duration;
use pagemesh_wire::local::Advice;
use pagemesh_wire::peer::{Access, Manager, Message, Window};
use pagemesh_wire::{NodeId, PageIndex, SegmentId};

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);
const N4: NodeId = NodeId(4);
const PAGES: u32 = 64;

/// Node 1 has written all pages.
fn written(nodes: usize, manager: Manager) -> (Cluster, SegmentId) {
    let mut cluster = Cluster::new(nodes);
    let window = Window::Nanos(0);
    let policy = pagemesh_wire::peer::Policy::Sequential { manager, window };
    let segment = cluster.segment_of_pages(policy, PAGES.into()).id;
    for page in 0..PAGES {
        cluster.touch(N1, page, Access::Write);
    }
    cluster.forget();
    (cluster, segment)
}

/// A node asks for all pages; nothing is delivered yet.
fn want(cluster: &mut Cluster, segment: SegmentId, node: NodeId) {
    cluster.advise(node, segment, (0, PAGES), Advice::WillNeed);
}

/// Copies that nodes sent with their bytes.
fn sent_by(cluster: &Cluster, node: NodeId) -> usize {
    let data = |message: &Message| matches!(message, Message::Data(_));
    let sent = cluster.sent.iter();
    sent.filter(|(from, _, message)| *from == node && data(message))
        .count()
}

/// Pages that a node may load from.
fn has(cluster: &Cluster, node: NodeId, segment: SegmentId) -> usize {
    let node = cluster.node(node);
    let inspection = node.inspect(segment, PageIndex(0), 0);
    inspection.expect("the segment is known").readable as usize
}

#[test]
fn readers_form_a_chain() {
    let (mut cluster, segment) = written(4, Manager::Dynamic);
    for reader in [N2, N3, N4] {
        want(&mut cluster, segment, reader);
    }
    cluster.settle();
    let sent = [N1, N2, N3, N4].map(|node| sent_by(&cluster, node));
    assert_eq!(sent, [64, 64, 64, 0]);
    for reader in [N2, N3, N4] {
        assert_eq!(has(&cluster, reader, segment), 64);
    }
}

#[test]
fn a_reader_alone_is_served_by_the_owner() {
    let (mut cluster, segment) = written(3, Manager::Dynamic);
    want(&mut cluster, segment, N2);
    cluster.settle();
    // Long after.
    cluster.pass(Duration::from_millis(100));
    want(&mut cluster, segment, N3);
    cluster.settle();
    assert_eq!([N1, N2].map(|node| sent_by(&cluster, node)), [128, 0]);
}

#[test]
fn a_fixed_manager_serves_all_itself() {
    let (mut cluster, segment) = written(3, Manager::Fixed);
    for reader in [N2, N3] {
        want(&mut cluster, segment, reader);
    }
    cluster.settle();
    assert_eq!([N1, N2].map(|node| sent_by(&cluster, node)), [128, 0]);
}

/// The second reader gets its pages although the first does not answer.
#[test]
fn a_reader_that_stands_still_costs_the_next_one_a_while() {
    let (mut cluster, segment) = written(3, Manager::Dynamic);
    want(&mut cluster, segment, N2);
    want(&mut cluster, segment, N3);
    cluster.deliver(|_, message| !matches!(message, Message::SendCopies(_)));
    assert_eq!(has(&cluster, N3, segment), 0);
    cluster.stop(N2);
    cluster.pass_with(Duration::from_millis(20), |to, _| to != N2);
    assert_eq!(has(&cluster, N3, segment), 64);
}

/// A copy that a reader sent on is overtaken by the invalidation of its version.
#[test]
fn a_copy_that_comes_too_late_is_refused() {
    let (mut cluster, segment) = written(3, Manager::Dynamic);
    want(&mut cluster, segment, N2);
    want(&mut cluster, segment, N3);
    // The copies that node 2 sends on stay on their way.
    cluster.deliver(|to, message| to != N3 || !matches!(message, Message::Data(_)));
    let late = core::mem::take(&mut cluster.lost);
    assert!(!late.is_empty());
    for page in 0..PAGES {
        cluster.touch(N1, page, Access::Write);
    }
    for datagram in &late {
        cluster.deliver_late(datagram);
    }
    assert_eq!(has(&cluster, N3, segment), 0);
    cluster.settle();
    cluster.pass(Duration::from_millis(100));
    cluster.touch(N3, 5, Access::Read);
    assert!(has(&cluster, N3, segment) > 0);
}

/// The owner dies while a copy is on its way: the search for the page counts the copies, and the one
/// on its way is not among them.
#[test]
fn a_copy_of_an_owner_that_died_is_refused() {
    let (mut cluster, segment) = written(4, Manager::Dynamic);
    // Node 4 owns the pages, so that their home lives on.
    for page in 0..PAGES {
        cluster.touch(N4, page, Access::Write);
    }
    want(&mut cluster, segment, N2);
    want(&mut cluster, segment, N3);
    cluster.deliver(|to, message| to != N3 || !matches!(message, Message::Data(_)));
    let late = core::mem::take(&mut cluster.lost);
    let late: Vec<_> = late.into_iter().filter(|(to, ..)| *to == N3).collect();
    cluster.kill(N4);
    cluster.pass_with(Duration::from_secs(8), |to, message| {
        to != N3 || !matches!(message, Message::Data(_))
    });
    for datagram in &late {
        cluster.deliver_late_to_living(datagram);
    }
    assert_eq!(has(&cluster, N3, segment), 0);
    // Node 2 has the only copies.
    cluster.touch(N3, 5, Access::Read);
    cluster.pass(Duration::from_secs(1));
    assert!(has(&cluster, N3, segment) > 0);
}
