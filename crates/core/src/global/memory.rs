//! What a policy asks about memory: how many frames it may have, and where a page may go.

use crate::time::Time;
use core::time::Duration;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{EpochPlan, Placement};
use pagemesh_wire::{Incarnation, NodeId, NodeSet, PageCount};
use serde::{Deserialize, Serialize};

/// A node that had no room for a page is not asked again for so long.
const REFUSES: Duration = Duration::from_millis(100);

/// Nor one that was silent: each page that it is asked to keep holds a frame until it is given up.
const IS_SILENT: Duration = Duration::from_secs(5);

/// For so long the other donor of a page is asked first where one let a request wait. A program would
/// make hundreds of accesses a second, not thousands, while a donor is dead and not declared so.
const IS_LATE: Duration = Duration::from_secs(1);

/// For so long the disk is read instead, where it has the page, too.
const IS_MUTE: Duration = Duration::from_secs(1);

/// The end of the time for which a node that leaves is not asked.
const NEVER: Time = Time(u64::MAX);

/// What the host gives to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Budgets {
    /// Frames that private segments of this node may have together.
    pub memory: PageCount,
    /// Frames that segments of all policies should have together: the node tries to keep within it.
    #[serde(default = "unbounded")]
    pub frames: PageCount,
    /// Pages that this node keeps for others at most.
    pub lend: PageCount,
    /// How a donor is chosen.
    pub placement: Placement,
    /// The part of its processors' time that the host uses, in percent.
    #[serde(default)]
    pub busy: u8,
}

impl Default for Budgets {
    /// No bound for its own pages, and nothing for others.
    fn default() -> Self {
        Self {
            memory: PageCount(u32::MAX),
            frames: unbounded(),
            lend: PageCount(0),
            placement: Placement::default(),
            busy: 0,
        }
    }
}

impl Budgets {
    /// Whether there is a bound to the frames of segments.
    pub(crate) fn is_bound(&self) -> bool {
        self.frames != unbounded()
    }
}

const fn unbounded() -> PageCount {
    PageCount(u32::MAX)
}

/// Budgets and the plan of the epoch, as policies use them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// What the host gives.
    pub(crate) budgets: Budgets,
    /// Frames that segments have together.
    pub(crate) used: u32,
    /// A page was to be sent and no plan says where to.
    pub(crate) wants_plan: bool,
    weights: Vec<(NodeId, u32)>,
    min_age: Duration,
    /// The plan holds until then.
    until: Time,
    chance: u64,
    /// Nodes that had no room, and until when they are not asked again.
    refusing: SortedMap<NodeId, Time>,
    /// Donors that let a request for a page wait, and until when others are asked first.
    #[serde(default)]
    late: SortedMap<NodeId, Time>,
    /// Donors that answered no request for a page, and until when pages are read from the disk instead.
    #[serde(default)]
    mute: SortedMap<NodeId, Time>,
}

impl Memory {
    pub(crate) fn new(incarnation: Incarnation) -> Self {
        Self {
            budgets: Budgets::default(),
            used: 0,
            wants_plan: false,
            weights: Vec::new(),
            min_age: Duration::ZERO,
            until: Time::ZERO,
            chance: incarnation.0,
            refusing: SortedMap::new(),
            late: SortedMap::new(),
            mute: SortedMap::new(),
        }
    }

    /// Whether there is a bound to the frames of segments.
    pub(crate) fn is_bounded(&self) -> bool {
        self.budgets.is_bound()
    }

    /// By how many frames segments have too many.
    pub(crate) fn excess(&self) -> u32 {
        self.used.saturating_sub(self.budgets.frames.0)
    }

    /// Lives are over, and their numbers are to be forgotten: nothing goes there any more.
    pub(crate) fn forget_names(&mut self, over: &NodeSet) {
        self.weights.retain(|(node, _)| !over.contains(*node));
        self.refusing.retain(|node, _| !over.contains(*node));
        self.late.retain(|node, _| !over.contains(*node));
        self.mute.retain(|node, _| !over.contains(*node));
    }

