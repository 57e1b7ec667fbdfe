//! The factors between costs beside a program and in a loop, fitted to the waits of processes in a
//! real run.

use super::{ReleaseCosts, Replayed, Trace, replay};
use crate::engine::Stuck;
use core::ops::RangeInclusive;
use core::time::Duration;
use pagemesh_wire::peer::Spread;

/// Fewer waits of a kind say nothing.
const ENOUGH: usize = 20;

/// The factors that are tried: powers of a step, first far apart and then near the best of these.
const STEPS: [(f64, i32); 2] = [(1.25, 10), (1.05, 4)];

/// The least improvement of a replay that counts as better; otherwise chance would choose between
/// factors that make no difference.
const BETTER: f64 = 0.004;

/// The range of plausible factors: traces show steps that take ten times as long with cold caches,
/// and none that take more. Longer waits are those of processes that wait for each other.
const ALL: RangeInclusive<f64> = 0.3..=3.0;
const COLD: RangeInclusive<f64> = 1.0..=10.0;

/// How costs in a run differ from those of single operations in a loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The factor of all costs.
    pub all: f64,
    /// And so many times as long as that, where the program has just computed and filled the
    /// caches.
    pub cold: f64,
}

/// Waits of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    /// The typical wait.
    pub typical: Duration,
    /// How many there were.
    pub count: usize,
}

/// The waits of processes, in a run or in a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waited {
    /// Locks that the daemon was asked for, but for the longest tenth.
    pub locks: Option<Wait>,
    /// Barriers, as who came last waited, but for the longest tenth: the others waited for who
    /// came last, too.
    pub barriers: Option<Wait>,
    /// Pages for which another node had to help, but for the longest tenth.
    pub faults: Option<Wait>,
}

impl Waited {
    /// The typical values of these waits, in nanoseconds each; at barriers of all processes, by
    /// process and in the order in which they came to them.
    #[must_use]
    pub fn of(locks: &[u64], barriers: &[Vec<u64>], faults: &[u64]) -> Self {
        let met = barriers.iter().map(Vec::len).min().unwrap_or(0);
        let last = |which: usize| barriers.iter().map(move |waits| waits[which]).min();
        let lasts: Vec<u64> = (0..met).filter_map(last).collect();
        Self {
            locks: typical(locks),
            barriers: typical(&lasts),
            faults: typical(faults),
        }
    }

    fn pairs(self, other: Self) -> [Option<(Wait, Wait)>; 3] {
        [
            self.locks.zip(other.locks),
            self.barriers.zip(other.barriers),
            self.faults.zip(other.faults),
        ]
    }

    /// How far a replay is off, as a logarithm; each kind of wait counts as much as it took in
    /// the run.
    fn off(self, replay: Self) -> f64 {
        let (mut sum, mut weights) = (0.0, 0.0);
        for (run, replay) in self.pairs(replay).into_iter().flatten() {
            let ratio = replay.typical.as_secs_f64() / run.typical.as_secs_f64();
            let weight = run.typical.as_secs_f64() * run.count as f64;
            sum += ratio.ln().abs() * weight;
            weights += weight;
        }
        if weights > 0.0 { sum / weights } else { 0.0 }
    }
}

/// The mean of all but the longest tenth, so that waits with an interruption are left out.
fn typical(waits: &[u64]) -> Option<Wait> {
    let mut sorted = waits.to_vec();
    sorted.sort_unstable();
    let count = sorted.len();
    let shortest = &sorted[..count - count / 10];
    let mean = shortest.iter().sum::<u64>() / shortest.len().max(1) as u64;
    (count >= ENOUGH).then_some(Wait {
        typical: Duration::from_nanos(mean.max(1)),
        count,
    })
}

impl Replayed {
    /// The typical values of its waits.
    #[must_use]
    pub fn waited(&self) -> Waited {
        Waited::of(&self.lock_waits, &self.barrier_waits, &self.fault_waits)
    }
}

