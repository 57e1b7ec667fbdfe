//! Links that do not carry everything, in some seeds: the same code that cuts the
//! messages of real daemons, probes and repairs.

use crate::dice::Dice;
use crate::log::Mark;
use crate::world::{Happening, World};
use pagemesh_core::Time;
use pagemesh_path::{Came, Manner, Outgoing, Paths, Surroundings};
use pagemesh_seal::MAX_OVERHEAD;
use pagemesh_wire::peer::Health;
use pagemesh_wire::{NodeId, PublicKey};
use std::net::SocketAddr;

/// A host's state of its paths, in a seed with narrow links.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    known: Option<Known>,
}

#[derive(Debug)]
struct Known {
    paths: Paths,
    dice: Dice,
    /// Datagrams that leave this host in one packet.
    leaves: usize,
    /// The view of members it is from.
    epoch: Option<u64>,
    /// When it is looked at next.
    wakes: Option<Time>,
    sealed: bool,
}

/// Bytes of UDP payload that links carry, in seeds that have narrow ones: those of a
/// host's own link, and of some link farther on.
const CARRIED: [(usize, usize); 4] = [(1472, 1472), (8972, 1472), (1472, 1300), (8972, 8972)];

/// The packet lengths that links carry in this seed; none if they carry all.
pub(crate) fn carried(seed: u64) -> Option<(usize, usize)> {
    let mut dice = Dice::stream(seed, "narrow");
    dice.chance(250).then(|| *dice.pick(&CARRIED))
}

struct Around<'a>(&'a mut Dice, usize);

impl Surroundings for Around<'_> {
    fn nonce(&mut self) -> u64 {
        self.0.number()
    }

    fn link(&mut self, _: SocketAddr) -> usize {
        self.1
    }
}

impl Ways {
    /// Those of a host; nothing if links carry everything.
    pub(crate) fn new(leaves: Option<usize>, sealed: bool, seed: u64, host: usize) -> Self {
        let known = leaves.map(|leaves| {
            let mut dice = Dice::stream(seed, &format!("ways {host}"));
            Known::new(&mut dice, leaves, sealed)
        });
        Self { known }
    }

    /// Another daemon begins, which knows nothing of them.
    pub(crate) fn forget(&mut self) {
        if let Some(known) = &mut self.known {
            let (leaves, sealed) = (known.leaves, known.sealed);
            *known = Known::new(&mut known.dice, leaves, sealed);
        }
    }
}

impl Known {
    fn new(dice: &mut Dice, leaves: usize, sealed: bool) -> Self {
        let overhead = if sealed { MAX_OVERHEAD } else { 0 };
        Self {
            paths: Paths::new(overhead, dice.number() as u32),
            dice: dice.clone(),
            leaves,
            epoch: None,
            wakes: None,
            sealed,
        }
    }
}

impl World {
    /// Sends a datagram that the path does not carry in pieces; false if it goes whole.
    pub(crate) fn leaves_in_pieces(
        &mut self,
        at: usize,
        address: SocketAddr,
        whom: NodeId,
        bytes: &[u8],
    ) -> bool {
        let now = self.now.0;
        let Some(known) = &mut self.hosts[at].ways.known else {
            return false;
        };
        if known.paths.carries(|| now, address, bytes.len()) {
            return false;
        }
        let mut pieces = Vec::new();
        known
            .paths
            .cut(now, address, bytes, |head, bytes, padding| {
                pieces.push([&head[..], bytes, padding].concat());
            });
        self.stats.pieces += pieces.len() as u64;
        for piece in pieces {
            self.says(at, address, whom, piece);
        }
        self.wake_ways(at);
        true
    }

