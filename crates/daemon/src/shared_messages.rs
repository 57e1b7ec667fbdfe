//! Messages that several nodes get at once through the multicast group: cut on their way out, put
//! together on their way in, sealed by a key of their sender if this daemon seals. No sockets here.
//!
//! Pieces that get lost are not sent again: the protocol above asks for the pages that it lacks.

use pagemesh_seal::{MAX_OVERHEAD, Refused, SharedOpener, SharedSealer, SystemDice, is_sealed};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::multicast_batch::{self, HEAD, MulticastBatch, SharedPiece};
use pagemesh_wire::peer::{Health, MemberView};
use pagemesh_wire::{NodeId, NodeSet, PublicKey};
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

/// Unfinished messages of one sender that are kept: more than leave by one call.
const KEPT: usize = 64;

/// A sender is asked for its key once in so many nanoseconds: 20 ms.
const ASK_EVERY: u64 = 20_000_000;

/// What members share with each other.
#[derive(Debug)]
pub(crate) struct SharedMessages {
    /// This node, and where it is.
    id: NodeId,
    me: SocketAddr,
    /// Of the view of members this is from.
    epoch: Option<u64>,
    members: SortedMap<SocketAddr, (NodeId, PublicKey)>,
    /// Bytes of a datagram to the group at most.
    longest: usize,
    /// The number of the next message.
    number: u32,
    keys: Option<Keys>,
    arriving: SortedMap<SocketAddr, VecDeque<Arriving>>,
    /// The message that became whole last.
    whole: Vec<u8>,
    /// Reused for all that is sealed and opened.
    draft: Vec<u8>,
}

/// The keys of a daemon that seals.
#[derive(Debug)]
struct Keys {
    sealer: SharedSealer,
    /// The members that were told the sealer's key.
    told: BTreeSet<PublicKey>,
    opener: SharedOpener,
    /// When senders were asked for their keys.
    asked: SortedMap<SocketAddr, u64>,
}

/// A message of which pieces have come.
#[derive(Debug)]
struct Arriving {
    number: u32,
    total: u16,
    count: u8,
    have: u16,
    bytes: Vec<u8>,
}

/// The kind of a datagram that came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SharedCame {
    /// The last piece of a message of a member with this key: [`SharedMessages::whole`] has it.
    Whole(PublicKey),
    /// For others, or a piece of a message that is not whole yet.
    Handled,
    /// From no member, or nothing that is ever shared.
    Refused,
    /// The seal was refused.
    Sealed(Refused),
    /// Its key is not known here: this is for its sender.
    Ask(NodeId, Vec<u8>),
}

impl Keys {
    fn new() -> Self {
        Self {
            sealer: SharedSealer::new(&SystemDice::default()),
            told: BTreeSet::new(),
            opener: SharedOpener::default(),
            asked: SortedMap::new(),
        }
    }

    /// Another key, which no member knows yet.
    fn renew(&mut self) {
        self.sealer = SharedSealer::new(&SystemDice::default());
        self.told.clear();
    }

    fn told_by(&self) -> Vec<u8> {
        let (number, next) = (self.sealer.number(), self.sealer.next());
        let key = self.sealer.key();
        MulticastBatch::Key { number, next, key }.encode()
    }
}

impl SharedMessages {
    /// The daemon at `me` knows no other yet.
    pub(crate) fn new(sealed: bool, me: SocketAddr, longest: usize) -> Self {
        Self {
            id: NodeId::NONE,
            me,
            epoch: None,
            members: SortedMap::new(),
            longest,
            number: 0,
            keys: sealed.then(Keys::new),
            arriving: SortedMap::new(),
            whole: Vec::new(),
            draft: Vec::new(),
        }
    }

    /// Learns who the members are. A host that is none any more does not learn what is shared from
    /// now on, and can forge nothing.
    pub(crate) fn meet(&mut self, view: &MemberView) {
        if self.epoch.replace(view.epoch) == Some(view.epoch) {
            return;
        }
        let members = view.members.iter();
        let alive = members.filter(|member| member.health == Health::Alive);
        let all = alive.map(|member| (member.address, (member.id, member.key)));
        self.members = all.collect();
        let here = self.members.remove(&self.me);
        self.id = here.map_or(NodeId::NONE, |(id, _)| id);
        let members = &self.members;
        self.arriving.retain(|from, _| members.contains_key(from));
        if let Some(keys) = &mut self.keys {
            let known: BTreeSet<_> = members.values().map(|(_, key)| *key).collect();
            keys.opener.keep(|key| known.contains(key));
            keys.asked.retain(|from, _| members.contains_key(from));
            if !keys.told.is_subset(&known) {
                keys.renew();
            }
        }
    }

    /// What has to be told to some of these nodes, each by itself, before something is shared with
    /// all of them.
    pub(crate) fn tell(
        &mut self,
        to: &[(SocketAddr, NodeId)],
    ) -> Vec<(SocketAddr, NodeId, Vec<u8>)> {
        let Some(keys) = &mut self.keys else {
            return Vec::new();
        };
        if keys.sealer.is_worn() {
            keys.renew();
        }
        let mut told = Vec::new();
        for (address, node) in to {
            let Some((_, key)) = self.members.get(address) else {
                continue;
            };
            if keys.told.insert(*key) {
                told.push((*address, *node, keys.told_by()));
            }
        }
        told
    }

