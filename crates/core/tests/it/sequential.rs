//! Exactly which datagrams and effects the sequential policy takes (FR4).

use crate::common::{CLIENT, Cluster};
use core::time::Duration;
use pagemesh_core::{Effect, Input, Reply, Request, Source};
use pagemesh_wire::peer::{Access, Call, Contents, Manager, Message, Pass, Refusal, Window};
use pagemesh_wire::{NodeId, PageCount, PageIndex, SyncKey};

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);
const N4: NodeId = NodeId(4);

fn cluster(nodes: usize) -> Cluster {
    let mut cluster = Cluster::new(nodes);
    cluster.segment(Manager::Dynamic, Window::Nanos(0));
    cluster
}

#[test]
fn a_page_nobody_wrote_moves_no_bytes() {
    let mut cluster = cluster(2);
    cluster.touch(N2, 3, Access::Read);
    assert_eq!(cluster.sent.len(), 2, "{:?}", cluster.sent);
    assert_eq!(cluster.pages_sent(), 0);
    assert_eq!(cluster.fills(N2), [Source::Zero]);
    assert!(cluster.mapped(N2));
}

#[test]
fn a_read_miss_with_a_true_hint_takes_two_datagrams() {
    let mut cluster = cluster(2);
    cluster.touch(N1, 0, Access::Write);
    assert!(
        cluster.sent.is_empty(),
        "the home owns its pages: {:?}",
        cluster.sent
    );
    cluster.forget();
    cluster.touch(N2, 0, Access::Read);
    assert_eq!(cluster.sent.len(), 2);
    assert_eq!(cluster.pages_sent(), 1);
    let protect = cluster
        .done
        .iter()
        .position(|(of, effect)| *of == N1 && matches!(effect, Effect::Protect { .. }));
    assert!(protect.is_some(), "the writer becomes a reader (M11)");
}

#[test]
fn an_upgrade_moves_no_data() {
    let mut cluster = cluster(2);
    cluster.touch(N1, 0, Access::Write);
    cluster.touch(N2, 0, Access::Read);
    cluster.forget();
    cluster.touch(N2, 0, Access::Write);
    // Ask, grant, acknowledgement.
    assert_eq!(cluster.sent.len(), 3, "{:?}", cluster.sent);
    assert_eq!(cluster.pages_sent(), 0);
    assert!(cluster.sent.iter().any(|(_, _, message)| {
        matches!(
            message,
            Message::Pass(Pass {
                contents: Contents::Same,
                ..
            })
        )
    }));
    assert!(cluster.mapped(N2));
}

#[test]
fn a_write_with_c_copies_takes_at_most_2c_plus_2_datagrams() {
    for copies in 1..=7_usize {
        let mut cluster = cluster(copies + 2);
        cluster.touch(N1, 0, Access::Write);
        for reader in 0..copies - 1 {
            cluster.touch(NodeId(reader as u16 + 3), 0, Access::Read);
        }
        cluster.forget();
        cluster.touch(N2, 0, Access::Write);
        assert!(cluster.mapped(N2));
        let count = cluster.sent.len();
        assert!(
            count <= 2 * copies + 2,
            "{copies} copies took {count}: {:?}",
            cluster.sent
        );
    }
}

#[test]
fn a_stale_hint_is_forwarded_and_the_copy_comes_straight_back() {
    let mut cluster = cluster(4);
    cluster.touch(N2, 0, Access::Write);
    cluster.touch(N3, 0, Access::Write);
    cluster.forget();
    // n4 only knows the home, which knows n2, which knows n3.
    cluster.touch(NodeId(4), 0, Access::Read);
    let ways: Vec<_> = cluster
        .sent
        .iter()
        .map(|(from, to, _)| (from.0, to.0))
        .collect();
    assert_eq!(ways, [(4, 1), (1, 2), (2, 3), (3, 4)]);
}

