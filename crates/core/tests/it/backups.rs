//! Policy `release` with a replica: nobody hears of an interval before the backup has it.

use crate::common::Cluster;
use core::time::Duration;
use pagemesh_core::release::Body;
use pagemesh_core::{Reply, Request};
use pagemesh_wire::peer::{Access, Call, Message, Policy, Spread};
use pagemesh_wire::{NodeId, PageIndex, SegmentId, SyncKey, Ticket};

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);

/// The message of the policy, if it is one.
fn body(message: &Message) -> Option<Body> {
    match message {
        Message::Policy(said) => Body::read(&said.body),
        _ => None,
    }
}

fn is_keep(message: &Message) -> bool {
    matches!(body(message), Some(Body::Keep(_)))
}

fn is_arrival(message: &Message) -> bool {
    matches!(message, Message::Call { body, .. } if matches!(body, Call::Barrier { .. }))
}

fn cluster() -> (Cluster, SegmentId) {
    let mut cluster = Cluster::new(3);
    cluster.replicas = 1;
    let spread = Spread::Lazy;
    let segment = cluster.segment_of(Policy::Release { spread }).id;
    (cluster, segment)
}

fn arrive(cluster: &mut Cluster, node: NodeId, segment: SegmentId) -> Ticket {
    let key = SyncKey { segment, number: 1 };
    let call = Call::barrier(key, 3);
    cluster.ask(node, Request::Call { to: None, call })
}

/// Pages on one node only, as a node counts them.
fn alone(cluster: &Cluster, node: NodeId, segment: SegmentId) -> u64 {
    let seen = cluster.node(node).inspect(segment, PageIndex(0), 0);
    seen.map_or(0, |seen| seen.unreplicated)
}

#[test]
fn an_arrival_waits_until_the_backup_has_what_was_stored() {
    let (mut cluster, segment) = cluster();
    cluster.touch(N2, 0, Access::Write);
    cluster.forget();
    arrive(&mut cluster, N2, segment);
    cluster.deliver(|_, message| !is_keep(message));
    let arrived = |cluster: &Cluster| {
        cluster
            .sent
            .iter()
            .position(|(_, _, sent)| is_arrival(sent))
    };
    assert_eq!(arrived(&cluster), None, "{:?}", cluster.sent);
    cluster.pass(Duration::from_millis(50));
    let kept = cluster
        .sent
        .iter()
        .position(|(_, to, sent)| *to == N2 && matches!(body(sent), Some(Body::Kept(_))));
    assert!(
        kept.is_some() && kept < arrived(&cluster),
        "{:?}",
        cluster.sent
    );
}

#[test]
fn an_arrival_that_waits_may_be_withdrawn() {
    let (mut cluster, segment) = cluster();
    cluster.touch(N2, 0, Access::Write);
    let ticket = arrive(&mut cluster, N2, segment);
    cluster.deliver(|_, message| !is_keep(message));
    cluster.input(N2, pagemesh_core::Input::Cancel { ticket });
    assert!(matches!(cluster.reply(ticket), Some(Reply::Refused(_))));
    cluster.forget();
    cluster.pass(Duration::from_millis(50));
    assert!(!cluster.sent.iter().any(|(_, _, sent)| is_arrival(sent)));
}

/// Nothing is stored, so nothing has to be kept.
#[test]
fn who_stored_nothing_does_not_wait() {
    let (mut cluster, segment) = cluster();
    let tickets = [N1, N2, N3].map(|node| arrive(&mut cluster, node, segment));
    cluster.settle();
    assert!(
        tickets
            .iter()
            .all(|ticket| cluster.reply(*ticket) == Some(&Reply::Done))
    );
    assert!(!cluster.sent.iter().any(|(_, _, sent)| is_keep(sent)));
}

/// Node 2 dies. What the others heard of is on node 3, or 1, and they bring it to each other.
#[test]
fn after_a_death_all_is_on_two_nodes_again() {
    let (mut cluster, segment) = cluster();
    for page in 0..4 {
        cluster.touch(N2, page, Access::Write);
    }
    let tickets = [N1, N2, N3].map(|node| arrive(&mut cluster, node, segment));
    cluster.pass(Duration::from_millis(50));
    assert!(
        tickets
            .iter()
            .all(|ticket| cluster.reply(*ticket) == Some(&Reply::Done))
    );
    cluster.kill(N2);
    cluster.pass(Duration::from_secs(8));
    cluster.forget();
    for node in [N1, N3] {
        assert_eq!(alone(&cluster, node, segment), 0, "{node}");
        for page in 0..4 {
            cluster.touch(node, page, Access::Read);
        }
        assert!(cluster.mapped(node), "{node}");
    }
    let failed =
        |effect: &pagemesh_core::Effect| matches!(effect, pagemesh_core::Effect::Fail { .. });
    assert!(!cluster.done.iter().any(|(_, effect)| failed(effect)));
}
