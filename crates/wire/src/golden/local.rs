//! Messages between a program and the daemon of its node.

use super::peer::{info, member, page, part, spec};
use super::{lines, samples};
use crate::local::*;
use crate::peer::{Kind, Merge, Reduction};
use crate::sysv::{Op, Outcome};
use crate::*;

pub(super) fn all() -> String {
    let requests = requests().into_iter();
    let requests = requests.map(|(name, request)| (name, RequestPacket { number: 7, request }));
    let replies = replies().into_iter();
    let replies = replies.map(|(name, reply)| (name, ReplyPacket { number: 7, reply }));
    lines("Request", requests.collect())
        + &lines("Reply", replies.collect())
        + &lines("Advice", advices())
        + &lines("StampKind", stamps())
}

fn key() -> SyncKey {
    SyncKey {
        segment: page().segment(),
        number: 9,
    }
}

fn pages() -> PageReport {
    PageReport {
        info: info(),
        known: 300,
        readable: 200,
        writable: 100,
        owned: 50,
        unreplicated: 5,
        pages: vec![PageLine {
            page: PageIndex(3),
            rights: 2,
            owner: true,
            hint: NodeId(2),
            version: 300,
            copies: NodeSet::only(NodeId(3)),
            queued: 1,
        }],
    }
}

fn status() -> NodeStatus {
    NodeStatus {
        node: NodeId(2),
        name: "host".into(),
        address: "127.0.0.1:7450".into(),
        alive: 4,
        dead: 1,
        clients: 2,
        segments: 3,
        pages: 300,
        uptime: 1.5,
        fault_p50: 20_000,
        fault_p99: 300_000,
        problems: vec!["why, and the cure".into()],
        keeper: 300,
        takeovers: 1,
        unreplicated: 300,
        control: ControlStatus {
            coordinator: NodeId(1),
            term: 2,
            standby: NodeId(3),
            copying: NodeId::NONE,
            behind: 300,
            silent: 0.5,
            disk: DiskState::Good,
        },
    }
}

fn sharing() -> SharingReport {
    SharingReport {
        watched: 3,
        lines: vec![SharingLine {
            page: PageIndex(3),
            node: NodeId(2),
            times: 300,
            bytes: 8,
            ranges: vec![WrittenRange { begin: 8, end: 16 }],
            turns: 299,
            met: 1,
        }],
    }
}

fn races() -> RaceReport {
    RaceReport {
        lines: vec![RaceLine {
            segment: page().segment(),
            page: PageIndex(3),
            begin: 8,
            end: 16,
            one: NodeId(1),
            other: NodeId(2),
        }],
        names: vec!["total".into()],
        looked_for: true,
        known: 1,
        more: 2,
    }
}