#[test]
fn an_invalidation_that_overtakes_the_copy_is_not_undone_by_it() {
    let mut cluster = cluster(3);
    cluster.touch(N1, 0, Access::Write);
    cluster.input(
        N2,
        Input::Fault {
            mapping: crate::common::MAPPING,
            page: PageIndex(0),
            access: Access::Read,
        },
    );
    // The copy for n2 is lost on its way while n3 becomes the writer.
    cluster.deliver(|to, message| !(to == N2 && matches!(message, Message::Data(_))));
    cluster.touch(N3, 0, Access::Write);
    assert!(cluster.mapped(N3));
    cluster.forget();
    cluster.pass(Duration::from_millis(50));
    assert!(
        cluster.mapped(N2),
        "repetition finds the new owner: {:?}",
        cluster.sent
    );
}

#[test]
fn a_lost_grant_is_repeated_until_it_is_acknowledged() {
    let mut cluster = cluster(2);
    cluster.touch(N1, 0, Access::Write);
    cluster.forget();
    cluster.input(
        N2,
        Input::Fault {
            mapping: crate::common::MAPPING,
            page: PageIndex(0),
            access: Access::Write,
        },
    );
    cluster.deliver(|_, message| !matches!(message, Message::Pass(_)));
    assert!(!cluster.mapped(N2));
    cluster.pass(Duration::from_millis(50));
    assert!(cluster.mapped(N2));
    let drops = cluster
        .done
        .iter()
        .filter(|(of, effect)| *of == N1 && matches!(effect, Effect::DropStash { .. }));
    assert_eq!(
        drops.count(),
        1,
        "the stash goes when the grant is acknowledged"
    );
}

#[test]
fn the_window_keeps_the_writer_and_the_queue_is_first_come_first_served() {
    let mut cluster = Cluster::new(4);
    cluster.segment(Manager::Dynamic, Window::Nanos(3_000_000));
    cluster.touch(N2, 0, Access::Write);
    cluster.forget();
    for node in [N3, NodeId(4), N1] {
        cluster.touch(node, 0, Access::Write);
        assert!(!cluster.mapped(node), "the window of n2 runs");
    }
    cluster.pass(Duration::from_millis(15));
    let order: Vec<_> = cluster
        .done
        .iter()
        .filter_map(|(of, effect)| matches!(effect, Effect::Map { .. }).then_some(of.0))
        .collect();
    assert_eq!(order, [3, 4, 1]);
}

#[test]
fn a_page_does_not_leave_before_it_was_used() {
    let mut cluster = cluster(2);
    cluster.touch(N2, 0, Access::Write);
    cluster.forget();
    cluster.used = false;
    cluster.touch(N1, 0, Access::Write);
    cluster.pass(Duration::from_millis(2));
    assert!(!cluster.mapped(N1), "M12: n2 has not used the page");
    cluster.used = true;
    cluster.pass(Duration::from_millis(1));
    assert!(cluster.mapped(N1));
}

#[test]
fn nobody_waits_for_ever_for_a_page_to_be_used() {
    let mut cluster = cluster(2);
    cluster.touch(N2, 0, Access::Write);
    cluster.used = false;
    cluster.touch(N1, 0, Access::Write);
    cluster.forget();
    cluster.pass(Duration::from_millis(30));
    assert!(cluster.mapped(N1));
}

#[test]
fn the_library_site_lets_the_holder_send_straight_to_the_requester() {
    let mut cluster = Cluster::new(3);
    cluster.segment(Manager::Fixed, Window::Nanos(0));
    cluster.touch(N2, 0, Access::Write);
    cluster.forget();
    cluster.touch(N3, 0, Access::Read);
    let ways: Vec<_> = cluster
        .sent
        .iter()
        .map(|(from, to, _)| (from.0, to.0))
        .collect();
    assert_eq!(ways, [(3, 1), (1, 2), (2, 3), (3, 1)], "{:?}", cluster.sent);
    assert!(cluster.mapped(N3));
    cluster.forget();
    for node in [N1, N2, N3] {
        cluster.touch(node, 0, Access::Write);
        assert!(cluster.mapped(node));
    }
}

