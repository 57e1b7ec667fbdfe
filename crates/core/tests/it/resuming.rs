//! A coordinator whose daemon was killed goes on from its disk, alone or after all daemons of the
//! cluster were down.

use crate::common::{Cluster, DiskPace};
use crate::keys::{ends, get};
use crate::standby::{
    N1, N2, N3, PROMOTION, SILENCE, answer, check, create, refused, remove, stat, work,
};
use core::time::Duration;
use pagemesh_core::{Reply, Request};
use pagemesh_wire::NodeId;
use pagemesh_wire::peer::{Access, Health, Manager, Message, Refusal, Window};
use pagemesh_wire::sysv::IPC_CREAT;

/// The number of the coordinator's second life.
const SECOND: NodeId = NodeId(NodeId::NEAR - 1);

/// Members that do not answer are waited for so long.
const DEATHS: Duration = Duration::from_secs(7);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Names of all segments, as a node is told.
fn names(cluster: &mut Cluster, node: NodeId) -> Vec<String> {
    let list = pagemesh_wire::peer::Call::List {
        after: String::new(),
    };
    let request = Request::Call {
        to: None,
        call: list,
    };
    match answer(cluster, node, request) {
        Reply::Segments(infos) => infos.into_iter().map(|info| info.name).collect(),
        other => panic!("no list: {other:?}"),
    }
}

fn control(cluster: &Cluster, node: NodeId) -> (NodeId, u16) {
    let control = cluster.node(node).control(cluster.now);
    (control.coordinator, control.term)
}

#[test]
fn names_members_and_keys_go_on_with_the_coordinator() {
    let mut cluster = Cluster::with_disks(3);
    for (node, name) in [(N1, "one"), (N2, "two"), (N3, "three"), (N3, "gone")] {
        answer(&mut cluster, node, create(name));
    }
    answer(&mut cluster, N3, remove("gone"));
    let id = ends(&mut cluster, N2, get(7, IPC_CREAT)).unwrap();
    cluster.kill(N1);
    cluster.start_again(N1, None);
    cluster.pass(ms(100));
    for node in [N1, N2, N3] {
        assert_eq!(control(&cluster, node), (SECOND, 2));
        assert_eq!(names(&mut cluster, node), ["one", "three", "two"]);
        assert_eq!(ends(&mut cluster, node, get(7, 0)), Ok(id));
    }
    let Reply::Segment(info) = answer(&mut cluster, N3, stat("one")) else {
        panic!("it is lost");
    };
    assert_eq!((info.spec.mode, info.owner), (0o640, (0, 0)));
    assert!(!info.attached.contains(N1), "its processes are gone");
    let health = |node| cluster.node(N3).view().member(node).unwrap().health;
    assert_eq!(
        [N1, N2, N3, SECOND].map(health),
        [Health::Dead, Health::Alive, Health::Alive, Health::Alive]
    );
    let four = cluster.add_node(0);
    cluster.pass(ms(200));
    assert_eq!(cluster.node(four).id(), Some(NodeId(4)));
    assert_eq!(cluster.node(N1).control(cluster.now).standby, N2);
    // And so on.
    cluster.kill(N1);
    cluster.start_again(N1, None);
    cluster.pass(ms(200));
    assert_eq!(control(&cluster, four), (NodeId(SECOND.0 - 1), 3));
    assert_eq!(names(&mut cluster, four), ["one", "three", "two"]);
}

/// Memory of the living is not stopped by it.
#[test]
fn memory_of_the_living_goes_on_all_the_time() {
    let mut cluster = Cluster::with_disks(3);
    cluster.segment(Manager::Dynamic, Window::Nanos(0));
    for node in [N2, N3, N2] {
        cluster.touch(node, 0, Access::Write);
    }
    cluster.kill(N1);
    for (round, node) in [N3, N2, N3].into_iter().enumerate() {
        cluster.forget();
        cluster.touch(node, 0, Access::Write);
        assert!(cluster.mapped(node), "without a coordinator");
        if round == 0 {
            cluster.start_again(N1, None);
            cluster.pass(ms(100));
            assert_eq!(control(&cluster, N3), (SECOND, 2));
        }
    }
}

