//! Where a corpus comes from: everything that is said in some explorations, and
//! a sample of every request.

use super::node_inputs::{LOCAL, TICK};
use super::{Target, hex};
use crate::explore::{Setting, overheard};
use pagemesh_compress::{Codec, pack};
use pagemesh_core::{Input, Request};
use pagemesh_diff::{PAGE, encode};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::header::{HEADER_SIZE, Header};
use pagemesh_wire::local::{self, RequestPacket};
use pagemesh_wire::multicast_batch::{self, MulticastBatch, SHORTEST_TRIAL, SharedPiece};
use pagemesh_wire::peer::{
    Access, Call, Credentials, Decision, Decisions, FileKey, FilePart, MemberView, Message, Policy,
    Reply, Resume, Resumed, SegmentInfo, SegmentSpec, version_4,
};
use pagemesh_wire::sysv::keys::{Bucket, Buckets, Entry, KeyRequest, Word};
use pagemesh_wire::sysv::{Ask, Family, IPC_CREAT, Id, Limits, Op, Who};
use pagemesh_wire::{
    ByteLen, CallId, ClientId, ClusterId, Incarnation, MappingId, NodeId, NodeSet, PageCount,
    PageIndex, Program, SegmentId, SyncKey, Term, Ticket,
};
use std::collections::BTreeSet;

/// Explorations whose datagrams are worth having.
const PLAYS: &[&str] = &[
    "explore nodes=3 lost=1\nthread n1 write 0\nthread n2 write 0\nthread n3 read 0",
    "explore nodes=3 manager=fixed\nthread n1 write 0\nthread n2 write 0\nthread n3 read 0",
    "explore nodes=3 crash=1\nthread n1 write 0\nthread n2 write 0\nthread n3 lock 1, unlock 1",
    "explore nodes=3\nthread n1 lock 1, unlock 1\nthread n2 lock 1, unlock 1, leave",
];

/// Enough of one message.
const OF_EACH: usize = 6;

impl Target {
    /// A corpus made anew, as the lines of its file.
    #[must_use]
    pub fn seeds(self) -> String {
        let inputs: Vec<Vec<u8>> = match self {
            Self::PeerDecode => {
                let said = datagrams().into_iter().map(|(_, bytes)| bytes);
                let said: Vec<_> = said.chain(about_keys()).collect();
                let former: Vec<_> = said
                    .iter()
                    .filter_map(|bytes| as_version_4(bytes))
                    .collect();
                [said, former].concat()
            }
            Self::LocalDecode => packets(),
            Self::DiffApply => diffs(),
            Self::PageUnpack => packed(),
            Self::MulticastBatchDecode => multicast_batches(),
            Self::PathPackets => super::packets::seeds(),
            Self::NodeInputs => events(),
            Self::SnapshotRead => super::snapshots::seeds(),
            Self::StateRead => super::states::seeds(),
            Self::Scripts => PLAYS.iter().map(|play| play.as_bytes().to_vec()).collect(),
        };
        let lines = inputs.iter().map(|input| hex(input) + "\n");
        lines.collect()
    }
}

/// Diffs of few and of many changes.
fn diffs() -> Vec<Vec<u8>> {
    let changes: [fn(usize) -> bool; 5] = [
        |_| false,
        |at| at == 4095,
        |at| at % 512 < 2,
        |at| (60..130).contains(&at),
        |at| at % 3 == 0,
    ];
    let encoded = changes.map(|changed| {
        let now = std::array::from_fn(|at| u8::from(changed(at)));
        let mut out = Vec::new();
        encode(&[0; PAGE], &now, &mut out);
        out
    });
    encoded.to_vec()
}

/// Pages of few and of many different words, in every form but the plain one.
fn packed() -> Vec<Vec<u8>> {
    let contents: [fn(usize) -> u8; 4] = [
        |_| 0,
        |at| at as u8 * u8::from(at % 512 < 9),
        |at| (at / 1024) as u8,
        |at| b"page"[at % 4],
    ];
    let packed = |codec, contents: fn(usize) -> u8| {
        let mut bytes = vec![0];
        bytes[0] = pack(codec, &std::array::from_fn(contents), &mut bytes) as u8;
        bytes
    };
    let each = |codec| contents.map(|contents| packed(codec, contents));
    Codec::ALL.into_iter().flat_map(each).collect()
}

/// One of each kind; parts of datagrams such as they are.
fn multicast_batches() -> Vec<Vec<u8>> {
    let (number, length) = (77, SHORTEST_TRIAL);
    let mut parts = Vec::new();
    multicast_batch::begin(&mut parts);
    for (node, (_, datagram)) in (2..5).zip(datagrams()) {
        multicast_batch::add(&mut parts, NodeId(node), &datagram);
    }
    vec![
        MulticastBatch::Trial { number, length }.encode(),
        MulticastBatch::Heard { number }.encode(),
        MulticastBatch::Shared(SharedPiece {
            nodes: NodeSet::only(NodeId(2)),
            number: 7,
            total: 11,
            count: 3,
            index: 2,
            bytes: b"end",
        })
        .encode(),
        MulticastBatch::Key {
            number: 7,
            next: 9,
            key: &[3; 32],
        }
        .encode(),
        MulticastBatch::KeyWanted { number: 7 }.encode(),
        parts,
    ]
}

