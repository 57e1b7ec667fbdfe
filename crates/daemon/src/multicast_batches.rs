//! Small datagrams that leave for several nodes at one moment go as one datagram to a multicast
//! group (M18, MB4), between seal and socket: the protocol above does not see it, and resends lost
//! datagrams to each node by itself.

use crate::multicast_reach::{MulticastReach, Verdict};
use pagemesh_os::udp::Group;
use pagemesh_wire::multicast_batch::{self, HEAD, LABEL, MulticastBatch};
use pagemesh_wire::peer::{Health, MemberView};
use pagemesh_wire::{NodeId, NodeSet};
use rand::TryRng as _;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;

/// The multicast batches sent to a group and received from it.
#[derive(Debug)]
pub(crate) struct MulticastBatches {
    /// Where all daemons listen.
    pub(crate) group: Group,
    outgoing: Outgoing,
    came: Came,
    /// No member answers trials: it was logged.
    warned: bool,
}

/// The datagrams about to leave, and the multicast reach. No sockets here.
#[derive(Debug)]
struct Outgoing {
    /// Where this daemon is, and as which node.
    me: SocketAddr,
    id: NodeId,
    /// Of the view of members this is from.
    epoch: Option<u64>,
    multicast_reach: MulticastReach,
    /// Bytes of a multicast batch at most.
    longest: usize,
    /// The datagrams sent now are resends.
    again: bool,
    /// Datagrams, one behind the other: the receiver of each, and where it ends.
    bytes: Vec<u8>,
    parts: Vec<(SocketAddr, NodeId, usize)>,
    /// Reused for everything sent.
    draft: Vec<u8>,
}

/// Parts of the multicast batch received last that wait for their turn.
#[derive(Debug, Default)]
struct Came {
    from: Option<SocketAddr>,
    parts: VecDeque<Range<usize>>,
}

/// The kind of a datagram received from the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Datagrams for this node: [`MulticastBatches::take`] has them.
    Mine,
    /// A trial, to be answered.
    Trial(u64),
    /// Parts for others, or this daemon's own batch.
    Others,
    /// From no member, or nothing that is ever said.
    Refused,
}

/// Longer datagrams go alone: few of them would find room together.
const SMALL: usize = 512;

/// A multicast batch rouses every daemon that listens. If fewer than one of so many is meant,
/// that costs the others more than it saves.
const MEANT: usize = 2;

/// Bytes that wait at most.
const ROOM: usize = 1 << 16;

impl MulticastBatches {
    /// None have been sent yet by the daemon at `me`.
    pub(crate) fn new(group: Group, me: SocketAddr) -> Self {
        Self {
            outgoing: Outgoing::new(me, group.longest()),
            group,
            came: Came::default(),
            warned: false,
        }
    }

    /// Where this daemon is.
    pub(crate) fn me(&self) -> SocketAddr {
        self.outgoing.me
    }

    /// Learns who the members are.
    pub(crate) fn meet(&mut self, view: &MemberView) {
        self.outgoing.meet(view);
    }

    /// Whether multicast reaches this member.
    pub(crate) fn reaches(&self, member: SocketAddr) -> bool {
        self.outgoing.multicast_reach.reaches(member)
    }

    /// Whether a datagram for so many nodes at once costs less than one for each.
    pub(crate) fn is_worth(&self, nodes: usize) -> bool {
        nodes > 1 && self.outgoing.is_worth(nodes)
    }

    /// Sets whether the datagrams sent now are resends, which go to each node by itself.
    pub(crate) fn repeats(&mut self, again: bool) {
        self.outgoing.again = again;
    }

    /// Keeps a datagram for [`MulticastBatches::leave`]; false if it has to go by itself.
    pub(crate) fn takes(&mut self, to: SocketAddr, node: NodeId, datagram: &[u8]) -> bool {
        self.outgoing.takes(to, node, datagram)
    }

    /// Whether anything waits.
    pub(crate) fn has_outgoing(&self) -> bool {
        !self.outgoing.parts.is_empty()
    }

    /// Sends all waiting datagrams: `send` gets the address, the bytes, and the number of datagrams
    /// in the multicast batch; zero for a datagram that goes by itself.
    pub(crate) fn leave(&mut self, send: impl FnMut(SocketAddr, &[u8], usize)) {
        self.outgoing.leave(self.group.address(), send);
    }

    /// When a trial is due.
    pub(crate) fn due(&self) -> Option<u64> {
        self.outgoing.multicast_reach.due()
    }