#[test]
fn a_pinned_page_stays_until_it_is_let_go() {
    let mut cluster = cluster(2);
    let segment = cluster.ask(
        N2,
        Request::Call {
            to: None,
            call: Call::Stat { name: "a".into() },
        },
    );
    cluster.settle();
    let Some(Reply::Segment(info)) = cluster.reply(segment).cloned() else {
        panic!()
    };
    let (first, count) = (PageIndex(0), PageCount(3));
    let pin = cluster.ask(
        N2,
        Request::Pin {
            segment: info.id,
            first,
            count,
        },
    );
    cluster.settle();
    assert_eq!(cluster.reply(pin), Some(&Reply::Done));
    cluster.forget();
    cluster.touch(N1, 1, Access::Read);
    cluster.pass(Duration::from_millis(5));
    assert!(!cluster.mapped(N1));
    cluster.ask(
        N2,
        Request::Unpin {
            segment: info.id,
            first,
            count,
        },
    );
    cluster.pass(Duration::from_millis(1));
    assert!(cluster.mapped(N1));
}

/// The node must refuse: otherwise it would hand over its pages as soon as they came, and ask for
/// them again, for ever.
#[test]
fn who_waits_for_pages_to_pin_is_refused_when_its_node_leaves() {
    let mut cluster = Cluster::new(2);
    let info = cluster.segment(Manager::Dynamic, Window::Nanos(0));
    let pin = |first, count| Request::Pin {
        segment: info.id,
        first: PageIndex(first),
        count: PageCount(count),
    };
    cluster.ask(N1, pin(1, 1));
    cluster.settle();
    let waiting = cluster.ask(N2, pin(0, 3));
    cluster.settle();
    assert_eq!(cluster.reply(waiting), None, "the second page is pinned");
    let leave = cluster.ask(N2, Request::Leave);
    let refused = Reply::Refused(Refusal::NotMember);
    assert_eq!(cluster.reply(waiting), Some(&refused));
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.reply(leave), Some(&Reply::Done));
}

#[test]
fn watchers_hear_of_a_change_before_it_happens() {
    let mut cluster = cluster(2);
    let stat = cluster.ask(
        N2,
        Request::Call {
            to: None,
            call: Call::Stat { name: "a".into() },
        },
    );
    cluster.settle();
    let Some(Reply::Segment(info)) = cluster.reply(stat).cloned() else {
        panic!()
    };
    cluster.touch(N2, 0, Access::Read);
    let watch = cluster.ask(
        N2,
        Request::Watch {
            segment: info.id,
            page: PageIndex(0),
        },
    );
    assert_eq!(cluster.reply(watch), Some(&Reply::Waiting));
    cluster.touch(N1, 0, Access::Write);
    assert_eq!(cluster.reply(watch), Some(&Reply::Changed));
}

#[test]
fn locks_travel_like_pages_and_stay_where_they_were_used() {
    let mut cluster = cluster(3);
    let key = SyncKey {
        segment: pagemesh_wire::SegmentId::new(N1, 1),
        number: 5,
    };
    let first = cluster.ask(N2, Request::Lock { key });
    cluster.settle();
    assert_eq!(
        cluster.reply(first),
        Some(&Reply::Locked { recovered: false })
    );
    cluster.forget();
    // Released by swapping the word; taken again without the daemon. Now n3 wants it.
    let second = cluster.ask(N3, Request::Lock { key });
    cluster.settle();
    assert!(cluster.reply(second).is_none());
    assert!(cluster.done.contains(&(N2, Effect::ReclaimLock { key })));
    cluster.forget();
    cluster.input(
        N2,
        Input::LockReturned {
            key,
            recovered: true,
        },
    );
    cluster.settle();
    assert_eq!(
        cluster.reply(second),
        Some(&Reply::Locked { recovered: true })
    );
    let grants = cluster
        .sent
        .iter()
        .filter(|(_, _, message)| matches!(message, Message::Pass(_)));
    assert_eq!(grants.count(), 1, "straight from the holder to the next");
    assert!(cluster.done.contains(&(
        N3,
        Effect::LendLock {
            key,
            client: CLIENT,
            wanted: false
        }
    )));
}

