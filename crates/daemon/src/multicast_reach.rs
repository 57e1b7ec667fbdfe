//! The multicast reach: members that answer trials. A member to which a datagram had to be resent
//! counts as unreached until it answers the next trial, so a network that loses multicast batches
//! costs each member one wait, and one that never carries them none.

use pagemesh_sorted::SortedMap;
use std::net::SocketAddr;

/// State of the other members.
#[derive(Debug, Default)]
pub(crate) struct MulticastReach {
    peers: SortedMap<SocketAddr, Peer>,
    trial: Option<Trial>,
    /// When the next trial is due, in nanoseconds.
    next: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    hears: bool,
    /// Trials in a row without an answer, up to the one before this.
    missed: u8,
    answered: bool,
}

/// The trial under way.
#[derive(Clone, Copy, Debug)]
struct Trial {
    number: u64,
    began: u64,
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Members that answered.
    pub(crate) heard: usize,
    /// Members that did not.
    pub(crate) missed: usize,
}

/// Trials come this often: 1 s.
const EVERY: u64 = 1_000_000_000;

/// After a change of members the next one comes so soon: 100 ms, in which those who
/// were there have answered the last.
const SOON: u64 = 100_000_000;

/// Trials in a row that a member may miss: datagrams get lost, answers too.
const MISSES: u8 = 1;

impl MulticastReach {
    /// Sets the other members. It is not known yet whether new ones are reached.
    pub(crate) fn meet(&mut self, members: impl Iterator<Item = SocketAddr>) {
        let mut before = std::mem::take(&mut self.peers);
        for address in members {
            let known = before.remove(&address);
            if known.is_none() {
                let began = self.trial.map_or(0, |trial| trial.began + SOON);
                self.next = self.next.min(began);
            }
            self.peers.insert(address, known.unwrap_or_default());
        }
    }

    /// Whether this is another member.
    pub(crate) fn knows(&self, address: SocketAddr) -> bool {
        self.peers.contains_key(&address)
    }

    /// Whether multicast batches reach it.
    pub(crate) fn reaches(&self, address: SocketAddr) -> bool {
        self.peers.get(&address).is_some_and(|peer| peer.hears)
    }

    /// How many members multicast batches reach.
    pub(crate) fn reached(&self) -> usize {
        self.peers.values().filter(|peer| peer.hears).count()
    }

    /// It had to be told something again.
    pub(crate) fn told_again(&mut self, address: SocketAddr) {
        if let Some(peer) = self.peers.get_mut(&address) {
            peer.hears = false;
        }
    }

    /// A member answers a trial.
    pub(crate) fn answered(&mut self, address: SocketAddr, number: u64) {
        let asked = self.trial.is_some_and(|trial| trial.number == number);
        if let Some(peer) = self.peers.get_mut(&address).filter(|_| asked) {
            *peer = Peer {
                hears: true,
                missed: 0,
                answered: true,
            };
        }
    }

    /// When a trial is due; never without other members.
    pub(crate) fn due(&self) -> Option<u64> {
        (!self.peers.is_empty()).then_some(self.next)
    }

    /// A trial of this number begins. How the one before it ended, if there was one.
    pub(crate) fn begin(&mut self, now: u64, number: u64) -> Option<Verdict> {
        let before = self.trial.replace(Trial { number, began: now });
        self.next = now + EVERY;
        let mut verdict = Verdict {
            heard: 0,
            missed: 0,
        };
        for peer in self.peers.values_mut() {
            if std::mem::take(&mut peer.answered) {
                verdict.heard += 1;
                continue;
            }
            verdict.missed += 1;
            peer.hears &= peer.missed < MISSES;
            peer.missed = peer.missed.saturating_add(1);
        }
        before.map(|_| verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 7450))
    }

    fn multicast_reach() -> MulticastReach {
        let mut multicast_reach = MulticastReach::default();
        multicast_reach.meet([at(1), at(2)].into_iter());
        multicast_reach
    }

    #[test]
    fn only_who_answers_is_reached() {
        let mut multicast_reach = multicast_reach();
        assert!(!multicast_reach.reaches(at(1)));
        assert_eq!(multicast_reach.due(), Some(0));
        assert_eq!(multicast_reach.begin(5, 77), None);
        multicast_reach.answered(at(1), 76);
        multicast_reach.answered(at(3), 77);
        assert!(!multicast_reach.reaches(at(1)) && !multicast_reach.reaches(at(3)));
        multicast_reach.answered(at(1), 77);
        assert!(multicast_reach.reaches(at(1)) && !multicast_reach.reaches(at(2)));
        assert_eq!(multicast_reach.due(), Some(5 + EVERY));
        let verdict = Verdict {
            heard: 1,
            missed: 1,
        };
        assert_eq!(multicast_reach.begin(6, 78), Some(verdict));
    }

    #[test]
    fn one_lost_answer_is_forgiven_and_two_are_not() {
        let mut multicast_reach = multicast_reach();
        multicast_reach.begin(0, 1);
        multicast_reach.answered(at(1), 1);
        multicast_reach.begin(1, 2);
        multicast_reach.begin(2, 3);
        assert!(multicast_reach.reaches(at(1)), "answered one, missed one");
        multicast_reach.begin(3, 4);
        assert!(!multicast_reach.reaches(at(1)));
        multicast_reach.answered(at(1), 4);
        assert!(multicast_reach.reaches(at(1)), "and hears again");
    }

    #[test]
    fn who_was_told_again_is_told_by_itself_until_it_answers() {
        let mut multicast_reach = multicast_reach();
        for number in [1, 2] {
            multicast_reach.begin(number, number);
            multicast_reach.answered(at(1), number);
            assert_eq!(multicast_reach.reached(), 1);
            multicast_reach.told_again(at(1));
            assert_eq!(multicast_reach.reached(), 0);
        }
    }

    #[test]
    fn newcomers_are_tried_soon_and_who_left_is_forgotten() {
        let mut multicast_reach = multicast_reach();
        multicast_reach.begin(7, 1);
        multicast_reach.answered(at(1), 1);
        multicast_reach.meet([at(1)].into_iter());
        assert!(multicast_reach.knows(at(1)) && !multicast_reach.knows(at(2)));
        assert_eq!(multicast_reach.due(), Some(7 + EVERY), "nobody is new");
        multicast_reach.meet([at(1), at(4)].into_iter());
        assert_eq!(multicast_reach.due(), Some(7 + SOON));
        assert!(multicast_reach.reaches(at(1)), "what was known is known");
        multicast_reach.meet(std::iter::empty());
        assert_eq!(multicast_reach.due(), None);
    }
}
