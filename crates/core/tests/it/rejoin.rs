//! A node that was declared dead joins again; its programs go on if nothing that they relied on was
//! lost.

use crate::common::{CLIENT, Cluster, MAPPING};
use core::time::Duration;
use pagemesh_core::limits::REJOINS;
use pagemesh_core::{Effect, Input, Reply, Request, Rights};
use pagemesh_wire::local::{Advice, View};
use pagemesh_wire::peer::{
    Access, Call, Credentials, Health, Manager, Message, Payload, Policy, Refusal, SegmentInfo,
    Window,
};
use pagemesh_wire::{MappingId, NodeId, PageCount, PageIndex, SyncKey};

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);

/// An inconsistent mapping of the third host.
const OLD: MappingId = MappingId(2);

/// Longer than a member may be silent.
const SILENCE: Duration = Duration::from_secs(6);
/// Long enough to join.
const SOON: Duration = Duration::from_secs(2);

fn cluster() -> (Cluster, SegmentInfo) {
    let mut cluster = Cluster::that_rejoins(3);
    let info = cluster.segment(Manager::Dynamic, Window::Nanos(0));
    cluster.touch(N1, 0, Access::Write);
    cluster.touch(N3, 0, Access::Read);
    cluster.forget();
    (cluster, info)
}

/// The third host stands still until it is declared dead, and goes on.
fn pause(cluster: &mut Cluster) {
    cluster.stop(N3);
    cluster.pass(SILENCE);
    cluster.go_on(N3);
    cluster.pass(SOON);
}

/// The last thing that happened to an access of the third host: whether it was served, or why not.
fn outcome(cluster: &Cluster) -> Option<Result<(), Refusal>> {
    let of_host = |(node, effect): &(NodeId, Effect)| match effect {
        Effect::Map { .. } if *node == N3 => Some(Ok(())),
        Effect::Fail { why, .. } if *node == N3 => Some(Err(why.clone())),
        _ => None,
    };
    cluster.done.iter().rev().find_map(of_host)
}

fn touched(cluster: &mut Cluster, page: u32) -> Result<(), Refusal> {
    cluster.forget();
    cluster.touch(N3, page, Access::Read);
    // The home may have to search.
    cluster.pass(SOON);
    outcome(cluster).unwrap_or_else(|| panic!("it waits: {:?}", cluster.sent))
}

fn declared_dead(why: Refusal) -> (NodeId, String) {
    match why {
        Refusal::DeclaredDead { was, lost } => (was, lost),
        other => panic!("{other:?}"),
    }
}

fn open() -> Request {
    Request::Open {
        name: "a".into(),
        create: None,
        exclusive: false,
        write: true,
        credentials: Credentials::root(),
    }
}

fn evicted(cluster: &Cluster, page: u32) -> bool {
    let is = |effect: &Effect| match effect {
        Effect::Evict { pages, keep: false } => pages.iter().any(|at| at.1 == PageIndex(page)),
        _ => false,
    };
    cluster
        .done
        .iter()
        .any(|(node, effect)| *node == N3 && is(effect))
}

#[test]
fn a_program_that_only_read_goes_on() {
    let (mut cluster, _) = cluster();
    pause(&mut cluster);
    assert_eq!(cluster.node(N3).id(), Some(NodeId(4)), "another node");
    assert!(cluster.node(N3).out().is_none());
    assert!(evicted(&cluster, 0), "the copy may be old by now");
    let rejoin = cluster.node(N3).rejoin();
    assert!(rejoin.lost.is_empty() && rejoin.times == 1 && !rejoin.under_way);
    assert_eq!(touched(&mut cluster, 0), Ok(()));
    assert_eq!(touched(&mut cluster, 7), Ok(()), "a page it never had");
    let view = cluster.node(N1).view();
    let dead = view.members.iter().find(|member| member.id == N3).unwrap();
    assert_eq!(dead.health, Health::Dead);
    let attached = &cluster.node(N3).segments().next().unwrap().attached;
    assert!(
        attached.contains(NodeId(4)),
        "the coordinator knows that it is open"
    );
}

#[test]
fn a_page_that_others_have_is_not_lost_with_its_owner() {
    let (mut cluster, _) = cluster();
    cluster.touch(N3, 2, Access::Write);
    cluster.touch(N2, 2, Access::Read);
    pause(&mut cluster);
    assert_eq!(cluster.node(N3).rejoin().lost, []);
    assert_eq!(touched(&mut cluster, 2), Ok(()));
}

