//! Numbers of lives that are over are given again, once nobody names them (decision 34).

use crate::common::Cluster;
use crate::standby::{N1, N2, N3, SILENCE, answer, coordinator, create, remove, stat};
use core::time::Duration;
use pagemesh_core::{Effect, Input, Reply, Request};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Access, Call, Health, Invalidate, Manager, Message, Window};
use pagemesh_wire::{ClusterId, NodeId, PageIndex, SyncKey, Version};

const N4: NodeId = NodeId(4);
/// Between two lives; some twenty of them come between two checks.
const PAUSE: Duration = Duration::from_millis(50);
/// Lives after which every number has been used.
const MANY: usize = 260;

/// A daemon leaves, and is started again. Returns its new number.
fn come_back(cluster: &mut Cluster, host: NodeId) -> NodeId {
    assert_eq!(answer(cluster, host, Request::Leave), Reply::Done);
    let asks = NodeId(1);
    cluster.start_again(host, Some(asks));
    cluster.pass(PAUSE);
    let id = cluster.node(host).id();
    id.unwrap_or_else(|| panic!("not admitted: {:?}", cluster.node(host).out()))
}

/// A person says that the loss of a dead node has been dealt with.
fn forget_member(cluster: &mut Cluster, node: NodeId) {
    let (to, call) = (Some(N1), Call::ForgetMember { node });
    let forgotten = answer(cluster, N2, Request::Call { to, call });
    assert_eq!(forgotten, Reply::Done);
}

/// Node 3 dies, its host is back, and its number is given again.
fn die_and_be_forgotten(cluster: &mut Cluster) {
    cluster.kill(N3);
    cluster.start_again(N3, Some(N1));
    cluster.pass(SILENCE);
    come_back_as(cluster, N3, N3);
}

/// Lives of a host come and go until one has this number.
fn come_back_as(cluster: &mut Cluster, host: NodeId, number: NodeId) {
    for _ in 0..MANY {
        if come_back(cluster, host) == number {
            return;
        }
    }
    panic!(
        "{number} is not given again: {:?}",
        cluster.node(N1).names_of_the_gone()
    );
}

#[test]
fn a_cluster_never_gets_full() {
    let mut cluster = Cluster::new(3);
    let mut numbers = Vec::new();
    for _ in 0..1000 {
        numbers.push(come_back(&mut cluster, N3));
    }
    assert!(numbers.iter().filter(|number| **number == N4).count() > 3);
    let view = cluster.node(N2).view();
    assert!(view.members.len() < 127 && view.generation > 5, "{view:?}");
    assert_eq!(view, cluster.node(N3).view());
}

#[test]
fn a_number_is_held_back_while_a_segment_is_named_after_it() {
    let mut cluster = Cluster::new(3);
    let made = answer(&mut cluster, N3, create("a"));
    assert!(matches!(made, Reply::Segment(_)), "{made:?}");
    for _ in 0..MANY {
        assert_ne!(come_back(&mut cluster, N3), N3);
    }
    let held = cluster.node(N1).names_of_the_gone();
    assert!(held.iter().any(|(node, _)| *node == N3), "{held:?}");
    assert_eq!(answer(&mut cluster, N2, remove("a")), Reply::Done);
    come_back_as(&mut cluster, N3, N3);
}

#[test]
fn the_number_of_a_dead_host_is_held_back_until_a_person_says_so() {
    let mut cluster = Cluster::new(4);
    cluster.stop(N3);
    cluster.pass(SILENCE);
    for _ in 0..MANY {
        assert_ne!(come_back(&mut cluster, N4), N3);
    }
    forget_member(&mut cluster, N3);
    come_back_as(&mut cluster, N4, N3);
}