#[test]
fn names_go_on_after_all_daemons_were_down() {
    let mut cluster = Cluster::with_disks(3);
    for (node, name) in [(N1, "one"), (N2, "two"), (N3, "three")] {
        answer(&mut cluster, node, create(name));
    }
    for node in [N1, N2, N3] {
        cluster.kill(node);
    }
    cluster.start_again(N1, None);
    cluster.start_again(N2, Some(N1));
    cluster.pass(ms(4000));
    assert_eq!(cluster.node(N1).id(), None, "the others may be alive");
    cluster.start_again(N3, Some(N1));
    cluster.pass(DEATHS);
    for node in [N1, N2, N3] {
        assert_eq!(control(&cluster, node), (SECOND, 2));
        assert_eq!(names(&mut cluster, node), ["one", "three", "two"]);
    }
    let ids = [N2, N3].map(|node| cluster.node(node).id().unwrap());
    assert!(ids.iter().all(|id| [4, 5].contains(&id.0)), "{ids:?}");
    let taken = answer(&mut cluster, N2, create("two"));
    assert_eq!(taken, Reply::Refused(Refusal::Exists));
    answer(&mut cluster, N3, remove("two"));
    let Reply::Segment(new) = answer(&mut cluster, N3, create("two")) else {
        panic!("the name is free");
    };
    let Reply::Segment(three) = answer(&mut cluster, N2, stat("three")) else {
        panic!("three is lost");
    };
    assert!(three.attached.is_empty(), "its processes are gone");
    assert_ne!(new.id.0 & 0xffff, three.id.0 & 0xffff, "numbers go on");
}

/// Nothing that any node was told is missing on the disk.
#[test]
fn answers_and_admissions_wait_for_the_disk() {
    for standby in [true, false] {
        let mut cluster = match standby {
            true => Cluster::with_disks(3),
            false => Cluster::with_disks_alone(3),
        };
        cluster.disk = DiskPace::Stopped;
        let tickets = [N1, N2, N3].map(|node| cluster.ask(node, create(&format!("{node}"))));
        let four = cluster.add_node(0);
        cluster.pass(ms(500));
        for ticket in tickets {
            assert_eq!(cluster.reply(ticket), None);
        }
        assert_eq!(cluster.node(four).id(), None);
        assert_eq!(cluster.kept(N1).names(), 0);
        cluster.disk = DiskPace::AtOnce;
        cluster.write_disks();
        cluster.pass(ms(500));
        for ticket in tickets {
            assert!(matches!(cluster.reply(ticket), Some(Reply::Segment(_))));
        }
        assert_eq!(cluster.node(four).id(), Some(NodeId(4)));
        assert_eq!(cluster.kept(N1).names(), 3);
    }
}

/// What the disk had not written was told to no node, so it may be missing.
#[test]
fn what_the_disk_had_not_written_is_asked_for_again() {
    let mut cluster = Cluster::with_disks(3);
    cluster.disk = DiskPace::Stopped;
    let ticket = cluster.ask(N3, create("late"));
    cluster.pass(ms(100));
    cluster.kill(N1);
    cluster.disk = DiskPace::AtOnce;
    cluster.start_again(N1, None);
    cluster.pass(ms(2000));
    assert!(matches!(cluster.reply(ticket), Some(Reply::Segment(_))));
    assert_eq!(names(&mut cluster, N2), ["late"]);
}

