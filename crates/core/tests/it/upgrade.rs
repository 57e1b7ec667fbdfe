//! Members of different programs: the cluster speaks what all of them speak.

use crate::common::Cluster;
use crate::standby::{N1, N2, N3, PROMOTION, SILENCE, answer, refused};
use core::time::Duration;
use pagemesh_core::{Effect, Input, Reply, Request};
use pagemesh_wire::header::Header;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{
    Access, Call, Credentials, Join, Manager, Message, Policy, Refusal, SegmentSpec, Spread, Window,
};
use pagemesh_wire::{
    ByteLen, ClusterId, Incarnation, NodeId, PAGE_SIZE, Program, PublicKey, Release, Term, Versions,
};

const OLD: Program = Program::SILENT;

const NEW: Program = Program {
    speaks: Versions {
        oldest: 4,
        newest: 5,
    },
    release: Release {
        version: (1, 2, 3),
        build: 7,
    },
};

/// It has nothing in common with the old one.
const LATE: Program = Program::of(Versions::only(5));

/// Longer than a few heartbeats.
const SOON: Duration = Duration::from_secs(3);

/// So long that a coordinator which says nothing of programs knows nothing of them.
const UNHEARD: Duration = Duration::from_secs(5);

fn spoken(cluster: &Cluster, nodes: &[NodeId]) -> Vec<u8> {
    let spoken = |node: &NodeId| cluster.node(*node).spoken();
    nodes.iter().map(spoken).collect()
}

/// The program of a member, as another one knows it.
fn known(cluster: &Cluster, by: NodeId, of: NodeId) -> Program {
    cluster.node(by).view().member(of).unwrap().program
}

/// Another program goes on in the place of a node's, as its driver says.
fn replace(cluster: &mut Cluster, node: NodeId, program: Program) {
    cluster.input(node, Input::Runs(program));
    cluster.pass(SOON);
}

/// An older program is put back: first the cluster speaks nothing that it does not speak.
fn put_back(cluster: &mut Cluster, node: NodeId, program: Program) {
    let speaks = program.speaks;
    let ticket = cluster.ask(node, Request::MakeRoom { speaks });
    cluster.pass(UNHEARD);
    assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
    replace(cluster, node, program);
}

/// A page goes from node to node.
fn all_goes_on(cluster: &mut Cluster) {
    cluster.forget();
    for node in [N1, N2, N3, N1] {
        cluster.touch(node, 3, Access::Write);
        assert!(cluster.mapped(node), "{node}");
        cluster.forget();
    }
}

#[test]
fn the_last_old_program_keeps_all_from_the_new_version() {
    let mut cluster = Cluster::of_programs(&[NEW, OLD, NEW]);
    cluster.segment(Manager::Dynamic, Window::Nanos(0));
    assert_eq!(spoken(&cluster, &[N1, N2, N3]), [4, 4, 4]);
    all_goes_on(&mut cluster);
    let (who, silent) = (known(&cluster, N3, N1), known(&cluster, N3, N2));
    assert_eq!((who, silent), (NEW, OLD), "programs are known meanwhile");
    replace(&mut cluster, N2, NEW);
    assert_eq!(spoken(&cluster, &[N1, N2, N3]), [5, 5, 5]);
    assert_eq!(known(&cluster, N3, N2), NEW);
    all_goes_on(&mut cluster);
}

#[test]
fn a_cluster_is_rolled_over_and_back_whoever_coordinates() {
    let mut cluster = Cluster::of_programs(&[OLD, OLD, OLD]);
    cluster.segment(Manager::Dynamic, Window::Nanos(0));
    for order in [[N1, N2, N3], [N3, N1, N2], [N2, N3, N1]] {
        for (done, node) in order.into_iter().enumerate() {
            replace(&mut cluster, node, NEW);
            let all = if done == 2 { [5; 3] } else { [4; 3] };
            assert_eq!(spoken(&cluster, &order), all, "{node} of {order:?}");
            all_goes_on(&mut cluster);
        }
        for node in order {
            put_back(&mut cluster, node, OLD);
            assert_eq!(spoken(&cluster, &order), [4; 3], "{node} of {order:?}");
            all_goes_on(&mut cluster);
        }
    }
}

