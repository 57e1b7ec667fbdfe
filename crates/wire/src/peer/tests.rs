use super::*;
use crate::golden::peer as golden;
use crate::golden::peer::ask_many;
use crate::{ClusterId, PageIndex, Version};
use proptest::prelude::*;

fn header() -> Header {
    Header {
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
    let mut datagram = Vec::new();
    message.encode(header(), &mut datagram);
    datagram.resize(datagram.len() + message.tail(), 0xab);
    datagram
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