#[test]
fn a_barrier_of_n_nodes_takes_2n_minus_2_datagrams() {
    for nodes in 2..=8 {
        let mut cluster = cluster(nodes);
        let key = SyncKey {
            segment: pagemesh_wire::SegmentId::new(N1, 1),
            number: 9,
        };
        let call = Call::barrier(key, nodes as u32);
        let mut tickets = Vec::new();
        for node in 1..=nodes {
            tickets.push(cluster.ask(
                NodeId(node as u16),
                Request::Call {
                    to: None,
                    call: call.clone(),
                },
            ));
            cluster.settle();
        }
        for ticket in tickets {
            assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
        }
        assert_eq!(cluster.sent.len(), 2 * (nodes - 1));
    }
}

#[test]
fn a_barrier_opens_elsewhere_first() {
    // A process that is woken takes the processor, perhaps before its daemon has sent to the other
    // nodes, which would wait until it has computed.
    let mut cluster = cluster(3);
    let segment = pagemesh_wire::SegmentId::new(N1, 1);
    let key = SyncKey { segment, number: 9 };
    let call = Call::barrier(key, 3);
    for node in [N1, N2, N3] {
        let call = call.clone();
        cluster.ask(node, Request::Call { to: None, call });
        cluster.settle();
    }
    let home = cluster.replies.iter().position(|(node, ..)| *node == N1);
    let sent = home.map(|reply| cluster.sent_before[reply]);
    assert_eq!(sent, Some(cluster.sent.len()));
}

#[test]
fn who_withdraws_from_a_barrier_hears_whether_it_has_passed() {
    for (late, word) in [
        (true, Reply::Done),
        (false, Reply::Refused(Refusal::Cancelled)),
    ] {
        let mut cluster = cluster(2);
        let segment = pagemesh_wire::SegmentId::new(N1, 1);
        let key = SyncKey { segment, number: 9 };
        let call = Call::barrier(key, 2);
        let arrive = Request::Call { to: None, call };
        let remote = cluster.ask(N2, arrive.clone());
        cluster.settle();
        if late {
            // The departure is lost: only the home knows of it.
            cluster.ask(N1, arrive.clone());
            cluster.deliver(|_, _| false);
        }
        cluster.input(N2, Input::Cancel { ticket: remote });
        assert_eq!(cluster.reply(remote), None, "it cannot know");
        cluster.settle();
        assert_eq!(cluster.reply(remote), Some(&word));
        // A withdrawn arrival does not count.
        let again = cluster.ask(N1, arrive);
        cluster.settle();
        assert_eq!(cluster.reply(again), None);
    }
}

#[test]
fn a_node_that_leaves_hands_over_its_pages() {
    let mut cluster = cluster(3);
    cluster.touch(N2, 0, Access::Write);
    cluster.touch(N2, 1, Access::Write);
    let leave = cluster.ask(N2, Request::Leave);
    cluster.pass(Duration::from_millis(5));
    assert_eq!(cluster.reply(leave), Some(&Reply::Done));
    cluster.forget();
    for page in 0..2 {
        cluster.touch(N3, page, Access::Write);
        assert_eq!(cluster.fills(N3).len(), page as usize + 1);
    }
    assert_eq!(cluster.pages_sent(), 2);
}

/// Time passes in which the first node neither hears nor says anything.
fn without_the_first_node(cluster: &mut Cluster, length: Duration) {
    let end = cluster.now + length;
    while cluster.now < end {
        for node in [N2, N3] {
            cluster.input(node, Input::Deadline);
        }
        cluster.deliver(|to, _| to != N1);
        cluster.now = cluster.now + Duration::from_millis(50);
    }
}

#[test]
fn who_lets_a_node_leave_does_not_wait_for_ever_for_a_silent_coordinator() {
    let mut cluster = cluster(3);
    cluster.touch(N2, 0, Access::Write);
    let leave = cluster.ask(N2, Request::Leave);
    without_the_first_node(&mut cluster, Duration::from_secs(4));
    assert_eq!(cluster.reply(leave), None);
    without_the_first_node(&mut cluster, Duration::from_secs(3));
    let refused = |cluster: &Cluster, ticket| {
        let Some(Reply::Refused(Refusal::CannotLeave(why))) = cluster.reply(ticket) else {
            panic!("{:?}", cluster.reply(ticket));
        };
        assert!(why.contains("coordinator"), "{why}");
    };
    refused(&cluster, leave);
    // A node that asks only now is refused at once, and the state is unchanged.
    let late = cluster.ask(N3, Request::Leave);
    refused(&cluster, late);
}