    /// A new epoch: the nodes and weights without this node.
    pub(crate) fn adopt(&mut self, plan: &EpochPlan, me: NodeId, until: Time) {
        let others = plan.weights.iter().filter(|(node, _)| *node != me);
        self.weights = others.copied().collect();
        self.min_age = match plan.min_age {
            u32::MAX => Duration::MAX,
            millis => Duration::from_millis(millis.into()),
        };
        self.until = until;
        self.wants_plan = false;
    }

    /// A node had no room for a page: the plan is not true any more.
    pub(crate) fn refused(&mut self, now: Time, node: NodeId) {
        self.wants_plan = true;
        self.avoid(node, now + REFUSES);
    }

    /// A node was sent a page, again and again, and did not answer.
    pub(crate) fn silent(&mut self, now: Time, node: NodeId) {
        self.avoid(node, now + IS_SILENT);
    }

    /// A donor has let a request for a page wait that another one has, too.
    pub(crate) fn was_late(&mut self, now: Time, node: NodeId) {
        self.late.insert(node, now + IS_LATE);
    }

    /// Whether another donor is to be asked first.
    pub(crate) fn is_late(&self, now: Time, node: NodeId) -> bool {
        self.late.get(&node).is_some_and(|until| now < *until)
    }

    /// A donor was asked for a page, again and again, and did not answer; the page is on the disk.
    pub(crate) fn was_mute(&mut self, now: Time, node: NodeId) {
        self.mute.insert(node, now + IS_MUTE);
    }

    /// Whether pages that are on the disk, too, are read from there.
    pub(crate) fn is_mute(&self, now: Time, node: NodeId) -> bool {
        self.mute.get(&node).is_some_and(|until| now < *until)
    }

    fn avoid(&mut self, node: NodeId, end: Time) {
        let until = self.refusing.entry(node).or_default();
        *until = (*until).max(end);
    }

    /// A node is about to leave: it is not asked again.
    pub(crate) fn leaves(&mut self, node: NodeId) {
        self.refusing.insert(node, NEVER);
    }

    /// Whether a node is about to leave.
    pub(crate) fn is_leaving(&self, node: NodeId) -> bool {
        self.refusing.get(&node) == Some(&NEVER)
    }

    /// Nodes that keep a page one after the other.
    pub(crate) fn rounds(&self) -> u8 {
        match self.budgets.placement {
            Placement::NChance => Placement::ROUNDS,
            Placement::Epoch | Placement::Random | Placement::None => 1,
        }
    }

    /// The time that counts as the last use of a page that comes to be kept: under N-chance it is the
    /// youngest of all.
    pub(crate) fn used(&self, now: Time, age: Duration) -> Time {
        match self.budgets.placement {
            Placement::NChance => now,
            _ => Time(now.0.saturating_sub(age.as_nanos() as u64)),
        }
    }

    /// Whether pages have to be dropped for other pages somewhere. If not, donors have room for pages
    /// that their owners have in memory, too.
    pub(crate) fn is_scarce(&self) -> bool {
        self.min_age != Duration::MAX
    }

