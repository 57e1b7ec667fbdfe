//! The plan of a run, drawn from a seed.

use super::PATIENCE;
use crate::dice::Dice;
use crate::labelled::program::{After, Part, Shape, Step};
use crate::network::Weather;
use crate::plan::{Profile, pace, weather};
use pagemesh_core::{Pace, Time};
use pagemesh_wire::PageCount;
use pagemesh_wire::peer::{Manager, Policy, Spread, Window};
use std::time::Duration;

/// Most programs that are not drawn run under this policy.
#[cfg(test)]
const LAZY: Policy = Policy::Release {
    spread: Spread::Lazy,
};

/// Pages that are used over a narrow line.
#[cfg(test)]
const NARROW_PAGES: usize = 300;

/// A byte of each of them.
#[cfg(test)]
fn narrow_bytes(spot: usize) -> impl Iterator<Item = usize> {
    (0..NARROW_PAGES).map(move |page| page * pagemesh_diff::PAGE + spot)
}

/// The plan of a run.
pub(in crate::labelled) struct Plan {
    /// The host of each thread.
    pub(super) threads: Vec<usize>,
    pub(super) programs: Vec<Vec<Step>>,
    pub(super) shape: Shape,
    pub(super) pace: Pace,
    pub(super) weather: Weather,
    /// Which host creates the segment.
    pub(super) home: usize,
    pub(super) policy: Policy,
    /// The host whose datagrams leave one after the other, and the nanoseconds that each takes.
    pub(super) narrow: Option<(usize, u64)>,
    /// The kernels serve the accesses to the segment while only its home has used it.
    pub(super) traps_late: bool,
    /// A thread hangs if it takes longer.
    pub(super) patience: Time,
    /// The frames that each host has memory for; none: as many as it wants.
    pub(super) frames: Option<PageCount>,
}

impl Plan {
    /// Draws a plan.
    pub(in crate::labelled) fn drawn(dice: &mut Dice, profile: Profile) -> Self {
        let hosts = dice.between(2, 5) as usize;
        let threads: Vec<usize> = (0..hosts)
            .flat_map(|host| std::iter::repeat_n(host, dice.between(1, 2) as usize))
            .collect();
        let mut shape = Shape::new(dice, threads.len());
        let mut pace = pace(dice);
        pace.notices = *dice.pick(&[6, 30, 200, 16_384]);
        pace.left_to_reader = 2;
        // Of pages that are written again and again, too.
        pace.twins = if pace.notices < 100 { 2 } else { pace.twins };
        let weather = weather(dice, profile);
        let home = dice.index(hosts);
        let crashes = profile == Profile::Wild;
        shape.parts = parts(dice, &threads, (shape.phases, home), crashes);
        shape.reduces &= !shape.has_crashes();
        let programs = (0..threads.len()).map(|thread| shape.program(dice, thread));
        Self {
            programs: programs.collect(),
            policy: Policy::Release {
                spread: *dice.pick(&[Spread::Lazy, Spread::Eager, Spread::Hybrid]),
            },
            threads,
            shape,
            pace,
            weather,
            home,
            narrow: None,
            traps_late: true,
            // With 40 % loss a search for a lost token takes seconds.
            patience: Time(PATIENCE.0 * if crashes { 4 } else { 1 }),
            frames: None,
        }
    }

    /// The same, where a host vanishes under every profile.
    pub(in crate::labelled) fn of_a_death(dice: &mut Dice, profile: Profile) -> Self {
        let mut plan = Self::drawn(dice, profile);
        while !plan.shape.has_crashes() {
            let shape = &mut plan.shape;
            shape.parts = parts(dice, &plan.threads, (shape.phases, plan.home), true);
        }
        plan.shape.reduces = false;
        let shape = &plan.shape;
        let threads = 0..plan.threads.len();
        plan.programs = threads.map(|thread| shape.program(dice, thread)).collect();
        plan.patience = Time(PATIENCE.0 * 4);
        plan
    }

    /// The same under policy `sequential`, in half of all seeds with accesses that race.
    pub(in crate::labelled) fn of_a_sequential_death(dice: &mut Dice, profile: Profile) -> Self {
        let mut plan = Self::of_a_death(dice, profile);
        plan.policy = Policy::Sequential {
            manager: *dice.pick(&[Manager::Dynamic, Manager::Dynamic, Manager::Fixed]),
            window: *dice.pick(&[Window::Nanos(0), Window::Nanos(50_000), Window::Auto]),
        };
        if dice.chance(500) {
            for steps in &mut plan.programs {
                let calm = std::mem::take(steps);
                for step in calm {
                    while dice.chance(400) {
                        steps.push(plan.shape.race(dice));
                    }
                    steps.push(step);
                }
            }
        }
        plan
    }

