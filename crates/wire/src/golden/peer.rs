//! Messages between daemons.

use super::{lines, samples};
use crate::peer::*;
use crate::sysv::{self, keys};
use crate::*;
use core::net::SocketAddr;

pub(super) fn all() -> String {
    lines("Message", messages())
        + &lines("Call", calls())
        + &lines("Reply", replies())
        + &lines("Refusal", refusals())
        + &lines("Inheritance", inheritances())
        + &lines("Policy", policies())
        + &lines("Decision", decisions())
}

pub(crate) fn page() -> Subject {
    Subject::Page {
        segment: SegmentId::new(NodeId(1), 2),
        page: PageIndex(3),
    }
}

pub(super) fn part() -> FilePart {
    FilePart {
        file: FileKey {
            user: 1000,
            hash: [300, 0x0102_0304_0506_0708],
        },
        chunk: 2,
        pages: 0b1001,
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

fn key() -> SyncKey {
    SyncKey {
        segment: page().segment(),
        number: 9,
    }
}

fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7450))
}

fn name() -> DiffName {
    DiffName {
        page: PageIndex(3),
        node: NodeId(1),
        interval: 302,
    }
}

fn ask(subject: Subject) -> Ask {
    Ask {
        subject,
        waiter: waiter(),
        since: Version(5),
        hops: 1,
        by_library: false,
    }
}

fn pass(subject: Subject, contents: Contents, awaiting: NodeSet) -> Pass {
    Pass {
        subject,
        request: RequestId(300),
        version: Version(6),
        contents,
        pristine: false,
        recovered: false,
        awaiting,
        queue: vec![waiter()],
    }
}