/// The costs under which processes would have waited as long as they did in a run on as many nodes
/// as there are traces. The duration of the run is not considered. Waits that cold caches explain
/// are not attributed to other costs.
///
/// # Errors
/// If a replay does not come to its end.
pub fn fit(
    costs: &ReleaseCosts,
    spread: Spread,
    traces: &[Trace],
    run: &Waited,
) -> Result<Fit, Stuck> {
    let off = |fit: Fit| -> Result<f64, Stuck> {
        let took = replay(costs, fit, spread, traces)?;
        Ok(run.off(took.waited()))
    };
    let mut best = Fit::NONE;
    let mut least = off(best)?;
    for (step, most) in STEPS {
        for of_cold in [true, false] {
            let centre = best;
            for power in (-most..=most).filter(|power| *power != 0) {
                let tried = centre.moved(of_cold, step.powi(power));
                if !ALL.contains(&tried.all) || !COLD.contains(&tried.cold) {
                    continue;
                }
                let off = off(tried)?;
                if off < least - BETTER {
                    (best, least) = (tried, off);
                }
            }
        }
    }
    Ok(best)
}

impl Fit {
    /// As in a loop.
    pub const NONE: Self = Self {
        all: 1.0,
        cold: 1.0,
    };

    fn moved(self, of_cold: bool, factor: f64) -> Self {
        let mut moved = self;
        *if of_cold {
            &mut moved.cold
        } else {
            &mut moved.all
        } *= factor;
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bands, costs};
    use super::*;

    #[test]
    fn what_is_cold_is_found_by_the_waits_alone() {
        let traces = bands(2, 30);
        for cold in [1.0, 2.0, 4.5] {
            let real = Fit { all: 1.0, cold };
            let run = replay(&costs(), real, Spread::Lazy, &traces).unwrap();
            let found = fit(&costs(), Spread::Lazy, &traces, &run.waited()).unwrap();
            assert!(
                (found.cold / cold - 1.0).abs() < 0.1,
                "{found:?} for {cold}"
            );
            let again = replay(&costs(), found, Spread::Lazy, &traces).unwrap();
            let ratio = again.part.as_secs_f64() / run.part.as_secs_f64();
            assert!((ratio - 1.0).abs() < 0.001, "{found:?} for {cold}: {ratio}");
        }
    }

    #[test]
    fn where_nothing_computes_for_long_all_of_it_is_slower() {
        let turns = |rank: u32| {
            let turn = format!("w 3000\na {0}\ns {0} 100\nr {0}\na 9\nr 9", rank + 3);
            let text = vec![turn; 200].join("\n");
            Trace::parse(&format!("n\n{text}\nb 1\nn")).unwrap()
        };
        let traces = [turns(0), turns(1)];
        let real = Fit {
            all: 2.0,
            cold: 1.0,
        };
        let run = replay(&costs(), real, Spread::Lazy, &traces).unwrap();
        let found = fit(&costs(), Spread::Lazy, &traces, &run.waited()).unwrap();
        assert!((found.all / 2.0 - 1.0).abs() < 0.1, "{found:?}");
    }

    #[test]
    fn few_waits_say_nothing() {
        let barriers = [vec![7; ENOUGH], vec![9; ENOUGH + 3]];
        let waited = Waited::of(&[5; ENOUGH - 1], &barriers, &[]);
        assert_eq!((waited.locks, waited.faults), (None, None));
        let typical = Duration::from_nanos(7);
        let count = ENOUGH;
        assert_eq!(waited.barriers, Some(Wait { typical, count }));
        let traces = bands(2, 3);
        let nothing = Waited::default();
        let found = fit(&costs(), Spread::Lazy, &traces, &nothing).unwrap();
        assert_eq!(found, Fit::NONE);
    }

    #[test]
    fn the_longest_waits_stay_out_and_who_came_first_to_a_barrier() {
        let waits: Vec<u64> = (0..100).rev().collect();
        let barriers = [vec![30; 100], waits.clone()];
        let waited = Waited::of(&waits, &barriers, &[]);
        let nanos = |wait: Option<Wait>| wait.map(|wait| wait.typical.as_nanos());
        assert_eq!(nanos(waited.locks), Some(44));
        assert_eq!(nanos(waited.barriers), Some((29 * 30 / 2 + 60 * 30) / 90));
        assert_eq!(nanos(waited.faults), None);
    }
}
