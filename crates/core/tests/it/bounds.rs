//! The records that nodes keep under policy `release`, and when they are collected (T16); the pages
//! that one write lock covers.

use crate::common::Cluster;
use pagemesh_core::limits::PIN_PAGES;
use pagemesh_core::release::Body;
use pagemesh_core::{DiffWork, Effect, Pace, Reply, Request};
use pagemesh_wire::peer::{Access, Call, Message, Policy, PolicyMessage, Refusal, Spread};
use pagemesh_wire::{NodeId, PageCount, PageIndex, SegmentId, SyncKey};

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);
const PAGES: u32 = 20;

/// Node 1 writes all pages between two barriers, a time; how many twins it drops.
fn phase(cluster: &mut Cluster, segment: SegmentId) -> usize {
    cluster.forget();
    for page in 0..PAGES {
        cluster.touch(N1, page, Access::Write);
    }
    for node in [N1, N2] {
        let key = SyncKey { segment, number: 1 };
        let call = Call::barrier(key, 2);
        cluster.ask(node, Request::Call { to: None, call });
    }
    cluster.settle();
    let dropped = |effect: &&(NodeId, Effect)| {
        matches!(effect.1, Effect::Diffs(DiffWork::DropTwin { .. })) && effect.0 == N1
    };
    cluster.done.iter().filter(dropped).count()
}

fn with_bounds(notices: u32, twins: u32) -> (Cluster, SegmentId) {
    let pace = Pace {
        notices,
        twins,
        ..Pace::default()
    };
    let mut cluster = Cluster::paced(2, pace);
    let policy = Policy::Release {
        spread: Spread::Lazy,
    };
    let segment = cluster.segment_of_pages(policy, PAGES.into()).id;
    (cluster, segment)
}

#[test]
fn pages_of_a_phase_keep_their_twins_though_they_are_more_than_the_bound_of_notices() {
    let (mut cluster, segment) = with_bounds(8, PAGES);
    for _ in 0..3 {
        assert_eq!(phase(&mut cluster, segment), 0);
    }
}

#[test]
fn twins_have_a_bound_of_their_own() {
    let (mut cluster, segment) = with_bounds(8, PAGES / 4);
    for _ in 0..3 {
        assert_eq!(phase(&mut cluster, segment), PAGES as usize);
    }
    // A collected page is complete where it was written.
    cluster.forget();
    cluster.touch(N2, 7, Access::Read);
    let fetched = cluster.sent.iter().filter(|(_, to, message)| {
        *to == N2 && matches!(message, Message::PolicyPage(said) if is_page(said, 7))
    });
    assert_eq!(fetched.count(), 1);
}

/// The reply at the home to a write lock over `count` pages, none of them touched before.
fn pinned(count: u32) -> Option<Reply> {
    let mut cluster = Cluster::new(1);
    let pages = u64::from(PIN_PAGES) + 1;
    let segment = cluster.segment_of_pages(Policy::default(), pages).id;
    let request = Request::Pin {
        segment,
        first: PageIndex(0),
        count: PageCount(count),
    };
    let ticket = cluster.ask(N1, request);
    cluster.settle();
    cluster.reply(ticket).cloned()
}

#[test]
fn a_write_lock_covers_so_many_pages_and_no_more() {
    assert_eq!(pinned(64), Some(Reply::Done));
    let refused = pinned(PIN_PAGES + 1);
    let limited = matches!(refused, Some(Reply::Refused(Refusal::Limit(_))));
    assert!(limited, "{refused:?}");
}

#[test]
fn a_write_lock_may_cover_all_pages_it_is_said_to() {
    assert_eq!(pinned(PIN_PAGES), Some(Reply::Done));
}

fn is_page(said: &PolicyMessage, page: u32) -> bool {
    matches!(Body::read(&said.body), Some(Body::CopyReply(base)) if base.page.0 == page)
}