#[test]
fn an_access_that_waits_is_served_afterwards() {
    let (mut cluster, _) = cluster();
    cluster.stop(N3);
    cluster.touch(N3, 5, Access::Write);
    cluster.pass(SILENCE);
    cluster.forget();
    cluster.go_on(N3);
    cluster.pass(SOON);
    assert_eq!(outcome(&cluster), Some(Ok(())));
}

#[test]
fn a_page_that_only_the_dead_node_had_is_named_and_its_segment_waits_for_its_programs() {
    let (mut cluster, info) = cluster();
    cluster.touch(N3, 3, Access::Write);
    pause(&mut cluster);
    assert_eq!(
        cluster.node(N3).id(),
        Some(NodeId(4)),
        "it joins nevertheless"
    );
    let (was, lost) = declared_dead(touched(&mut cluster, 0).unwrap_err());
    assert!(was == N3 && lost.contains("page 3,"), "{was}: {lost}");
    let lost = cluster.node(N3).rejoin().lost;
    assert_eq!(lost[0].0, "a");
    let watch = Request::Watch {
        segment: info.id,
        page: PageIndex(0),
    };
    for request in [watch, open()] {
        let ticket = cluster.ask(N3, request);
        cluster.settle();
        let Some(Reply::Refused(why)) = cluster.reply(ticket).cloned() else {
            panic!("{:?}", cluster.reply(ticket));
        };
        assert!(declared_dead(why).1.contains("page 3,"));
    }
    let view = cluster.node(N1).segments().next().unwrap().clone();
    assert!(
        !view.attached.contains(NodeId(4)),
        "the refused opening was taken back"
    );
    cluster.forget();
    cluster.input(N3, Input::ClientGone { client: CLIENT });
    let forgets = |(node, effect): &(NodeId, Effect)| {
        *node == N3 && matches!(effect, Effect::Forget { segment } if *segment == info.id)
    };
    assert!(
        cluster.done.iter().any(forgets),
        "its memory goes with them"
    );
    assert_eq!(cluster.node(N3).rejoin().lost, []);
    let ticket = cluster.ask(N3, open());
    cluster.settle();
    assert!(matches!(cluster.reply(ticket), Some(Reply::Segment(_))));
    let (mapping, segment, client) = (MAPPING, info.id, CLIENT);
    cluster.input(
        N3,
        Input::Mapped {
            mapping,
            segment,
            client,
        },
    );
    assert_eq!(touched(&mut cluster, 0), Ok(()), "a new program can use it");
    assert_eq!(
        touched(&mut cluster, 3),
        Err(Refusal::NodeGone(N3)),
        "as anywhere"
    );
}

fn lock_of(info: &SegmentInfo) -> SyncKey {
    SyncKey {
        segment: info.id,
        number: 9,
    }
}

#[test]
fn a_lock_that_is_waited_for_is_asked_for_again() {
    let (mut cluster, info) = cluster();
    let key = lock_of(&info);
    let held = cluster.ask(N1, Request::Lock { key });
    let waits = cluster.ask(N3, Request::Lock { key });
    cluster.settle();
    pause(&mut cluster);
    assert!(cluster.reply(held).is_some() && cluster.reply(waits).is_none());
    let recovered = false;
    cluster.input(N1, Input::LockReturned { key, recovered });
    cluster.settle();
    assert!(matches!(cluster.reply(waits), Some(Reply::Locked { .. })));
}

#[test]
fn a_free_lock_comes_back_and_a_held_one_is_lost() {
    for held in [false, true] {
        let (mut cluster, info) = cluster();
        let key = lock_of(&info);
        let ticket = cluster.ask(N3, Request::Lock { key });
        cluster.settle();
        assert!(matches!(cluster.reply(ticket), Some(Reply::Locked { .. })));
        cluster.stop(N3);
        cluster.pass(SILENCE);
        cluster.forget();
        cluster.go_on(N3);
        cluster.pass_with(SOON, |_, message| !matches!(message, Message::Welcome(_)));
        assert!(cluster.node(N3).rejoin().under_way);
        let reclaims = |(node, effect): &(NodeId, Effect)| {
            *node == N3 && matches!(effect, Effect::ReclaimLock { key: of } if *of == key)
        };
        assert!(cluster.done.iter().any(reclaims));
        let recovered = false;
        if !held {
            cluster.input(N3, Input::LockReturned { key, recovered });
        }
        cluster.pass(SOON);
        let lost = cluster.node(N3).rejoin().lost;
        assert_eq!(lost.is_empty(), !held, "{lost:?}");
        if held {
            let (_, lost) = declared_dead(touched(&mut cluster, 0).unwrap_err());
            assert!(lost.contains("lock 9"), "{lost}");
            // The program gives it back when it is too late.
            cluster.input(N3, Input::LockReturned { key, recovered });
        } else {
            assert_eq!(touched(&mut cluster, 0), Ok(()));
        }
    }
}