/// Datagrams without their pages, and their senders.
fn datagrams() -> Vec<(u8, Vec<u8>)> {
    let mut known = BTreeSet::new();
    let mut kinds: SortedMap<&str, usize> = SortedMap::new();
    for play in PLAYS {
        let setting = Setting::parse(play).expect("plays make sense");
        for (from, kind, mut bytes) in overheard(&setting) {
            bytes.truncate(HEADER_SIZE + usize::from(u16::from_le_bytes([bytes[24], bytes[25]])));
            let count = kinds.entry(kind).or_default();
            if *count < OF_EACH && known.insert((from as u8, bytes)) {
                *count += 1;
            }
        }
    }
    known.into_iter().collect()
}

/// A datagram as version 4 has it, if that differs.
fn as_version_4(datagram: &[u8]) -> Option<Vec<u8>> {
    let (header, message, _) = Message::decode(datagram).ok()?;
    let version = version_4::VERSION;
    let mut former = Vec::new();
    message.encode(Header { version, ..header }, &mut former);
    (former[HEADER_SIZE..] != datagram[HEADER_SIZE..]).then_some(former)
}

/// Events of a node: each message, each local input.
fn events() -> Vec<Vec<u8>> {
    let messages = datagrams().into_iter().flat_map(|(from, bytes)| {
        let body = bytes[HEADER_SIZE..].to_vec();
        [0, 1].map(|me| event(me, from, &body))
    });
    let keys = about_keys().into_iter().flat_map(|bytes| {
        let body = bytes[HEADER_SIZE..].to_vec();
        [(0, 1), (1, 0)].map(|(me, from)| event(me, from, &body))
    });
    let locals = inputs().into_iter().map(|input| {
        let body = postcard::to_allocvec(&input).expect("inputs can be written down");
        event(1, LOCAL, &body)
    });
    let said = messages.chain(keys);
    said.chain(locals).chain([vec![1, TICK, 0]]).collect()
}

/// What a coordinator has decided.
fn log() -> Decisions {
    let info = SegmentInfo {
        id: segment(),
        name: "a".into(),
        spec: SegmentSpec {
            size: ByteLen(4096),
            mode: 0o600,
            policy: Policy::default(),
            replicas: 0,
        },
        owner: (0, 0),
        removed: false,
        attached: NodeSet::only(NodeId(2)),
    };
    let decisions = vec![
        Decision::Anew,
        Decision::Serial(3),
        Decision::Segment {
            info: info.clone(),
            changed: vec![(NodeId(2), CallId(3))],
            reductions: vec![],
        },
        Decision::Gone(SegmentId::new(NodeId(1), 2)),
        Decision::Answered {
            node: NodeId(2),
            call: CallId(3),
            floor: CallId(2),
            reply: Reply::Segment(info),
        },
    ];
    Decisions {
        first: 0,
        entries: vec![decisions],
    }
}

/// The members after the first node was replaced.
fn takeover() -> MemberView {
    MemberView {
        epoch: 9,
        members: Vec::new(),
        term: Term::FIRST.next(NodeId(2)).expect("there was one before"),
        standby: NodeId::NONE,
        generation: 0,
        deaths: 0,
    }
}

/// Messages between nodes and the coordinator about keys of System V objects, and between it and
/// its standby.
fn about_keys() -> Vec<Vec<u8>> {
    let (family, key, id) = (Family::Sem, 7, Id::new(NodeId(2), 0, 1));
    let bucket = Bucket::of(key);
    let calls = [
        Call::SysvKey {
            family,
            key,
            request: KeyRequest::Find { offer: Some(id) },
        },
        Call::SysvKey {
            family,
            key,
            request: KeyRequest::Drop { id },
        },
        Call::SysvLend {
            buckets: Buckets::ALL,
        },
        Call::SysvRecall {
            bucket,
            after: Some((family, key)),
        },
        Call::SysvGather {
            after: Some((family, key)),
        },
        Call::Log(log()),
        Call::TakeOver {
            term: Term::FIRST.next(NodeId(2)).expect("there was one before"),
        },
        Call::Members(takeover()),
        Call::Sysv(Box::new(semget())),
    ];
    let replies = [
        Reply::Members(takeover()),
        Reply::SysvKey(Word::Theirs(id)),
        Reply::SysvLent(Buckets::ALL),
        Reply::SysvEntries {
            entries: vec![Entry { family, key, id }],
            more: true,
        },
    ];
    let calls = (900..).zip(calls).map(|(number, body)| Message::Call {
        call: CallId(number),
        floor: CallId(0),
        body,
    });
    let replies = (1..).zip(replies).map(|(number, body)| Message::Reply {
        call: CallId(number),
        body,
    });
    let header = Header {
        version: pagemesh_wire::header::PROTOCOL_VERSION,
        cluster: ClusterId(1),
        from: NodeId(1),
        to: NodeId(2),
        incarnation: Incarnation(3),
        body: 0,
        term: pagemesh_wire::Term::NONE,
        generation: 0,
    };
    let term = takeover().term;
    let goes_on = [
        Message::Resume(Resume {
            term,
            known: Term::FIRST,
            tried: vec![term],
        }),
        Message::Resumed(Resumed {
            incarnation: Incarnation(3),
            term,
            view: takeover(),
        }),
        Message::Runs {
            epoch: 3,
            program: Program::SILENT,
        },
    ];
    let encoded = calls.chain(replies).chain(goes_on).map(|message| {
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        bytes
    });
    encoded.collect()
}

