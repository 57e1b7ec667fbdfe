//! Received datagrams: opened, unpacked, assembled from pieces.

use super::Network;
use super::rest::Rest;
use crate::counters::{Count, Counters};
use crate::experiment::Edge;
use crate::packing::Unpacked;
use pagemesh_os::udp::Burst;
use pagemesh_wire::header;
use pagemesh_wire::multicast_batch;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::{NodeId, PublicKey};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;

/// The result of receiving.
#[derive(Debug)]
pub(crate) enum Got {
    /// A datagram: where its bytes are, where it came from, and whose seal it bore.
    Datagram(Range<usize>, SocketAddr, PublicKey),
    /// A datagram that is not for the node.
    Handled,
    /// Nothing.
    Nothing,
}

/// Longer datagrams do not exist, nor do bursts.
pub(crate) const LONGEST: usize = 1 << 16;

impl Network {
    /// Receives one datagram into `room`, without its seal. Datagrams that came together with it
    /// stay there until their turn: no other code may change `room`, which has twice [`LONGEST`]
    /// bytes.
    pub(crate) fn receive(&mut self, room: &mut [u8], counters: &mut Counters) -> io::Result<Got> {
        let multicast_batches = self.multicast_batches.as_mut();
        let next = self.rest.take();
        let Some((at, source)) = next.or_else(|| multicast_batches?.take()) else {
            if !self.overheard.is_over() {
                return self.overheard(room, counters);
            }
            return self.fetch(room, counters);
        };
        counters.add(Count::DatagramsIn, 1);
        counters.add(Count::BytesIn, at.len() as u64);
        if self.is_answer(room, &at, source) {
            return Ok(Got::Handled);
        }
        let (came, whole) = room.split_at_mut(LONGEST);
        if self.receives_in_room() {
            let bytes = &came[at.clone()];
            self.notice_seal(source, bytes, counters);
            if pagemesh_path::is_packet(bytes) {
                let complete = self.packet(source, PublicKey::NONE, bytes, counters);
                return Ok(self.joined(complete, whole, source, PublicKey::NONE, counters));
            }
            if header::form(bytes) <= Notice::MARK {
                return Ok(Got::Datagram(at, source, PublicKey::NONE));
            }
            whole[..at.len()].copy_from_slice(bytes);
            return Ok(self.unpacked((whole, at.len()), source, PublicKey::NONE, counters));
        }
        let inbox = std::mem::take(&mut self.inbox);
        let got = match &mut self.edge {
            None => self.opened(source, &inbox[at], whole, counters),
            Some(edge) => {
                let came = edge.came(source, &inbox[at]);
                self.post(counters);
                came.map_or(Got::Handled, |bytes| {
                    self.opened(source, &bytes, whole, counters)
                })
            }
        };
        self.inbox = inbox;
        Ok(got)
    }

    /// True if datagrams can be read where they were received.
    pub(super) fn receives_in_room(&self) -> bool {
        self.sealing.is_none() && self.edge.is_none()
    }

    /// A datagram without its seal, and whole, in the second half of the room.
    fn opened(
        &mut self,
        source: SocketAddr,
        datagram: &[u8],
        clear: &mut [u8],
        counters: &mut Counters,
    ) -> Got {
        let Some(sealing) = &mut self.sealing else {
            let length = datagram.len().min(clear.len());
            clear[..length].copy_from_slice(&datagram[..length]);
            self.notice_seal(source, &clear[..length], counters);
            let clear = (clear, length);
            return self.unpacked(clear, source, PublicKey::NONE, counters);
        };
        let opened = sealing.open(source, datagram, clear, counters);
        self.flush(counters);
        opened.map_or(Got::Handled, |opened| {
            self.unpacked((clear, opened.length), source, opened.key, counters)
        })
    }

    /// Takes a datagram back from the thread it was handed to, in an experiment.
    pub(super) fn back(&mut self, room: &mut [u8], counters: &mut Counters) -> Got {
        let Some((source, whole)) = self.edge.as_mut().and_then(Edge::back) else {
            return Got::Nothing;
        };
        self.post(counters);
        whole.map_or(Got::Handled, |bytes| {
            self.opened(source, &bytes, &mut room[LONGEST..], counters)
        })
    }

    /// The datagram in the second half of the room, unpacked if it came packed.
    fn unpacked(
        &mut self,
        (clear, length): (&mut [u8], usize),
        source: SocketAddr,
        key: PublicKey,
        counters: &mut Counters,
    ) -> Got {
        let at = |length| LONGEST..LONGEST + length;
        if pagemesh_path::is_packet(&clear[..length]) {
            let complete = self.packet(source, key, &clear[..length], counters);
            return self.joined(complete, clear, source, key, counters);
        }
        if multicast_batch::is_multicast_batch(&clear[..length])
            && self.is_about_keys((source, key), &clear[..length], counters)
        {
            return Got::Handled;
        }
        if header::form(&clear[..length]) <= Notice::MARK {
            return Got::Datagram(at(length), source, key);
        }
        match self.packing.unpack(source, clear, length, counters) {
            Unpacked::Whole(length) => Got::Datagram(at(length), source, key),
            Unpacked::Handled => Got::Handled,
            Unpacked::Answer(bytes) => {
                let to = NodeId(u16::from_le_bytes([bytes[6], bytes[7]]));
                self.seal((source, to), &bytes, counters);
                Got::Handled
            }
        }
    }

    /// A message that came in pieces, if it is `complete`.
    fn joined(
        &mut self,
        complete: bool,
        clear: &mut [u8],
        source: SocketAddr,
        key: PublicKey,
        counters: &mut Counters,
    ) -> Got {
        if !complete {
            return Got::Handled;
        }
        let message = self.whole();
        let length = message.len();
        clear[..length].copy_from_slice(message);
        self.unpacked((clear, length), source, key, counters)
    }

    /// Receives the datagrams that have come, and takes the first of them.
    fn fetch(&mut self, room: &mut [u8], counters: &mut Counters) -> io::Result<Got> {
        let into = if self.receives_in_room() {
            &mut room[..LONGEST]
        } else {
            &mut *self.inbox
        };
        match self.egress.udp.receive_burst(into)? {
            Burst::Noise => {
                counters.add(Count::NetworkNoise, 1);
                Ok(Got::Handled)
            }
            Burst::Nothing => self.overhear(room, counters),
            Burst::Datagrams { length, each, from } => {
                self.rest = Rest::of(length.min(LONGEST), each, from);
                self.receive(room, counters)
            }
        }
    }

    /// Logs once that this daemon cannot read sealed datagrams of others.
    fn notice_seal(&mut self, source: SocketAddr, bytes: &[u8], counters: &mut Counters) {
        if !pagemesh_seal::is_sealed(bytes) {
            return;
        }
        counters.add(Count::SealMissing, 1);
        if !self.keyless {
            self.keyless = true;
            tracing::error!(
                %source,
                "datagrams of this cluster are sealed, and this daemon has no key: start it with \
                 --key FILE or --join-token FILE",
            );
        }
    }
}
