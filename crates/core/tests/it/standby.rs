//! A standby knows what the coordinator knows, and takes over; an old coordinator counts for
//! nothing.

use crate::common::Cluster;
use crate::keys::{call, ends, get};
use core::time::Duration;
use pagemesh_core::{Input, Reply, Request};
use pagemesh_wire::peer::{
    Access, Call, Credentials, Health, Manager, Message, Policy, Refusal, SegmentSpec, Window,
};
use pagemesh_wire::sysv::{IPC_CREAT, IPC_EXCL, Outcome};
use pagemesh_wire::{ByteLen, NodeId, Ticket};

pub(crate) const N1: NodeId = NodeId(1);
pub(crate) const N2: NodeId = NodeId(2);
pub(crate) const N3: NodeId = NodeId(3);

/// A coordinator counts as silent after this time.
pub(crate) const SILENCE: Duration = Duration::from_secs(6);
/// Longer than a promotion takes, members that have died counted.
pub(crate) const PROMOTION: Duration = Duration::from_secs(12);

pub(crate) fn create(name: &str) -> Request {
    let spec = SegmentSpec {
        size: ByteLen(4096),
        mode: 0o640,
        policy: Policy::default(),
        replicas: 0,
    };
    Request::Open {
        name: name.into(),
        create: Some(spec),
        exclusive: true,
        write: true,
        credentials: Credentials::root(),
    }
}

pub(crate) fn about(call: Call) -> Request {
    Request::Call { to: None, call }
}

pub(crate) fn stat(name: &str) -> Request {
    about(Call::Stat { name: name.into() })
}

pub(crate) fn remove(name: &str) -> Request {
    about(Call::Remove {
        name: name.into(),
        credentials: Credentials::root(),
    })
}

/// The answer of a cluster without loss.
pub(crate) fn answer(cluster: &mut Cluster, node: NodeId, request: Request) -> Reply {
    let ticket = cluster.ask(node, request);
    cluster.settle();
    let reply = cluster.reply(ticket).cloned();
    reply.unwrap_or_else(|| panic!("{node} is not answered"))
}