    /// A trial that is due at `now`, for the group, and how the one before it ended.
    pub(crate) fn trial(&mut self, now: u64) -> Option<(Vec<u8>, Option<Verdict>)> {
        self.due().filter(|due| *due <= now)?;
        // A kernel without randomness would not have let this daemon start.
        let number = rand::rngs::SysRng.try_next_u64().unwrap_or(now);
        let verdict = self.outgoing.multicast_reach.begin(now, number);
        if verdict.is_some_and(|verdict| verdict.heard == 0) && !self.warned {
            self.warned = true;
            tracing::warn!(
                group = %self.group.address(),
                "no other node hears what is sent to the multicast group: datagrams go to each \
                 node by itself; see that all daemons have the same --multicast, and that the \
                 network carries multicast between them",
            );
        }
        let length = self.outgoing.longest;
        Some((MulticastBatch::Trial { number, length }.encode(), verdict))
    }

    /// Handles a datagram from the group, which lies at `at` in `room`.
    pub(crate) fn came(&mut self, from: SocketAddr, room: &[u8], at: Range<usize>) -> Heard {
        let (outgoing, start) = (&self.outgoing, at.start);
        if from == outgoing.me {
            return Heard::Others;
        }
        if !outgoing.multicast_reach.knows(from) {
            return Heard::Refused;
        }
        match MulticastBatch::decode(&room[at]) {
            Some(MulticastBatch::Trial { number, .. }) => Heard::Trial(number),
            Some(MulticastBatch::Parts(parts)) => {
                let mine = parts.iter().filter(|(to, _)| *to == outgoing.id);
                self.came
                    .parts
                    .extend(mine.map(|(_, at)| start + at.start..start + at.end));
                self.came.from = Some(from);
                if self.came.parts.is_empty() {
                    Heard::Others
                } else {
                    Heard::Mine
                }
            }
            _ => Heard::Refused,
        }
    }

    /// The next datagram of the multicast batch received last: where it lies in that, and whose
    /// it is.
    pub(crate) fn take(&mut self) -> Option<(Range<usize>, SocketAddr)> {
        let part = self.came.parts.pop_front()?;
        Some((part, self.came.from?))
    }

    /// Whether there is one.
    pub(crate) fn has_more(&self) -> bool {
        !self.came.parts.is_empty()
    }

    /// Handles an answer to a trial, genuine or not. False if it is none.
    pub(crate) fn answered(&mut self, from: SocketAddr, bytes: &[u8]) -> bool {
        let Some(MulticastBatch::Heard { number }) = MulticastBatch::decode(bytes) else {
            return false;
        };
        self.outgoing.multicast_reach.answered(from, number);
        true
    }
}

impl Outgoing {
    fn new(me: SocketAddr, longest: usize) -> Self {
        Self {
            me,
            id: NodeId::NONE,
            epoch: None,
            multicast_reach: MulticastReach::default(),
            longest,
            again: false,
            bytes: Vec::new(),
            parts: Vec::new(),
            draft: Vec::new(),
        }
    }

    fn meet(&mut self, view: &MemberView) {
        if self.epoch == Some(view.epoch) {
            return;
        }
        self.epoch = Some(view.epoch);
        let alive = || {
            let members = view.members.iter();
            members.filter(|member| member.health == Health::Alive)
        };
        let here = alive().find(|member| member.address == self.me);
        self.id = here.map_or(NodeId::NONE, |member| member.id);
        let others = alive().map(|member| member.address);
        self.multicast_reach
            .meet(others.filter(|other| *other != self.me));
    }

    fn takes(&mut self, to: SocketAddr, node: NodeId, datagram: &[u8]) -> bool {
        if self.again {
            self.multicast_reach.told_again(to);
            return false;
        }
        let room = datagram.len() <= SMALL && self.bytes.len() + SMALL <= ROOM;
        let takes = room && node.is_near() && self.multicast_reach.reaches(to);
        if takes {
            self.bytes.extend_from_slice(datagram);
            self.parts.push((to, node, self.bytes.len()));
        }
        takes
    }

    fn leave(&mut self, group: SocketAddr, mut send: impl FnMut(SocketAddr, &[u8], usize)) {
        let meant = self.meant(0..self.parts.len());
        let worth = self.is_worth(meant);
        let mut first = 0;
        while first < self.parts.len() {
            let end = self.fitting(first);
            if worth && self.meant(first..end) > 1 {
                let mut draft = std::mem::take(&mut self.draft);
                multicast_batch::begin(&mut draft);
                for index in first..end {
                    multicast_batch::add(&mut draft, self.parts[index].1, self.part(index));
                }
                send(group, &draft, end - first);
                self.draft = draft;
            } else {
                for index in first..end {
                    send(self.parts[index].0, self.part(index), 0);
                }
            }
            first = end;
        }
        self.parts.clear();
        self.bytes.clear();
    }

    /// Whether as many are meant as a multicast batch has to be for.
    fn is_worth(&self, meant: usize) -> bool {
        meant * MEANT >= self.multicast_reach.reached()
    }

