//! MR12 in time: what happens to the page of Battleship, by the time stamps of both daemons.

use super::super::super::testbed::stamps_of;
use anyhow::Result;
use pagemesh_cli::sandbox::Sandbox;
use pagemesh_wire::local::{Stamp, StampKind};

/// Events that are shown: a turn of each player has fewer.
const EVENTS: usize = 16;

/// The events from a fault in the middle of the last game on.
pub(super) fn of(sandbox: &Sandbox) -> Result<String> {
    let mut all = Vec::new();
    for (number, node) in sandbox.nodes().iter().enumerate() {
        all.extend(stamps_of(node)?.into_iter().map(|stamp| (number, stamp)));
    }
    Ok(told(all))
}

/// In words; nothing if there are too few.
fn told(mut all: Vec<(usize, Stamp)>) -> String {
    // Both daemons' clocks are one here.
    all.sort_by_key(|(_, stamp)| stamp.nanos);
    let middle = all.len() / 2;
    let begin = all[middle..]
        .iter()
        .position(|(_, stamp)| stamp.what == StampKind::Fault);
    let Some(begin) = begin.map(|at| middle + at) else {
        return String::new();
    };
    let events = all[begin..].iter().take(EVENTS);
    let first = all[begin].1.nanos;
    let events = events.map(|(node, stamp)| {
        let micros = (stamp.nanos - first) as f64 / 1000.0;
        format!("{micros:.1} site {} {}", node + 1, words(stamp.what))
    });
    let events: Vec<_> = events.collect();
    format!("From a fault on, in microseconds: {}.", events.join(", "))
}

fn words(what: StampKind) -> &'static str {
    match what {
        StampKind::Program => "stamps itself",
        StampKind::Fault => "faults",
        StampKind::Asked => "requests",
        StampKind::Arrived => "has the page",
        StampKind::Mapped => "goes on",
        StampKind::Given => "gives the page away",
        StampKind::Invalidated => "drops its copy",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(number: u64, nanos: u64, what: StampKind) -> Stamp {
        Stamp {
            number,
            nanos,
            what,
            tag: 0,
        }
    }

    #[test]
    fn events_of_both_sites_are_told_in_their_order() {
        let all = vec![
            (0, stamp(9, 9_000, StampKind::Arrived)),
            (1, stamp(5, 4_500, StampKind::Given)),
            (0, stamp(8, 1_000, StampKind::Fault)),
            (1, stamp(3, 1, StampKind::Given)),
            (1, stamp(4, 2, StampKind::Given)),
        ];
        assert_eq!(
            told(all.clone()),
            "From a fault on, in microseconds: 0.0 site 1 faults, 3.5 site 2 gives the page away, 8.0 site 1 has the page."
        );
        assert_eq!(told(all[..2].to_vec()), "", "no fault");
        assert_eq!(told(Vec::new()), "");
    }
}
