//! Multicast batches of a network: datagrams for several nodes.

use super::rest::Rest;
use super::{Got, LONGEST, Network};
use crate::counters::{Count, Counters};
use crate::multicast_batches::{Heard, MulticastBatches};
use crate::shared_messages::{SharedMessages, is_shared};
use pagemesh_os::udp::Burst;
use pagemesh_wire::multicast_batch::{self, MulticastBatch};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};

impl Network {
    /// Sends datagrams for several nodes to a group from now on.
    pub(crate) fn join(&mut self, multicast_batches: MulticastBatches) {
        let (me, longest) = (multicast_batches.me(), multicast_batches.group.longest());
        // Without it, everything comes alone.
        let _ = multicast_batches.group.coalesce();
        let sealed = self.sealing.is_some();
        self.shared = Some(SharedMessages::new(sealed, me, longest));
        self.multicast_batches = Some(multicast_batches);
    }

    /// The socket that receives multicast batches.
    pub(crate) fn group(&self) -> Option<BorrowedFd<'_>> {
        self.multicast_batches
            .as_ref()
            .map(|those| those.group.as_fd())
    }

    /// Handles an answer to a trial of multicast batches; false if it is another datagram.
    pub(super) fn is_answer(&mut self, room: &[u8], at: &Range<usize>, source: SocketAddr) -> bool {
        let in_room = self.receives_in_room();
        let Some(multicast_batches) = &mut self.multicast_batches else {
            return false;
        };
        let came = if in_room { room } else { &self.inbox };
        let bytes = &came[at.clone()];
        multicast_batch::is_multicast_batch(bytes) && multicast_batches.answered(source, bytes)
    }

    /// Receives the datagrams that have come from the group, and takes the first of them.
    pub(super) fn overhear(&mut self, room: &mut [u8], counters: &mut Counters) -> io::Result<Got> {
        let in_room = self.receives_in_room();
        let Some(multicast_batches) = &mut self.multicast_batches else {
            return Ok(self.back(room, counters));
        };
        let into = if in_room {
            &mut room[..LONGEST]
        } else {
            &mut *self.inbox
        };
        match multicast_batches.group.receive_burst(into) {
            Ok(Burst::Datagrams { length, each, from }) => {
                self.overheard = Rest::of(length.min(LONGEST), each, from);
            }
            Ok(Burst::Nothing) => return Ok(self.back(room, counters)),
            Ok(Burst::Noise) => return Ok(Got::Handled),
            Err(error) => {
                tracing::error!(%error, "the multicast group is lost: datagrams go to each node by itself");
                (self.multicast_batches, self.shared) = (None, None);
                return Ok(Got::Handled);
            }
        }
        self.overheard(room, counters)
    }

    /// The next of the datagrams that came from the group together.
    pub(super) fn overheard(
        &mut self,
        room: &mut [u8],
        counters: &mut Counters,
    ) -> io::Result<Got> {
        let in_room = self.receives_in_room();
        let next = self.overheard.take();
        let (Some((at, from)), Some(multicast_batches)) = (next, &mut self.multicast_batches)
        else {
            return Ok(Got::Handled);
        };
        let into = if in_room { &*room } else { &*self.inbox };
        if is_shared(&into[at.clone()]) && from != multicast_batches.me() {
            return Ok(self.overhear_shared(room, at, from, counters));
        }
        match multicast_batches.came(from, into, at) {
            Heard::Mine => {
                counters.add(Count::MulticastBatchesIn, 1);
                return self.receive(room, counters);
            }
            Heard::Trial(number) => {
                let heard = MulticastBatch::Heard { number }.encode();
                self.egress.give(from, &heard, false, counters);
            }
            Heard::Others => {}
            Heard::Refused => counters.add(Count::MulticastBatchesRefused, 1),
        }
        Ok(Got::Handled)
    }

    /// A shared datagram came from the group.
    fn overhear_shared(
        &mut self,
        room: &mut [u8],
        at: Range<usize>,
        from: SocketAddr,
        counters: &mut Counters,
    ) -> Got {
        let key = if self.receives_in_room() {
            self.share_came(from, &room[at], counters)
        } else {
            let inbox = std::mem::take(&mut self.inbox);
            let key = self.share_came(from, &inbox[at], counters);
            self.inbox = inbox;
            key
        };
        match key {
            Some(key) => self.shared_whole(room, (from, key), counters),
            None => Got::Handled,
        }
    }

    /// Sets whether the datagrams sent now are resends.
    pub(crate) fn repeats(&mut self, again: bool) {
        if let Some(multicast_batches) = &mut self.multicast_batches {
            multicast_batches.repeats(again);
        }
    }

    /// Sends the datagrams that wait for others to other nodes.
    pub(crate) fn circulate(&mut self, counters: &mut Counters) {
        let Some(multicast_batches) = &mut self.multicast_batches else {
            return;
        };
        if !multicast_batches.has_outgoing() {
            return;
        }
        multicast_batches.leave(|to, bytes, parts| {
            self.egress.give(to, bytes, false, counters);
            counters.add(Count::MulticastBatchesOut, u64::from(parts > 0));
            counters.add(Count::MulticastBatchParts, parts as u64);
        });
    }

    /// Measures the multicast reach now and then.
    pub(super) fn try_group(&mut self, now: u64, counters: &mut Counters) {
        let Some(multicast_batches) = &mut self.multicast_batches else {
            return;
        };
        let Some((trial, before)) = multicast_batches.trial(now) else {
            return;
        };
        let missed = before.map_or(0, |verdict| verdict.missed);
        counters.add(Count::MulticastBatchesUnheard, missed as u64);
        let group = multicast_batches.group.address();
        self.egress.give(group, &trial, false, counters);
    }
}
