//! A store that all nodes share elects the next coordinator.

use crate::common::{Cluster, DiskPace};
use crate::standby::{N1, N2, N3, answer, coordinator, create, refused, remove, stat};
use core::time::Duration;
use pagemesh_core::{Effect, Input, Reply, Request};
use pagemesh_wire::peer::Health;
use pagemesh_wire::{NodeId, Term};

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