pub(crate) fn refused(reply: &Reply) -> String {
    match reply {
        Reply::Refused(why) => why.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

/// The coordinator dies, and the standby takes over.
fn succeed(cluster: &mut Cluster) {
    cluster.stop(N1);
    cluster.pass(SILENCE);
    let ticket = cluster.ask(N2, Request::Promote);
    cluster.pass(PROMOTION);
    assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
}

pub(crate) fn coordinator(cluster: &Cluster, node: NodeId) -> NodeId {
    cluster.node(node).control(cluster.now).coordinator
}

#[test]
fn a_standby_is_named_and_another_when_it_is_gone() {
    let mut cluster = Cluster::with_standby(3);
    for node in [N1, N2, N3] {
        let control = cluster.node(node).control(cluster.now);
        assert_eq!((control.coordinator, control.term), (N1, 1));
        assert_eq!((control.standby, control.behind), (N2, 0));
    }
    cluster.stop(N2);
    cluster.pass(SILENCE);
    for node in [N1, N3] {
        let control = cluster.node(node).control(cluster.now);
        assert_eq!(control.standby, N3);
    }
}

#[test]
fn a_standby_that_leaves_is_replaced() {
    let mut cluster = Cluster::with_standby(3);
    assert_eq!(answer(&mut cluster, N2, Request::Leave), Reply::Done);
    assert_eq!(cluster.node(N3).control(cluster.now).standby, N3);
}

#[test]
fn only_the_standby_of_a_silent_coordinator_is_promoted() {
    let mut cluster = Cluster::with_standby(3);
    let why = refused(&answer(&mut cluster, N3, Request::Promote));
    assert!(why.contains("not the standby: n2 is"), "{why}");
    assert!(why.contains("host1 (127.0.0.1:1001)"), "{why}");
    let ticket = cluster.ask(N2, Request::Promote);
    cluster.pass(Duration::from_secs(1));
    let why = refused(cluster.reply(ticket).expect("soon"));
    assert!(why.contains("n1") && why.contains("heard"), "{why}");
    assert_eq!(coordinator(&cluster, N2), N1);
    let mut alone = Cluster::new(2);
    let why = refused(&answer(&mut alone, N2, Request::Promote));
    assert!(why.contains("no standby"), "{why}");
}

#[test]
fn whoever_asks_too_early_waits_until_the_coordinator_is_silent() {
    let mut cluster = Cluster::with_standby(3);
    cluster.stop(N1);
    let ticket = cluster.ask(N2, Request::Promote);
    cluster.pass(Duration::from_secs(4));
    assert_eq!(cluster.reply(ticket), None);
    cluster.input(N2, Input::Cancel { ticket });
    let withdrawn = Reply::Refused(Refusal::Cancelled);
    assert_eq!(cluster.reply(ticket), Some(&withdrawn));
    cluster.pass(PROMOTION);
    assert_eq!(coordinator(&cluster, N2), N1, "it was withdrawn");
    let ticket = cluster.ask(N2, Request::Promote);
    cluster.pass(PROMOTION);
    assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
    assert_eq!(answer(&mut cluster, N2, Request::Promote), Reply::Done);
}

#[test]
fn names_owners_modes_and_members_outlive_the_coordinator() {
    let mut cluster = Cluster::with_standby(3);
    for (node, name) in [(N1, "one"), (N2, "two"), (N3, "three"), (N3, "gone")] {
        answer(&mut cluster, node, create(name));
    }
    answer(&mut cluster, N3, remove("gone"));
    succeed(&mut cluster);
    for name in ["one", "two", "three"] {
        let Reply::Segment(info) = answer(&mut cluster, N3, stat(name)) else {
            panic!("{name} is lost");
        };
        assert_eq!((info.spec.mode, info.owner), (0o640, (0, 0)));
        assert!(!info.attached.contains(N1), "its processes are gone");
        let taken = answer(&mut cluster, N2, create(name));
        assert_eq!(taken, Reply::Refused(Refusal::Exists));
    }
    let gone = answer(&mut cluster, N2, stat("gone"));
    assert_eq!(gone, Reply::Refused(Refusal::NotFound));
    let Reply::Segment(new) = answer(&mut cluster, N3, create("gone")) else {
        panic!("the name is free");
    };
    let Reply::Segment(three) = answer(&mut cluster, N3, stat("three")) else {
        panic!("three is lost");
    };
    assert_ne!(new.id, three.id, "numbers of segments are not given twice");
}

/// The explorer found that it took over a second time, with nothing, when the question to the silent
/// member ended with that member's death.
#[test]
fn names_outlive_a_member_that_is_silent_at_the_takeover() {
    let mut cluster = Cluster::with_standby(3);
    answer(&mut cluster, N3, create("one"));
    cluster.stop(N3);
    succeed(&mut cluster);
    let one = answer(&mut cluster, N2, stat("one"));
    assert!(matches!(one, Reply::Segment(_)), "{one:?}");
    let view = cluster.node(N2).view();
    let health = view.member(N3).map(|member| member.health);
    assert_eq!(health, Some(Health::Dead));
}

/// Else that node would help the former standby to take over, which does not know what it was told:
/// found by the explorer.
#[test]
fn an_answer_waits_until_its_node_knows_who_is_the_standby() {
    let mut cluster = Cluster::with_standby(3);
    let between = |a: NodeId, b: NodeId| [a, b] == [N1, N2] || [a, b] == [N2, N1];
    cluster.cut = Some(between);
    let ticket = cluster.ask(N3, create("a"));
    let is_view = |message: &Message| {
        let Message::Call { body, .. } = message else {
            return false;
        };
        matches!(body, Call::Members(_))
    };
    cluster.pass_with(SILENCE, |_, message| !is_view(message));
    assert_eq!(cluster.node(N1).view().standby, N3, "it has the whole copy");
    assert_eq!(cluster.node(N3).view().standby, N2, "it has not heard that");
    assert_eq!(cluster.reply(ticket), None);
    cluster.pass(Duration::from_secs(1));
    let reply = cluster.reply(ticket);
    assert!(matches!(reply, Some(Reply::Segment(_))), "{reply:?}");
    assert_eq!(cluster.node(N3).view().standby, N3);
}

#[test]
fn hosts_join_and_members_die_with_the_new_coordinator() {
    let mut cluster = Cluster::with_standby(3);
    succeed(&mut cluster);
    let four = cluster.add_node(2);
    assert_eq!(cluster.node(four).id(), Some(NodeId(4)));
    assert_eq!(cluster.node(four).control(cluster.now).coordinator, N2);
    for node in [N2, N3, four] {
        let control = cluster.node(node).control(cluster.now);
        assert_eq!((control.standby, control.term), (N3, 2));
    }
    cluster.stop(N3);
    cluster.pass(SILENCE);
    let view = cluster.node(four).view();
    let health = |node| view.member(node).map(|member| member.health);
    assert_eq!(health(N1), Some(Health::Dead));
    assert_eq!(health(N3), Some(Health::Dead));
    assert_eq!(view.standby, four, "and so on");
    // The cluster survives that, too.
    cluster.stop(N2);
    cluster.pass(SILENCE);
    let ticket = cluster.ask(four, Request::Promote);
    cluster.pass(PROMOTION);
    assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
    assert_eq!(cluster.node(four).control(cluster.now).term, 3);
}

#[test]
fn keys_of_the_living_outlive_the_coordinator() {
    let mut cluster = Cluster::with_standby(4);
    let mut known = Vec::new();
    for (node, key) in [(N2, 7), (N3, 8), (N3, 9), (NodeId(4), 10)] {
        let id = ends(&mut cluster, node, get(key, IPC_CREAT)).unwrap();
        known.push((key, id));
    }
    let lost = ends(&mut cluster, N1, get(11, IPC_CREAT)).unwrap();
    assert_eq!(ends(&mut cluster, N2, get(11, 0)), Ok(lost));
    succeed(&mut cluster);
    for (key, id) in known {
        for node in [N2, N3, NodeId(4)] {
            assert_eq!(ends(&mut cluster, node, get(key, IPC_CREAT)), Ok(id));
        }
    }
    let new = get(11, IPC_CREAT | IPC_EXCL);
    let new = ends(&mut cluster, N3, new).expect("the key of the dead is free");
    assert_eq!(ends(&mut cluster, N2, get(11, 0)), Ok(new));
}

/// Pages and locks of the living go on while no node coordinates, and afterwards.
#[test]
fn memory_of_the_living_goes_on_all_the_time() {
    let mut cluster = Cluster::with_standby(3);
    let window = Window::Nanos(0);
    let manager = Manager::Dynamic;
    cluster.segment(manager, window);
    for node in [N2, N3, N2] {
        cluster.touch(node, 0, Access::Write);
    }
    cluster.stop(N1);
    for (round, node) in [N3, N2, N3].into_iter().enumerate() {
        cluster.forget();
        cluster.touch(node, 0, Access::Write);
        assert!(cluster.mapped(node), "without a coordinator");
        if round == 0 {
            cluster.pass(SILENCE);
            cluster.ask(N2, Request::Promote);
            cluster.pass(PROMOTION);
            assert_eq!(coordinator(&cluster, N3), N2);
        }
    }
}

/// What a run asks for; each answer must come, and once.
pub(crate) fn work(cluster: &mut Cluster) -> Vec<Ticket> {
    vec![
        cluster.ask(N3, create("a")),
        cluster.ask(N2, create("b")),
        cluster.ask(N3, remove("old")),
        call(cluster, N3, get(7, IPC_CREAT | IPC_EXCL)),
        call(cluster, N2, get(8, IPC_CREAT | IPC_EXCL)),
    ]
}

/// Nothing that was done is done twice, and nothing that was answered is lost. Requests may also be
/// refused because the coordinator was silent for too long. Returns how many were not.
pub(crate) fn check(cluster: &mut Cluster, tickets: &[Ticket], what: &str) -> usize {
    let mut done = Vec::new();
    for (number, ticket) in tickets.iter().enumerate() {
        let replies = cluster.replies.iter().filter(|(_, of, _)| of == ticket);
        let replies: Vec<_> = replies.map(|(_, _, reply)| reply).collect();
        match replies[..] {
            [Reply::Segment(_) | Reply::Done | Reply::Sysv(Outcome::Number(_))] => {
                done.push(number);
            }
            [Reply::Refused(Refusal::NodeGone(N1))] => {}
            _ => panic!("{what}: request {number} is answered {replies:?}"),
        }
    }
    for (number, name, lives) in [(0, "a", true), (1, "b", true), (2, "old", false)] {
        let stats = [N2, N3].map(|node| answer(cluster, node, stat(name)));
        let found = stats
            .each_ref()
            .map(|reply| matches!(reply, Reply::Segment(_)));
        assert_eq!(found[0], found[1], "{what}: {stats:?}");
        let right = found[0] == lives || !done.contains(&number);
        assert!(right, "{what}: {name} {stats:?}");
    }
    for (number, key) in [(3, 7), (4, 8)] {
        let ids = [N2, N3].map(|node| ends(cluster, node, get(key, 0)));
        assert_eq!(ids[0], ids[1], "{what}: key {key}");
        let right = ids[0].is_ok() || !done.contains(&number);
        assert!(right, "{what}: key {key} {ids:?}");
    }
    done.len()
}

/// The coordinator dies after each number of datagrams.
#[test]
fn the_coordinator_may_die_at_every_step() {
    let mut done = 0;
    for step in 0.. {
        let mut cluster = Cluster::with_standby(3);
        answer(&mut cluster, N3, create("old"));
        cluster.forget();
        cluster.dies_after(step, N1);
        let tickets = work(&mut cluster);
        cluster.settle();
        if !cluster.is_dead(N1) {
            assert!(step > 20, "all was over after {step} datagrams");
            assert!(done > step * 3, "of {step} runs {done} requests were done");
            break;
        }
        let ticket = cluster.ask(N2, Request::Promote);
        cluster.pass(PROMOTION);
        assert_eq!(cluster.reply(ticket), Some(&Reply::Done), "step {step}");
        done += check(&mut cluster, &tickets, &format!("n1 died at step {step}"));
    }
}

/// One of four datagrams is lost, one of eight comes twice, and the coordinator dies somewhere.
#[test]
fn a_takeover_bears_loss_and_duplicates() {
    for seed in 0..40_u64 {
        let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut roll = move || {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice >> 32
        };
        let mut cluster = Cluster::with_standby(3);
        answer(&mut cluster, N3, create("old"));
        cluster.forget();
        cluster.dies_after((roll() % 40) as usize, N1);
        let tickets = work(&mut cluster);
        let mut lossy = |cluster: &mut Cluster, length: u64| {
            let end = cluster.now + Duration::from_millis(length);
            while cluster.now < end {
                cluster.pass_with(Duration::from_millis(1), |_, _| roll() % 4 != 0);
                let late = core::mem::take(&mut cluster.lost);
                for datagram in late.iter().filter(|_| roll() % 2 == 0) {
                    cluster.deliver_late_to_living(datagram);
                }
            }
        };
        lossy(&mut cluster, 100);
        if !cluster.is_dead(N1) {
            cluster.stop(N1);
        }
        let ticket = cluster.ask(N2, Request::Promote);
        lossy(&mut cluster, 10_000);
        cluster.pass(PROMOTION);
        assert_eq!(cluster.reply(ticket), Some(&Reply::Done), "seed {seed}");
        check(&mut cluster, &tickets, &format!("seed {seed}"));
    }
}

#[test]
fn an_old_coordinator_that_goes_on_learns_that_it_is_none() {
    let mut cluster = Cluster::with_standby(3);
    succeed(&mut cluster);
    let view = cluster.node(N3).view().clone();
    cluster.go_on(N1);
    cluster.pass(SILENCE + SILENCE);
    let by = N2;
    assert_eq!(cluster.node(N1).out(), Some(&Refusal::Superseded { by }));
    assert_eq!(cluster.node(N3).view(), &view, "it has changed nothing");
    let why = refused(&answer(&mut cluster, N1, stat("a")));
    assert!(why.contains("n2 coordinates the cluster now"), "{why}");
}

/// A datagram of the old coordinator is under way while another one takes over.
#[test]
fn a_late_word_of_an_old_coordinator_counts_for_nothing() {
    let mut cluster = Cluster::with_standby(4);
    let four = NodeId(4);
    cluster.stop(four);
    cluster.pass(SILENCE - Duration::from_secs(2));
    cluster.lost.clear();
    // The word that n4 is dead gets lost on its way to n2 and n3.
    let mut end = Duration::ZERO;
    while cluster.node(N1).view().living().count() == 4 {
        cluster.pass_with(Duration::from_millis(1), |_, message| {
            !matches!(
                message,
                Message::Call {
                    body: Call::Members(_),
                    ..
                }
            )
        });
        end += Duration::from_millis(1);
        assert!(end < SILENCE, "n4 is not declared dead");
    }
    let is_word = |(to, _, bytes): &&(NodeId, _, Vec<u8>)| {
        let (_, message, _) = Message::decode(bytes).unwrap();
        *to == N3
            && matches!(
                message,
                Message::Call {
                    body: Call::Members(_),
                    ..
                }
            )
    };
    let late = cluster.lost.iter().find(is_word).cloned();
    let late = late.expect("n3 was told");
    cluster.stop(N1);
    cluster.go_on(four);
    cluster.pass(SILENCE);
    cluster.deliver_late(&late);
    let view = cluster.node(N3).view();
    assert_eq!(view.living().count(), 3, "n3 believes it still");
    let ticket = cluster.ask(N2, Request::Promote);
    cluster.pass(PROMOTION);
    assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
    // n3 had heard of the death of n4, so n2 counts it as dead, too.
    for node in [N2, N3] {
        let view = cluster.node(node).view();
        let living: Vec<_> = view.living().map(|member| member.id).collect();
        assert_eq!(living, [N2, N3]);
    }
    assert!(cluster.node(four).out().is_some(), "n4 is told");
    let view = cluster.node(N3).view().clone();
    cluster.deliver_late(&late);
    assert_eq!(cluster.node(N3).view(), &view);
}

/// The standby is promoted while some members still hear the old coordinator: those that have
/// promised believe it no more.
#[test]
fn a_coordinator_that_only_the_standby_cannot_hear_is_put_out() {
    let mut cluster = Cluster::with_standby(3);
    let between = |a: NodeId, b: NodeId| [a, b] == [N1, N2] || [a, b] == [N2, N1];
    cluster.cut = Some(between);
    cluster.pass(SILENCE - Duration::from_secs(2));
    let ticket = cluster.ask(N2, Request::Promote);
    cluster.pass(Duration::from_secs(2));
    let promoted = cluster.reply(ticket).cloned();
    cluster.cut = None;
    cluster.pass(SILENCE);
    let living = |node| {
        let node = cluster.node(node);
        (node.out().is_none(), node.control(cluster.now).coordinator)
    };
    // Whoever was quicker: one of the two is out, and all others follow the other one.
    match promoted {
        Some(Reply::Done) => {
            assert!(!living(N1).0);
            assert_eq!((living(N2), living(N3)), ((true, N2), (true, N2)));
        }
        _ => {
            assert!(!living(N2).0, "{promoted:?}");
            assert_eq!((living(N1), living(N3)), ((true, N1), (true, N1)));
        }
    }
}
