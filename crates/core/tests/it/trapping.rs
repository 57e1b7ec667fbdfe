//! Segments whose accesses the kernel serves until something else than this node's processes concerns
//! their pages.

use crate::common::{CLIENT, Cluster};
use core::time::Duration;
use pagemesh_core::{Budgets, Effect, Input, PageRange, Reply, Request};
use pagemesh_wire::local::Advice;
use pagemesh_wire::peer::{
    Access, Contents, Data, Manager, Message, Policy, Refusal, Spread, Window,
};
use pagemesh_wire::{MappingId, NodeId, PageCount, PageIndex, SegmentId, SyncKey, Versions};

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);

/// The pages that the process of the home has used when the segment is trapped.
const USED: core::ops::Range<u32> = 2..5;

fn sequential() -> Policy {
    Policy::Sequential {
        manager: Manager::Dynamic,
        window: Window::Nanos(0),
    }
}

fn release() -> Policy {
    Policy::Release {
        spread: Spread::Lazy,
    }
}

/// Two nodes; a process of the second has made the segment and stored to some of its pages.
fn used_at_home(policy: Policy) -> (Cluster, SegmentId) {
    let mut cluster = Cluster::that_traps_late(2);
    let id = cluster.segment_on([N2], policy, 16).id;
    assert!(!cluster.node(N2).is_trapped(id));
    cluster.framed = vec![PageRange {
        segment: id,
        first: PageIndex(USED.start),
        count: USED.end - USED.start,
    }];
    (cluster, id)
}

fn traps(cluster: &Cluster) -> usize {
    let traps = |(_, effect): &&(_, Effect)| matches!(effect, Effect::Trap { .. });
    cluster.done.iter().filter(traps).count()
}

/// The first node opens the segment, and maps it.
fn open_elsewhere(cluster: &mut Cluster, policy: Policy) {
    cluster.segment_on([N1], policy, 16);
}

#[test]
fn accesses_are_trapped_when_another_node_asks_for_a_page() {
    let (mut cluster, id) = used_at_home(sequential());
    open_elsewhere(&mut cluster, sequential());
    assert!(!cluster.node(N2).is_trapped(id), "to open it asks nothing");
    for page in [USED.start, USED.end] {
        cluster.touch(N1, page, Access::Read);
    }
    assert!(cluster.node(N2).is_trapped(id));
    assert_eq!(traps(&cluster), 1);
    let copies = cluster
        .sent
        .iter()
        .filter_map(|(.., message)| match message {
            Message::Data(Data { page, contents, .. }) => Some((page.0, *contents)),
            _ => None,
        });
    let expected = [(USED.start, Contents::Bytes), (USED.end, Contents::Zero)];
    assert_eq!(copies.collect::<Vec<_>>(), expected);
    let seen = cluster.node(N2).inspect(id, PageIndex(0), 16).unwrap();
    assert_eq!((seen.owned, seen.writable), (4, 2), "one was only read");
}

#[test]
fn what_was_stored_before_a_second_node_came_is_named_to_it() {
    let (mut cluster, id) = used_at_home(release());
    open_elsewhere(&mut cluster, release());
    cluster.touch(N1, USED.start, Access::Read);
    assert_eq!(traps(&cluster), 1);
    let named = |(.., message): &&(_, _, Message)| matches!(message, Message::Policy(_));
    assert!(cluster.sent.iter().any(|sent| named(&sent)));
    let seen = cluster.node(N2).inspect(id, PageIndex(0), 16).unwrap();
    assert_eq!(seen.known, 3);
    let diffs = |(from, _, message): &&(NodeId, NodeId, Message)| {
        *from == N2 && matches!(message, Message::Diffs(_) | Message::PolicyPage(_))
    };
    assert!(
        cluster.sent.iter().any(|sent| diffs(&sent)),
        "as diff or page"
    );
    cluster.forget();
    cluster.touch(N1, USED.end, Access::Read);
    assert!(cluster.sent.is_empty(), "nobody stored to it: zeros");
}

/// The process of the home was at the barrier before anybody else had opened the segment.
#[test]
fn a_process_that_waited_at_a_barrier_before_is_heard_by_those_that_come_later() {
    let (mut cluster, id) = used_at_home(release());
    let key = SyncKey {
        segment: id,
        number: 1,
    };
    let arrive = |cluster: &mut Cluster, node| {
        let call = pagemesh_wire::peer::Call::Barrier {
            key,
            parties: 2,
            payload: Default::default(),
        };
        let ticket = cluster.ask(node, Request::Call { to: None, call });
        cluster.settle();
        ticket
    };
    let first = arrive(&mut cluster, N2);
    assert_eq!(traps(&cluster), 0, "no other node is concerned");
    open_elsewhere(&mut cluster, release());
    let second = arrive(&mut cluster, N1);
    assert_eq!(
        [first, second].map(|ticket| cluster.reply(ticket)),
        [Some(&Reply::Done); 2]
    );
    cluster.forget();
    cluster.touch(N1, USED.start, Access::Read);
    assert!(!cluster.sent.is_empty(), "it knows that its zeros are old");
}

#[test]
fn requests_about_pages_wait_until_their_frames_are_known() {
    let segment = |id| Request::Pin {
        segment: id,
        first: PageIndex(USED.start),
        count: PageCount(1),
    };
    let (mut cluster, id) = used_at_home(sequential());
    let pinned = cluster.ask(N2, segment(id));
    assert_eq!(cluster.reply(pinned), Some(&Reply::Done));
    let seen = cluster.node(N2).inspect(id, PageIndex(0), 16).unwrap();
    assert_eq!((traps(&cluster), seen.writable), (1, 3));
}