/// Older programs do not know the messages between a node and its backup.
#[test]
fn replicas_wait_for_the_last_old_program() {
    let mut cluster = Cluster::of_programs(&[NEW, OLD]);
    let create = |cluster: &mut Cluster, policy, replicas| {
        let spec = SegmentSpec {
            size: ByteLen(PAGE_SIZE as u64),
            mode: 0o600,
            policy,
            replicas,
        };
        let open = Request::Open {
            name: format!("{policy:?} {replicas}"),
            create: Some(spec),
            exclusive: false,
            write: true,
            credentials: Credentials::root(),
        };
        let ticket = cluster.ask(N1, open);
        cluster.settle();
        cluster.reply(ticket).cloned()
    };
    let spread = Spread::Lazy;
    let (release, views) = (Policy::Release { spread }, Policy::Views { prefix: 32 });
    let opened = |reply| matches!(reply, Some(Reply::Segment(_)));
    assert!(opened(create(&mut cluster, release, 0)));
    assert!(opened(create(&mut cluster, views, 1)));
    let Some(Reply::Refused(why)) = create(&mut cluster, release, 1) else {
        panic!("node 2 does not know how");
    };
    assert!(why.to_string().contains("version 5"), "{why}");
    replace(&mut cluster, N2, NEW);
    assert!(opened(create(&mut cluster, release, 1)));
}

/// A coordinator of version 4 does not understand which programs the members are.
#[test]
fn an_old_coordinator_is_told_ever_less_often() {
    let mut cluster = Cluster::of_programs(&[OLD, OLD, OLD]);
    replace(&mut cluster, N2, NEW);
    replace(&mut cluster, N3, NEW);
    cluster.forget();
    cluster.pass(Duration::from_secs(120));
    let told = |(_, to, message): &&(NodeId, NodeId, Message)| {
        *to == N1 && matches!(message, Message::Runs { .. })
    };
    let times = cluster.sent.iter().filter(told).count();
    assert!(
        (6..=14).contains(&times),
        "{times} times by two in two minutes"
    );
    replace(&mut cluster, N1, NEW);
    assert_eq!(spoken(&cluster, &[N1, N2, N3]), [5, 5, 5]);
}

/// What a coordinator of version 4 did not hear of is not believed by its successor.
#[test]
fn who_was_put_back_under_an_old_coordinator_is_not_taken_for_new() {
    let mut cluster = Cluster::with_standby(3);
    for node in [N1, N3] {
        put_back(&mut cluster, node, OLD);
    }
    cluster.stop(N1);
    cluster.pass(SILENCE);
    let ticket = cluster.ask(N2, Request::Promote);
    cluster.pass(PROMOTION);
    assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
    assert_eq!(spoken(&cluster, &[N2, N3]), [4, 4]);
    assert!(
        known(&cluster, N2, N2).speaks.contains(5),
        "it knows itself"
    );
    for (node, to) in [(N2, N3), (N3, N2)] {
        let (to, call) = (Some(to), Call::Probe);
        let reply = answer(&mut cluster, node, Request::Call { to, call });
        assert_eq!(reply, Reply::Done, "{node}");
    }
    replace(&mut cluster, N3, NEW);
    assert_eq!(spoken(&cluster, &[N2, N3]), [5, 5]);
}

