//! What of a network concerns circulars: datagrams for several nodes.

use super::{Got, LONGEST, Network, give};
use crate::circulars::{Circulars, Heard};
use crate::tally::{Count, Tally};
use pagemesh_os::udp::Received;
use pagemesh_wire::circular::{self, Circular};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};

impl Network {
    /// Has what goes to several nodes at once go to a group from now on.
    pub(crate) fn join(&mut self, circulars: Circulars) {
        self.circulars = Some(circulars);
    }

    /// Where what is for several nodes comes in.
    pub(crate) fn group(&self) -> Option<BorrowedFd<'_>> {
        self.circulars.as_ref().map(|those| those.group.as_fd())
    }

    /// Takes what answers a trial of circulars; false if it is something else.
    pub(super) fn is_answer(&mut self, room: &[u8], at: &Range<usize>, source: SocketAddr) -> bool {
        let in_room = self.receives_in_room();
        let Some(circulars) = &mut self.circulars else {
            return false;
        };
        let came = if in_room { room } else { &self.inbox };
        let bytes = &came[at.clone()];
        circular::is_circular(bytes) && circulars.answered(source, bytes)
    }

    /// Looks for what has come from the group, and takes the first of it that is for
    /// this node.
    pub(super) fn overhear(&mut self, room: &mut [u8], tally: &mut Tally) -> io::Result<Got> {
        let in_room = self.receives_in_room();
        let Some(circulars) = &mut self.circulars else {
            return Ok(self.back(room, tally));
        };
        let into = if in_room {
            &mut room[..LONGEST]
        } else {
            &mut *self.inbox
        };
        let (length, from) = match circulars.group.receive(into) {
            Ok(Received::Datagram(length, from)) => (length, from),
            Ok(Received::Nothing) => return Ok(self.back(room, tally)),
            Ok(Received::Noise) => return Ok(Got::Handled),
            Err(error) => {
                tracing::error!(%error, "the multicast group is lost: datagrams go to each node by itself");
                self.circulars = None;
                return Ok(Got::Handled);
            }
        };
        match circulars.came(from, &into[..length]) {
            Heard::Mine => {
                tally.add(Count::CircularsIn, 1);
                return self.receive(room, tally);
            }
            Heard::Trial(number) => {
                let heard = Circular::Heard { number }.encode();
                self.give(from, &heard, tally);
            }
            Heard::Others => {}
            Heard::Refused => tally.add(Count::CircularsRefused, 1),
        }
        Ok(Got::Handled)
    }

    /// Whether what is sent now was said before and was not heard.
    pub(crate) fn repeats(&mut self, again: bool) {
        if let Some(circulars) = &mut self.circulars {
            circulars.repeats(again);
        }
    }

    /// Lets go what waits for others that go to other nodes.
    pub(crate) fn circulate(&mut self, tally: &mut Tally) {
        let Some(circulars) = &mut self.circulars else {
            return;
        };
        if !circulars.has_letters() {
            return;
        }
        let (udp, impairer, outbox) = (&self.udp, &mut self.impairer, &mut self.outbox);
        circulars.leave(|to, bytes, parts| {
            give(udp, impairer, (&mut *outbox, false), to, bytes, tally);
            tally.add(Count::CircularsOut, u64::from(parts > 0));
            tally.add(Count::CircularParts, parts as u64);
        });
    }

    /// Finds out now and then whom circulars reach.
    pub(super) fn try_group(&mut self, now: u64, tally: &mut Tally) {
        let Some(circulars) = &mut self.circulars else {
            return;
        };
        let Some((trial, before)) = circulars.trial(now) else {
            return;
        };
        let missed = before.map_or(0, |verdict| verdict.missed);
        tally.add(Count::CircularsUnheard, missed as u64);
        let group = circulars.group.address();
        self.give(group, &trial, tally);
    }
}