/// Another segment, whose home is the second node.
fn made_by_the_second(cluster: &mut Cluster) -> SegmentInfo {
    let spec = cluster.node(N1).segments().next().unwrap().spec.clone();
    let Request::Open { credentials, .. } = open() else {
        unreachable!("it opens")
    };
    let opens = |create| Request::Open {
        name: "b".into(),
        create,
        exclusive: false,
        write: true,
        credentials: credentials.clone(),
    };
    cluster.ask(N2, opens(Some(spec)));
    cluster.settle();
    let ticket = cluster.ask(N3, opens(None));
    cluster.settle();
    match cluster.reply(ticket) {
        Some(Reply::Segment(info)) => info.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wait_at_a_barrier_is_lost_and_a_question_is_asked_again() {
    let (mut cluster, _) = cluster();
    let info = made_by_the_second(&mut cluster);
    cluster.stop(N3);
    let question = cluster.ask(
        N3,
        Request::Call {
            to: Some(N2),
            call: Call::Probe,
        },
    );
    cluster.pass(SILENCE);
    cluster.go_on(N3);
    cluster.pass(SOON);
    assert_eq!(cluster.reply(question), Some(&Reply::Done));
    let barrier = Call::Barrier {
        key: lock_of(&info),
        parties: 2,
        payload: Payload::EMPTY,
    };
    let arrives = cluster.ask(
        N3,
        Request::Call {
            to: None,
            call: barrier,
        },
    );
    cluster.settle();
    pause(&mut cluster);
    let Some(Reply::Refused(why)) = cluster.reply(arrives).cloned() else {
        panic!("{:?}", cluster.reply(arrives));
    };
    assert_eq!(declared_dead(why).0, NodeId(4));
    let lost = cluster.node(N3).rejoin().lost;
    assert!(lost.len() == 1 && lost[0].0 == "b", "{lost:?}");
    assert!(lost[0].1.to_string().contains("barrier"), "{lost:?}");
    assert_eq!(
        touched(&mut cluster, 0),
        Ok(()),
        "the other segment goes on"
    );
}

#[test]
fn news_from_others_after_its_death_make_everything_doubtful() {
    for news in [false, true] {
        let (mut cluster, _) = cluster();
        // The third node knows that the second one has the page, and will ask it directly.
        cluster.touch(N2, 1, Access::Write);
        cluster.touch(N3, 1, Access::Read);
        cluster.touch(N2, 1, Access::Write);
        cluster.pass(SOON);
        cluster.cut = Some(|from, to| [(N1, N3), (N3, N1)].contains(&(from, to)));
        cluster.pass(Duration::from_millis(4_250));
        if news {
            assert_eq!(touched(&mut cluster, 1), Ok(()));
        }
        cluster.pass(SOON);
        cluster.cut = None;
        cluster.pass(SOON);
        assert_eq!(cluster.node(N3).id(), Some(NodeId(4)));
        let lost = cluster.node(N3).rejoin().lost;
        assert_eq!(lost.is_empty(), !news, "{lost:?}");
    }
}

/// A segment of policy `views`; the third host has a consistent mapping, and an inconsistent one.
fn viewed() -> (Cluster, SegmentInfo) {
    let mut cluster = Cluster::that_rejoins(3);
    let info = cluster.segment_of(Policy::Views { prefix: 32 });
    let view = View {
        consistent: false,
        short: false,
        data_driven: false,
    };
    let shown = Input::MappedView {
        mapping: OLD,
        segment: info.id,
        client: CLIENT,
        view,
    };
    cluster.input(N3, shown);
    cluster.touch(N3, 0, Access::Write);
    cluster.touch(N2, 0, Access::Write);
    // The third host keeps the copy for the thread that waited for it, and then gives it away.
    cluster.pass(SOON);
    (cluster, info)
}

/// What a read of the third host's inconsistent mapping got.
fn read_old(cluster: &mut Cluster) -> Option<Rights> {
    cluster.forget();
    let fault = Input::Fault {
        mapping: OLD,
        page: PageIndex(0),
        access: Access::Read,
    };
    cluster.input(N3, fault);
    cluster.pass(SOON);
    let rights = |(node, effect): &(NodeId, Effect)| match effect {
        Effect::Map {
            mappings, rights, ..
        } if *node == N3 && mappings.contains(OLD) => Some(*rights),
        _ => None,
    };
    cluster.done.iter().rev().find_map(rights)
}

#[test]
fn a_program_whose_views_hold_no_consistent_copy_goes_on() {
    let (mut cluster, info) = viewed();
    let (first, count) = (PageIndex(0), PageCount(1));
    let segment = info.id;
    let watch = cluster.ask(
        N3,
        Request::WatchRange {
            segment,
            first,
            count,
        },
    );
    cluster.settle();
    assert_eq!(cluster.reply(watch), Some(&Reply::Waiting));
    pause(&mut cluster);
    assert_eq!(cluster.node(N3).id(), Some(NodeId(4)));
    assert!(evicted(&cluster, 0), "the copy may be old by now");
    let lost = cluster.node(N3).rejoin().lost;
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!(
        cluster.reply(watch),
        Some(&Reply::Changed),
        "whoever watches looks again"
    );
    assert_eq!(
        read_old(&mut cluster),
        Some(Rights::Read),
        "its mapping is inconsistent still"
    );
    assert_eq!(touched(&mut cluster, 0), Ok(()), "the copy comes");
    // It listens: a publication of the second node reaches it.
    cluster.touch(N2, 0, Access::Write);
    cluster.pass(SOON);
    cluster.forget();
    let publish = Request::Publish {
        segment,
        first,
        count,
        short: false,
        waits: false,
    };
    let ticket = cluster.ask(N2, publish);
    cluster.settle();
    assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
    let is_newer =
        |(node, effect): &(NodeId, Effect)| *node == N3 && matches!(effect, Effect::Fill { .. });
    assert!(cluster.done.iter().any(is_newer), "{:?}", cluster.done);
}

#[test]
fn a_view_with_the_consistent_copy_and_a_board_are_lost_with_their_node() {
    let (mut cluster, _) = viewed();
    cluster.touch(N3, 0, Access::Write);
    cluster.pass(SOON);
    pause(&mut cluster);
    let (_, lost) = declared_dead(touched(&mut cluster, 0).unwrap_err());
    assert_eq!(lost, "page 0, which only this node had");

    let (mut cluster, info) = viewed();
    cluster.advise(N3, info.id, (0, 1), Advice::Renew);
    cluster.settle();
    pause(&mut cluster);
    let (_, lost) = declared_dead(touched(&mut cluster, 0).unwrap_err());
    assert!(lost.contains("board or pipe"), "{lost}");
}

#[test]
fn a_revoked_node_stays_out_and_its_programs_are_told() {
    let (mut cluster, _) = cluster();
    let revoke = Request::Call {
        to: Some(N1),
        call: Call::Revoke { node: N3 },
    };
    cluster.ask(N1, revoke);
    cluster.settle();
    cluster.pass(SOON);
    assert_eq!(cluster.node(N3).out(), Some(&Refusal::NotMember));
    assert!(touched(&mut cluster, 0).is_err());
    let ticket = cluster.ask(N3, open());
    assert!(matches!(cluster.reply(ticket), Some(Reply::Refused(_))));
}

#[test]
fn a_node_that_dies_again_and_again_waits_for_a_person() {
    let (mut cluster, _) = cluster();
    for time in 1..=REJOINS {
        pause(&mut cluster);
        assert_eq!(cluster.node(N3).rejoin().times, time);
        assert_eq!(touched(&mut cluster, 0), Ok(()), "{time}");
    }
    pause(&mut cluster);
    assert_eq!(cluster.node(N3).out(), Some(&Refusal::NotMember));
    assert!(touched(&mut cluster, 0).is_err());
}