fn semget() -> Ask {
    let credentials = Credentials {
        uid: 1000,
        gid: 1000,
        groups: vec![7],
    };
    Ask {
        who: Who {
            client: ClientId(1),
            pid: 1,
            credentials,
        },
        wall: 1,
        limits: Limits::default(),
        op: Op::SemGet {
            key: 7,
            count: 1,
            flags: IPC_CREAT | 0o600,
        },
    }
}

fn event(me: u8, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut event = vec![me, kind, body.len() as u8];
    event.extend_from_slice(body);
    event
}

fn segment() -> SegmentId {
    SegmentId::new(pagemesh_wire::NodeId(1), 1)
}

fn inputs() -> Vec<Input<'static>> {
    let (mapping, client, page) = (MappingId(1), ClientId(1), PageIndex(0));
    let requests = requests().into_iter().enumerate();
    let requests = requests.map(|(number, request)| Input::Request {
        ticket: Ticket(9000 + number as u64),
        client: ClientId(1 + number as u32 % 3),
        request,
    });
    let others = [
        Input::Fault {
            mapping,
            page,
            access: Access::Read,
        },
        Input::Fault {
            mapping,
            page,
            access: Access::Write,
        },
        Input::Faults {
            mapping,
            faults: vec![(page, Access::Read), (PageIndex(1), Access::Write)],
        },
        Input::Cancel {
            ticket: Ticket(9001),
        },
        Input::Unmapped { mapping },
        Input::Closed {
            segment: segment(),
            client,
        },
        Input::ClientGone { client },
        Input::Deadline,
        Input::Untouched {
            segment: segment(),
            pages: vec![page],
        },
    ];
    requests.chain(others).collect()
}

fn requests() -> Vec<Request> {
    let (segment, page) = (segment(), PageIndex(0));
    let (first, count) = (page, PageCount(1));
    let key = SyncKey { segment, number: 1 };
    let credentials = Credentials {
        uid: 1000,
        gid: 1000,
        groups: vec![7],
    };
    let call = |call| Request::Call { to: None, call };
    vec![
        Request::Open {
            name: "a".into(),
            create: None,
            exclusive: false,
            write: true,
            credentials: credentials.clone(),
        },
        call(Call::Stat { name: "a".into() }),
        call(Call::List { after: "".into() }),
        call(Call::Remove {
            name: "a".into(),
            credentials,
        }),
        call(Call::barrier(key, 2)),
        call(Call::CondWait { key }),
        call(Call::CondSignal { key, all: true }),
        call(Call::Probe),
        call(Call::Memory),
        Request::Lock { key },
        Request::Watch { segment, page },
        Request::Pin {
            segment,
            first,
            count,
        },
        Request::Unpin {
            segment,
            first,
            count,
        },
        Request::Sysv(Box::new(semget())),
        Request::Leave,
        Request::Promote,
        Request::FilePages {
            segment,
            part: part(),
        },
        Request::FilePagesDone {
            segment,
            part: part(),
            filled: 8,
            frames: vec![page, PageIndex(1)],
        },
        Request::MakeRoom {
            speaks: Program::SILENT.speaks,
        },
    ]
}

fn part() -> FilePart {
    FilePart {
        file: FileKey {
            user: 1000,
            hash: [1, 2],
        },
        chunk: 2,
        pages: 0b1001,
    }
}

/// Packets of local programs: the first requests of every session.
fn packets() -> Vec<Vec<u8>> {
    let segment = segment();
    let key = SyncKey { segment, number: 1 };
    let requests = [
        local::Request::Lock { key },
        local::Request::Watch {
            segment,
            page: PageIndex(0),
        },
        local::Request::Leave,
        local::Request::FilePages {
            segment,
            part: part(),
        },
        local::Request::FilePagesDone {
            segment,
            part: part(),
            filled: 8,
            frames: vec![PageIndex(0), PageIndex(1)],
        },
    ];
    let packets = requests.into_iter().enumerate();
    packets
        .map(|(number, request)| {
            let number = number as u64;
            RequestPacket { number, request }.encode()
        })
        .collect()
}
