//! Single faults, of which all else is made.

use super::mean_of_pairs;
use crate::cluster::Cluster;
use crate::costs::Costs;
use crate::engine::Stuck;
use crate::host::{Act, Place, Program};
use core::time::Duration;
use pagemesh_wire::peer::Window;
use std::collections::VecDeque;

/// Pages that are touched one after the other; far apart, so that these accesses are no walk.
const PAGES: u32 = 24;

fn page(number: u32) -> Place {
    Place {
        segment: 0,
        page: number * APART,
        word: 0,
    }
}

/// More than any step of a walk.
const APART: u32 = 100;

/// Nanoseconds after which nothing is under way any more.
const QUIET: u64 = 1_000_000;

/// Performs its list of actions.
struct Script(VecDeque<Act>);

impl Program for Script {
    fn next(&mut self, _: u64) -> Act {
        self.0.pop_front().unwrap_or(Act::End)
    }
}

/// Each round: some hosts write a page, some read it, then the first performs the timed action.
fn rounds(
    costs: &Costs,
    hosts: usize,
    before: impl Fn(usize, Place) -> [Option<Act>; 2],
    timed: impl Fn(Place) -> Act,
) -> Result<Duration, Stuck> {
    let mut scripts = vec![VecDeque::new(); hosts];
    for number in 0..PAGES {
        let place = page(number);
        for (host, script) in scripts.iter_mut().enumerate() {
            for act in before(host, place) {
                script.extend(act);
                script.push_back(Act::Meet);
            }
            if host == 0 {
                script.extend([Act::Sleep(QUIET), Act::Note, timed(place), Act::Note]);
            }
            script.push_back(Act::Meet);
        }
    }
    let programs = scripts
        .into_iter()
        .map(|script| Box::new(Script(script)) as Box<dyn Program>);
    let mut cluster = Cluster::new(
        *costs,
        Window::Nanos(0),
        &[PAGES * APART],
        programs.collect(),
    )?;
    Ok(mean_of_pairs(&cluster.run()?))
}

/// A load from a page that another node has written.
///
/// # Errors
/// If the costs allow no end.
pub fn fault(costs: &Costs) -> Result<Duration, Stuck> {
    let writes = |host, place| [(host == 1).then_some(Act::Store(place, 1)), None];
    rounds(costs, 2, writes, Act::Load)
}

/// A store to a page that another node owns, and of which this one has a copy.
///
/// # Errors
/// If the costs allow no end.
pub fn upgrade(costs: &Costs) -> Result<Duration, Stuck> {
    let before = |host, place| match host {
        0 => [None, Some(Act::Load(place))],
        _ => [Some(Act::Store(place, 1)), None],
    };
    rounds(costs, 2, before, |place| Act::Store(place, 2))
}

/// A store to one's own page, of which so many others have copies.
///
/// # Errors
/// If the costs allow no end.
pub fn invalidation(costs: &Costs, readers: usize) -> Result<Duration, Stuck> {
    let before = |host, place| match host {
        0 => [Some(Act::Store(place, 1)), None],
        _ => [None, Some(Act::Load(place))],
    };
    rounds(costs, readers + 1, before, |place| Act::Store(place, 2))
}