#[test]
fn advice_changes_nothing_while_all_pages_are_here() {
    let (mut cluster, id) = used_at_home(sequential());
    cluster.advise(N2, id, (0, 16), Advice::WillNeed);
    assert_eq!(cluster.replies.last().unwrap().2, Reply::Done);
    assert!(!cluster.node(N2).is_trapped(id));
}

#[test]
fn a_bound_to_memory_and_a_former_release_wait_for_all_frames() {
    let (mut cluster, id) = used_at_home(sequential());
    let frames = PageCount(1);
    let budgets = Budgets {
        frames,
        ..Budgets::default()
    };
    cluster.input(N2, Input::Budgets(Budgets::default()));
    assert!(!cluster.node(N2).is_trapped(id), "no bound");
    cluster.input(N2, Input::Budgets(budgets));
    assert!(cluster.node(N2).is_trapped(id));
    assert_eq!(cluster.node(N2).frames_used(), 3);
    let (mut cluster, id) = used_at_home(sequential());
    let speaks = Versions::SPOKEN;
    cluster.ask(N2, Request::MakeRoom { speaks });
    assert!(cluster.node(N2).is_trapped(id));
}

/// The node leaves: the other one gets what its processes have stored.
#[test]
fn a_node_that_leaves_hands_over_what_the_kernel_served() {
    let (mut cluster, id) = used_at_home(sequential());
    open_elsewhere(&mut cluster, sequential());
    let left = cluster.ask(N2, Request::Leave);
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.reply(left), Some(&Reply::Done));
    let seen = cluster.node(N1).inspect(id, PageIndex(0), 16).unwrap();
    assert_eq!(seen.owned, 3);
}

/// Other nodes have never heard of the pages of a node that was declared dead.
#[test]
fn no_access_finds_a_page_of_a_membership_that_has_ended() {
    let (mut cluster, id) = used_at_home(sequential());
    cluster.stop(N2);
    cluster.pass(Duration::from_secs(10));
    cluster.go_on(N2);
    cluster.pass(Duration::from_secs(2));
    let evicted = |(node, effect): &&(NodeId, Effect)| matches!(effect, Effect::Evict { pages, .. } if (*node, pages.count) == (N2, 3));
    assert_eq!(cluster.done.iter().filter(evicted).count(), 1);
    cluster.forget();
    cluster.touch(N2, USED.start, Access::Read);
    let failed = |(_, effect): &(NodeId, Effect)| match effect {
        Effect::Fail { segment, why, .. } => {
            *segment == id && matches!(why, Refusal::DeclaredDead { .. })
        }
        _ => false,
    };
    assert!(cluster.done.iter().any(failed), "{:?}", cluster.done);
}

/// Many pages are taken in by parts, and other nodes wait until all are known.
#[test]
fn a_second_node_waits_for_all_of_many_pages() {
    let mut cluster = Cluster::that_traps_late(2);
    let pages = 40_000_u64;
    let id = cluster.segment_on([N2], sequential(), pages).id;
    let [first, last] = [(0, 30_000), (39_000, 1_000)].map(|(first, count)| PageRange {
        segment: id,
        first: PageIndex(first),
        count,
    });
    cluster.framed = vec![first, last];
    cluster.segment_on([N1], sequential(), pages);
    cluster.touch(N1, 39_999, Access::Read);
    assert_eq!(cluster.node(N2).frames_used(), 16_384);
    assert!(
        !cluster.sent.iter().any(|(from, ..)| *from == N2),
        "it waits"
    );
    cluster.pass(Duration::from_millis(1));
    assert_eq!(cluster.node(N2).frames_used(), 31_000);
    let data = |(from, _, message): &(NodeId, NodeId, Message)| {
        *from == N2 && matches!(message, Message::Data(data) if data.contents == Contents::Bytes)
    };
    assert!(cluster.sent.iter().any(data));
}

/// The host has memory enough again before the pages are known.
#[test]
fn the_last_budgets_count() {
    let mut cluster = Cluster::that_traps_late(2);
    let id = cluster.segment_on([N2], sequential(), 40_000).id;
    cluster.framed = vec![PageRange {
        segment: id,
        first: PageIndex(0),
        count: 30_000,
    }];
    let mib = |mib: u32| Budgets {
        memory: PageCount(256 * mib),
        ..Budgets::default()
    };
    let bounded = Budgets {
        frames: PageCount(1),
        ..mib(1)
    };
    cluster.input(N2, Input::Budgets(bounded));
    assert_ne!(
        cluster.node(N2).memory().budget,
        bounded.memory.0,
        "it waits"
    );
    cluster.input(N2, Input::Budgets(mib(2)));
    cluster.pass(Duration::from_millis(1));
    assert_eq!(cluster.node(N2).frames_used(), 30_000);
    assert_eq!(cluster.node(N2).memory().budget, mib(2).memory.0);
}

/// A daemon that was replaced while it did as it was told is told so once more.
#[test]
fn pages_may_be_told_twice() {
    for policy in [sequential(), release()] {
        let (mut cluster, id) = used_at_home(policy);
        let mapping = MappingId(9);
        let (segment, client) = (id, CLIENT);
        cluster.input(
            N2,
            Input::Mapped {
                mapping,
                segment,
                client,
            },
        );
        let (page, access) = (PageIndex(USED.start), Access::Write);
        cluster.input(
            N2,
            Input::Fault {
                mapping,
                page,
                access,
            },
        );
        let before = cluster.node(N2).inspect(id, PageIndex(0), 16);
        let pages = cluster.framed.clone();
        cluster.input(N2, Input::Trapped { segment, pages });
        assert_eq!(cluster.node(N2).inspect(id, PageIndex(0), 16), before);
    }
}
