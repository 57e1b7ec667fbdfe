//! Openings of segments, and their refusals.

use super::*;
use pagemesh_wire::peer::{Manager, Policy, Window};

fn user(uid: u32) -> Credentials {
    Credentials {
        uid,
        gid: uid,
        groups: vec![],
    }
}

fn opening<'a>(
    name: &'a str,
    create: Option<&'a SegmentSpec>,
    who: &'a Credentials,
) -> Opening<'a> {
    Opening {
        node: NodeId(2),
        call: CallId(1),
        name,
        create,
        exclusive: false,
        write: true,
        credentials: who,
        quotas: Quotas {
            segments: 3,
            bytes: ByteLen(1 << 20),
        },
    }
}

fn spec(mode: u16) -> SegmentSpec {
    SegmentSpec {
        size: ByteLen(100),
        mode,
        policy: Policy::default(),
        replicas: 0,
    }
}

#[test]
fn owner_group_and_mode_decide() {
    let mut directory = Directory::default();
    let (owner, other) = (user(10), user(11));
    let spec = spec(0o640);
    directory.open(&opening("a", Some(&spec), &owner)).unwrap();
    assert_eq!(
        directory.open(&opening("a", None, &other)),
        Err(Refusal::Permission)
    );
    let group = Credentials {
        uid: 12,
        gid: 1,
        groups: vec![10],
    };
    assert_eq!(
        directory.open(&opening("a", None, &group)),
        Err(Refusal::Permission)
    );
    let reading = Opening {
        write: false,
        ..opening("a", None, &group)
    };
    assert!(directory.open(&reading).is_ok());
    assert!(directory.open(&opening("a", None, &user(0))).is_ok());
}

#[test]
fn a_removed_segment_lives_until_the_last_node_closes_it() {
    let mut directory = Directory::default();
    let who = user(0);
    let spec = spec(0o600);
    let info = directory.open(&opening("a", Some(&spec), &who)).unwrap();
    assert_eq!(directory.remove("a", &who), Ok(None));
    assert_eq!(directory.stat("a"), Err(Refusal::NotFound));
    assert_eq!(
        directory.close(NodeId(2), CallId(5), info.id),
        Some(info.id)
    );
}

#[test]
fn a_copy_made_of_decisions_is_the_directory() {
    let mut directory = Directory::default();
    let mut copy = Directory::default();
    let who = user(0);
    let spec = spec(0o600);
    let apply = |copy: &mut Directory, decisions: Vec<Decision>| {
        for decision in decisions {
            match decision {
                Decision::Serial(serial) => copy.restore_serial(serial),
                Decision::Segment {
                    info,
                    changed,
                    reductions,
                } => copy.restore(info, changed, reductions),
                Decision::Gone(id) => copy.drop_segment(id),
                other => panic!("{other:?}"),
            }
        }
    };
    let info = directory.open(&opening("a", Some(&spec), &who)).unwrap();
    directory.open(&opening("b", Some(&spec), &who)).unwrap();
    apply(&mut copy, directory.decisions());
    assert_eq!(copy, directory);
    directory.remove("a", &who).unwrap();
    directory.open(&opening("a", Some(&spec), &who)).unwrap();
    apply(&mut copy, directory.decisions());
    assert_eq!(copy, directory, "a name that was removed is given again");
    directory.name(info.id, "b", true, &who).unwrap();
    apply(&mut copy, directory.decisions());
    assert_eq!(copy, directory, "a segment has taken the name of another");
    directory.remove("b", &who).unwrap();
    apply(&mut copy, directory.decisions());
    directory.close(NodeId(2), CallId(5), info.id);
    apply(&mut copy, directory.decisions());
    assert_eq!(copy, directory, "a segment has ended");
    directory.member_gone(NodeId(2));
    apply(&mut copy, directory.decisions());
    assert_eq!(copy, directory);
    let mut late = Directory::default();
    apply(&mut late, directory.copy());
    assert_eq!(late, directory);
    assert_eq!(directory.decisions(), []);
}

#[test]
fn a_close_that_was_overtaken_by_a_newer_open_does_nothing() {
    let mut directory = Directory::default();
    let who = user(0);
    let spec = spec(0o600);
    let info = directory.open(&opening("a", Some(&spec), &who)).unwrap();
    directory
        .open(&Opening {
            call: CallId(9),
            ..opening("a", None, &who)
        })
        .unwrap();
    directory.remove("a", &who).unwrap();
    assert_eq!(directory.close(NodeId(2), CallId(5), info.id), None);
    assert_eq!(
        directory.close(NodeId(2), CallId(10), info.id),
        Some(info.id)
    );
}