#[test]
fn a_host_with_an_old_program_lowers_the_version_as_long_as_it_is_there() {
    let mut cluster = Cluster::of_programs(&[NEW, NEW]);
    assert_eq!(spoken(&cluster, &[N1, N2]), [5, 5]);
    cluster.program = OLD;
    let old = cluster.add_node(1);
    assert_eq!(old, N3, "it asked a member that is not the coordinator");
    assert_eq!(spoken(&cluster, &[N1, N2, old]), [4, 4, 4]);
    cluster.segment(Manager::Dynamic, Window::Nanos(0));
    all_goes_on(&mut cluster);
    let ticket = cluster.ask(old, Request::Leave);
    cluster.pass(SOON);
    assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
    assert_eq!(spoken(&cluster, &[N1, N2]), [5, 5]);
}

/// The notices of members, which a joining host gets.
fn notices(cluster: &mut Cluster) -> Vec<Notice> {
    let done = core::mem::take(&mut cluster.done);
    let notices = done.into_iter().filter_map(|(_, effect)| match effect {
        Effect::SendNotice { notice, .. } => Some(notice),
        _ => None,
    });
    notices.collect()
}

fn tell(cluster: &mut Cluster, node: NodeId, bytes: &[u8]) {
    let source = ([127, 0, 0, 1], 1000).into();
    let key = PublicKey::NONE;
    cluster.input(node, Input::Datagram { source, key, bytes });
    cluster.settle();
}

#[test]
fn a_new_program_asks_old_ones_in_a_version_that_they_read() {
    let mut cluster = Cluster::of_programs(&[OLD]);
    cluster.program = NEW;
    let host = cluster.add_node(0);
    let heard = notices(&mut cluster);
    assert_eq!(heard[0].speaks, OLD.speaks);
    assert_eq!(cluster.node(host).id(), None);
    tell(&mut cluster, host, &heard[0].encode());
    assert_eq!(cluster.node(host).id(), Some(N2));
    replace(&mut cluster, N1, NEW);
    assert_eq!(spoken(&cluster, &[N1, N2]), [5, 5]);
}

#[test]
fn programs_without_a_version_in_common_are_told_both_ranges_and_the_cure() {
    let mut cluster = Cluster::of_programs(&[LATE]);
    cluster.program = OLD;
    let host = cluster.add_node(0);
    let heard = notices(&mut cluster);
    tell(&mut cluster, host, &heard[0].encode());
    let why = cluster.node(host).out().unwrap().to_string();
    assert!(why.contains("versions 5, this daemon 4"), "{why}");
    assert!(why.contains("install a release"), "{why}");
    // The coordinator reads what the host says, but not every member does.
    let mut cluster = Cluster::of_programs(&[NEW, LATE]);
    cluster.program = OLD;
    cluster.add_node(0);
    let why = cluster.node(N3).out().unwrap();
    assert_eq!(why, &Refusal::Version { theirs: 5 });
}

#[test]
fn no_program_is_put_back_that_others_cannot_speak_with() {
    let mut cluster = Cluster::of_programs(&[NEW, LATE, NEW]);
    let speaks = OLD.speaks;
    let ticket = cluster.ask(N3, Request::MakeRoom { speaks });
    cluster.pass(SOON);
    let why = refused(cluster.reply(ticket).unwrap());
    assert!(why.contains("versions 5, this daemon 4"), "{why}");
    assert_eq!(spoken(&cluster, &[N1, N2, N3]), [5, 5, 5]);
}

#[test]
fn who_does_not_take_the_place_that_was_made_is_forgotten() {
    let mut cluster = Cluster::of_programs(&[NEW, NEW, NEW]);
    cluster.stop(N1);
    let speaks = OLD.speaks;
    let ticket = cluster.ask(N3, Request::MakeRoom { speaks });
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.reply(ticket), None, "the coordinator is silent");
    cluster.input(N3, Input::Cancel { ticket });
    assert_eq!(refused(cluster.reply(ticket).unwrap()), "withdrawn");
    cluster.go_on(N1);
    cluster.pass(SOON);
    assert_eq!(spoken(&cluster, &[N1, N2, N3]), [5, 5, 5]);
    assert_eq!(known(&cluster, N1, N3), NEW);
}

