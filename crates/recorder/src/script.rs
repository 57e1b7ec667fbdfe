//! How records are written into a log, and read again.
//!
//! A record is a head of one word, with its length and a checksum, and a body,
//! padded with zeros to whole words. Most records are of faults and datagrams, and
//! threads wait meanwhile: those are written field by field, all others as the rest of what is kept.

use crate::layout::WORD;
use crate::record::Record;
use crate::schema::{Form, reader, writer};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use pagemesh_core::{Input, Time};
use pagemesh_wire::peer::Access;
use pagemesh_wire::{MappingId, PageIndex, PublicKey};

/// How a body begins.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    /// In the [`Form`] without names.
    Plain,
    /// A datagram that nothing sealed, heard from an IPv4 address.
    Heard,
    /// One that was sealed: the key comes before its bytes.
    Sealed,
    /// A load that found no page.
    ReadFault,
    /// A store.
    WriteFault,
}

/// Length of the fields before each datagram: kind, whether it joined another one, address, port,
/// bytes left out, time.
const FRONT: usize = 20;

/// Length of a fault's fields: kind, page, mapping, time.
const FAULT: usize = 24;

/// Writes a record, head and body, over the former contents of `bytes`.
pub(crate) fn write(record: &Record<'_>, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.clear();
    bytes.extend_from_slice(&[0; WORD]);
    if let Some(fault) = fault(record) {
        bytes.extend_from_slice(&fault);
    } else if let Some((front, key, rest)) = heard(record) {
        bytes.extend_from_slice(&front);
        if front[0] == Kind::Sealed as u8 {
            bytes.extend_from_slice(&key.0);
        }
        bytes.extend_from_slice(rest);
    } else {
        bytes.push(Kind::Plain as u8);
        bytes = writer::append(record, Form::Positional, bytes);
    }
    let length = u32::try_from(bytes.len() - WORD).expect("records are small");
    bytes.resize(bytes.len().next_multiple_of(WORD), 0);
    let (head, body) = bytes.split_at_mut(WORD);
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[4..].copy_from_slice(&checksum(length, body).to_le_bytes());
    bytes
}

/// The record at a byte of a log, and where the next one is.
pub(crate) fn read(log: &[u8], at: usize) -> Option<(Record<'_>, usize)> {
    let (head, rest) = log.get(at..)?.split_first_chunk::<WORD>()?;
    let [a, b, c, d, sum @ ..] = *head;
    let length = u32::from_le_bytes([a, b, c, d]);
    let whole = usize::try_from(length)
        .ok()?
        .checked_next_multiple_of(WORD)?;
    let body = rest.get(..whole)?;
    if checksum(length, body) != u32::from_le_bytes(sum) {
        return None;
    }
    let (kind, body) = body[..length as usize].split_first()?;
    let record = match *kind {
        kind if kind == Kind::Plain as u8 => {
            let mut left = body;
            let record = reader::read(&mut left, Form::Positional).ok()?;
            left.is_empty().then_some(record)?
        }
        kind if kind == Kind::Heard as u8 => datagram(body, false)?,
        kind if kind == Kind::Sealed as u8 => datagram(body, true)?,
        kind if kind == Kind::ReadFault as u8 => faulted(body, Access::Read)?,
        kind if kind == Kind::WriteFault as u8 => faulted(body, Access::Write)?,
        _ => return None,
    };
    Some((record, at + WORD + whole))
}

/// The fields of a datagram from an IPv4 address.
#[inline]
fn heard<'a>(record: &Record<'a>) -> Option<([u8; FRONT], PublicKey, &'a [u8])> {
    let Record::Input {
        now,
        input: Input::Datagram { source, key, bytes },
        rest,
        joined,
    } = record
    else {
        return None;
    };
    let IpAddr::V4(address) = source.ip() else {
        return None;
    };
    let kind = match *key {
        PublicKey::NONE => Kind::Heard,
        _ => Kind::Sealed,
    };
    let mut front = [0; FRONT];
    front[0] = kind as u8;
    front[1] = u8::from(*joined);
    front[2..4].copy_from_slice(&source.port().to_le_bytes());
    front[4..8].copy_from_slice(&address.octets());
    front[8..12].copy_from_slice(&rest.to_le_bytes());
    front[12..].copy_from_slice(&now.0.to_le_bytes());
    Some((front, *key, bytes))
}

/// The record of a datagram, of whose front the first byte is known.
fn datagram(body: &[u8], sealed: bool) -> Option<Record<'_>> {
    let (front, body) = body.split_first_chunk::<{ FRONT - 1 }>()?;
    let [joined @ (0 | 1), p, q, a, b, c, d, e, f, g, h, now @ ..] = *front else {
        return None;
    };
    let (key, bytes) = match sealed {
        true => {
            let (key, bytes) = body.split_first_chunk::<32>()?;
            (PublicKey(*key), bytes)
        }
        false => (PublicKey::NONE, body),
    };
    let address = IpAddr::from(Ipv4Addr::new(a, b, c, d));
    let source = SocketAddr::new(address, u16::from_le_bytes([p, q]));
    Some(Record::Input {
        now: Time(u64::from_le_bytes(now)),
        input: Input::Datagram { source, key, bytes },
        rest: u32::from_le_bytes([e, f, g, h]),
        joined: joined == 1,
    })
}

