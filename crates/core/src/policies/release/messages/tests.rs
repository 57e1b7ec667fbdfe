use super::*;
use pagemesh_wire::VectorTime;
use std::fmt::Write as _;

fn time() -> VectorTime {
    VectorTime::from_iter([(NodeId(1), 2), (NodeId(2), 300)])
}

fn news() -> News {
    let time = |node, index| VectorTime::from_iter([(NodeId(node), index)]);
    News {
        floor: time(1, 300),
        goal: time(1, 303),
        records: vec![IntervalRecord {
            node: NodeId(1),
            index: 302,
            time: time(3, 7),
            pages: vec![PageRun {
                first: PageIndex(3),
                count: 200,
            }],
        }],
    }
}

/// One of each, in order.
fn bodies() -> Vec<Body> {
    let (request, page) = (RequestId(300), PageIndex(3));
    let diffs = vec![DiffName {
        page,
        node: NodeId(1),
        interval: 302,
    }];
    let (reader, contents) = (NodeId(2), Contents::Bytes);
    let (time, news) = (time(), news());
    let (epoch, hops, leaving) = (5, 1, true);
    let (floor, applied) = (time.clone(), time.clone());
    vec![
        Body::IntervalRequest(IntervalRequest {
            request,
            time,
            epoch,
        }),
        Body::IntervalReply(IntervalReply {
            request,
            news: news.clone(),
        }),
        Body::CopyRequest(CopyRequest {
            page,
            reader,
            request,
            floor: floor.clone(),
            hops,
        }),
        Body::CopyReply(CopyReply {
            page,
            request,
            contents,
            applied,
        }),
        Body::DiffRequest(DiffRequest {
            request,
            diffs: diffs.clone(),
        }),
        Body::DiffMissing(DiffMissing {
            request,
            diffs,
            floor: floor.clone(),
        }),
        Body::Full(Full {
            floor: floor.clone(),
            leaving,
        }),
        Body::CopyRequests(CopyRequests {
            floor: floor.clone(),
            copies: vec![(page, request)],
        }),
        Body::Keep(Keep {
            upto: 302,
            records: news.records.clone(),
            news: news.clone(),
        }),
        Body::Kept(Kept {
            upto: 302,
            time: floor,
        }),
        Body::Leaving,
    ]
}

fn steps() -> [Collect; 3] {
    let keepers = NodeSet::only(NodeId(2));
    [
        Collect::Know,
        Collect::Reach {
            time: time(),
            keepers,
        },
        Collect::Drop { time: time() },
    ]
}

fn hex(payload: &Payload) -> String {
    let mut hex = String::new();
    for byte in payload.bytes() {
        write!(hex, "{byte:02x}").unwrap();
    }
    hex
}

#[test]
fn golden_bytes() {
    let bodies = bodies();
    let said = bodies.iter().map(|body| (body.name(), Payload::of(body)));
    let steps = steps();
    let called = steps.iter().map(|step| ("Collect", Payload::of(step)));
    let ride = [
        ("News", Payload::of(&news())),
        ("Time", Payload::of(&time())),
    ];
    let now: Vec<_> = said
        .chain(called)
        .chain(ride)
        .map(|(name, payload)| format!("{name} {}", hex(&payload)))
        .collect();
    let fixed = [
        "IntervalRequest 00ac0202010202ac0205",
        "IntervalReply 01ac020101ac020101af020101ae020103070103c801",
        "CopyRequest 020302ac0202010202ac0201",
        "CopyReply 0303ac020202010202ac02",
        "DiffRequest 04ac02010301ae02",
        "DiffMissing 05ac02010301ae0202010202ac02",
        "Full 0602010202ac0201",
        "CopyRequests 0702010202ac020103ac02",
        "Keep 08ae020101ae020103070103c8010101ac020101af020101ae020103070103c801",
        "Kept 09ae0202010202ac02",
        "Leaving 0a",
        "Collect 00",
        "Collect 0102010202ac020400",
        "Collect 0202010202ac02",
        "News 0101ac020101af020101ae020103070103c801",
        "Time 02010202ac02",
    ];
    assert_eq!(now, fixed, "the bytes changed: raise PROTOCOL_VERSION");
    for body in bodies {
        assert_eq!(Body::read(&Payload::of(&body)), Some(body));
    }
}

/// The largest records and the largest news, of the largest cluster, in one datagram.
#[test]
fn the_largest_keep_fits_a_datagram() {
    use pagemesh_wire::header::{HEADER_SIZE, MAX_DATAGRAM};
    let time: VectorTime = (1..NodeId::NEAR)
        .map(|node| (NodeId(node), u64::MAX / 2))
        .collect();
    let run = |first: u32| PageRun {
        first: PageIndex(u32::MAX / 2 + 3 * first),
        count: 2,
    };
    let record = IntervalRecord {
        node: NodeId(1),
        index: u64::MAX / 2,
        time: time.clone(),
        pages: (0..IntervalRecord::RUNS as u32).map(run).collect(),
    };
    let fits = News::WEIGHT / record.weight();
    let news = News {
        floor: time.clone(),
        goal: time,
        records: vec![record.clone(); fits],
    };
    let keep = Keep {
        upto: record.index,
        records: vec![record],
        news,
    };
    let length = Payload::of(&Body::Keep(keep)).len();
    assert!(length + HEADER_SIZE + 32 < MAX_DATAGRAM, "{length} bytes");
}

/// Every body has its row in docs/protocol.md, with its tag.
#[test]
fn the_bodies_are_described() {
    let text = include_str!("../../../../../../docs/protocol.md");
    for (tag, body) in bodies().iter().enumerate() {
        let row = format!("| {tag} | `{}`", body.name());
        assert!(text.contains(&row), "docs/protocol.md has no row {row}");
    }
}
