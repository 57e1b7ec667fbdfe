use super::*;
use crate::golden::peer as golden;
use crate::golden::peer::ask_many;
use crate::header::{HEADER_SIZE, Header, MAX_DATAGRAM, OLDEST_VERSION, PROTOCOL_VERSION};
use crate::sysv::{self, keys};
use crate::{
    ClusterId, NodeId, PageIndex, Program, PublicKey, Release, SegmentId, SyncKey, Term, Version,
    Versions,
};
use proptest::prelude::*;

fn header() -> Header {
    Header {
        version: PROTOCOL_VERSION,
        cluster: ClusterId(1),
        from: NodeId(1),
        to: NodeId(2),
        incarnation: Incarnation(3),
        body: 0,
        term: crate::Term::NONE,
        generation: 0,
    }
}

/// A message of every kind, with calls and replies of every kind.
fn table() -> Vec<(&'static str, Message)> {
    let call = |(name, body)| {
        let (call, floor) = (CallId(7), CallId(6));
        (name, Message::Call { call, floor, body })
    };
    let reply = |(name, body)| {
        let call = CallId(7);
        (name, Message::Reply { call, body })
    };
    let calls = golden::calls().into_iter().map(call);
    let replies = golden::replies().into_iter().map(reply);
    golden::messages()
        .into_iter()
        .chain(calls)
        .chain(replies)
        .collect()
}

/// The most entries of one reply fit a datagram.
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
    encode_in(PROTOCOL_VERSION, message)
}

fn encode_in(version: u8, message: &Message) -> Vec<u8> {
    let header = Header {
        version,
        ..header()
    };
    let mut datagram = Vec::new();
    message.encode(header, &mut datagram);
    datagram.resize(datagram.len() + message.tail(), 0xab);
    datagram
}

/// Every message in every version.
fn in_all_versions() -> impl Iterator<Item = (&'static str, Message, Vec<u8>)> {
    let versions = OLDEST_VERSION..=PROTOCOL_VERSION;
    versions.flat_map(|version| {
        table().into_iter().map(move |(name, message)| {
            let datagram = encode_in(version, &message);
            (name, message, datagram)
        })
    })
}

/// As version 4 tells of it.
fn without_programs(mut message: Message) -> Message {
    let view = match &mut message {
        Message::Join(join) => {
            join.program = Program::SILENT;
            return message;
        }
        Message::Welcome(welcome) => &mut welcome.view,
        Message::Resumed(resumed) => &mut resumed.view,
        Message::Call {
            body: Call::Members(view),
            ..
        }
        | Message::Reply {
            body: Reply::Members(view),
            ..
        } => view,
        _ => return message,
    };
    for member in &mut view.members {
        member.program = Program::SILENT;
    }
    message
}

#[test]
fn every_message_round_trips_in_every_version() {
    for (name, message, datagram) in in_all_versions() {
        let (header, decoded, page) = Message::decode(&datagram).expect(name);
        let expected = match header.version {
            version_4::VERSION => without_programs(message),
            _ => message,
        };
        assert_eq!(decoded, expected, "{name}");
        assert_eq!(page.len(), expected.tail(), "{name}");
    }
}

/// The whole of a cluster's members fits, whatever their names and addresses are.
#[test]
fn the_members_of_a_full_cluster_fit_a_datagram() {
    let member = |id| Member {
        id: NodeId(id),
        name: "n".repeat(32),
        address: ([u16::MAX; 8], u16::MAX).into(),
        incarnation: Incarnation(u64::MAX),
        key: PublicKey([7; 32]),
        health: Health::Forgotten,
        program: Program {
            speaks: Versions::only(u8::MAX),
            release: Release {
                version: (u16::MAX, u16::MAX, u16::MAX),
                build: u32::MAX,
            },
        },
    };
    let view = MemberView {
        epoch: u64::MAX,
        members: (1..NodeId::NEAR).map(member).collect(),
        term: Term(u32::MAX),
        standby: NodeId(126),
        generation: u64::MAX,
        deaths: u64::MAX,
    };
    let welcome = Message::Welcome(Welcome {
        incarnation: Incarnation(u64::MAX),
        node: NodeId(126),
        cluster: ClusterId(u64::MAX),
        view,
    });
    assert!(encode(&welcome).len() <= MAX_DATAGRAM);
}

#[test]
fn truncation_and_leftovers_are_refused() {
    for (name, _, datagram) in in_all_versions() {
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

#[test]
fn the_driver_knows_diffs_by_their_first_byte() {
    let messages = golden::messages();
    let (_, diffs) = messages.iter().find(|(name, _)| *name == "Diffs").unwrap();
    assert_eq!(encode(diffs)[HEADER_SIZE], Message::DIFFS);
}

#[test]
fn a_payload_is_read_whole_or_not_at_all() {
    let said = Payload::of(&(7_u32, 300_u64));
    assert_eq!(said.read(), Some((7_u32, 300_u64)));
    assert_eq!(said.read::<u32>(), None, "something is left over");
    assert_eq!(said.read::<(u32, u64, u8)>(), None, "something lacks");
    assert!(Payload::EMPTY.is_empty() && Payload::EMPTY.read::<u8>().is_none());
}

proptest! {
    /// Any bytes at all: an error or a message, never a panic.
    #[test]
    fn hostile_bytes_do_no_harm(
        version in OLDEST_VERSION..=PROTOCOL_VERSION,
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut datagram = Header { version, body: bytes.len() as u16, ..header() }.encode().to_vec();
        datagram.extend_from_slice(&bytes);
        if let Ok((header, message, _)) = Message::decode(&datagram) {
            let mut again = Vec::new();
            message.encode(header, &mut again);
            prop_assert!(!again.is_empty());
        }
    }

    /// One flipped byte in a good datagram: an error or another message, never a panic.
    #[test]
    fn flipped_bytes_do_no_harm(
        version in OLDEST_VERSION..=PROTOCOL_VERSION,
        row in 0..table().len(),
        at in any::<prop::sample::Index>(),
        bit in 0..8,
    ) {
        let mut datagram = encode_in(version, &table()[row].1);
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