#[test]
fn a_page_that_was_lost_with_a_forgotten_life_stays_lost() {
    let mut cluster = Cluster::new(3);
    let info = cluster.segment(Manager::Dynamic, Window::Nanos(0));
    cluster.touch(N3, 5, Access::Write);
    cluster.touch(N2, 5, Access::Write);
    cluster.touch(N3, 5, Access::Write);
    // Its host is back, so nobody has to say that its loss was dealt with.
    die_and_be_forgotten(&mut cluster);
    for node in [N2, N1] {
        cluster.forget();
        cluster.touch(node, 5, Access::Read);
        cluster.pass(Duration::from_secs(2));
        let failed = cluster.done.iter().any(|(of, effect)| {
            *of == node && matches!(effect, Effect::Fail { segment, .. } if *segment == info.id)
        });
        assert!(failed, "{node}: {:?}", cluster.done);
    }
}

#[test]
fn a_page_of_which_a_forgotten_life_was_the_owner_lives_on_from_a_copy() {
    let mut cluster = Cluster::new(3);
    cluster.segment(Manager::Dynamic, Window::Nanos(0));
    cluster.touch(N3, 5, Access::Write);
    cluster.touch(N2, 5, Access::Read);
    die_and_be_forgotten(&mut cluster);
    cluster.forget();
    cluster.touch(N1, 5, Access::Write);
    cluster.pass(Duration::from_secs(2));
    assert!(cluster.mapped(N1), "{:?}", cluster.done);
}

#[test]
fn a_lock_of_a_forgotten_holder_is_given_to_its_next_life() {
    let mut cluster = Cluster::new(3);
    let segment = cluster.segment(Manager::Dynamic, Window::Nanos(0)).id;
    let key = SyncKey { segment, number: 9 };
    let locked = |reply: &Reply| matches!(reply, Reply::Locked { .. });
    for node in [N2, N3] {
        let reply = answer(&mut cluster, node, Request::Lock { key });
        assert!(locked(&reply), "{reply:?}");
        if node == N2 {
            let recovered = false;
            cluster.input(N2, Input::LockReturned { key, recovered });
        }
    }
    die_and_be_forgotten(&mut cluster);
    let open = Request::Open {
        name: "a".into(),
        create: None,
        exclusive: false,
        write: true,
        credentials: pagemesh_wire::peer::Credentials::root(),
    };
    let opened = answer(&mut cluster, N3, open);
    assert!(matches!(opened, Reply::Segment(_)), "{opened:?}");
    let ticket = cluster.ask(N3, Request::Lock { key });
    cluster.pass(Duration::from_secs(3));
    let reply = cluster.reply(ticket);
    assert!(reply.is_some_and(locked), "{reply:?}");
}

/// Datagrams to and from the first life of the third host, of all kinds, that come when another
/// life has its number: at the same address, where that is possible.
#[test]
fn datagrams_of_a_former_life_change_nothing() {
    let mut cluster = Cluster::new(3);
    let segment = cluster.segment(Manager::Dynamic, Window::Nanos(0)).id;
    let key = SyncKey { segment, number: 9 };
    cluster.touch(N2, 1, Access::Write);
    cluster.lost.clear();
    let about_n3 = |cluster: &mut Cluster| cluster.deliver(|to, _| to != N3);
    for (page, access) in [(1, Access::Write), (2, Access::Read)] {
        let page = PageIndex(page);
        let mapping = crate::common::MAPPING;
        cluster.input(
            N3,
            Input::Fault {
                mapping,
                page,
                access,
            },
        );
    }
    cluster.ask(N3, Request::Lock { key });
    about_n3(&mut cluster);
    let grants = |message: &Message| {
        matches!(
            message,
            Message::Pass(_) | Message::Grant(_) | Message::Data(_)
        )
    };
    let late = core::mem::take(&mut cluster.lost);
    let decoded = late
        .iter()
        .map(|(.., bytes)| Message::decode(bytes).unwrap().1);
    let granted = decoded.filter(grants).count();
    assert!(granted >= 3, "page, copy and lock: {granted}");
    die_and_be_forgotten(&mut cluster);
    for datagram in &late {
        let before = cluster.node(N3).clone();
        cluster.deliver_late(datagram);
        assert_eq!(*cluster.node(N3), before, "it was not for this life");
    }
}

