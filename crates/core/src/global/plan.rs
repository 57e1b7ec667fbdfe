//! The computation of an initiator: weights, MinAge, T and M from the ages of all nodes (G9, G11).

use core::time::Duration;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::NodeId;
use pagemesh_wire::peer::{AGE_CLASSES, AgeSummary, EpochPlan};

/// Pages from this class of age on are idle: not used for 8 seconds.
const IDLE: usize = 13;

/// Fewer idle pages than this in the cluster are not worth a message (GB7).
const LITTLE: u64 = 64;

/// Durations of an epoch.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(10);

/// The pages of one node that may be replaced: free ones, and those of others from this class on.
/// A donor's own pages leave by its own budget alone.
fn replaceable(ages: &AgeSummary, class: usize) -> u64 {
    let old: u64 = ages.global[class..]
        .iter()
        .map(|count| u64::from(*count))
        .sum();
    u64::from(ages.free) + old
}

/// The plan of an epoch. `rate` is the number of replacements a second in the epoch before.
pub(crate) fn plan(
    epoch: u64,
    summaries: &SortedMap<NodeId, AgeSummary>,
    rate: u64,
    me: NodeId,
) -> EpochPlan {
    let total = |class| {
        summaries
            .values()
            .map(|ages| replaceable(ages, class))
            .sum::<u64>()
    };
    let idle: u64 = total(IDLE);
    let mut plan = EpochPlan {
        epoch,
        min_age: 0,
        weights: Vec::new(),
        initiator: me,
        duration: SHORTEST.as_millis() as u32,
        replacements: 0,
    };
    if idle < LITTLE {
        return plan;
    }
    // The longer the idle memory lasts at this rate, the longer the ages stay true.
    let lasts = Duration::from_secs(idle / (2 * rate.max(1)));
    plan.duration = lasts.clamp(SHORTEST, LONGEST).as_millis() as u32;
    let expected = rate.saturating_mul(plan.duration.into()) / 1000;
    let replacements = expected.clamp(LITTLE, idle.max(LITTLE));
    let free: u64 = summaries.values().map(|ages| u64::from(ages.free)).sum();
    // The youngest class of which pages are replaced.
    let class = (IDLE..AGE_CLASSES)
        .rev()
        .find(|class| total(*class) >= replacements);
    let class = class.unwrap_or(IDLE);
    plan.replacements = u32::try_from(replacements).unwrap_or(u32::MAX);
    plan.min_age = if free >= replacements {
        u32::MAX
    } else {
        1 << class
    };
    let weights = summaries.iter().filter_map(|(node, ages)| {
        let weight = u32::try_from(replaceable(ages, class)).unwrap_or(u32::MAX);
        (weight > 0).then_some((*node, weight))
    });
    plan.weights = weights.collect();
    // Those with the largest weights, if there are too many.
    plan.weights
        .sort_by_key(|(node, weight)| (u32::MAX - weight, *node));
    plan.weights.truncate(EpochPlan::LIMIT);
    plan.initiator = plan.weights.first().map_or(me, |(node, _)| *node);
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(free: u32, global: &[(usize, u32)]) -> AgeSummary {
        let mut ages = AgeSummary {
            free,
            ..AgeSummary::default()
        };
        for (class, count) in global {
            ages.global[*class] = *count;
        }
        ages
    }

    fn of(nodes: &[AgeSummary], rate: u64) -> EpochPlan {
        let summaries = (1..).map(NodeId).zip(nodes.iter().copied()).collect();
        plan(3, &summaries, rate, NodeId(1))
    }

    #[test]
    fn the_node_with_most_idle_pages_is_the_next_initiator() {
        let plan = of(&[node(0, &[]), node(100, &[]), node(4000, &[])], 10);
        assert_eq!((plan.epoch, plan.initiator), (3, NodeId(3)));
        assert_eq!(plan.weights, [(NodeId(3), 4000), (NodeId(2), 100)]);
        assert_eq!(
            plan.min_age,
            u32::MAX,
            "free frames: nothing needs to be dropped"
        );
        assert_eq!(plan.duration, 10_000);
    }

    #[test]
    fn with_little_idle_memory_nobody_forwards() {
        let plan = of(&[node(30, &[(3, 9000)]), node(33, &[])], 10);
        assert_eq!((plan.min_age, plan.weights.len()), (0, 0));
        assert_eq!(plan.initiator, NodeId(1));
    }

    #[test]
    fn without_free_frames_the_oldest_pages_make_weights_and_min_age() {
        let nodes = [
            node(0, &[(20, 50), (14, 900)]),
            node(0, &[(15, 300), (5, 5000)]),
        ];
        let plan = of(&nodes, 30);
        // 300 are expected in 10 s, and so many are older than 2^15 ms.
        assert_eq!((plan.replacements, plan.min_age), (300, 1 << 15));
        assert_eq!(plan.weights, [(NodeId(2), 300), (NodeId(1), 50)]);
    }

    #[test]
    fn the_faster_pages_are_replaced_the_shorter_is_the_epoch() {
        let durations = [1, 100, 1000, 100_000].map(|rate| of(&[node(4000, &[])], rate).duration);
        assert_eq!(durations, [10_000, 10_000, 2_000, 1_000]);
    }
}