#[test]
fn what_a_dead_node_alone_held_fails_and_the_rest_goes_on() {
    let mut cluster = cluster(3);
    cluster.touch(N2, 0, Access::Write);
    cluster.touch(N3, 0, Access::Read);
    cluster.touch(N2, 1, Access::Write);
    cluster.touch(N3, 2, Access::Write);
    // From now on nothing of n2 arrives anywhere, and nothing reaches it.
    let end = cluster.now + Duration::from_secs(8);
    while cluster.now < end {
        for node in [N1, N3] {
            cluster.input(node, Input::Deadline);
        }
        cluster.deliver(|to, _| to != N2);
        cluster.now = cluster.now + Duration::from_millis(50);
    }
    cluster.forget();
    cluster.input(
        N3,
        Input::Fault {
            mapping: crate::common::MAPPING,
            page: PageIndex(1),
            access: Access::Read,
        },
    );
    for _ in 0..100 {
        cluster.deliver(|to, _| to != N2);
        cluster.now = cluster.now + Duration::from_millis(50);
        for node in [N1, N3] {
            cluster.input(node, Input::Deadline);
        }
    }
    assert!(cluster.done.iter().any(|(of, effect)| {
        *of == N3
            && matches!(
                effect,
                Effect::Fail {
                    page: PageIndex(1),
                    ..
                }
            )
    }));
    cluster.forget();
    cluster.input(
        N1,
        Input::Fault {
            mapping: crate::common::MAPPING,
            page: PageIndex(2),
            access: Access::Write,
        },
    );
    cluster.deliver(|to, _| to != N2);
    assert!(cluster.mapped(N1));
}

/// A first node that says nothing for a minute: what only it has is given up, once it
/// was waited for as long; all else goes on, and so does everything when it is back.
#[test]
fn nobody_waits_for_ever_for_a_silent_first_node() {
    let mut cluster = Cluster::new(3);
    let info = cluster.segment(Manager::Dynamic, Window::Nanos(0));
    cluster.touch(N2, 1, Access::Write);
    cluster.touch(N3, 1, Access::Read);
    let failed = |cluster: &Cluster, node: NodeId| {
        let failures = cluster.done.iter().filter(|(of, effect)| {
            let why = Refusal::NodeGone(N1);
            *of == node && matches!(effect, Effect::Fail { why: gone, .. } if *gone == why)
        });
        failures.count()
    };
    cluster.forget();
    cluster.stop(N1);
    cluster.touch(N2, 0, Access::Read);
    let pin = cluster.ask(
        N3,
        Request::Pin {
            segment: info.id,
            first: PageIndex(2),
            count: PageCount(2),
        },
    );
    let lock = Request::Lock {
        key: SyncKey {
            segment: info.id,
            number: 1,
        },
    };
    let lock = cluster.ask(N3, lock);
    cluster.pass(Duration::from_secs(59));
    assert_eq!(failed(&cluster, N2), 0);
    assert_eq!(cluster.reply(lock), None);
    cluster.pass(Duration::from_secs(3));
    assert_eq!(failed(&cluster, N2), 1);
    let gone = Reply::Refused(Refusal::NodeGone(N1));
    assert_eq!(cluster.reply(lock), Some(&gone));
    assert_eq!(cluster.reply(pin), Some(&gone));
    // Other nodes have the page, and no node is declared dead for that.
    cluster.touch(N3, 1, Access::Write);
    assert!(cluster.mapped(N3));
    cluster.forget();
    cluster.go_on(N1);
    cluster.touch(N2, 0, Access::Write);
    assert!(cluster.mapped(N2));
    assert_eq!(failed(&cluster, N2), 0);
}

