//! What becomes of hosts.

use super::{Features, MICRO, MILLI};
use crate::dice::Dice;
use crate::step::{Fault, HostPlan};
use pagemesh_core::Time;

/// For so long a host is cut off that is to be declared dead.
const BURIED: u64 = 5_000 * MILLI;

/// The hosts that a run loses, or that leave it.
pub(super) struct Fates {
    crashing: Vec<usize>,
    crash_at: Time,
    /// The host that is cut off until it is declared dead.
    buried: Option<usize>,
    /// The host that leaves while its processes still work.
    hasty: Option<usize>,
    /// All of these, and the first host if it is to fail.
    pub(super) doomed: Vec<usize>,
    /// The hosts that leave when their processes have ended.
    pub(super) leavers: Vec<usize>,
}

impl Fates {
    /// Draws the fates of the hosts, and adds those that come in the place of crashed ones. What is
    /// wild comes from a stream of its own.
    pub(super) fn draw(
        (dice, wild): (&mut Dice, &mut Dice),
        hosts: &mut Vec<HostPlan>,
        features: Features,
        headless: bool,
    ) -> Self {
        let count = hosts.len();
        let crashing = crashing(dice, count, features);
        let mut leavers = leavers(dice, count, features, &crashing);
        let crash_at = Time(dice.between(MILLI, 40 * MILLI));
        hosts.extend(successors(dice, &crashing, crash_at));
        let mut one = |wanted: bool, taken: &[usize]| {
            wanted.then(|| other_host(wild, count, taken)).flatten()
        };
        let buried = one(features.burials, &crashing);
        let mut doomed = crashing.clone();
        doomed.extend(headless.then_some(0));
        doomed.extend(buried);
        let hasty = one(features.abrupt_leaves, &doomed);
        doomed.extend(hasty);
        leavers.retain(|host| !doomed.contains(host));
        Self {
            crashing,
            crash_at,
            buried,
            hasty,
            doomed,
            leavers,
        }
    }

    /// Adds the faults that bring this about in a run of so many hosts. Returns when the host is back that
    /// was cut off.
    pub(super) fn befall(
        &self,
        dice: &mut Dice,
        count: usize,
        faults: &mut Vec<(Time, Fault)>,
    ) -> Option<Time> {
        let crash = |host: &usize| (self.crash_at, Fault::Crash { host: *host });
        faults.extend(self.crashing.iter().map(crash));
        let soon = Time(dice.between(MILLI, 20 * MILLI));
        let cut = |host| (soon, cut_off(host, count, BURIED));
        faults.extend(self.buried.map(cut));
        faults.extend(self.hasty.map(|host| (soon, Fault::Leave { host })));
        self.buried.map(|_| Time(soon.0 + BURIED))
    }
}

/// Hosts that will crash; never the coordinator, and never all others.
fn crashing(dice: &mut Dice, hosts: usize, features: Features) -> Vec<usize> {
    let mut doomed = Vec::new();
    if features.crashes && hosts > 2 {
        doomed.push(dice.between(1, hosts as u64 - 1) as usize);
    }
    doomed
}

fn leavers(dice: &mut Dice, hosts: usize, features: Features, doomed: &[usize]) -> Vec<usize> {
    let mut leaves = |host: &usize| features.leaves && !doomed.contains(host) && dice.chance(400);
    (1..hosts).filter(|host| leaves(host)).collect()
}

/// Hosts that come in the place of crashed ones: a new life, perhaps at the same
/// address, perhaps before anybody has noticed the death.
fn successors(dice: &mut Dice, doomed: &[usize], crash_at: Time) -> Vec<HostPlan> {
    let mut successors = Vec::new();
    for host in doomed {
        if dice.chance(600) {
            let pause = *dice.pick(&[10 * MICRO, 5 * MILLI, 100 * MILLI, 4_000 * MILLI]);
            successors.push(HostPlan {
                starts_at: crash_at.0 + pause,
                successor_of: dice.chance(600).then_some(*host),
                resumes: None,
                clock_offset: dice.below(1 << 50),
                cost: 1_000,
                wake: 20 * MICRO,
            });
        }
    }
    successors
}

/// Some host, but not the coordinator and none of these; none if too few would be left.
fn other_host(dice: &mut Dice, hosts: usize, taken: &[usize]) -> Option<usize> {
    let free: Vec<usize> = (1..hosts).filter(|host| !taken.contains(host)).collect();
    (free.len() > 1).then(|| *dice.pick(&free))
}

/// A host of so many is cut off from all others.
fn cut_off(host: usize, count: usize, length: u64) -> Fault {
    let others = (0..count).filter(|other| *other != host);
    let pairs = others
        .flat_map(|other| [(host, other), (other, host)])
        .collect();
    Fault::Cut { pairs, length }
}