#[test]
fn hostile_declarations_are_refused_with_the_reason() {
    use pagemesh_wire::peer::{Kind, Merge, Spread};
    let mut directory = Directory::default();
    let who = user(0);
    let spread = Spread::Lazy;
    let release = SegmentSpec {
        policy: Policy::Release { spread },
        size: ByteLen(4096),
        ..spec(0o600)
    };
    let plain = directory.open(&opening("a", Some(&spec(0o600)), &who));
    let summed = directory.open(&opening("b", Some(&release), &who));
    let (plain, summed) = (plain.unwrap().id, summed.unwrap().id);
    let range = |offset, length, merge, kind| Reduction {
        offset,
        length,
        merge,
        kind,
    };
    let good = range(8, 8, Merge::Sum, Kind::U64);
    let mut why = |id, range| match directory.declare(id, range) {
        Err(Refusal::Invalid(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(why(plain, good).contains("atomic operations"));
    assert!(why(summed, range(4090, 16, Merge::Sum, Kind::U8)).contains("beyond"));
    assert!(why(summed, range(4, 8, Merge::Sum, Kind::U64)).contains("multiple of 8"));
    assert!(why(summed, range(0, 8, Merge::Or, Kind::F64)).contains("integers"));
    let nobody = SegmentId::new(NodeId(9), 9);
    assert_eq!(directory.declare(nobody, good), Err(Refusal::NotFound));
    assert_eq!(directory.declare(summed, good), Ok(vec![good]));
    assert_eq!(directory.declare(summed, good), Ok(vec![good]), "once");
    let mut why = |range| directory.declare(summed, range).unwrap_err().to_string();
    assert!(why(range(0, 16, Merge::Max, Kind::U8)).contains("in common"));
    for number in 1..Reduction::LIMIT as u64 {
        let next = range(8 + 8 * number, 8, Merge::Min, Kind::I64);
        directory.declare(summed, next).unwrap();
    }
    let mut why = |range| directory.declare(summed, range).unwrap_err().to_string();
    assert!(why(range(4088, 8, Merge::Max, Kind::U8)).contains("at most 64"));
}

#[test]
fn a_user_has_no_more_than_its_quotas_and_root_has_none() {
    let mut directory = Directory::default();
    let (one, other, root) = (user(10), user(11), user(0));
    let mut open = |name, size, who| {
        let size = ByteLen(size);
        let spec = SegmentSpec {
            size,
            ..spec(0o600)
        };
        let opened = directory.open(&opening(name, Some(&spec), who));
        opened.map(drop).map_err(|why| why.to_string())
    };
    let full = open("a", (1 << 20) + 1, &one).unwrap_err();
    assert!(full.contains("quota of 1048576 bytes"), "{full}");
    open("a", (1 << 20) - 1, &one).unwrap();
    assert!(open("b", 2, &one).unwrap_err().contains("--quota"));
    for name in ["c", "d", "e"] {
        open(name, 1, &other).unwrap();
    }
    let full = open("f", 1, &other).unwrap_err();
    assert!(full.contains("user 11 has 3 segments"), "{full}");
    open("c", 1, &other).expect("it exists");
    for name in ["g", "h", "i", "j"] {
        open(name, 1 << 20, &root).unwrap();
    }
    let quotas = opening("", None, &one).quotas;
    let near = directory.near_quota(quotas);
    let (segments, bytes) = (3, 3);
    assert_eq!(near[1..], [(11, Usage { segments, bytes })]);
    assert_eq!(near[0].0, 10);
    directory.remove("c", &other).unwrap();
    let id = *directory.names.get("d").unwrap();
    directory.remove("d", &other).unwrap();
    assert_eq!(directory.usage(11).segments, 3, "open still");
    directory.close(NodeId(2), CallId(9), id);
    assert_eq!(directory.usage(11).segments, 2);
}

#[test]
fn bad_names_and_sizes_are_refused() {
    let mut directory = Directory::default();
    let who = user(0);
    let good = spec(0o600);
    for name in ["", "a/b", "a\0", &"x".repeat(256)] {
        let result = directory.open(&opening(name, Some(&good), &who));
        assert_eq!(result, Err(Refusal::BadName), "{name:?}");
    }
    for size in [0, u64::MAX] {
        let bad = SegmentSpec {
            size: ByteLen(size),
            ..good.clone()
        };
        assert_eq!(
            directory.open(&opening("a", Some(&bad), &who)),
            Err(Refusal::BadSize)
        );
    }
    assert_eq!(
        directory.open(&opening("a", None, &who)),
        Err(Refusal::NotFound)
    );
}

#[test]
fn bad_modes_and_windows_are_refused_with_the_limit() {
    let mut directory = Directory::default();
    let who = user(0);
    let mut why = |bad: SegmentSpec| match directory.open(&opening("a", Some(&bad), &who)) {
        Err(Refusal::Invalid(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(why(spec(0o1000)).contains("777"));
    let policy = Policy::Sequential {
        manager: Manager::default(),
        window: Window::Nanos(10_000_000_001),
    };
    let slow = SegmentSpec {
        policy,
        ..spec(0o600)
    };
    assert!(why(slow).contains("10s"));
}
