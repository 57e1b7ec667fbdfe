//! A store that all nodes share elects the next coordinator.

use crate::common::{Cluster, DiskPace};
use crate::standby::{N1, N2, N3, answer, coordinator, create, refused, remove, stat};
use core::time::Duration;
use pagemesh_core::{Effect, Input, Pace, Reply, Request, limits};
use pagemesh_wire::peer::{Call, Credentials, Health, Message};
use pagemesh_wire::{NodeId, NodeSet, SyncKey, Term};

const N4: NodeId = NodeId(4);

/// The coordinator has missed a heartbeat, and not many.
const MISSED: Duration = Duration::from_millis(1_200);

/// The newest term that a node knew when it asked for the claim last.
fn asked(cluster: &Cluster, by: NodeId) -> Option<Term> {
    cluster
        .done
        .iter()
        .rev()
        .find_map(|(node, effect)| match effect {
            Effect::Elect { fence, .. } if *node == by => Some(*fence),
            _ => None,
        })
}

fn elect(cluster: &mut Cluster, node: NodeId, former: NodeId) {
    let fence = asked(cluster, node).expect("the coordinator is silent");
    let term = fence.next(node).expect("there are more terms");
    let kept = Box::new(cluster.kept(former).clone());
    cluster.input(node, Input::Elected { term, kept });
    cluster.settle();
}

#[test]
fn a_living_coordinator_renews_and_nobody_asks_for_its_claim() {
    let mut cluster = Cluster::elected(3);
    cluster.pass(MISSED);
    let renews = |(node, effect): &(NodeId, Effect)| {
        *node == N1 && *effect == Effect::Renew { term: Term::FIRST }
    };
    assert!(cluster.done.iter().any(renews));
    assert_eq!([N2, N3].map(|node| asked(&cluster, node)), [None, None]);
    let why = refused(&answer(&mut cluster, N2, Request::Promote));
    assert!(why.contains("etcd elects"), "{why}");
}

#[test]
fn the_elected_node_goes_on_with_what_the_store_has() {
    let mut cluster = Cluster::elected(4);
    answer(&mut cluster, N2, create("one"));
    answer(&mut cluster, N3, create("gone"));
    answer(&mut cluster, N3, remove("gone"));
    cluster.stop(N1);
    cluster.pass(MISSED);
    elect(&mut cluster, N3, N1);
    for node in [N2, N3] {
        assert_eq!(coordinator(&cluster, node), N3);
        let dead = cluster.node(node).view().member(N1).map(|one| one.health);
        assert_eq!(dead, Some(Health::Dead));
    }
    assert!(matches!(
        answer(&mut cluster, N2, stat("one")),
        Reply::Segment(_)
    ));
    refused(&answer(&mut cluster, N2, stat("gone")));
    // And so on, with what that one has put there.
    answer(&mut cluster, N2, create("two"));
    cluster.stop(N3);
    cluster.pass(MISSED);
    elect(&mut cluster, N2, N3);
    for name in ["one", "two"] {
        assert!(matches!(
            answer(&mut cluster, N2, stat(name)),
            Reply::Segment(_)
        ));
    }
}

#[test]
fn answers_wait_for_the_store() {
    let mut cluster = Cluster::elected(2);
    cluster.disk = DiskPace::Stopped;
    let ticket = cluster.ask(N2, create("one"));
    cluster.pass(MISSED);
    assert_eq!(cluster.reply(ticket), None);
    cluster.disk = DiskPace::AtOnce;
    cluster.write_disks();
    cluster.settle();
    assert!(matches!(cluster.reply(ticket), Some(Reply::Segment(_))));
}

#[test]
fn a_coordinator_that_the_store_has_replaced_learns_that_it_is_none() {
    let mut cluster = Cluster::elected(3);
    cluster.stop(N1);
    cluster.pass(MISSED);
    elect(&mut cluster, N3, N1);
    assert_eq!(coordinator(&cluster, N2), N3);
    cluster.go_on(N1);
    cluster.pass(Duration::from_secs(12));
    assert!(cluster.node(N1).out().is_some());
    // An election of which it hears now comes too late.
    let kept = Box::new(cluster.kept(N3).clone());
    let term = Term::FIRST.next(N2).expect("there are more terms");
    cluster.input(N2, Input::Elected { term, kept });
    cluster.settle();
    assert_eq!(coordinator(&cluster, N2), N3);
}

/// The coordinator and a member die at once. Both count as dead when the elected node has waited for
/// the member's promise and the store has not heard of it either; a member that is cut off from the
/// elected node alone, and asks the store, is waited for.
#[test]
fn a_member_that_dies_with_the_coordinator_is_given_up_soon() {
    for cut_off in [false, true] {
        let mut cluster = Cluster::elected(4);
        cluster.stop(N1);
        cluster.stop(N2);
        cluster.pass(MISSED);
        elect(&mut cluster, N3, N1);
        let term = asked(&cluster, N3)
            .and_then(|fence| fence.next(N3))
            .expect("it asked");
        let mut nodes = NodeSet::EMPTY;
        if cut_off {
            nodes.insert(N2);
        }
        // Not yet: its answer may be on its way.
        cluster.input(
            N3,
            Input::Asking {
                term,
                nodes: nodes.clone(),
            },
        );
        assert_eq!(coordinator(&cluster, N3), N1);
        assert!(!lists(&cluster, N3));
        cluster.pass(Pace::default().heartbeat * (limits::PROMISE + 2));
        assert!(lists(&cluster, N3), "it asks who lives");
        cluster.input(N3, Input::Asking { term, nodes });
        cluster.settle();
        let known = if cut_off { N1 } else { N3 };
        assert_eq!(coordinator(&cluster, N3), known, "cut off: {cut_off}");
        // In the end nobody waits for a member that is silent.
        cluster.pass(Pace::default().dead_after);
        for node in [N3, N4] {
            assert_eq!(coordinator(&cluster, node), N3);
            let dead = cluster.node(node).view().member(N2).map(|one| one.health);
            assert_eq!(dead, Some(Health::Dead));
        }
    }
}

