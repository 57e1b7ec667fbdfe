use super::*;
use crate::{ClusterId, NodeSet, PageIndex, RequestId, Version};
use proptest::prelude::*;

fn header() -> Header {
    Header {
        cluster: ClusterId(1),
        from: NodeId(1),
        to: NodeId(2),
        incarnation: Incarnation(3),
        body: 0,
    }
}

fn page() -> Subject {
    Subject::Page {
        segment: SegmentId::new(NodeId(1), 2),
        page: PageIndex(3),
    }
}

fn waiter() -> Waiter {
    Waiter {
        node: NodeId(2),
        request: RequestId(300),
        access: Access::Write,
        have: Some(Version(4)),
    }
}

/// What is said about pages and tokens: one row a message, name and sample.
fn page_table() -> Vec<(&'static str, Message)> {
    let segment = SegmentId::new(NodeId(1), 2);
    vec![
        (
            "ask",
            Message::Ask(Ask {
                subject: page(),
                waiter: waiter(),
                since: Version(5),
                hops: 1,
                by_library: false,
            }),
        ),
        (
            "data",
            Message::Data(Data {
                segment,
                page: PageIndex(3),
                request: RequestId(300),
                version: Version(5),
                contents: Contents::Bytes,
            }),
        ),
        (
            "pass",
            Message::Pass(Pass {
                subject: page(),
                request: RequestId(300),
                version: Version(6),
                contents: Contents::Same,
                pristine: false,
                recovered: false,
                awaiting: NodeSet::only(NodeId(3)),
                queue: vec![waiter()],
            }),
        ),
        (
            "pass-ack",
            Message::PassAck(PassAck {
                subject: page(),
                version: Version(6),
            }),
        ),
        (
            "invalidate",
            Message::Invalidate(Invalidate {
                segment,
                page: PageIndex(3),
                version: Version(6),
                writer: NodeId(2),
            }),
        ),
        (
            "invalidate-ack",
            Message::InvalidateAck(InvalidateAck {
                segment,
                page: PageIndex(3),
                version: Version(6),
            }),
        ),
        (
            "served",
            Message::Served(Served {
                segment,
                page: PageIndex(3),
                request: RequestId(300),
                clock: Some(Version(6)),
            }),
        ),
        (
            "inherit",
            Message::Call {
                call: CallId(9),
                floor: CallId(8),
                body: Call::Inherit(Inheritance::Owners(vec![Owner {
                    subject: page(),
                    node: NodeId(2),
                    version: Version(6),
                }])),
            },
        ),
        (
            "call",
            Message::Call {
                call: CallId(9),
                floor: CallId(8),
                body: Call::Probe,
            },
        ),
    ]
}

/// All rows. `golden.txt` has the bytes of each body.
fn table() -> Vec<(&'static str, Message)> {
    [page_table(), control_table()].concat()
}

/// What is said about everything else.
fn control_table() -> Vec<(&'static str, Message)> {
    vec![
        (
            "reply",
            Message::Reply {
                call: CallId(9),
                body: Reply::Done,
            },
        ),
        ("cancel-call", Message::CancelCall { call: CallId(9) }),
        ("have-reply", Message::HaveReply { call: CallId(9) }),
        (
            "join",
            Message::Join(Join {
                name: "host".into(),
                incarnation: Incarnation(7),
                page_size: 4096,
                advertise: None,
            }),
        ),
        (
            "welcome",
            Message::Welcome(Welcome {
                incarnation: Incarnation(7),
                node: NodeId(2),
                cluster: ClusterId(1),
                view: MemberView::default(),
            }),
        ),
        (
            "unwelcome",
            Message::Unwelcome {
                incarnation: Incarnation(7),
                why: Refusal::ClusterFull,
            },
        ),
        ("heartbeat", Message::Heartbeat { epoch: 3 }),
        ("heartbeat-ack", Message::HeartbeatAck { epoch: 3 }),
        ("expelled", Message::Expelled),
        (
            "locate",
            Message::Locate(Locate {
                subject: page(),
                request: RequestId(300),
                epoch: 4,
            }),
        ),
        (
            "located",
            Message::Located(Located {
                subject: page(),
                request: RequestId(300),
                version: Version(6),
                owner: NodeId(2),
                spare: Spare::Copy,
                passing: false,
            }),
        ),
        (
            "lost",
            Message::Lost(Lost {
                subject: page(),
                request: RequestId(300),
                with: NodeId(2),
            }),
        ),
        (
            "regain",
            Message::Regain(Regain {
                subject: page(),
                version: Version(9),
                copies: NodeSet::only(NodeId(3)),
            }),
        ),
        (
            "redirect",
            Message::Redirect {
                incarnation: Incarnation(7),
                to: SocketAddr::from(([127, 0, 0, 1], 7450)),
            },
        ),
        ("ask-many", ask_many()),
    ]
    .into_iter()
    .chain(release_table())
    .chain(diff_table())
    .chain(release_calls())
    .chain(keys_table())
    .collect()
}