/// The fields of a fault.
#[inline]
fn fault(record: &Record<'_>) -> Option<[u8; FAULT]> {
    let Record::Input {
        now,
        input: Input::Fault {
            mapping,
            page,
            access,
        },
        rest: 0,
        joined: false,
    } = record
    else {
        return None;
    };
    let kind = match access {
        Access::Read => Kind::ReadFault,
        Access::Write => Kind::WriteFault,
    };
    let mut bytes = [0; FAULT];
    bytes[0] = kind as u8;
    bytes[4..8].copy_from_slice(&page.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&mapping.0.to_le_bytes());
    bytes[16..].copy_from_slice(&now.0.to_le_bytes());
    Some(bytes)
}

/// The record of a fault, of which the first byte is known.
fn faulted<'a>(body: &[u8], access: Access) -> Option<Record<'a>> {
    let body: &[u8; FAULT - 1] = body.try_into().ok()?;
    let (zeros, body) = body.split_first_chunk::<3>()?;
    let (page, body) = body.split_first_chunk()?;
    let (mapping, body) = body.split_first_chunk()?;
    let (now, _) = body.split_first_chunk()?;
    (*zeros == [0; 3]).then_some(Record::Input {
        now: Time(u64::from_le_bytes(*now)),
        input: Input::Fault {
            mapping: MappingId(u64::from_le_bytes(*mapping)),
            page: PageIndex(u32::from_le_bytes(*page)),
            access,
        },
        rest: 0,
        joined: false,
    })
}

/// Over whole words. Whichever single word is changed, the sum of 64 bits is another one; half of
/// its bits are kept. No tables: at a fault they would not be in the cache, and would displace
/// memory that the fault needs.
fn checksum(length: u32, body: &[u8]) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, _) = body.as_chunks::<WORD>();
    let sum = words.iter().fold(u64::from(length) ^ ODD, |sum, word| {
        (sum ^ u64::from_le_bytes(*word))
            .wrapping_mul(ODD)
            .rotate_left(29)
    });
    #[expect(clippy::cast_possible_truncation, reason = "half of the bits are kept")]
    let folded = (sum ^ (sum >> 32)) as u32;
    folded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn datagrams() -> impl Strategy<Value = (SocketAddr, PublicKey, Vec<u8>, u32, u64)> {
        let source = any::<(IpAddr, u16)>().prop_map(SocketAddr::from);
        let key = prop_oneof![Just(PublicKey::NONE), any::<[u8; 32]>().prop_map(PublicKey)];
        let bytes = prop::collection::vec(any::<u8>(), 0..200);
        (source, key, bytes, any::<u32>(), any::<u64>())
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(datagrams in prop::collection::vec(datagrams(), 0..5)) {
            let mut records = Vec::new();
            for (source, key, bytes, rest, now) in &datagrams {
                let input = Input::Datagram { source: *source, key: *key, bytes };
                let joined = rest % 2 == 1;
                records.push(Record::Input { now: Time(*now), input, rest: *rest, joined });
                records.push(Record::Note(bytes));
                records.push(Record::Next { now: Time(*now) });
                let access = if key == &PublicKey::NONE { Access::Read } else { Access::Write };
                let (mapping, page) = (MappingId(*now), PageIndex(*rest));
                let input = Input::Fault { mapping, page, access };
                records.push(Record::Input { now: Time(*now), input, rest: 0, joined: false });
            }
            let log: Vec<u8> = records.iter().flat_map(|one| write(one, vec![1; 9])).collect();
            let (mut seen, mut at) = (Vec::new(), 0);
            while at < log.len() {
                let (record, next) = read(&log, at).expect("it was written");
                seen.push(record);
                at = next;
            }
            prop_assert_eq!(seen, records);
        }

        #[test]
        fn what_was_changed_is_not(
            (source, key, bytes, rest, now) in datagrams(),
            place in any::<prop::sample::Index>(),
            flip in 1_u8..,
        ) {
            let input = Input::Datagram { source, key, bytes: &bytes };
            let mut log = write(&Record::Input { now: Time(now), input, rest, joined: false }, Vec::new());
            let place = place.index(log.len());
            log[place] ^= flip;
            prop_assert!(read(&log, 0).is_none());
        }

        #[test]
        fn noise_does_no_harm(mut log in prop::collection::vec(any::<u8>(), 8..100), kind in 0_u8..6) {
            let _ = read(&log, 0);
            let body = (log.len() - WORD) / WORD * WORD;
            if body > 0 {
                log[WORD] = kind;
                log[..4].copy_from_slice(&(body as u32).to_le_bytes());
                let sum = checksum(body as u32, &log[WORD..][..body]);
                log[4..8].copy_from_slice(&sum.to_le_bytes());
                let _ = read(&log, 0);
            }
        }
    }
}