/// What a host says in the version `encoded`, as the node of that number, or as a stranger.
fn said(encoded: u8, message: &Message, (cluster, from): (ClusterId, NodeId)) -> Vec<u8> {
    let (to, life) = match from {
        NodeId::NONE => (NodeId::NONE, 999),
        from => (N1, u64::from(from.0) * 100),
    };
    let header = Header {
        version: encoded,
        cluster,
        from,
        to,
        incarnation: Incarnation(life),
        body: 0,
        term: Term::FIRST,
        generation: 0,
    };
    let mut bytes = Vec::new();
    message.encode(header, &mut bytes);
    bytes
}

const NONSENSE: [Versions; 3] = [
    Versions {
        oldest: 9,
        newest: 2,
    },
    Versions {
        oldest: 0,
        newest: 255,
    },
    Versions {
        oldest: 200,
        newest: 201,
    },
];

/// What the second node says of its program, in the present view.
fn runs(cluster: &Cluster, program: Program) -> Vec<u8> {
    let epoch = cluster.node(N1).view().epoch;
    said(4, &Message::Runs { epoch, program }, (ClusterId(77), N2))
}

/// A program is replaced and put back while what it said of itself is still under way.
#[test]
fn what_a_member_said_in_a_former_view_is_no_news() {
    let mut cluster = Cluster::of_programs(&[NEW, OLD, NEW]);
    let late = runs(&cluster, NEW);
    // The coordinator does not hear it, so its view has not changed when the old program is put back.
    cluster.stop(N1);
    cluster.input(N2, Input::Runs(NEW));
    let speaks = OLD.speaks;
    let ticket = cluster.ask(N2, Request::MakeRoom { speaks });
    cluster.settle();
    assert_eq!(cluster.reply(ticket), None, "what it said may be under way");
    cluster.go_on(N1);
    cluster.pass(SOON);
    assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
    replace(&mut cluster, N2, OLD);
    assert_eq!(spoken(&cluster, &[N1, N2, N3]), [4; 3]);
    tell(&mut cluster, N1, &late);
    cluster.settle();
    assert_eq!(spoken(&cluster, &[N1, N2, N3]), [4; 3]);
    assert_eq!(known(&cluster, N1, N2), OLD);
}

#[test]
fn nonsense_about_versions_is_refused() {
    let mut cluster = Cluster::of_programs(&[NEW, NEW]);
    for speaks in NONSENSE {
        cluster.forget();
        let join = Message::Join(Join {
            name: "odd".into(),
            incarnation: Incarnation(999),
            page_size: PAGE_SIZE as u32,
            advertise: None,
            program: Program::of(speaks),
        });
        let bytes = said(5, &join, (ClusterId(0), NodeId::NONE));
        let key = PublicKey::NONE;
        let source = ([127, 0, 0, 1], 1001).into();
        let bytes = &bytes[..];
        cluster.input(N1, Input::Datagram { source, key, bytes });
        let answer = cluster
            .sent
            .iter()
            .find_map(|(_, _, message)| match message {
                Message::Unwelcome { why, .. } => Some(why.to_string()),
                _ => None,
            });
        let why = answer.expect("a refusal");
        assert!(why.contains(&speaks.to_string()), "{why}");
        cluster.settle();
        let runs = runs(&cluster, Program::of(speaks));
        cluster.input(
            N1,
            Input::Datagram {
                source,
                key,
                bytes: &runs,
            },
        );
        cluster.settle();
        assert_eq!(spoken(&cluster, &[N1, N2]), [5, 5]);
        assert_eq!(known(&cluster, N1, N2), NEW);
    }
    let fine = runs(&cluster, OLD);
    tell(&mut cluster, N1, &fine);
    assert_eq!(spoken(&cluster, &[N1]), [4], "such a message is heeded");
}