pub(crate) fn ask_many() -> Message {
    let request = |page, have| PageRequest {
        page: PageIndex(page),
        request: RequestId(300 + u64::from(page)),
        have,
        since: Version(6),
    };
    Message::AskMany(AskMany {
        segment: page().segment(),
        access: Access::Write,
        requests: vec![request(1, None), request(200, Some(Version(5)))],
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

fn put() -> Put {
    Put {
        lent: lent(),
        seal: PageSeal([7; 16]),
        on_disk: true,
        answer: false,
        age: 300,
    }
}

fn lent() -> LentPage {
    LentPage {
        segment: page().segment(),
        page: PageIndex(3),
        version: Version(6),
    }
}

pub(super) fn memory() -> MemoryReport {
    MemoryReport {
        budget: 4096,
        placement: Placement::Random,
        local: 300,
        lent: 5000,
        on_disk: 7,
        files: 5,
        borrowed: 9,
        lend: 1024,
        epoch: 3,
        min_age: 8192,
        weight: 1015,
    }
}

fn ages() -> AgeSummary {
    let mut ages = AgeSummary {
        free: 300,
        ..AgeSummary::default()
    };
    (ages.local[2], ages.global[AGE_CLASSES - 1]) = (5, 6);
    ages
}

fn epoch_plan() -> EpochPlan {
    EpochPlan {
        epoch: 4,
        min_age: 8192,
        weights: vec![(NodeId(2), 300)],
        initiator: NodeId(2),
        duration: 5000,
        replacements: 300,
    }
}

/// A payload of a policy.
fn payload(bytes: u8) -> Payload {
    Payload::of(&(0..bytes).collect::<Vec<u8>>())
}

fn said(bytes: u8) -> PolicyMessage {
    PolicyMessage {
        segment: page().segment(),
        body: payload(bytes),
    }
}

fn reduction() -> Reduction {
    Reduction {
        offset: 4096,
        length: 64,
        merge: Merge::Sum,
        kind: Kind::F64,
    }
}

pub(super) fn credentials() -> Credentials {
    Credentials {
        uid: 1000,
        gid: 100,
        groups: vec![100, 27],
    }
}

pub(super) fn spec() -> SegmentSpec {
    SegmentSpec {
        size: ByteLen(5000),
        mode: 0o640,
        policy: Policy::default(),
        replicas: 0,
    }
}

pub(super) fn info() -> SegmentInfo {
    SegmentInfo {
        id: page().segment(),
        name: "grid".into(),
        spec: spec(),
        owner: (1000, 100),
        removed: true,
        attached: NodeSet::only(NodeId(2)),
    }
}

pub(super) fn member() -> Member {
    Member {
        id: NodeId(2),
        name: "host".into(),
        address: address(),
        incarnation: Incarnation(7),
        key: PublicKey([5; 32]),
        health: Health::Left,
        program: program(),
    }
}

fn program() -> Program {
    Program {
        speaks: Versions {
            oldest: 4,
            newest: 200,
        },
        release: Release {
            version: (1, 2, 300),
            build: 0x1a2b_3c4d,
        },
    }
}

fn view() -> MemberView {
    MemberView {
        epoch: 300,
        members: vec![member()],
        term: Term(2 << 16 | 3),
        standby: NodeId(4),
        generation: 0,
        deaths: 0,
    }
}

fn bucket() -> keys::Bucket {
    keys::Bucket::of(-300)
}

pub(super) fn object() -> sysv::Id {
    sysv::Id::new(NodeId(2), 3, 4)
}

samples! {
    pub(crate) fn messages() -> Message {
        Ask: Message::Ask(ask(page()));
        Data: Message::Data(Data {
            segment: page().segment(), page: PageIndex(3), request: RequestId(300), version: Version(5),
            owner: NodeId(2), contents: Contents::Bytes,
        });
        Pass: Message::Pass(pass(page(), Contents::Same, NodeSet::only(NodeId(3))));
        PassAck: Message::PassAck(PassAck { subject: page(), version: Version(6) });
        Invalidate: Message::Invalidate(Invalidate {
            segment: page().segment(), page: PageIndex(3), version: Version(6), writer: NodeId(2),
        });
        InvalidateAck: Message::InvalidateAck(InvalidateAck {
            segment: page().segment(), page: PageIndex(3), version: Version(6),
        });
        Served: Message::Served(Served {
            segment: page().segment(), page: PageIndex(3), request: RequestId(300), clock: Some(Version(6)),
        });
        Call: Message::Call { call: CallId(9), floor: CallId(8), body: Call::Probe };
        Reply: Message::Reply { call: CallId(9), body: Reply::Done };
        CancelCall: Message::CancelCall { call: CallId(9) };
        Join: Message::Join(Join {
            name: "host".into(), incarnation: Incarnation(7), page_size: 4096, advertise: None, program: program(),
        }), Message::Join(Join {
            name: "host".into(), incarnation: Incarnation(7), page_size: 4096, advertise: Some(address()),
            program: program(),
        });
        Welcome: Message::Welcome(Welcome {
            incarnation: Incarnation(7), node: NodeId(2), cluster: ClusterId(1), view: MemberView::default(),
        });
        Unwelcome: Message::Unwelcome { incarnation: Incarnation(7), why: Refusal::ClusterFull };
        Heartbeat: Message::Heartbeat { epoch: 3 };
        HeartbeatAck: Message::HeartbeatAck { epoch: 3 };
        Expelled: Message::Expelled;
        Signs: Message::Signs { epoch: 3, sent: 300, of: [NodeId(3), NodeId(4)].into_iter().collect() };
        SignsHeard: Message::SignsHeard { sent: 300, of: NodeSet::only(NodeId(3)) };
        Locate: Message::Locate(Locate { subject: page(), request: RequestId(300), epoch: 4 });
        Located: Message::Located(Located {
            subject: page(), request: RequestId(300), version: Version(6), owner: NodeId(2), spare: Spare::Copy,
            passing: false,
        });
        Lost: Message::Lost(Lost { subject: page(), request: RequestId(300), with: NodeId(2) });
        Regain: Message::Regain(Regain {
            subject: page(), version: Version(9), copies: NodeSet::only(NodeId(3)),
        });
        Redirect: Message::Redirect { incarnation: Incarnation(7), to: address() };
        AskMany: ask_many();
        HaveReply: Message::HaveReply { call: CallId(9) };
        Acquire: Message::Acquire(Acquire { ask: ask(Subject::Lock(key())), payload: payload(3) });
        Grant: Message::Grant(Grant {
            pass: pass(Subject::Lock(key()), Contents::None, NodeSet::EMPTY),
            payload: payload(3),
            waiting: vec![(NodeId(2), payload(2))],
        });
        Diffs: Message::Diffs(Diffs {
            segment: page().segment(), request: RequestId(300), diffs: vec![(name(), 20)],
        });
        Policy: Message::Policy(said(3)), Message::Policy(said(200));
        PolicyPage: Message::PolicyPage(said(3));
        PolicyUndelivered: Message::PolicyUndelivered(said(3));
        PassAckMany: pass_ack_many();
        Put: Message::Put(put());
        Got: Message::Got(Got { lent: lent(), seal: PageSeal([7; 16]) });
        DonorReply: Message::DonorReply(DonorReply::Kept(lent())), Message::DonorReply(DonorReply::Refused(lent())),
            Message::DonorReply(DonorReply::Missing(lent())), Message::DonorReply(DonorReply::Moved(lent(), NodeId(3))),
            Message::DonorReply(DonorReply::Spoiled(lent()));
        Global: Message::Global(Global::Get {
            segment: page().segment(), pages: vec![(PageIndex(3), Version(6))], forget: true,
        }), Message::Global(Global::Drop {
            segment: page().segment(), pages: vec![(PageIndex(3), Version(6))],
        }), Message::Global(Global::EndEpoch { epoch: 3 }), Message::Global(Global::Summarize { epoch: 4 }),
            Message::Global(Global::Summary { epoch: 4, ages: Box::new(ages()) }),
            Message::Global(Global::Begin(epoch_plan())),
            Message::Global(Global::Find { request: RequestId(300), again: true, part: part() }),
            Message::Global(Global::Fetch { asker: NodeId(2), request: RequestId(300), part: part() }),
            Message::Global(Global::NotCached { request: RequestId(300), part: part() }),
            Message::Global(Global::Hold { part: part(), copied: true }),
            Message::Global(Global::Gone { part: part() }),
            Message::Global(Global::Copies { part: part(), alone: true }),
            Message::Global(Global::TakeBack { segment: page().segment(), pages: vec![(PageIndex(3), Version(7))] }),
            Message::Global(Global::Wanted { question: RequestId(301), segment: page().segment(), pages: vec![(PageIndex(3), Version(7))] }),
            Message::Global(Global::Unwanted { question: RequestId(301), segment: page().segment(), pages: vec![PageIndex(3)] });
        SharedPage: Message::SharedPage(SharedPage { request: RequestId(300), file: part().file, page: PageIndex(131) });
        SharedPut: Message::SharedPut(SharedPut { file: part().file, page: PageIndex(131), age: 300, rounds: 1 });
        Forward: Message::Forward(Forward { put: put(), rounds: 1 });
        Resume: Message::Resume(Resume { term: Term(3 << 16 | 127), known: Term::FIRST, tried: vec![Term(2 << 16 | 126)] });
        Resumed: Message::Resumed(Resumed { incarnation: Incarnation(7), term: Term::FIRST, view: view() });
        SendCopies: Message::SendCopies(SendCopies {
            segment: page().segment(),
            reader: NodeId(4),
            copies: vec![CopyToSend { page: PageIndex(3), request: RequestId(300), version: Version(5) }],
        });
        Runs: Message::Runs { epoch: 300, program: program() };
    }
}

samples! {
    pub(crate) fn calls() -> Call {
        Probe: Call::Probe;
        Open: Call::Open {
            name: "grid".into(), create: Some(spec()), exclusive: true, write: true, credentials: credentials(),
        }, Call::Open {
            name: "grid".into(), create: None, exclusive: false, write: false, credentials: credentials(),
        };
        Close: Call::Close { segment: page().segment() };
        Remove: Call::Remove { name: "grid".into(), credentials: credentials() };
        Stat: Call::Stat { name: "grid".into() };
        List: Call::List { after: "grid".into() };
        Members: Call::Members(view());
        Forget: Call::Forget { segment: page().segment() };
        Leave: Call::Leave;
        Barrier: Call::barrier(key(), 4), Call::Barrier { key: key(), parties: 4, payload: payload(3) };
        CondWait: Call::CondWait { key: key() };
        CondSignal: Call::CondSignal { key: key(), all: true };
        Revoke: Call::Revoke { node: NodeId(2) };
        Inherit: Call::Inherit(Inheritance::Owners(vec![Owner {
            subject: page(), node: NodeId(2), version: Version(6),
        }]));
        Policy: Call::Policy(said(3));
        Sysv: Call::Sysv(Box::new(super::sysv::ask()));
        SysvNews: Call::SysvNews(sysv::News::Exit { client: ClientId(3), pid: 300 });
        Declare: Call::Declare { segment: page().segment(), reduction: reduction() };
        Reduce: Call::Reduce { segment: page().segment(), reductions: vec![reduction()] };
        SysvKey:
            Call::SysvKey {
                family: sysv::Family::Sem, key: -300, request: keys::KeyRequest::Find { offer: Some(object()) },
            },
            Call::SysvKey { family: sysv::Family::Sem, key: -300, request: keys::KeyRequest::Drop { id: object() } };
        SysvLend: Call::SysvLend { buckets: [bucket()].into_iter().collect() };
        SysvRecall: Call::SysvRecall { bucket: bucket(), after: Some((sysv::Family::Sem, -300)) };
        ForgetMember: Call::ForgetMember { node: NodeId(2) };
        Name: Call::Name { segment: page().segment(), name: "grid".into(), replace: true, credentials: credentials() };
        Log: Call::Log(Decisions { first: 300, entries: vec![vec![Decision::Anew], vec![]] });
        TakeOver: Call::TakeOver { term: Term(2 << 16 | 3) };
        SysvGather: Call::SysvGather { after: Some((sysv::Family::Sem, -300)) };
        Memory: Call::Memory;
        TakePart: Call::TakePart(Box::new(info()));
        MembersChange: Call::MembersChange(Box::new(ViewChange {
            since: 300, view: view(), freed: vec![NodeId(900)], more: true,
        }));
    }
}

samples! {
    pub(crate) fn replies() -> Reply {
        Done: Reply::Done;
        Waiting: Reply::Waiting;
        Segment: Reply::Segment(info());
        Segments: Reply::Segments(vec![info()]);
        Woken: Reply::Woken(3);
        Refused: Reply::Refused(Refusal::NotFound);
        Depart: Reply::Depart(said(3));
        Policy: Reply::Policy(payload(3));
        Sysv: Reply::Sysv(sysv::Outcome::Number(7));
        Reducing: Reply::Reducing(info(), vec![reduction()]);
        SysvKey: Reply::SysvKey(keys::Word::Theirs(object()));
        SysvLent: Reply::SysvLent([bucket()].into_iter().collect());
        SysvEntries: Reply::SysvEntries {
            entries: vec![keys::Entry { family: sysv::Family::Sem, key: -300, id: object() }],
            more: true,
        };
        Members: Reply::Members(view());
        Memory: Reply::Memory(memory());
        Names: Reply::Names {
            generation: 300,
            names: [NodeId(3), NodeId(127)].into_iter().collect::<NodeSet>().near_bytes(),
        };
        FarNames: Reply::FarNames {
            generation: 300,
            names: [NodeId(3), NodeId(900)].into_iter().collect::<NodeSet>().words(),
        };
    }
}

samples! {
    fn decisions() -> Decision {
        Anew: Decision::Anew;
        Serial: Decision::Serial(300);
        Segment: Decision::Segment {
            info: info(), changed: vec![(NodeId(2), CallId(9))], reductions: vec![reduction()],
        };
        Gone: Decision::Gone(page().segment());
        Answered: Decision::Answered {
            node: NodeId(2), call: CallId(9), floor: CallId(8), reply: Reply::Done,
        };
    }
}

samples! {
    fn refusals() -> Refusal {
        NotFound: Refusal::NotFound;
        Exists: Refusal::Exists;
        Permission: Refusal::Permission;
        BadName: Refusal::BadName;
        BadSize: Refusal::BadSize;
        NodeGone: Refusal::NodeGone(NodeId(2));
        NotMember: Refusal::NotMember;
        PageSize: Refusal::PageSize { theirs: 16384 };
        ClusterFull: Refusal::ClusterFull;
        CannotLeave: Refusal::CannotLeave("why".into());
        Invalid: Refusal::Invalid("why".into());
        Cancelled: Refusal::Cancelled;
        Limit: Refusal::Limit("why".into());
        Version: Refusal::Version { theirs: 2 };
        NotYetMember: Refusal::NotYetMember;
        Superseded: Refusal::Superseded { by: NodeId(2) };
        DeclaredDead: Refusal::DeclaredDead { was: NodeId(2), lost: "pages".into() };
        Versions: Refusal::Versions { cluster: program().speaks, here: Versions::only(3) };
    }
}

samples! {
    fn inheritances() -> Inheritance {
        Owners: Inheritance::Owners(vec![Owner { subject: Subject::Lock(key()), node: NodeId(2), version: Version(6) }]);
        Arrivals: Inheritance::Arrivals(vec![Arrival { key: key(), parties: 4, node: NodeId(2), call: CallId(9) }]);
        Waiters: Inheritance::Waiters(vec![(key(), NodeId(2), CallId(9))]);
        Served: Inheritance::Served(vec![
            Service { node: NodeId(2), call: CallId(9), reply: Some(Reply::Done), waits: true },
            Service { node: NodeId(2), call: CallId(10), reply: None, waits: false },
        ]);
    }
}

samples! {
    fn policies() -> Policy {
        Sequential:
            Policy::Sequential { manager: Manager::Dynamic, window: Window::Auto },
            Policy::Sequential { manager: Manager::Fixed, window: Window::Nanos(20_000_000) };
        Release: Policy::Release { spread: Spread::Eager };
        Numbered: Policy::Numbered(7);
        Views: Policy::Views { prefix: 32 };
        Private: Policy::Private { local: PageCount(300), backing: Backing::Copies };
        Files: Policy::Files;
    }
}