    /// How many nodes these parts are for.
    fn meant(&self, parts: Range<usize>) -> usize {
        let mut nodes = NodeSet::default();
        for (_, node, _) in &self.parts[parts] {
            nodes.insert(*node);
        }
        nodes.len()
    }

    /// The end of the parts from `first` on that one multicast batch holds; at least one.
    fn fitting(&self, first: usize) -> usize {
        let mut length = HEAD;
        let fits = |index: &usize| {
            length += LABEL + self.part(*index).len();
            length <= self.longest
        };
        let count = (first..self.parts.len()).take_while(fits).count();
        first + count.max(1)
    }

    fn part(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |last| self.parts[last].2);
        &self.bytes[start..self.parts[index].2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::peer::Member;
    use pagemesh_wire::{Incarnation, PublicKey};

    /// Node 1 is here; there are nodes 2 to 8.
    fn at(node: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, node as u8], 7450))
    }

    fn group() -> SocketAddr {
        "239.77.0.1:7450".parse().unwrap()
    }

    fn view(epoch: u64, nodes: u16) -> MemberView {
        let member = |node| Member {
            id: NodeId(node),
            name: String::new(),
            address: at(node),
            incarnation: Incarnation(node.into()),
            key: PublicKey::NONE,
            health: Health::Alive,
            program: pagemesh_wire::Program::default(),
        };
        MemberView {
            epoch,
            members: (1..=nodes).map(member).collect(),
            term: pagemesh_wire::Term::FIRST,
            standby: NodeId::NONE,
            generation: 0,
            deaths: 0,
        }
    }

    /// All nodes except node 8 are reached.
    fn outgoing() -> Outgoing {
        let mut outgoing = Outgoing::new(at(1), 200);
        outgoing.meet(&view(1, 8));
        outgoing.multicast_reach.begin(0, 5);
        for node in 2..8 {
            outgoing.multicast_reach.answered(at(node), 5);
        }
        outgoing
    }

    fn left(outgoing: &mut Outgoing) -> Vec<(SocketAddr, usize, usize)> {
        let mut sent = Vec::new();
        outgoing.leave(group(), |to, bytes, parts| {
            assert!(bytes.len() <= 200 || parts == 0, "longer than the link");
            sent.push((to, bytes.len(), parts));
        });
        sent
    }

    #[test]
    fn what_is_for_several_leaves_as_one() {
        let mut outgoing = outgoing();
        for node in 2..7 {
            assert!(outgoing.takes(at(node), NodeId(node), &[9; 30]));
        }
        assert!(!outgoing.takes(at(8), NodeId(8), b"deaf"));
        assert!(!outgoing.takes(at(9), NodeId(9), b"no member"));
        assert!(!outgoing.takes(at(2), NodeId(2), &[9; SMALL + 1]), "long");
        assert_eq!(left(&mut outgoing), [(group(), 4 + 5 * 34, 5)]);
        assert_eq!(left(&mut outgoing), []);
    }

    #[test]
    fn what_is_for_one_or_for_few_of_many_goes_to_them() {
        let mut outgoing = outgoing();
        for _ in 0..2 {
            assert!(outgoing.takes(at(3), NodeId(3), &[9; 30]));
        }
        assert_eq!(left(&mut outgoing), [(at(3), 30, 0), (at(3), 30, 0)]);
        outgoing.meet(&view(2, 40));
        for node in 2..40 {
            outgoing.multicast_reach.answered(at(node), 5);
        }
        for node in [3, 4] {
            assert!(outgoing.takes(at(node), NodeId(node), &[9; 30]));
        }
        assert_eq!(left(&mut outgoing), [(at(3), 30, 0), (at(4), 30, 0)]);
    }

    #[test]
    fn no_multicast_batch_is_longer_than_the_link_allows() {
        let mut outgoing = outgoing();
        for (node, length) in [
            (2, 90),
            (3, 90),
            (4, 400),
            (5, 60),
            (6, 60),
            (7, 60),
            (2, 9),
        ] {
            assert!(outgoing.takes(at(node), NodeId(node), &vec![9; length]));
        }
        let expected = [
            (group(), 192, 2),
            (at(4), 400, 0),
            (group(), 196, 3),
            (at(2), 9, 0),
        ];
        assert_eq!(left(&mut outgoing), expected);
    }

    #[test]
    fn what_is_said_again_goes_to_each_by_itself() {
        let mut outgoing = outgoing();
        outgoing.again = true;
        assert!(!outgoing.takes(at(2), NodeId(2), b"again"));
        outgoing.again = false;
        assert!(!outgoing.takes(at(2), NodeId(2), b"until it answers"));
        outgoing.multicast_reach.begin(1, 6);
        outgoing.multicast_reach.answered(at(2), 6);
        assert!(outgoing.takes(at(2), NodeId(2), b"then not"));
    }
}
