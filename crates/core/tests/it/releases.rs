//! Policy `release` without a replica, and nodes that die.

use crate::common::Cluster;
use core::time::Duration;
use pagemesh_core::{Input, Reply, Request};
use pagemesh_wire::peer::{Access, Policy, Spread};
use pagemesh_wire::{NodeId, SyncKey, Ticket};

const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);
const N4: NodeId = NodeId(4);

/// Longer than it takes to declare a node dead.
const DEATH: Duration = Duration::from_secs(8);

fn lock(cluster: &mut Cluster, node: NodeId, key: SyncKey) -> Ticket {
    let ticket = cluster.ask(node, Request::Lock { key });
    cluster.settle();
    ticket
}

fn unlock(cluster: &mut Cluster, node: NodeId, key: SyncKey) {
    let recovered = false;
    cluster.input(node, Input::LockReturned { key, recovered });
    cluster.settle();
}

/// The first node coordinates, and has never opened the segment. The home dies with the lock, and the
/// first node, which makes it anew, asks all who use the segment what was stored under it.
#[test]
fn a_lock_made_anew_by_a_node_without_the_segment_tells_what_was_stored_under_it() {
    let mut cluster = Cluster::new(4);
    let policy = Policy::Release {
        spread: Spread::Lazy,
    };
    let segment = cluster.segment_on([N2, N3, N4], policy, 4).id;
    let key = SyncKey { segment, number: 7 };
    cluster.touch(N4, 0, Access::Read);
    lock(&mut cluster, N3, key);
    cluster.touch(N3, 0, Access::Write);
    let home = lock(&mut cluster, N2, key);
    unlock(&mut cluster, N3, key);
    assert!(matches!(cluster.reply(home), Some(Reply::Locked { .. })));
    cluster.kill(N2);
    cluster.pass(DEATH);
    cluster.forget();
    cluster.touch(N4, 0, Access::Read);
    assert!(cluster.sent.is_empty(), "its copy is valid");
    let next = lock(&mut cluster, N4, key);
    cluster.pass(DEATH);
    let recovered = true;
    assert_eq!(cluster.reply(next), Some(&Reply::Locked { recovered }));
    cluster.forget();
    cluster.touch(N4, 0, Access::Read);
    let asked = |(from, to, _): &&(NodeId, NodeId, _)| (*from, *to) == (N4, N3);
    assert!(
        cluster.sent.iter().any(|sent| asked(&sent)),
        "it loads what was there before"
    );
}

/// The home, which does not coordinate, leaves after another node has taken the lock and the page.
#[test]
fn a_home_leaves_after_another_node_has_taken_its_lock_and_its_page() {
    let mut cluster = Cluster::new(2);
    let policy = Policy::Release {
        spread: Spread::Lazy,
    };
    let segment = cluster.segment_on([N2, NodeId(1)], policy, 1).id;
    let key = SyncKey { segment, number: 1 };
    lock(&mut cluster, N2, key);
    cluster.touch(N2, 0, Access::Write);
    unlock(&mut cluster, N2, key);
    lock(&mut cluster, NodeId(1), key);
    cluster.touch(NodeId(1), 0, Access::Read);
    cluster.touch(NodeId(1), 0, Access::Write);
    unlock(&mut cluster, NodeId(1), key);
    cluster.forget();
    let left = cluster.ask(N2, Request::Leave);
    cluster.pass(Duration::from_secs(2));
    assert_eq!(
        cluster.reply(left),
        Some(&Reply::Done),
        "{:?}",
        cluster.sent
    );
}