    /// The same under another policy.
    #[cfg(test)]
    pub(in crate::labelled) fn under(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// In half of all seeds, nodes take all their diffs for large ones, so that they prefer copies. Drawn
    /// from a stream of its own: the other half runs as it did before this was added.
    pub(in crate::labelled) fn preferring_copies(mut self, seed: u64) -> Self {
        let mut dice = Dice::stream(seed, "whole");
        if dice.chance(500) {
            (self.pace.large_diff, self.pace.shown) = *dice.pick(&[(0, 0), (4, 1), (40, 2)]);
            self.pace.notices = self.pace.notices.min(*dice.pick(&[3, 10, 30]));
        }
        self
    }

    /// In two fifths of all seeds hosts have memory for some pages only. Drawn from a stream of its own,
    /// too.
    pub(in crate::labelled) fn with_full_hosts(mut self, seed: u64) -> Self {
        let mut dice = Dice::stream(seed, "full");
        if dice.chance(400) {
            self.frames = Some(PageCount(dice.between(0, 4) as u32));
        }
        self
    }

    /// Hosts with one thread each that follows a scenario, without faults. Nodes hold `notices`
    /// write notices at most.
    pub(super) fn of_scenario(
        dice: &mut Dice,
        (hosts, home): (usize, usize),
        (pages, policy): (usize, Policy),
        notices: Option<u32>,
    ) -> Self {
        let mut shape = Shape::new(dice, hosts);
        (shape.pages, shape.reduces) = (pages, false);
        let mut pace = Pace::default();
        pace.notices = notices.unwrap_or(pace.notices);
        pace.heartbeat = Duration::from_secs(1);
        Self {
            threads: (0..hosts).collect(),
            programs: vec![Vec::new(); hosts],
            shape,
            pace,
            weather: Weather {
                base: 10_000,
                ..Weather::default()
            },
            home,
            policy,
            narrow: None,
            traps_late: false,
            patience: Time(u64::MAX),
            frames: None,
        }
    }

    /// A program of phases: the same threads use the same bytes again and again, and locks
    /// are seldom taken.
    #[cfg(test)]
    pub(in crate::labelled) fn of_phases(dice: &mut Dice, profile: Profile) -> Self {
        let mut plan = Self::drawn(dice, profile);
        plan.policy = LAZY;
        plan.shape = Shape::new(dice, plan.threads.len());
        plan.shape.reduces = false;
        plan.shape.phases = 40;
        plan.shape.rhythm = dice.between(1, 3) as usize;
        plan.shape.sections = 20;
        let shape = &plan.shape;
        let threads = 0..plan.threads.len();
        plan.programs = threads.map(|thread| shape.program(dice, thread)).collect();
        plan.patience = Time(u64::MAX);
        plan
    }

    /// A program of phases in which threads go from page to page, and pages have many writers, or
    /// one each in every phase.
    #[cfg(test)]
    pub(in crate::labelled) fn of_walks(dice: &mut Dice, profile: Profile) -> Self {
        let mut plan = Self::drawn(dice, profile);
        plan.policy = LAZY;
        let shape = &mut plan.shape;
        (shape.walks, shape.blocks) = (true, dice.chance(500));
        shape.reduces = false;
        shape.pages = dice.between(16, 48) as usize;
        shape.phases = shape.phases.max(4);
        shape.rhythm = dice.between(1, 3) as usize;
        shape.sections = if shape.blocks { 0 } else { 50 };
        plan.pace.ahead = *dice.pick(&[8, 64, 512]);
        let shape = &plan.shape;
        let threads = 0..plan.threads.len();
        plan.programs = threads.map(|thread| shape.program(dice, thread)).collect();
        plan.patience = Time(u64::MAX);
        plan
    }

    /// A program of phases that takes no lock, under the policy that is an example.
    #[cfg(test)]
    pub(in crate::labelled) fn of_broadcast(dice: &mut Dice, profile: Profile) -> Self {
        let mut plan = Self::of_phases(dice, profile);
        plan.policy = Policy::Numbered(1);
        plan.shape.sections = 0;
        plan.shape.announced = 0;
        // It forgets nothing.
        plan.pace.notices = u32::MAX;
        let shape = &plan.shape;
        let threads = 0..plan.threads.len();
        plan.programs = threads.map(|thread| shape.program(dice, thread)).collect();
        plan
    }

    /// Two hosts and many pages. The datagrams of the first leave one by one, so that the last answers
    /// come long after they were asked for. Of a thousand datagrams `loss` are lost. If `fixed`, nodes
    /// learn nothing of the time that answers take.
    #[cfg(test)]
    fn of_a_narrow_line(
        dice: &mut Dice,
        notices: Option<u32>,
        (loss, fixed): (u32, bool),
        programs: [Vec<Step>; 2],
    ) -> Self {
        let mut plan = Self::of_scenario(dice, (2, 0), (NARROW_PAGES, LAZY), notices);
        plan.weather.loss = loss;
        plan.narrow = Some((0, 200_000));
        if fixed {
            plan.pace.resend_soonest = plan.pace.resend_first;
        }
        plan.programs = programs.into();
        plan
    }

    /// The first host stores to all pages, the second one announces and loads them, twice.
    #[cfg(test)]
    pub(in crate::labelled) fn of_a_queue(dice: &mut Dice, how: (u32, bool)) -> Self {
        let (mut stores, mut loads) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            stores.extend(narrow_bytes(0).map(Step::Fill));
            stores.extend([Step::Barrier(2), Step::Barrier(2)]);
            loads.extend([Step::Barrier(2), Step::Need(0, NARROW_PAGES as u32)]);
            loads.extend(narrow_bytes(0).map(Step::Load));
            loads.push(Step::Barrier(2));
        }
        Self::of_a_narrow_line(dice, None, how, [stores, loads])
    }