#[test]
fn a_life_that_was_forgotten_while_it_stood_still_is_told() {
    let mut cluster = Cluster::new(4);
    cluster.stop(N3);
    cluster.pass(SILENCE);
    forget_member(&mut cluster, N3);
    come_back_as(&mut cluster, N4, N3);
    let view = cluster.node(N1).view().clone();
    assert_eq!(view.member(N3).unwrap().health, Health::Alive);
    cluster.go_on(N3);
    cluster.pass(Duration::from_secs(2));
    assert!(cluster.node(N3).out().is_some(), "it is none of them");
    assert_eq!(cluster.node(N1).view(), &view, "and the other one stays");
}

#[test]
fn a_name_comes_back_from_no_datagram_sent_before_its_sender_was_asked() {
    let mut cluster = Cluster::new(3);
    let segment = cluster.segment(Manager::Dynamic, Window::Nanos(0)).id;
    cluster.touch(N1, 5, Access::Read);
    cluster.client_gone(N3);
    come_back_as(&mut cluster, N3, N3);
    let view = cluster.node(N2).view().clone();
    let sender = view.member(N2).expect("a member");
    let (source, key) = (sender.address, sender.key);
    let datagram = |generation| {
        let header = Header {
            version: pagemesh_wire::header::PROTOCOL_VERSION,
            cluster: ClusterId(77),
            from: N2,
            to: N1,
            incarnation: sender.incarnation,
            body: 0,
            term: view.term,
            generation,
        };
        let mut bytes = Vec::new();
        let invalidate = Message::Invalidate(Invalidate {
            segment,
            page: PageIndex(5),
            version: Version(90),
            writer: N3,
        });
        invalidate.encode(header, &mut bytes);
        bytes
    };
    let before = cluster.node(N1).clone();
    let generation = view.generation as u16;
    for (generation, counts) in [(generation - 1, false), (generation, true)] {
        let bytes = &datagram(generation);
        cluster.input(N1, Input::Datagram { source, key, bytes });
        let changed = *cluster.node(N1) != before;
        assert_eq!(changed, counts, "of generation {generation}");
    }
}

#[test]
fn a_standby_that_takes_over_goes_on_giving_numbers() {
    let mut cluster = Cluster::with_standby(4);
    for _ in 0..MANY {
        come_back(&mut cluster, N4);
    }
    cluster.stop(N1);
    cluster.pass(SILENCE);
    let ticket = cluster.ask(N2, Request::Promote);
    cluster.pass(Duration::from_secs(12));
    assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
    let created = answer(&mut cluster, N4, create("b"));
    assert!(matches!(created, Reply::Segment(_)), "{created:?}");
    for _ in 0..MANY {
        assert_eq!(answer(&mut cluster, N3, Request::Leave), Reply::Done);
        cluster.start_again(N3, Some(N2));
        cluster.pass(PAUSE);
        assert!(
            cluster.node(N3).id().is_some(),
            "{:?}",
            cluster.node(N3).out()
        );
    }
    let there = answer(&mut cluster, N3, stat("b"));
    assert!(matches!(there, Reply::Segment(_)), "{there:?}");
    assert_eq!(coordinator(&cluster, N3), N2);
}

#[test]
fn a_coordinator_that_goes_on_from_its_disk_goes_on_giving_numbers() {
    let mut cluster = Cluster::with_disks(3);
    for round in 0..4 {
        for _ in 0..MANY / 2 {
            come_back(&mut cluster, N3);
        }
        let name = format!("s{round}");
        let created = answer(&mut cluster, N3, create(&name));
        assert!(matches!(created, Reply::Segment(_)), "{created:?}");
        assert_eq!(answer(&mut cluster, N2, remove(&name)), Reply::Done);
        cluster.kill(N1);
        cluster.start_again(N1, None);
        cluster.pass(Duration::from_secs(8));
        let me = cluster.node(N1).id();
        assert_eq!(Some(coordinator(&cluster, N3)), me);
        assert_eq!(Some(coordinator(&cluster, N2)), me);
    }
    let view = cluster.node(N2).view();
    assert!(view.members.len() < 127 && view.generation > 2, "{view:?}");
}
