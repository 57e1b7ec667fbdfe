//! Resends where datagrams are lost: soon, if answers come soon, and never many.

use crate::common::{Cluster, MAPPING};
use core::time::Duration;
use pagemesh_core::limits::{RESEND_CEILING, RESEND_FIRST, RESEND_SOONEST};
use pagemesh_core::{Input, Request};
use pagemesh_wire::peer::{Access, Manager, Message, Window};
use pagemesh_wire::{NodeId, PageIndex, SegmentId, SyncKey};

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);

/// Node 1 has written all pages.
fn written() -> (Cluster, SegmentId) {
    let mut cluster = Cluster::new(2);
    let segment = cluster.segment(Manager::Dynamic, Window::Nanos(0)).id;
    for page in 0..16 {
        cluster.touch(N1, page, Access::Write);
    }
    cluster.forget();
    (cluster, segment)
}

/// Node 2 loses its next question; how many it says until so much later.
fn asks(cluster: &mut Cluster, input: Input<'_>, later: Duration) -> usize {
    cluster.forget();
    cluster.input(N2, input);
    cluster.deliver(|_, message| !matches!(message, Message::Ask(_)));
    cluster.pass(later);
    let asks = |message: &Message| matches!(message, Message::Ask(_));
    cluster.sent.iter().filter(|sent| asks(&sent.2)).count()
}

fn load(page: u32) -> Input<'static> {
    Input::Fault {
        mapping: MAPPING,
        page: PageIndex(page),
        access: Access::Read,
    }
}

#[test]
fn a_lost_question_is_repeated_as_soon_as_answers_usually_come() {
    let (mut cluster, _) = written();
    let just_before = RESEND_SOONEST - Duration::from_micros(200);
    assert_eq!(asks(&mut cluster, load(0), RESEND_FIRST / 2), 1, "unknown");
    cluster.pass(RESEND_FIRST);
    for page in [9, 2, 12, 5] {
        cluster.touch(N2, page, Access::Read);
    }
    assert_eq!(asks(&mut cluster, load(15), just_before), 1);
    cluster.pass(Duration::from_micros(400));
    assert!(cluster.mapped(N2), "asked again, and answered");
}

#[test]
fn answers_that_take_long_are_waited_for() {
    let (mut cluster, _) = written();
    for page in [2, 4, 7] {
        cluster.input(N2, load(page));
        cluster.now = cluster.now + Duration::from_millis(5);
        cluster.settle();
    }
    let wait = RESEND_FIRST - Duration::from_millis(1);
    assert_eq!(asks(&mut cluster, load(15), wait), 1);
}

#[test]
fn who_is_not_answered_says_it_ever_less_often() {
    let (mut cluster, _) = written();
    for page in [2, 4, 7, 9] {
        cluster.touch(N2, page, Access::Read);
    }
    cluster.stop(N1);
    let doublings = (RESEND_CEILING.as_nanos() / RESEND_SOONEST.as_nanos()).ilog2() as usize;
    let said = asks(&mut cluster, load(15), 3 * RESEND_CEILING);
    assert!((doublings..doublings + 4).contains(&said), "{said} times");
}

#[test]
fn of_locks_something_else_is_learnt_than_of_pages() {
    let (mut cluster, segment) = written();
    for page in [2, 4, 7, 9] {
        cluster.touch(N2, page, Access::Read);
    }
    let key = SyncKey { segment, number: 1 };
    cluster.forget();
    cluster.ask(N2, Request::Lock { key });
    cluster.deliver(|_, message| !matches!(message, Message::Ask(_)));
    cluster.pass(RESEND_FIRST - Duration::from_millis(1));
    let asks = |message: &Message| matches!(message, Message::Ask(_));
    let said = cluster.sent.iter().filter(|sent| asks(&sent.2)).count();
    assert_eq!(said, 1, "how long a lock is held nobody knows yet");
}