    /// The donor for a page of this age, except those in `without`; none if it is to be dropped, or
    /// to go to the disk alone (G10).
    pub(crate) fn choose(
        &mut self,
        now: Time,
        age: Duration,
        (peers, without): (&NodeSet, &NodeSet),
    ) -> Option<NodeId> {
        self.refusing.retain(|_, until| now < *until);
        let refusing: NodeSet = self.refusing.keys().copied().collect();
        let fits = |node: &NodeId| {
            peers.contains(*node) && !without.contains(*node) && !refusing.contains(*node)
        };
        match self.budgets.placement {
            Placement::None => None,
            Placement::Random | Placement::NChance => {
                let nodes: Vec<_> = peers.iter().filter(fits).collect();
                let place = self.draw(nodes.len() as u64)?;
                nodes.get(place as usize).copied()
            }
            Placement::Epoch => {
                if now >= self.until {
                    self.wants_plan = true;
                    return None;
                }
                if age >= self.min_age {
                    return None;
                }
                let all = self.weights.iter().filter(|(node, _)| fits(node));
                let total = all.clone().map(|(_, weight)| u64::from(*weight)).sum();
                let nodes: Vec<_> = all.copied().collect();
                let mut place = self.draw(total)?;
                nodes.into_iter().find_map(|(node, weight)| {
                    let here = place < u64::from(weight);
                    place = place.saturating_sub(weight.into());
                    here.then_some(node)
                })
            }
        }
    }

    /// A number below `bound`, each as likely as the others; none if there is none. The generator is
    /// a part of the state (splitmix64), so that a run can be repeated.
    fn draw(&mut self, bound: u64) -> Option<u64> {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.chance;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).checked_rem(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(weights: &[(u16, u32)], min_age: u32) -> EpochPlan {
        EpochPlan {
            epoch: 1,
            min_age,
            weights: weights
                .iter()
                .map(|(node, w)| (NodeId(*node), *w))
                .collect(),
            initiator: NodeId(2),
            duration: 5000,
            replacements: 100,
        }
    }

    fn memory(plan: &EpochPlan) -> Memory {
        let mut memory = Memory::new(Incarnation(7));
        memory.adopt(plan, NodeId(1), Time(1000));
        memory
    }

    const ALL: NodeSet = NodeSet::EMPTY;

    fn peers() -> NodeSet {
        [2, 3, 4].map(NodeId).into_iter().collect()
    }

    #[test]
    fn donors_are_chosen_in_proportion_to_their_weights() {
        let mut memory = memory(&plan(&[(1, 5000), (2, 100), (3, 300)], 1000));
        let mut counts = [0; 5];
        for _ in 0..4000 {
            let node = memory
                .choose(Time(0), Duration::ZERO, (&peers(), &ALL))
                .unwrap();
            counts[usize::from(node.0)] += 1;
        }
        assert_eq!((counts[1], counts[4]), (0, 0));
        assert!((900..1100).contains(&counts[2]), "{counts:?}");
    }

    #[test]
    fn an_old_page_is_dropped_and_an_old_plan_is_asked_for_anew() {
        let mut memory = memory(&plan(&[(2, 1)], 1000));
        let mut choose = |now, millis, without: &NodeSet| {
            let node = memory.choose(
                Time(now),
                Duration::from_millis(millis),
                (&peers(), without),
            );
            (node, memory.wants_plan)
        };
        assert_eq!(choose(0, 999, &ALL), (Some(NodeId(2)), false));
        assert_eq!(choose(0, 1000, &ALL), (None, false), "older than MinAge");
        assert_eq!(choose(0, 0, &NodeSet::only(NodeId(2))), (None, false));
        assert_eq!(choose(1000, 0, &ALL), (None, true));
    }

    #[test]
    fn little_idle_memory_means_that_nothing_is_sent() {
        let mut memory = memory(&plan(&[], 0));
        assert_eq!(
            memory.choose(Time(0), Duration::ZERO, (&peers(), &ALL)),
            None
        );
        assert!(!memory.wants_plan);
    }

    #[test]
    fn random_placement_uses_every_member_and_none_uses_no_one() {
        let mut memory = memory(&plan(&[], 0));
        memory.budgets.placement = Placement::Random;
        let chosen: NodeSet = (0..100)
            .filter_map(|_| memory.choose(Time(0), Duration::MAX, (&peers(), &ALL)))
            .collect();
        assert_eq!(chosen, peers());
        memory.budgets.placement = Placement::None;
        assert_eq!(
            memory.choose(Time(0), Duration::ZERO, (&peers(), &ALL)),
            None
        );
    }
}