    /// Cuts a message for these nodes; `send` gets the datagrams. False if it is too long.
    pub(crate) fn cut(
        &mut self,
        nodes: NodeSet,
        message: &[u8],
        mut send: impl FnMut(&[u8]),
    ) -> bool {
        let overhead = match &self.keys {
            Some(_) => HEAD + MAX_OVERHEAD,
            None => HEAD,
        };
        self.number = self.number.wrapping_add(1);
        let longest = self.longest.saturating_sub(overhead);
        let mut cut = false;
        for piece in SharedPiece::cut((nodes, self.number), message, longest) {
            let bytes = MulticastBatch::Shared(piece).encode();
            match &mut self.keys {
                None => send(&bytes),
                Some(keys) => {
                    self.draft.clear();
                    keys.sealer.seal(&bytes, &mut self.draft);
                    send(&self.draft);
                }
            }
            cut = true;
        }
        cut
    }

    /// A datagram from the group, of a member or not.
    pub(crate) fn came(&mut self, now: u64, from: SocketAddr, datagram: &[u8]) -> SharedCame {
        let Some((node, key)) = self.members.get(&from).copied() else {
            return SharedCame::Refused;
        };
        let mut clear = std::mem::take(&mut self.draft);
        let came = match &mut self.keys {
            None => self.piece(from, PublicKey::NONE, datagram),
            Some(keys) => {
                clear.resize(datagram.len().max(clear.len()), 0);
                match keys.opener.open(key, datagram, &mut clear) {
                    Ok(length) => self.piece(from, key, &clear[..length]),
                    Err(Refused::Unknown) => keys.ask(now, (from, node), datagram),
                    Err(why) => SharedCame::Sealed(why),
                }
            }
        };
        self.draft = clear;
        came
    }

    fn piece(&mut self, from: SocketAddr, key: PublicKey, clear: &[u8]) -> SharedCame {
        let Some(MulticastBatch::Shared(piece)) = MulticastBatch::decode(clear) else {
            return SharedCame::Refused;
        };
        if !piece.nodes.contains(self.id) {
            return SharedCame::Handled;
        }
        let arriving = self.arriving.entry(from).or_default();
        let known = arriving
            .iter()
            .position(|known| known.number == piece.number);
        let place = known.unwrap_or_else(|| {
            arriving.truncate(KEPT - 1);
            arriving.push_front(Arriving::new(&piece));
            0
        });
        match arriving[place].add(&piece) {
            None => SharedCame::Refused,
            Some(false) => SharedCame::Handled,
            Some(true) => {
                let whole = arriving.remove(place);
                self.whole = whole.map_or_else(Vec::new, |whole| whole.bytes);
                SharedCame::Whole(key)
            }
        }
    }

    /// This node.
    pub(crate) fn id(&self) -> NodeId {
        self.id
    }

    /// The message that came whole last.
    pub(crate) fn whole(&self) -> &[u8] {
        &self.whole
    }

    /// A member says something about keys, through its session with this one: `key` is its own, and
    /// none if this daemon does not seal. Returns the answer, if there is one. `None` if it says
    /// nothing of the kind.
    pub(crate) fn told(
        &mut self,
        key: PublicKey,
        bytes: &[u8],
    ) -> Option<Option<(NodeId, Vec<u8>)>> {
        let keys = self.keys.as_mut().filter(|_| key != PublicKey::NONE)?;
        let (node, _) = *self.members.values().find(|(_, member)| *member == key)?;
        match MulticastBatch::decode(bytes)? {
            MulticastBatch::Key {
                number,
                next,
                key: told,
            } => {
                keys.opener.learn(key, (number, next), told);
                Some(None)
            }
            MulticastBatch::KeyWanted { .. } => {
                keys.told.insert(key);
                Some(Some((node, keys.told_by())))
            }
            _ => None,
        }
    }
}

impl Keys {
    /// A datagram under a key that its sender has not told, or has told in vain.
    fn ask(&mut self, now: u64, (from, node): (SocketAddr, NodeId), datagram: &[u8]) -> SharedCame {
        let Some(number) = SharedOpener::number(datagram) else {
            return SharedCame::Sealed(Refused::Malformed);
        };
        let lately = |asked: &u64| now.saturating_sub(*asked) < ASK_EVERY;
        if self.asked.get(&from).is_some_and(lately) {
            return SharedCame::Sealed(Refused::Unknown);
        }
        self.asked.insert(from, now);
        SharedCame::Ask(node, MulticastBatch::KeyWanted { number }.encode())
    }
}

/// Whether a datagram from the group is, or pretends to be, a shared one.
pub(crate) fn is_shared(datagram: &[u8]) -> bool {
    is_sealed(datagram) || multicast_batch::is_shared(datagram)
}

impl Arriving {
    fn new(piece: &SharedPiece<'_>) -> Self {
        Self {
            number: piece.number,
            total: piece.total,
            count: piece.count,
            have: 0,
            bytes: vec![0; usize::from(piece.total)],
        }
    }

    /// Adds a piece; whether the message is whole now. `None` if it contradicts the pieces before.
    fn add(&mut self, piece: &SharedPiece<'_>) -> Option<bool> {
        if (piece.total, piece.count) != (self.total, self.count) {
            return None;
        }
        let at = usize::from(piece.index) * piece.each();
        let place = &mut self.bytes[at..at + piece.bytes.len()];
        let bit = 1 << piece.index;
        if self.have & bit != 0 {
            return (place == piece.bytes).then_some(false);
        }
        place.copy_from_slice(piece.bytes);
        self.have |= bit;
        Some(self.have.count_ones() == u32::from(self.count))
    }
}

#[cfg(test)]
mod tests;