/// A lock's token that a silent first node has: a node that is sent there by others does not know
/// where the token is, and is told. A lock that a process holds may take as long as its holder
/// likes.
#[test]
fn nobody_waits_for_ever_for_a_lock_that_a_silent_first_node_has() {
    let mut cluster = Cluster::new(3);
    let info = cluster.segment(Manager::Dynamic, Window::Nanos(0));
    let key = |number| SyncKey {
        segment: info.id,
        number,
    };
    let take = |cluster: &mut Cluster, from: Option<NodeId>, by: NodeId, key: SyncKey| {
        let ticket = cluster.ask(by, Request::Lock { key });
        cluster.settle();
        if let Some(holder) = from {
            let recovered = false;
            cluster.input(holder, Input::LockReturned { key, recovered });
            cluster.settle();
        }
        let locked = Reply::Locked { recovered: false };
        assert_eq!(cluster.reply(ticket), Some(&locked), "{by} takes {key}");
    };
    let (gone, held) = (key(1), key(2));
    take(&mut cluster, None, N3, gone);
    take(&mut cluster, Some(N3), N2, gone);
    take(&mut cluster, Some(N2), N1, gone);
    // The node that asked the first node last cannot know that another has the token; this one
    // does.
    take(&mut cluster, None, N3, held);
    take(&mut cluster, Some(N3), N2, held);
    cluster.stop(N1);
    cluster.pass(Duration::from_secs(30));
    let early = cluster.ask(N3, Request::Lock { key: gone });
    let waits = cluster.ask(N3, Request::Lock { key: held });
    cluster.pass(Duration::from_secs(59));
    assert_eq!(cluster.reply(early), None, "it may come back");
    cluster.pass(Duration::from_secs(3));
    let refused = Reply::Refused(Refusal::NodeGone(N1));
    assert_eq!(cluster.reply(early), Some(&refused));
    assert_eq!(cluster.reply(waits), None, "it is held, not lost");
    let recovered = false;
    cluster.input(
        N2,
        Input::LockReturned {
            key: held,
            recovered,
        },
    );
    cluster.pass(Duration::from_secs(3));
    let locked = Reply::Locked { recovered };
    assert_eq!(cluster.reply(waits), Some(&locked));
    // It comes back: all is as it was.
    cluster.go_on(N1);
    let late = cluster.ask(N3, Request::Lock { key: gone });
    cluster.pass(Duration::from_secs(1));
    cluster.input(
        N1,
        Input::LockReturned {
            key: gone,
            recovered,
        },
    );
    cluster.pass(Duration::from_secs(3));
    assert_eq!(cluster.reply(late), Some(&locked));
}

/// A holder that dies while the first node is silent is not declared dead: a node that waits for
/// its lock is refused all the same, even if another node sends it there.
#[test]
fn nobody_waits_for_ever_for_a_holder_that_dies_unnoticed() {
    let mut cluster = Cluster::new(4);
    let info = cluster.segment(Manager::Dynamic, Window::Nanos(0));
    let key = SyncKey {
        segment: info.id,
        number: 1,
    };
    let recovered = false;
    // N3 knows that it gave the lock to N2, and nothing of N4.
    for (before, by) in [(None, N3), (Some(N3), N2), (Some(N2), N4)] {
        let ticket = cluster.ask(by, Request::Lock { key });
        cluster.settle();
        if let Some(holder) = before {
            cluster.input(holder, Input::LockReturned { key, recovered });
            cluster.settle();
        }
        assert_eq!(cluster.reply(ticket), Some(&Reply::Locked { recovered }));
    }
    cluster.stop(N1);
    cluster.pass(Duration::from_secs(30));
    let waits = cluster.ask(N3, Request::Lock { key });
    cluster.pass(Duration::from_secs(120));
    assert_eq!(cluster.reply(waits), None, "its holder lives");
    cluster.stop(N4);
    cluster.pass(Duration::from_secs(58));
    assert_eq!(cluster.reply(waits), None, "it may go on");
    cluster.pass(Duration::from_secs(8));
    let refused = Reply::Refused(Refusal::NodeGone(N4));
    assert_eq!(cluster.reply(waits), Some(&refused));
    // The first node comes back, and buries it.
    cluster.go_on(N1);
    let late = cluster.ask(N3, Request::Lock { key });
    cluster.pass(Duration::from_secs(10));
    let recovered = true;
    assert_eq!(cluster.reply(late), Some(&Reply::Locked { recovered }));
}