    /// The first host stores to so many pages, and then all others load them, from the first to the last.
    /// Of a thousand datagrams `loss` are lost.
    #[cfg(test)]
    pub(in crate::labelled) fn of_readers(
        dice: &mut Dice,
        (readers, pages): (usize, usize),
        loss: u32,
    ) -> Self {
        let mut plan = Self::of_scenario(dice, (readers + 1, 0), (pages, LAZY), None);
        plan.weather.loss = loss;
        let barrier = Step::Barrier(readers as u32 + 1);
        let bytes = || (0..pages).map(|page| page * pagemesh_diff::PAGE);
        let mut stores: Vec<_> = bytes().map(Step::Fill).collect();
        stores.extend([barrier, barrier]);
        let mut loads = vec![barrier];
        loads.extend(bytes().map(Step::Load));
        loads.push(barrier);
        let loads = std::iter::repeat_n(loads, readers);
        plan.programs = std::iter::once(stores).chain(loads).collect();
        plan
    }

    /// Both hosts store to all pages, so that each has diffs which the keeper of a page needs when it
    /// is collected.
    #[cfg(test)]
    pub(in crate::labelled) fn of_a_collection(dice: &mut Dice, how: (u32, bool)) -> Self {
        let program = |own: usize, other: usize| {
            let mut steps = Vec::new();
            for _ in 0..3 {
                steps.extend(narrow_bytes(own).map(Step::Store));
                steps.extend([Step::Barrier(2), Step::Think(200_000_000)]);
            }
            steps.extend(narrow_bytes(other).map(Step::Load));
            steps.push(Step::Barrier(2));
            steps
        };
        let programs = [program(8, 64), program(64, 8)];
        Self::of_a_narrow_line(dice, Some(100), how, programs)
    }

    /// Two hosts that take turns with a lock every few seconds, for so many days, and
    /// never reach a barrier.
    #[cfg(test)]
    pub(in crate::labelled) fn of_locks(dice: &mut Dice, turns: u64, notices: u32) -> Self {
        let mut plan = Self::drawn(dice, Profile::Calm);
        plan.policy = LAZY;
        plan.threads = vec![0, 1];
        plan.shape = Shape::new(dice, 2);
        plan.shape.locks = 1;
        plan.pace.notices = notices;
        plan.pace.heartbeat = Duration::from_secs(20);
        plan.pace.dead_after = Duration::from_secs(200);
        plan.home = 1;
        let shape = &plan.shape;
        let mut programs = Vec::new();
        for _ in &plan.threads {
            let mut steps = Vec::new();
            for _ in 0..turns {
                shape.section(dice, 0, &mut steps);
                steps.push(Step::Think(10_000_000_000));
            }
            programs.push(steps);
        }
        plan.programs = programs;
        plan.patience = Time(u64::MAX);
        plan
    }
}

/// Which hosts leave or vanish when, and which processes die. The first host keeps the cluster
/// together; without the home no thread passes a barrier.
fn parts(
    dice: &mut Dice,
    threads: &[usize],
    (phases, home): (usize, usize),
    crashes: bool,
) -> Vec<Part> {
    let hosts = threads.last().map_or(0, |last| last + 1);
    let lasts: Vec<_> = (0..hosts)
        .map(|host| (host > 0 && dice.chance(250)).then(|| dice.index(phases)))
        .collect();
    let crashes = (crashes && dice.chance(500)).then(|| dice.index(hosts - 1) + 1);
    let part = |(number, host): (usize, &usize)| {
        let first = !threads[..number].contains(host);
        if crashes == Some(*host) {
            let last = if *host == home {
                phases - 1
            } else {
                lasts[*host].unwrap_or(0)
            };
            let then = if first { After::Crashes } else { After::GoesOn };
            let last = Some(last);
            return Part { last, then };
        }
        let last = lasts[*host];
        let then = match last {
            Some(_) if first => After::Leaves,
            // A process dies, its node goes on.
            None if !first && dice.chance(200) => {
                let last = Some(dice.index(phases));
                let then = After::Dies;
                return Part { last, then };
            }
            _ => After::Ends,
        };
        Part { last, then }
    };
    threads.iter().enumerate().map(part).collect()
}