fn ask_many() -> Message {
    let wish = |page, have| Wish {
        page: PageIndex(page),
        request: RequestId(300 + u64::from(page)),
        have,
        since: Version(6),
    };
    Message::AskMany(AskMany {
        segment: page().segment(),
        access: Access::Write,
        wishes: vec![wish(1, None), wish(200, Some(Version(5)))],
    })
}

fn pass_ack_many() -> Message {
    let taken = |page| Taken {
        page: PageIndex(page),
        version: Version(6),
    };
    Message::PassAckMany(PassAckMany {
        segment: page().segment(),
        taken: vec![taken(1), taken(200)],
    })
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

/// What is said about segments of policy `release`.
fn release_table() -> Vec<(&'static str, Message)> {
    let (segment, request) = (page().segment(), RequestId(300));
    let time = || VectorTime::from_iter([(NodeId(1), 2), (NodeId(2), 300)]);
    let key = SyncKey { segment, number: 9 };
    let ask = Ask {
        subject: Subject::Lock(key),
        waiter: waiter(),
        since: Version(5),
        hops: 1,
        by_library: false,
    };
    let pass = Pass {
        subject: Subject::Lock(key),
        request,
        version: Version(6),
        contents: Contents::None,
        pristine: false,
        recovered: false,
        awaiting: NodeSet::EMPTY,
        queue: vec![waiter()],
    };
    vec![
        ("acquire", Message::Acquire(Acquire { ask, time: time() })),
        (
            "grant",
            Message::Grant(Grant {
                pass,
                news: news(),
                times: vec![(NodeId(2), time())],
            }),
        ),
        (
            "inquire",
            Message::Inquire(Inquire {
                segment,
                request,
                time: time(),
                epoch: 5,
            }),
        ),
        (
            "told",
            Message::Told(Told {
                segment,
                request,
                news: news(),
            }),
        ),
    ]
}

/// What is said about their pages and diffs.
fn diff_table() -> Vec<(&'static str, Message)> {
    let (segment, request) = (page().segment(), RequestId(300));
    let time = || VectorTime::from_iter([(NodeId(1), 2), (NodeId(2), 300)]);
    let name = DiffName {
        page: PageIndex(3),
        node: NodeId(1),
        interval: 302,
    };
    vec![
        (
            "fetch",
            Message::Fetch(Fetch {
                segment,
                page: PageIndex(3),
                reader: NodeId(2),
                request,
                floor: time(),
                hops: 1,
            }),
        ),
        (
            "base",
            Message::Base(Base {
                segment,
                page: PageIndex(3),
                request,
                contents: Contents::Bytes,
                applied: time(),
            }),
        ),
        (
            "want",
            Message::Want(Want {
                segment,
                request,
                diffs: vec![name],
            }),
        ),
        (
            "diffs",
            Message::Diffs(Diffs {
                segment,
                request,
                diffs: vec![(name, 20)],
            }),
        ),
        (
            "absent",
            Message::Absent(Absent {
                segment,
                request,
                diffs: vec![name],
                floor: time(),
            }),
        ),
        (
            "full",
            Message::Full {
                segment,
                floor: time(),
                leaving: true,
            },
        ),
        ("pass-ack-many", pass_ack_many()),
    ]
}

/// What is asked and answered about them.
fn release_calls() -> Vec<(&'static str, Message)> {
    let segment = page().segment();
    let key = SyncKey { segment, number: 9 };
    let time = || VectorTime::from_iter([(NodeId(1), 2), (NodeId(2), 300)]);
    let call = |body| Message::Call {
        call: CallId(7),
        floor: CallId(6),
        body,
    };
    let reply = |body| Message::Reply {
        call: CallId(7),
        body,
    };
    let collect = |step| call(Call::Collect { segment, step });
    let reduction = Reduction {
        offset: 4096,
        length: 64,
        merge: Merge::Sum,
        kind: Kind::F64,
    };
    vec![
        (
            "arrive",
            call(Call::Arrive {
                key,
                parties: 4,
                news: news(),
            }),
        ),
        (
            "depart",
            reply(Reply::Depart {
                segment,
                news: news(),
            }),
        ),
        ("reached", reply(Reply::Reached(time()))),
        ("collect-know", collect(Collect::Know)),
        (
            "collect-reach",
            collect(Collect::Reach {
                time: time(),
                keepers: NodeSet::only(NodeId(2)),
            }),
        ),
        ("collect-drop", collect(Collect::Drop { time: time() })),
        ("declare", call(Call::Declare { segment, reduction })),
        (
            "reduce",
            call(Call::Reduce {
                segment,
                reductions: vec![reduction],
            }),
        ),
    ]
}

/// What is said about keys of System V objects.
fn keys_table() -> Vec<(&'static str, Message)> {
    let call = |body| Message::Call {
        call: CallId(7),
        floor: CallId(6),
        body,
    };
    let reply = |body| Message::Reply {
        call: CallId(7),
        body,
    };
    let (family, key) = (sysv::Family::Sem, -300);
    let id = sysv::Id::new(NodeId(2), 3, 4);
    let wants = |wish| call(Call::SysvKey { family, key, wish });
    let bucket = keys::Bucket::of(key);
    let buckets = [bucket].into_iter().collect();
    let after = Some((family, key));
    vec![
        ("key-find", wants(keys::Wish::Find { offer: Some(id) })),
        ("key-drop", wants(keys::Wish::Drop { id })),
        ("key-lend", call(Call::SysvLend { buckets })),
        ("key-recall", call(Call::SysvRecall { bucket, after })),
        ("key-word", reply(Reply::SysvKey(keys::Word::Theirs(id)))),
        ("key-lent", reply(Reply::SysvLent(buckets))),
        (
            "key-entries",
            reply(Reply::SysvEntries {
                entries: vec![keys::Entry { family, key, id }],
                more: true,
            }),
        ),
    ]
}

/// As many entries as there are in one reply fit a datagram.
#[test]
fn keys_that_are_given_back_fit_a_datagram() {
    let entry = keys::Entry {
        family: sysv::Family::Msg,
        key: i32::MIN,
        id: sysv::Id(i32::MAX),
    };
    let body = Reply::SysvEntries {
        entries: vec![entry; keys::ENTRIES],
        more: true,
    };
    let call = CallId(u64::MAX);
    assert!(encode(&Message::Reply { call, body }).len() < MAX_DATAGRAM - PAGE_SIZE);
}

fn encode(message: &Message) -> Vec<u8> {
    let mut datagram = Vec::new();
    message.encode(header(), &mut datagram);
    datagram.resize(datagram.len() + message.tail(), 0xab);
    datagram
}

fn body_hex(message: &Message) -> String {
    let mut datagram = Vec::new();
    message.encode(header(), &mut datagram);
    datagram[HEADER_SIZE..]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[test]
fn every_message_round_trips() {
    for (name, message) in table() {
        let datagram = encode(&message);
        let (_, decoded, page) = Message::decode(&datagram).expect(name);
        assert_eq!(decoded, message, "{name}");
        assert_eq!(page.len(), message.tail(), "{name}");
    }
}

/// The bytes of every message are fixed: a difference is a new protocol version.
#[test]
fn golden_bytes() {
    let golden = include_str!("golden.txt");
    let now: String = table()
        .iter()
        .map(|(name, message)| format!("{name} {}\n", body_hex(message)))
        .collect();
    assert_eq!(
        now, golden,
        "the wire format changed; raise PROTOCOL_VERSION"
    );
}

#[test]
fn truncation_and_leftovers_are_refused() {
    for (name, message) in table() {
        let datagram = encode(&message);
        for cut in 0..datagram.len() {
            assert!(
                Message::decode(&datagram[..cut]).is_err(),
                "{name} cut at {cut}"
            );
        }
        let longer = [datagram.as_slice(), &[0]].concat();
        assert_eq!(Message::decode(&longer), Err(DecodeError::Page), "{name}");
    }
}

proptest! {
    /// Any bytes at all: an error or a message, never a panic.
    #[test]
    fn hostile_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut datagram = Header { body: bytes.len() as u16, ..header() }.encode().to_vec();
        datagram.extend_from_slice(&bytes);
        if let Ok((_, message, _)) = Message::decode(&datagram) {
            let mut again = Vec::new();
            message.encode(header(), &mut again);
            prop_assert!(!again.is_empty());
        }
    }

    /// One flipped byte in a good datagram: an error or another message, never a panic.
    #[test]
    fn flipped_bytes_do_no_harm(row in 0..table().len(), at in any::<prop::sample::Index>(), bit in 0..8) {
        let mut datagram = encode(&table()[row].1);
        let at = at.index(datagram.len());
        datagram[at] ^= 1_u8 << bit;
        let _ = Message::decode(&datagram);
    }
}

#[test]
fn receipts_for_pages_of_one_segment_become_one() {
    let ack = |subject| {
        let version = Version(6);
        Message::PassAck(PassAck { subject, version })
    };
    let page = |segment, page| {
        let (segment, page) = (SegmentId(segment), PageIndex(page));
        ack(Subject::Page { segment, page })
    };
    let lock = ack(Subject::Lock(SyncKey {
        segment: SegmentId(1),
        number: 1,
    }));
    let mut first = page(1, 0);
    assert!(!first.takes(&page(2, 1)) && !first.takes(&lock) && !first.takes(&ask_many()));
    assert_eq!(first, page(1, 0), "as before");
    let more = (1..100).filter(|index| first.takes(&page(1, *index)));
    assert_eq!(more.count(), PassAckMany::LIMIT - 1);
    let Message::PassAckMany(many) = &first else {
        panic!("{first:?}");
    };
    let each: Vec<Message> = many.each().map(Message::PassAck).collect();
    let alone: Vec<Message> = (0..64).map(|index| page(1, index)).collect();
    assert_eq!(each, alone);
    assert!(!{ lock }.takes(&page(1, 1)));
}