    /// The message from another host, if it is complete by now.
    pub(crate) fn joined(
        &mut self,
        at: usize,
        source: SocketAddr,
        key: PublicKey,
        bytes: &[u8],
    ) -> Option<Vec<u8>> {
        let now = self.now.0;
        let known = self.hosts[at].ways.known.as_mut()?;
        let whole = match known.paths.came(now, source, key, bytes) {
            Came::Whole(message) => Some(message.to_vec()),
            Came::Handled | Came::Refused => None,
        };
        self.post(at);
        whole
    }

    /// The ways of a host may have something to do.
    pub(crate) fn tend_ways(&mut self, at: usize) {
        let now = self.now.0;
        let up = self.hosts[at].life == crate::world::Life::Up;
        let Some(known) = &mut self.hosts[at].ways.known else {
            return;
        };
        known.wakes = None;
        if up {
            let mut around = Around(&mut known.dice, known.leaves);
            known.paths.act(now, &mut around);
            self.post(at);
        }
    }

    /// A host's ways lead to the members it knows.
    pub(crate) fn learn_ways(&mut self, at: usize) {
        let now = self.now.0;
        let host = &mut self.hosts[at];
        let (view, me) = (host.node.view(), host.address);
        let Some(known) = &mut host.ways.known else {
            return;
        };
        if known.epoch != Some(view.epoch) {
            known.epoch = Some(view.epoch);
            let members = view.members.iter();
            let others = members.filter(|member| member.health == Health::Alive);
            let others = others.filter(|member| member.address != me);
            known
                .paths
                .meet(now, others.map(|member| (member.address, member.id)));
        }
        self.wake_ways(at);
    }

    fn post(&mut self, at: usize) {
        let Some(known) = &mut self.hosts[at].ways.known else {
            return;
        };
        let overhead = if known.sealed { MAX_OVERHEAD } else { 0 };
        let leaves = known.leaves;
        for outgoing in known.paths.take_outgoing() {
            let Outgoing {
                to,
                node,
                bytes,
                manner,
            } = outgoing;
            let length = bytes.len();
            if manner == Manner::Uncut && length + overhead > leaves {
                if let Some(known) = &mut self.hosts[at].ways.known {
                    known.paths.too_long(self.now.0, to, length);
                }
                continue;
            }
            self.says(at, to, node, bytes);
        }
        self.wake_ways(at);
    }

    /// A packet of the ways themselves leaves.
    fn says(&mut self, at: usize, address: SocketAddr, whom: NodeId, bytes: Vec<u8>) {
        if self.hosts[at].guard.is_on() {
            // A host that is no member here asks again.
            if whom != NodeId::NONE || self.is_message_piece(&bytes) {
                self.seal(at, address, whom, &bytes);
            }
            return;
        }
        if let Some(to) = self.host_at(address) {
            let fate = self.network.fate(self.now, at, to, "piece");
            self.suffer(at, (to, address), "piece", bytes, fate);
        }
    }

    fn is_message_piece(&self, bytes: &[u8]) -> bool {
        let packet = pagemesh_path::Packet::decode(bytes);
        matches!(packet, Some(pagemesh_path::Packet::Piece(_)))
    }

    /// Whether a datagram is too long for some link on its way: then it is lost.
    pub(crate) fn is_too_long(&mut self, at: usize, to: usize, length: usize) -> bool {
        let lost = self.setting.carried.is_some_and(|(_, most)| length > most);
        if lost {
            self.stats.lost += 1;
            let facts = [to as u64, length as u64, 0];
            self.log.note(self.now, at, Mark::Lost, facts, || {
                format!("-> h{} {length} bytes", to + 1)
            });
        }
        lost
    }

    fn wake_ways(&mut self, at: usize) {
        let Some(known) = &mut self.hosts[at].ways.known else {
            return;
        };
        let Some(due) = known.paths.due() else { return };
        let due = Time(due.max(self.now.0 + 1));
        if known.wakes.is_none_or(|wakes| due < wakes) {
            known.wakes = Some(due);
            self.schedule(due, Happening::Ways(at));
        }
    }
}