/// The coordinator is killed after each number of datagrams, with a disk that is fast or slow.
#[test]
fn the_coordinator_may_be_killed_at_every_step() {
    for disk in [DiskPace::AtOnce, DiskPace::Slow] {
        let mut done = 0;
        for step in 0.. {
            let mut cluster = Cluster::with_disks(3);
            answer(&mut cluster, N3, create("old"));
            cluster.forget();
            cluster.disk = disk;
            cluster.dies_after(step, N1);
            let tickets = work(&mut cluster);
            cluster.settle();
            if !cluster.is_dead(N1) {
                assert!(step > 20, "all was over after {step} datagrams");
                assert!(done > step * 3, "of {step} runs {done} requests were done");
                break;
            }
            cluster.start_again(N1, None);
            cluster.pass(ms(3000));
            let what = format!("n1 was killed at step {step}");
            assert_eq!(control(&cluster, N3), (SECOND, 2), "{what}");
            done += check(&mut cluster, &tickets, &what);
        }
    }
}

/// It is killed again while it asks the members, whatever they have promised by then.
#[test]
fn a_coordinator_that_goes_on_may_be_killed_at_every_step() {
    for disk in [DiskPace::AtOnce, DiskPace::Slow] {
        for step in 1.. {
            let mut cluster = Cluster::with_disks(3);
            answer(&mut cluster, N3, create("old"));
            cluster.kill(N1);
            cluster.disk = disk;
            cluster.dies_after(step, N1);
            cluster.start_again(N1, None);
            cluster.settle();
            if !cluster.is_dead(N1) {
                assert!(step > 8, "all was over after {step} datagrams");
                break;
            }
            cluster.start_again(N1, None);
            cluster.pass(ms(3000));
            let third = NodeId(SECOND.0 - 1);
            assert_eq!(control(&cluster, N3), (third, 3), "step {step}");
            assert_eq!(names(&mut cluster, N2), ["old"], "step {step}");
        }
    }
}

/// One of four datagrams is lost, and one of eight comes twice.
#[test]
fn going_on_bears_loss_and_duplicates() {
    for seed in 0..40_u64 {
        let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut roll = move || {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice >> 32
        };
        let mut cluster = Cluster::with_disks(3);
        answer(&mut cluster, N3, create("old"));
        cluster.forget();
        cluster.dies_after((roll() % 40) as usize, N1);
        let tickets = work(&mut cluster);
        let mut lossy = |cluster: &mut Cluster, length: u64| {
            let end = cluster.now + ms(length);
            while cluster.now < end {
                cluster.pass_with(ms(1), |_, _| roll() % 4 != 0);
                let late = core::mem::take(&mut cluster.lost);
                for datagram in late.iter().filter(|_| roll() % 2 == 0) {
                    cluster.deliver_late_to_living(datagram);
                }
            }
        };
        lossy(&mut cluster, 100);
        if !cluster.is_dead(N1) {
            cluster.kill(N1);
        }
        cluster.start_again(N1, None);
        lossy(&mut cluster, 3000);
        cluster.pass(PROMOTION);
        assert_eq!(control(&cluster, N3), (SECOND, 2), "seed {seed}");
        check(&mut cluster, &tickets, &format!("seed {seed}"));
    }
}

/// The standby was promoted while the coordinator's host was down: its disk is out of date.
#[test]
fn a_coordinator_that_was_replaced_does_not_go_on() {
    let mut cluster = Cluster::with_disks(3);
    answer(&mut cluster, N3, create("old"));
    cluster.kill(N1);
    cluster.pass(SILENCE);
    let ticket = cluster.ask(N2, Request::Promote);
    cluster.pass(PROMOTION);
    assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
    let view = cluster.node(N3).view().clone();
    cluster.start_again(N1, None);
    cluster.pass(ms(2000));
    let by = N2;
    assert_eq!(cluster.node(N1).out(), Some(&Refusal::Superseded { by }));
    assert_eq!(cluster.node(N3).view(), &view, "it has changed nothing");
    cluster.start_again(N1, Some(N2));
    cluster.pass(ms(2000));
    assert_eq!(cluster.node(N1).id(), Some(NodeId(4)));
}