fn lists(cluster: &Cluster, by: NodeId) -> bool {
    let lists = |(node, effect): &(NodeId, Effect)| {
        *node == by && matches!(effect, Effect::ListAsking { .. })
    };
    cluster.done.iter().any(lists)
}

/// A member that has heard the elected coordinator tells nothing to one that has not: that one may
/// pass the news on to the former coordinator, which goes on with what it had.
#[test]
fn news_from_a_newer_term_wait_until_its_coordinator_was_heard() {
    let mut cluster = Cluster::elected(4);
    let Reply::Segment(info) = answer(&mut cluster, N2, create("one")) else {
        panic!("it is made");
    };
    let open = Request::Open {
        name: "one".into(),
        create: None,
        exclusive: false,
        write: true,
        credentials: Credentials::root(),
    };
    assert!(matches!(answer(&mut cluster, N4, open), Reply::Segment(_)));
    let key = SyncKey {
        segment: info.id,
        number: 9,
    };
    let locked = |reply: &Reply| matches!(reply, Reply::Locked { .. });
    let has = answer(&mut cluster, N4, Request::Lock { key });
    assert!(locked(&has), "{has:?}");
    cluster.stop(N1);
    cluster.pass(MISSED);
    let fence = asked(&cluster, N3).expect("the coordinator is silent");
    let term = fence.next(N3).expect("there are more terms");
    let kept = Box::new(cluster.kept(N1).clone());
    cluster.input(N3, Input::Elected { term, kept });
    let unheard = |to: NodeId, message: &Message| {
        let introduces = |body: &Call| matches!(body, Call::Members(_));
        to != N2 || !matches!(message, Message::Call { body, .. } if introduces(body))
    };
    cluster.deliver(unheard);
    assert_eq!(coordinator(&cluster, N4), N3);
    assert_eq!(coordinator(&cluster, N2), N1);
    let ticket = cluster.ask(N2, Request::Lock { key });
    cluster.deliver(unheard);
    let recovered = false;
    cluster.input(N4, Input::LockReturned { key, recovered });
    cluster.pass_with(MISSED, unheard);
    assert_eq!(coordinator(&cluster, N2), N1);
    assert_eq!(cluster.reply(ticket), None);
    cluster.pass(MISSED);
    assert_eq!(coordinator(&cluster, N2), N3);
    assert!(cluster.reply(ticket).is_some_and(locked));
}

/// The coordinator dies before it has admitted a host, which hears of the next one from the store.
#[test]
fn a_host_that_joins_hears_of_the_next_coordinator_from_the_store() {
    let mut cluster = Cluster::elected(3);
    cluster.stop(N1);
    let joins = cluster.add_node(0);
    cluster.pass(MISSED);
    elect(&mut cluster, N3, N1);
    cluster.pass(MISSED);
    let seeks = |(node, effect): &(NodeId, Effect)| *node == joins && *effect == Effect::Seek;
    assert!(cluster.done.iter().any(seeks));
    assert!(cluster.node(joins).id().is_none());
    let view = cluster.node(N3).view();
    let address = view.member(N3).expect("it is one").address;
    cluster.input(joins, Input::Coordinates { address });
    cluster.settle();
    assert_eq!(cluster.node(joins).id(), Some(joins));
    assert_eq!(coordinator(&cluster, joins), N3);
}

/// A host hears of its admission when the store knows of it. Until then it sends no heartbeats, and is
/// not missed.
#[test]
fn a_host_that_waits_for_its_admission_is_not_declared_dead() {
    let mut cluster = Cluster::elected(2);
    cluster.disk = DiskPace::Stopped;
    let joins = cluster.add_node(0);
    cluster.pass(Pace::default().dead_after * 2);
    assert_eq!(cluster.node(joins).id(), None);
    cluster.disk = DiskPace::AtOnce;
    cluster.write_disks();
    cluster.pass(MISSED);
    assert_eq!(cluster.node(joins).id(), Some(N3));
    // From now on it is.
    cluster.stop(joins);
    cluster.pass(Pace::default().dead_after + MISSED);
    let dead = cluster.node(N1).view().member(N3).map(|one| one.health);
    assert_eq!(dead, Some(Health::Dead));
}

/// The coordinator dies when the store knows of a host's admission and the host does not. The next
/// one finds it silent and declares it dead; the host asks once more.
#[test]
fn a_host_that_never_heard_of_its_admission_asks_once_more() {
    let mut cluster = Cluster::elected(3);
    cluster.cut = Some(|from, to| from == N1 && to == N4);
    let joins = cluster.add_node(0);
    assert_eq!(cluster.node(joins).id(), None);
    assert!(cluster.kept(N1).view().member(N4).is_some());
    cluster.stop(N1);
    cluster.pass(MISSED);
    elect(&mut cluster, N3, N1);
    cluster.pass(Pace::default().dead_after + MISSED);
    let view = cluster.node(N3).view();
    assert_eq!(view.member(N4).map(|one| one.health), Some(Health::Dead));
    let address = view.member(N3).expect("it is one").address;
    cluster.input(joins, Input::Coordinates { address });
    cluster.pass(MISSED);
    assert_eq!(cluster.node(joins).id(), Some(NodeId(5)));
}