samples! {
    fn requests() -> Request {
        Hello: Request::Hello { version: LOCAL_VERSION, program: "a.out".into() };
        Open: Request::Open { name: "grid".into(), create: Some(spec()), exclusive: true, write: true };
        Map: Request::Map {
            segment: page().segment(), address: 0x7f00_0000_0000, length: ByteLen(8192), offset: ByteOffset(4096),
            write: true,
        };
        Unmap: Request::Unmap { mapping: MappingId(5) };
        Fork: Request::Fork;
        Close: Request::Close { segment: page().segment() };
        Remove: Request::Remove { name: "grid".into() };
        Stat: Request::Stat { name: "grid".into() };
        List: Request::List { after: "grid".into() };
        Inspect: Request::Inspect { name: "grid".into(), first: PageIndex(3), limit: 300 };
        Members: Request::Members;
        Status: Request::Status;
        LockSlot: Request::LockSlot { key: key() };
        Lock: Request::Lock { key: key() };
        Unlock: Request::Unlock { key: key() };
        CondWait: Request::CondWait { cond: key() };
        CondSignal: Request::CondSignal { cond: key(), all: true };
        Barrier: Request::Barrier { key: key(), parties: 4 };
        Watch: Request::Watch { segment: page().segment(), page: PageIndex(3) };
        Pin: Request::Pin { segment: page().segment(), first: PageIndex(3), count: PageCount(300) };
        Unpin: Request::Unpin { segment: page().segment(), first: PageIndex(3), count: PageCount(300) };
        Probe: Request::Probe { node: NodeId(2) };
        Counters: Request::Counters;
        Stamp: Request::Stamp { tag: 300 };
        Stamps: Request::Stamps { from: 300 };
        Cancel: Request::Cancel { number: 6 };
        Leave: Request::Leave;
        Dump: Request::Dump;
        Revoke: Request::Revoke { node: NodeId(2) };
        Handover: Request::Handover { oldest: 1, newest: 300 };
        Advise: Request::Advise {
            segment: page().segment(), first: PageIndex(3), count: PageCount(300), advice: Advice::WillNeed,
        };
        WatchSharing: Request::WatchSharing { name: "grid".into(), on: true };
        Sharing: Request::Sharing { name: "grid".into(), first: PageIndex(3) };
        Sysv: Request::Sysv(Op::MsgGet { key: -300, flags: 0o640 });
        Races: Request::Races { first: 300 };
        Reduce: Request::Reduce {
            segment: page().segment(),
            reduction: Reduction { offset: 4096, length: 64, merge: Merge::Sum, kind: Kind::F64 },
        };
        Label: Request::Label {
            segment: page().segment(),
            labels: vec![Label { offset: 4096, length: 8, name: "total".into() }],
        };
        Paths: Request::Paths;
        RequestSlot: Request::RequestSlot;
        Knock: Request::Knock;
        ForgetMember: Request::ForgetMember { node: NodeId(2) };
        MapView: Request::MapView {
            segment: page().segment(), address: 0x7000_0000, length: ByteLen(4096), offset: ByteOffset(8192),
            view: View { consistent: false, short: true, data_driven: true },
        };
        Purge: Request::Purge { segment: page().segment(), first: PageIndex(3), count: PageCount(300), short: true };
        Publish: Request::Publish { segment: page().segment(), first: PageIndex(3), count: PageCount(300), short: false, waits: true };
        WatchRange: Request::WatchRange { segment: page().segment(), first: PageIndex(3), count: PageCount(300) };
        Hold: Request::Hold { segment: page().segment() };
        EndHold: Request::EndHold { segment: page().segment() };
        States: Request::States { segment: page().segment(), first: PageIndex(3) };
        Name: Request::Name { segment: page().segment(), name: "grid".into(), replace: true };
        Promote: Request::Promote;
        FilePages: Request::FilePages { segment: page().segment(), part: part() };
        FilePagesDone: Request::FilePagesDone {
            segment: page().segment(), part: part(), filled: 0b1000, frames: vec![PageIndex(7), PageIndex(300)],
        };
        LockMemory: Request::LockMemory { on: true };
        Memory: Request::Memory { node: NodeId(2) };
        PinShort: Request::PinShort { segment: page().segment(), first: PageIndex(3), count: PageCount(300) };
        Capability: Request::Capability { segment: page().segment(), write: true };
        Redeem: Request::Redeem;
        WillNeed: Request::WillNeed {
            segment: page().segment(), ranges: vec![(PageIndex(3), PageCount(1)), (PageIndex(300), PageCount(2))],
        };
    }
}

samples! {
    fn replies() -> Reply {
        Welcome: Reply::Welcome { client: ClientId(3), node: NodeId(2), device: true };
        Done: Reply::Done;
        Opened: Reply::Opened { info: info() };
        Mapped: Reply::Mapped { mapping: MappingId(5) };
        Segment: Reply::Segment(info());
        Segments: Reply::Segments(vec![info()]);
        Pages: Reply::Pages(pages());
        Members: Reply::Members { epoch: 300, members: vec![(&member()).into()] };
        Status: Reply::Status(status());
        Slot: Reply::Slot { index: 300 };
        Locked: Reply::Locked { recovered: true };
        Woken: Reply::Woken(3);
        Waiting: Reply::Waiting;
        Changed: Reply::Changed;
        Counters: Reply::Counters(vec![("malformed".into(), 300)]);
        Stamps: Reply::Stamps(vec![Stamp { number: 1, nanos: 300, what: StampKind::Mapped, tag: 3 }]);
        Refused: Reply::Refused(Refusal::Permission);
        Dumped: Reply::Dumped { length: ByteLen(5000) };
        Sharing: Reply::Sharing(sharing());
        Sysv: Reply::Sysv(Outcome::Number(7));
        Races: Reply::Races(races());
        Paths: Reply::Paths(vec![PathInfo { node: NodeId(2), mtu: 1500, found: true }]);
        RequestSlot: Reply::RequestSlot;
        Unproven: Reply::Unproven;
        States: Reply::States(vec![PageState::Unsure, PageState::Zero, PageState::Version(Version(300))]);
        FilePages: Reply::FilePages(FileFrames {
            here: 1, came: 0, missing: 8, frames: vec![PageIndex(7), PageIndex(300)],
        });
        Memory: Reply::Memory(super::peer::memory());
        Everyone: Reply::Everyone { epoch: 300, spoken: 5, members: vec![member()] };
        Capability: Reply::Capability { segment: page().segment(), write: true };
    }
}

samples! {
    fn advices() -> Advice {
        Normal: Advice::Normal;
        Sequential: Advice::Sequential;
        Random: Advice::Random;
        WillNeed: Advice::WillNeed;
        DontNeed: Advice::DontNeed;
        Renew: Advice::Renew;
        DontNeedShort: Advice::DontNeedShort;
    }
}

samples! {
    fn stamps() -> StampKind {
        Program: StampKind::Program;
        Fault: StampKind::Fault;
        Asked: StampKind::Asked;
        Arrived: StampKind::Arrived;
        Mapped: StampKind::Mapped;
        Given: StampKind::Given;
        Invalidated: StampKind::Invalidated;
    }
}
