//! Packets about the path between two nodes: each has one meaning only, and no series of them takes
//! memory, makes the node send much, or completes a message that no node cut.

use crate::check::{Check, ensure};
use pagemesh_path::packet::{Cut, Packet, Piece};
use pagemesh_path::{Came, Paths, Surroundings};
use pagemesh_wire::header::MAX_DATAGRAM;
use pagemesh_wire::{NodeId, PublicKey};
use std::net::SocketAddr;

/// The node that gets the packets: it knows one other.
struct Around(u64);

impl Surroundings for Around {
    fn nonce(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    fn link(&mut self, _: SocketAddr) -> usize {
        1472
    }
}

/// How long a packet of a series is: two bytes in front of it.
const LABEL: usize = 2;

/// More datagrams than this for one packet would be a storm: a message has 16 pieces.
const ANSWERS: usize = 16;

pub(super) fn path_packets(input: &[u8]) -> Check {
    if let Some(packet) = Packet::decode(input) {
        let again = packet.encode();
        ensure!(again == input, Law, "{packet:?} has two encodings");
    }
    let mut paths = Paths::new(0, 5);
    let other = SocketAddr::from(([10, 0, 0, 2], 7450));
    paths.meet(0, std::iter::once((other, NodeId(2))));
    paths.cut(0, other, &[7; 4170], |_, _, _| {});
    let (mut now, mut rest, mut around) = (1, input, Around(0));
    while let Some((label, behind)) = rest.split_first_chunk::<LABEL>() {
        let length = usize::from(u16::from_le_bytes(*label)).min(behind.len());
        let (packet, behind) = behind.split_at(length);
        rest = behind;
        now += 100_000;
        if let Came::Whole(message) = paths.came(now, other, PublicKey::NONE, packet) {
            let length = message.len();
            ensure!((2..=MAX_DATAGRAM).contains(&length), Law, "{length} bytes");
        }
        let outgoing = paths.take_outgoing().len();
        ensure!(
            outgoing <= ANSWERS,
            Law,
            "{outgoing} datagrams for one packet"
        );
        paths.act(now, &mut around);
        paths.take_outgoing();
        let size = paths.size(other);
        ensure!((1200..=1472).contains(&size), Law, "a way of {size} bytes");
    }
    Ok(())
}

/// One of each, and a message in pieces that come twice and backwards.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let nonce = 1;
    let (stream, number, pieces) = (5, 0, 0b101);
    let cut = Cut::new(100, 40).expect("it is more than one piece");
    let piece = |index: u8, bytes| {
        let piece = Piece {
            stream,
            number,
            cut,
            index,
            bytes,
        };
        Packet::Piece(piece).encode()
    };
    let message: Vec<u8> = (0..100).collect();
    let mut parts: Vec<_> = (0..).zip(message.chunks(cut.each())).collect();
    parts.reverse();
    let parts = parts.into_iter().map(|(index, bytes)| piece(index, bytes));
    let parts: Vec<Vec<u8>> = parts.collect();
    let alone = vec![
        Packet::Probe { nonce, length: 64 }.encode(),
        Packet::Confirm {
            nonce,
            length: 1200,
        }
        .encode(),
        Packet::Missing {
            stream,
            number,
            pieces,
        }
        .encode(),
        parts[0].clone(),
    ];
    let series = |packets: &[Vec<u8>]| {
        let labelled = packets.iter().map(|packet| {
            let label = (packet.len() as u16).to_le_bytes();
            [&label[..], packet].concat()
        });
        labelled.collect::<Vec<_>>().concat()
    };
    let twice = [&parts[..], &parts[..]].concat();
    let all = [&alone[..], &alone[..], &parts[1..]].concat();
    let two = vec![series(&twice), series(&all)];
    [alone, two].concat()
}
