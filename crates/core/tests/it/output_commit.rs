//! Policy `sequential` with a replica: nothing that was stored leaves before the backup has it.

use crate::common::Cluster;
use core::time::Duration;
use pagemesh_core::sequential::Body;
use pagemesh_core::{Effect, Reply, Request, Source};
use pagemesh_wire::peer::{Access, Call, Manager, Message, Policy, Window};
use pagemesh_wire::{NodeId, PageIndex, SegmentId, SyncKey};

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);

/// Shorter than what nobody waits for is kept.
const SOON: Duration = Duration::from_millis(50);

fn body(message: &Message) -> Option<Body> {
    match message {
        Message::Policy(said) | Message::PolicyPage(said) => Body::read(&said.body),
        _ => None,
    }
}

fn is_keep(message: &Message) -> bool {
    matches!(body(message), Some(Body::Keep(_)))
}

fn is_page(message: &Message) -> bool {
    matches!(body(message), Some(Body::Page(_)))
}

fn is_copy(message: &Message) -> bool {
    matches!(message, Message::Data(_))
}

fn cluster() -> (Cluster, SegmentId) {
    let mut cluster = Cluster::new(3);
    cluster.replicas = 1;
    let (manager, window) = (Manager::Dynamic, Window::Nanos(0));
    let segment = cluster
        .segment_of(Policy::Sequential { manager, window })
        .id;
    (cluster, segment)
}

/// When the first such message to a node was sent.
fn first(cluster: &Cluster, to: NodeId, is: fn(&Message) -> bool) -> Option<usize> {
    let mut sent = cluster.sent.iter();
    sent.position(|(_, at, message)| *at == to && is(message))
}

fn alone(cluster: &Cluster, node: NodeId, segment: SegmentId) -> u64 {
    let seen = cluster.node(node).inspect(segment, PageIndex(0), 0);
    seen.map_or(0, |seen| seen.unreplicated)
}

#[test]
fn a_copy_leaves_when_the_backup_has_all_that_was_stored() {
    let (mut cluster, _) = cluster();
    cluster.touch(N2, 0, Access::Write);
    cluster.touch(N2, 1, Access::Write);
    cluster.forget();
    cluster.touch(N1, 1, Access::Read);
    let kept = first(&cluster, N2, |message| {
        matches!(body(message), Some(Body::Kept(_)))
    });
    let copied = first(&cluster, N1, is_copy);
    assert!(kept.is_some() && kept < copied, "{:?}", cluster.sent);
    let pages = cluster.sent.iter().filter(|(.., message)| is_page(message));
    assert_eq!(pages.count(), 2, "the other page, too");
    assert!(cluster.mapped(N1));
    cluster.forget();
    cluster.touch(N3, 1, Access::Read);
    assert!(
        !cluster.sent.iter().any(|(.., message)| is_keep(message)),
        "it has it"
    );
}

#[test]
fn a_page_is_asked_for_again_that_the_backup_lacks() {
    let (mut cluster, _) = cluster();
    cluster.touch(N2, 0, Access::Write);
    cluster.forget();
    let mut lost = 0;
    cluster.input(
        N1,
        pagemesh_core::Input::Fault {
            mapping: crate::common::MAPPING,
            page: PageIndex(0),
            access: Access::Read,
        },
    );
    cluster.deliver(|_, message| {
        let first = is_page(message) && lost == 0;
        lost += usize::from(first);
        !first
    });
    assert_eq!(lost, 1);
    cluster.pass(SOON);
    assert!(cluster.mapped(N1));
}

#[test]
fn a_lock_comes_when_the_backup_has_what_was_stored_before() {
    let (mut cluster, segment) = cluster();
    cluster.touch(N2, 0, Access::Write);
    let key = SyncKey { segment, number: 1 };
    let call = Call::barrier(key, 3);
    cluster.forget();
    let ticket = cluster.ask(
        N2,
        Request::Call {
            to: None,
            call: call.clone(),
        },
    );
    cluster.deliver(|_, message| !is_keep(message));
    let arrived = |message: &Message| matches!(message, Message::Call { body, .. } if matches!(body, Call::Barrier { .. }));
    assert_eq!(first(&cluster, N1, arrived), None);
    cluster.pass(SOON);
    assert!(first(&cluster, N1, arrived).is_some());
    for node in [N1, N3] {
        cluster.ask(
            node,
            Request::Call {
                to: None,
                call: call.clone(),
            },
        );
    }
    cluster.pass(SOON);
    assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
}

/// Node 2 dies, which had stored to two pages and shown one of them. Node 3 was its backup.
#[test]
fn after_a_death_the_backup_has_the_pages_and_finds_another_one() {
    let (mut cluster, segment) = cluster();
    cluster.touch(N2, 0, Access::Write);
    cluster.touch(N2, 1, Access::Write);
    cluster.touch(N1, 1, Access::Read);
    cluster.kill(N2);
    cluster.pass(Duration::from_secs(8));
    let filled = cluster.fills(N3);
    assert!(
        filled
            .iter()
            .any(|source| matches!(source, Source::Replica(_))),
        "{filled:?}"
    );
    for node in [N1, N3] {
        assert_eq!(alone(&cluster, node, segment), 0, "{node}");
        for page in 0..3 {
            cluster.forget();
            cluster.touch(node, page, Access::Read);
            assert!(cluster.mapped(node), "{node} {page}");
        }
    }
    let failed = |effect: &Effect| matches!(effect, Effect::Fail { .. });
    assert!(!cluster.done.iter().any(|(_, effect)| failed(effect)));
}

/// What nobody asks for is committed, too, and then all is quiet.
#[test]
fn an_idle_node_commits_once() {
    let (mut cluster, segment) = cluster();
    cluster.touch(N2, 0, Access::Write);
    cluster.forget();
    cluster.pass(Duration::from_secs(1));
    let keeps = cluster.sent.iter().filter(|(.., message)| is_keep(message));
    assert_eq!(keeps.count(), 1);
    assert_eq!(alone(&cluster, N2, segment), 0);
}

/// Node 3 is the backup of node 2, and leaves.
#[test]
fn a_backup_leaves_when_another_one_has_everything() {
    let (mut cluster, _) = cluster();
    cluster.touch(N2, 0, Access::Write);
    cluster.pass(Duration::from_secs(1));
    cluster.forget();
    let ticket = cluster.ask(N3, Request::Leave);
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
    assert!(first(&cluster, N1, is_page).is_some(), "{:?}", cluster.sent);
    assert!(first(&cluster, N3, |message| body(message) == Some(Body::Free)).is_some());
}
