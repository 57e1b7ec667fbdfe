//! Bytes that two nodes wrote without knowing of each other, as far as this node has
//! noticed (`--check-races`).

use crate::labels::Labels;
use pagemesh_wire::local::{RaceLine, RaceReport};
use std::collections::BTreeSet;

/// Races that are remembered: a program with more has enough to mend.
const KEPT: usize = 1024;

/// Races in one report: as many as surely fit in a packet.
const TOLD: usize = 128;

/// Of these the log speaks.
const LOGGED: usize = 20;

/// All that was noticed.
#[derive(Debug, Default)]
pub(crate) struct Races {
    /// In the order in which they were noticed.
    found: Vec<RaceLine>,
    known: BTreeSet<RaceLine>,
    /// The programs' names for the bytes of races.
    pub(crate) labels: Labels,
    /// This node was asked to look for races.
    pub(crate) looked_for: bool,
    /// Noticed and not remembered.
    more: u64,
}

impl Races {
    /// Bytes of a page were written in a race. Whether that is news.
    pub(crate) fn notice(&mut self, race: RaceLine) -> bool {
        if self.known.contains(&race) {
            return false;
        }
        if self.found.len() == KEPT {
            self.more += 1;
            return true;
        }
        if self.found.len() < LOGGED {
            tracing::warn!(
                segment = %race.segment, page = %race.page, begin = race.begin, end = race.end,
                one = %race.one, other = %race.other,
                "two nodes wrote the same bytes, and no lock or barrier was between them",
            );
        }
        self.known.insert(race);
        self.found.push(race);
        true
    }

    /// The races noticed, from the one with this number on.
    pub(crate) fn report(&self, first: u32) -> RaceReport {
        let lines = || self.found.iter().skip(first as usize).take(TOLD);
        RaceReport {
            lines: lines().copied().collect(),
            names: lines().map(|race| self.labels.name(race)).collect(),
            looked_for: self.looked_for,
            known: self.found.len() as u32,
            more: self.more,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::{NodeId, PageIndex, SegmentId};

    fn race(page: u32) -> RaceLine {
        RaceLine {
            segment: SegmentId(1 << 48),
            page: PageIndex(page),
            begin: 8,
            end: 16,
            one: NodeId(1),
            other: NodeId(2),
        }
    }

    #[test]
    fn each_is_told_once_and_too_many_are_counted() {
        let mut races = Races::default();
        assert!(races.notice(race(0)));
        assert!(!races.notice(race(0)));
        for page in 1..KEPT as u32 + 5 {
            assert!(races.notice(race(page)));
        }
        let mut told = Vec::new();
        loop {
            let report = races.report(told.len() as u32);
            assert_eq!((report.known, report.more), (KEPT as u32, 5));
            if report.lines.is_empty() {
                break;
            }
            told.extend(report.lines);
        }
        assert_eq!(told.len(), KEPT);
        assert_eq!((told[0], told[KEPT - 1]), (race(0), race(KEPT as u32 - 1)));
    }
}