/// A member that did not answer in time counts as dead, and is told when it comes back.
#[test]
fn a_member_that_did_not_answer_is_put_out() {
    let mut cluster = Cluster::with_disks(3);
    cluster.stop(N3);
    cluster.kill(N1);
    cluster.start_again(N1, None);
    cluster.pass(DEATHS);
    assert_eq!(control(&cluster, N2), (SECOND, 2));
    assert_eq!(cluster.node(N1).view().living().count(), 2);
    cluster.go_on(N3);
    cluster.pass(SILENCE + SILENCE);
    assert!(cluster.node(N3).out().is_some(), "n3 is told");
    assert_eq!(cluster.node(N2).view().living().count(), 2);
}

/// The coordinator's host is gone for good, and the standby's daemon has ended, too.
#[test]
fn a_standby_goes_on_from_its_disk_if_a_person_says_so() {
    let mut cluster = Cluster::with_disks(3);
    for (node, name) in [(N1, "one"), (N2, "two"), (N3, "three")] {
        answer(&mut cluster, node, create(name));
    }
    assert!(cluster.kept(N2).is_whole() && !cluster.kept(N2).has_coordinated());
    assert!(!cluster.kept(N3).is_whole(), "it knows nothing");
    for node in [N1, N2, N3] {
        cluster.kill(node);
    }
    cluster.start_again(N2, None);
    cluster.start_again(N3, Some(N2));
    // The coordinator is asked first, and then the others.
    cluster.pass(DEATHS + DEATHS);
    let me = cluster.node(N2).id().unwrap();
    assert_ne!(me, SECOND, "the coordinator might take that");
    for node in [N2, N3] {
        assert_eq!(control(&cluster, node), (me, 2));
        assert_eq!(names(&mut cluster, node), ["one", "three", "two"]);
    }
    // The old coordinator's host comes back.
    cluster.start_again(N1, None);
    cluster.pass(DEATHS);
    assert_eq!(control(&cluster, N3).0, me);
}

/// It goes on from its disk only if the coordinator is silent.
#[test]
fn a_standby_does_not_go_on_beside_its_coordinator() {
    let mut cluster = Cluster::with_disks(3);
    answer(&mut cluster, N3, create("one"));
    cluster.kill(N2);
    cluster.start_again(N2, None);
    cluster.pass(ms(500));
    let by = N1;
    assert_eq!(cluster.node(N2).out(), Some(&Refusal::Superseded { by }));
    assert_eq!(control(&cluster, N3), (N1, 1));
    cluster.pass(SILENCE);
    answer(&mut cluster, N3, create("two"));
    let why = refused(&answer(&mut cluster, N2, stat("one")));
    assert!(why.contains("n1"), "{why}");
}

/// A copy that is no longer kept up to date is not gone on with.
#[test]
fn a_standby_that_was_replaced_does_not_go_on() {
    let mut cluster = Cluster::with_disks(3);
    answer(&mut cluster, N3, create("one"));
    cluster.kill(N2);
    cluster.pass(SILENCE);
    assert_eq!(cluster.node(N1).control(cluster.now).standby, N3);
    answer(&mut cluster, N3, create("two"));
    cluster.kill(N1);
    cluster.start_again(N2, None);
    cluster.pass(DEATHS + DEATHS);
    let out = cluster.node(N2).out().expect("its copy is old");
    assert!(out.to_string().contains("out of date"), "{out}");
}

/// A datagram of the old life is under way while the coordinator goes on.
#[test]
fn a_late_word_of_the_old_life_counts_for_nothing() {
    let mut cluster = Cluster::with_disks(3);
    cluster.pass_with(ms(600), |to, message| {
        !(to == N3 && matches!(message, Message::HeartbeatAck { .. }))
    });
    let late = cluster.lost.pop().expect("a heartbeat was answered");
    cluster.kill(N1);
    cluster.start_again(N1, None);
    cluster.pass(ms(100));
    let view = cluster.node(N3).view().clone();
    cluster.deliver_late(&late);
    cluster.settle();
    assert_eq!(cluster.node(N3).view(), &view);
    assert_eq!(cluster.node(N3).out(), None);
}
