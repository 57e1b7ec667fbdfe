//! Pieces and paths of a network: datagrams that do not fit the path leave in pieces, and datagrams
//! that came in pieces are assembled.

use super::Network;
use crate::counters::{Count, Counters};
use pagemesh_os::clock;
use pagemesh_os::udp::{Udp, too_long};
use pagemesh_path::{Came, Counts, Known, Manner, Paths, Surroundings};
use pagemesh_wire::peer::{Health, MemberView};
use pagemesh_wire::{NodeId, PublicKey};
use rand::TryRng as _;
use std::net::SocketAddr;

/// The ways to others.
#[derive(Debug)]
pub(crate) struct Ways {
    paths: Paths,
    /// Where others find this daemon.
    me: SocketAddr,
    /// Of the view of members this is from.
    epoch: Option<u64>,
}

impl Ways {
    /// The daemon at `me` knows no other yet.
    pub(crate) fn new(sealed: bool, me: SocketAddr) -> Self {
        let overhead = if sealed {
            pagemesh_seal::MAX_OVERHEAD
        } else {
            0
        };
        Self {
            paths: Paths::new(overhead, dice() as u32),
            me,
            epoch: None,
        }
    }

    pub(super) fn meet(&mut self, view: &MemberView) {
        if self.epoch == Some(view.epoch) {
            return;
        }
        self.epoch = Some(view.epoch);
        let members = view.members.iter();
        let alive = members.filter(|member| member.health == Health::Alive);
        let others = alive.filter(|member| member.address != self.me);
        let others = others.map(|member| (member.address, member.id));
        self.paths.meet(clock::monotonic(), others);
    }

    pub(super) fn due(&self) -> Option<u64> {
        self.paths.due()
    }

    /// Whether the guard's own datagram arrives as it is. A probe that waited for a session
    /// would leave in several packets now, and seem to arrive.
    pub(super) fn lets_out(&self, to: SocketAddr, length: usize) -> bool {
        length <= self.paths.size(to)
    }
}

/// The services of this host that the paths need.
struct Here<'a>(&'a Udp);

impl Surroundings for Here<'_> {
    fn nonce(&mut self) -> u64 {
        dice()
    }

    fn link(&mut self, to: SocketAddr) -> usize {
        self.0.link(to).unwrap_or(pagemesh_path::BASE)
    }
}

/// A kernel without randomness would not have let this daemon start.
fn dice() -> u64 {
    let drawn = rand::rngs::SysRng.try_next_u64();
    drawn.unwrap_or_else(|_| clock::monotonic())
}

impl Network {
    /// Whether a datagram of this many bytes leaves as one.
    pub(super) fn goes_whole(&mut self, to: SocketAddr, length: usize) -> bool {
        let ways = self.ways.as_mut();
        ways.is_none_or(|ways| ways.paths.carries(clock::monotonic, to, length))
    }

    /// Sends a datagram in pieces, each sealed by itself if this daemon has a key.
    pub(super) fn send_pieces(
        &mut self,
        (to, node): (SocketAddr, NodeId),
        datagram: &[u8],
        counters: &mut Counters,
    ) {
        let Some(ways) = &mut self.ways else { return };
        let (egress, sealing) = (&mut self.egress, &mut self.sealing);
        let now = clock::monotonic();
        let done = ways.paths.cut(now, to, datagram, |head, bytes, padding| {
            let parts = [&head[..], bytes, padding];
            if let Some(sealing) = sealing {
                let sealed = sealing.seal(to, node, &parts);
                if let Some(sealed) = sealed {
                    egress.give(to, sealed, true, counters);
                }
            } else if egress.is_impaired() {
                egress.give(to, &parts.concat(), true, counters);
            } else {
                egress.join(to, &parts, counters);
            }
        });
        if !done {
            counters.add(Count::DatagramsFailed, 1);
            tracing::debug!(%to, length = datagram.len(), "too long for any way");
        }
        self.flush(counters);
    }

    /// A packet about the way to its sender came. Whether that makes a message whole:
    /// [`Network::whole`] has it.
    pub(super) fn packet(
        &mut self,
        source: SocketAddr,
        key: PublicKey,
        packet: &[u8],
        counters: &mut Counters,
    ) -> bool {
        let Some(ways) = &mut self.ways else {
            return false;
        };
        let came = ways.paths.came(clock::monotonic(), source, key, packet);
        let whole = match came {
            // There are no pieces of pieces.
            Came::Whole(message) => !pagemesh_path::is_packet(message),
            Came::Handled | Came::Refused => false,
        };
        self.post_outgoing(counters);
        whole
    }

    /// The message that came whole last.
    pub(super) fn whole(&self) -> &[u8] {
        self.ways.as_ref().map_or(&[], |ways| ways.paths.whole())
    }

    /// Sends the probes that are due, and requests for missing pieces.
    pub(super) fn try_ways(&mut self, now: u64, counters: &mut Counters) {
        let Some(ways) = &mut self.ways else { return };
        if ways.due().is_some_and(|due| due <= now) {
            ways.paths.act(now, &mut Here(&self.egress.udp));
            self.post_outgoing(counters);
        }
    }

    /// Sends the packets of the paths themselves.
    fn post_outgoing(&mut self, counters: &mut Counters) {
        let Some(ways) = &mut self.ways else { return };
        if !ways.paths.has_outgoing() {
            return;
        }
        for outgoing in ways.paths.take_outgoing() {
            let (to, node) = (outgoing.to, outgoing.node);
            let bytes = match &mut self.sealing {
                None => &outgoing.bytes[..],
                // A host that is no member here may know this node as one: it asks again.
                Some(_) if node == NodeId::NONE => continue,
                Some(sealing) => match sealing.seal(to, node, &[&outgoing.bytes]) {
                    Some(sealed) => &sealed[..],
                    None => continue,
                },
            };
            if outgoing.manner == Manner::Usual || self.egress.is_impaired() {
                self.egress.give(to, bytes, false, counters);
                continue;
            }
            match self.egress.udp.send_uncut(to, bytes) {
                Ok(()) => {
                    counters.add(Count::DatagramsOut, 1);
                    counters.add(Count::BytesOut, bytes.len() as u64);
                }
                Err(error) if too_long(&error) => {
                    let length = outgoing.bytes.len();
                    ways.paths.too_long(clock::monotonic(), to, length);
                }
                Err(_) => counters.add(Count::DatagramsFailed, 1),
            }
        }
        self.flush(counters);
    }

    /// The state of the paths to members; none in an experiment.
    pub(crate) fn ways(&self) -> Vec<Known> {
        let ways = self.ways.as_ref();
        ways.map_or_else(Vec::new, |ways| ways.paths.known().collect())
    }

    /// Adds new counts to the counters.
    pub(crate) fn settle(&mut self, counters: &mut Counters) {
        let Some(ways) = &mut self.ways else { return };
        let Counts {
            probes,
            shrunk,
            cut,
            joined,
            asked,
            repaired,
            given_up,
            late,
            refused,
        } = ways.paths.take_counts();
        counters.add(Count::PathProbes, probes);
        counters.add(Count::PathsShrunk, shrunk);
        counters.add(Count::MessagesCut, cut);
        counters.add(Count::MessagesJoined, joined);
        counters.add(Count::PiecesAsked, asked);
        counters.add(Count::PiecesRepaired, repaired);
        counters.add(Count::MessagesGivenUp, given_up);
        counters.add(Count::PiecesLate, late);
        counters.add(Count::PiecesRefused, refused);
    }
}
