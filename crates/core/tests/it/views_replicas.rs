//! Policy `views` with a replica: what a backup does when a holder is gone.

use crate::common::Cluster;
use crate::views_census::{WANT, is};
use core::time::Duration;
use pagemesh_core::{Reply, Request, Source};
use pagemesh_wire::NodeId;
use pagemesh_wire::peer::{Access, Message, Policy};

const HOME: NodeId = NodeId(1);
const HOLDER: NodeId = NodeId(3);
/// Of the holder; the home has another one.
const BACKUP: NodeId = NodeId(4);

// First bytes of the policy's bodies.
const KEPT: u8 = 16;
const RELEASE: u8 = 17;

/// The holder has page 0, and its backup keeps it.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(4);
    cluster.replicas = 1;
    cluster.segment_of(Policy::Views { prefix: 32 });
    cluster.settle();
    cluster.touch(HOLDER, 0, Access::Write);
    cluster.pass(Duration::from_secs(1));
    let kept = |(from, to, message): &(NodeId, NodeId, Message)| {
        (*from, *to) == (BACKUP, HOLDER) && is(message, KEPT)
    };
    assert!(cluster.sent.iter().any(kept));
    cluster.forget();
    cluster
}

fn asks(cluster: &Cluster, node: NodeId) -> bool {
    let mut sent = cluster.sent.iter();
    sent.any(|(from, _, message)| *from == node && is(message, WANT))
}

/// A backup that does not hear that a page has moved asks for it once the holder is gone. If that one has
/// left, the page has a holder, and is not to leave it: a publication has several pages.
#[test]
fn a_backup_leaves_pages_of_a_holder_that_has_left_where_they_are() {
    let mut cluster = cluster();
    let ticket = cluster.ask(HOLDER, Request::Leave);
    cluster.pass_with(Duration::from_secs(8), |to, message| {
        to != BACKUP || !is(message, RELEASE)
    });
    assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
    assert!(!cluster.lost.is_empty(), "no word to the backup");
    assert!(!asks(&cluster, BACKUP));
    cluster.forget();
    cluster.touch(HOME, 0, Access::Write);
    assert!(cluster.sent.is_empty() && cluster.mapped(HOME));
}

/// If the holder is dead, the backup takes its place.
#[test]
fn a_backup_takes_the_place_of_a_holder_that_is_dead() {
    let mut cluster = cluster();
    cluster.kill(HOLDER);
    cluster.pass(Duration::from_secs(8));
    assert!(asks(&cluster, BACKUP));
    cluster.forget();
    cluster.touch(BACKUP, 0, Access::Write);
    assert!(cluster.mapped(BACKUP), "{:?}", cluster.sent);
    assert!(!asks(&cluster, BACKUP));
    cluster.touch(HOME, 0, Access::Write);
    assert_eq!(cluster.fills(HOME), [Source::Payload]);
}
