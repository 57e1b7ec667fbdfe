//! One to many: several nodes that read the same pages at once serve each other.

use crate::common::{Cluster, MAPPING};
use core::time::Duration;
use pagemesh_core::{Budgets, Input, Request};
use pagemesh_wire::local::Advice;
use pagemesh_wire::peer::{Access, Call, Manager, Message, Policy, Spread, Window};
use pagemesh_wire::{NodeId, PageCount, PageIndex, Program, SegmentId, SyncKey};

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
    let data = |message: &Message| matches!(message, Message::Data(_) | Message::PolicyPage(_));
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
    cluster.pass(Duration::from_secs(1));
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

/// A reader that asks for a part beyond what another one asked for gets that part from the owner.
#[test]
fn each_page_comes_from_who_has_it() {
    let (mut cluster, segment) = written(3, Manager::Dynamic);
    cluster.advise(N2, segment, (0, 40), Advice::WillNeed);
    want(&mut cluster, segment, N3);
    cluster.settle();
    let sent = [N1, N2, N3].map(|node| sent_by(&cluster, node));
    assert_eq!(sent, [64, 40, 0]);
    assert_eq!(has(&cluster, N3, segment), 64);
}

/// Under `release`, node 1 has written all pages, and all nodes know.
fn released(nodes: usize) -> (Cluster, SegmentId) {
    let mut cluster = Cluster::new(nodes);
    let spread = Spread::Lazy;
    let segment = cluster.segment_of_pages(Policy::Release { spread }, PAGES.into());
    let segment = segment.id;
    for page in 0..PAGES {
        cluster.touch(N1, page, Access::Write);
    }
    let number = 1;
    for node in (1..=nodes as u16).map(NodeId) {
        let call = Call::barrier(SyncKey { segment, number }, nodes as u32);
        cluster.look(node, segment);
        cluster.ask(node, Request::Call { to: None, call });
    }
    cluster.settle();
    for node in (2..=nodes as u16).map(NodeId) {
        cluster.advise(node, segment, (0, PAGES), Advice::Sequential);
    }
    cluster.forget();
    (cluster, segment)
}

/// A node loads from all pages in their order.
fn read(cluster: &mut Cluster, node: NodeId) {
    for page in 0..PAGES {
        cluster.touch(node, page, Access::Read);
    }
}

/// Each but the first gets only the pages from the writer that it asked for one by one.
#[test]
fn readers_under_release_form_a_chain() {
    let (mut cluster, segment) = released(4);
    for reader in [N2, N3, N4] {
        read(&mut cluster, reader);
    }
    let sent = [N1, N2, N3, N4].map(|node| sent_by(&cluster, node));
    assert_eq!(sent, [64 + 2 + 2, 62, 62, 0]);
    for reader in [N2, N3, N4] {
        assert_eq!(has(&cluster, reader, segment), 64);
    }
}

#[test]
fn a_reader_alone_is_served_by_the_writer_under_release() {
    let (mut cluster, _) = released(3);
    read(&mut cluster, N2);
    cluster.pass(Duration::from_secs(1));
    read(&mut cluster, N3);
    assert_eq!([N1, N2].map(|node| sent_by(&cluster, node)), [128, 0]);
}

/// A program of an older version is to take a member's place.
#[test]
fn where_a_member_speaks_an_older_version_the_writer_serves_all_under_release() {
    let (mut cluster, _) = released(4);
    let speaks = Program::SILENT.speaks;
    cluster.ask(N4, Request::MakeRoom { speaks });
    cluster.pass(Duration::from_secs(5));
    assert_eq!(cluster.node(N1).spoken(), 4);
    cluster.forget();
    for reader in [N2, N3] {
        read(&mut cluster, reader);
    }
    assert_eq!([N1, N2].map(|node| sent_by(&cluster, node)), [128, 0]);
}

/// What the writer has stored since is nowhere else.
#[test]
fn a_page_stored_to_since_comes_from_its_writer() {
    let (mut cluster, segment) = released(4);
    read(&mut cluster, N2);
    for page in 0..PAGES {
        cluster.touch(N1, page, Access::Write);
    }
    let key = SyncKey { segment, number: 2 };
    for node in [N1, N3] {
        let call = Call::barrier(key, 2);
        cluster.ask(node, Request::Call { to: None, call });
    }
    cluster.settle();
    cluster.forget();
    read(&mut cluster, N3);
    assert_eq!([N1, N2].map(|node| sent_by(&cluster, node)), [64, 0]);
    assert_eq!(has(&cluster, N3, segment), 64);
}

/// The second reader waits for the copies of the first, and gets them when those have come.
#[test]
fn a_request_left_to_a_reader_waits_for_its_copy() {
    let (mut cluster, segment) = released(3);
    for reader in [N2, N3] {
        cluster.touch(reader, 0, Access::Read);
    }
    // The copies of the first reader stay on their way.
    for reader in [N2, N3] {
        let fault = Input::Fault {
            mapping: MAPPING,
            page: PageIndex(1),
            access: Access::Read,
        };
        cluster.input(reader, fault);
        cluster.deliver(|to, message| to != N2 || !matches!(message, Message::PolicyPage(_)));
    }
    assert_eq!(has(&cluster, N3, segment), 2);
    for datagram in core::mem::take(&mut cluster.lost) {
        cluster.deliver_late(&datagram);
    }
    cluster.settle();
    // The first page of a burst is not mapped.
    assert_eq!(has(&cluster, N2, segment), 33);
    assert_eq!(has(&cluster, N3, segment), 33);
    assert_eq!(sent_by(&cluster, N2), 32);
}

/// The first reader is full and has dropped its copies. It says so, and the second asks the writer at
/// once.
#[test]
fn a_reader_without_copies_under_release_costs_the_next_one_nothing() {
    let (mut cluster, segment) = released(3);
    read(&mut cluster, N2);
    let budgets = Budgets {
        frames: PageCount(0),
        ..Budgets::default()
    };
    cluster.pass(Duration::from_millis(50));
    cluster.input(N2, Input::Budgets(budgets));
    cluster.pass(Duration::from_millis(50));
    assert_eq!(has(&cluster, N2, segment), 0);
    cluster.forget();
    read(&mut cluster, N3);
    assert_eq!(has(&cluster, N3, segment), 64);
    assert_eq!([N1, N2].map(|node| sent_by(&cluster, node)), [64, 0]);
}

/// The first reader does not answer: the second asks the writer again.
#[test]
fn a_reader_that_stands_still_under_release_costs_the_next_one_a_while() {
    let (mut cluster, segment) = released(3);
    read(&mut cluster, N2);
    cluster.stop(N2);
    read(&mut cluster, N3);
    cluster.pass_with(Duration::from_millis(200), |to, _| to != N2);
    read(&mut cluster, N3);
    cluster.pass_with(Duration::from_millis(200), |to, _| to != N2);
    assert_eq!(has(&cluster, N3, segment), 64);
}
