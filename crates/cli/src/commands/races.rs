//! The races that daemons noticed, for people.

use crate::control::{Control, unexpected};
use crate::output;
use anyhow::Result;
use pagemesh_wire::PAGE_SIZE;
use pagemesh_wire::local::{RaceLine, Reply, Request};
use std::collections::BTreeMap;

/// Races shown at most: more than a reader would read.
const SHOWN: usize = 50;

/// Races that some daemons noticed.
#[derive(Debug, Default)]
pub(crate) struct Races {
    /// The names of their bytes, if any daemon knows them.
    all: BTreeMap<RaceLine, String>,
    /// Noticed and not remembered.
    more: u64,
}

/// How many races a daemon has noticed until now.
pub(crate) fn known(control: &mut Control) -> Result<u32> {
    match control.ask(Request::Races { first: u32::MAX })? {
        Reply::Races(report) => Ok(report.known),
        reply => unexpected(&reply),
    }
}

impl Races {
    /// Adds the races that a daemon noticed, except the first ones.
    pub(crate) fn add(&mut self, control: &mut Control, mut first: u32) -> Result<()> {
        loop {
            let report = match control.ask(Request::Races { first })? {
                Reply::Races(report) => report,
                reply => return unexpected(&reply),
            };
            if report.lines.is_empty() {
                self.more += report.more;
                return Ok(());
            }
            first += report.lines.len() as u32;
            let names = report
                .names
                .into_iter()
                .chain(std::iter::repeat_with(String::new));
            for (race, name) in report.lines.into_iter().zip(names) {
                let known = self.all.entry(race).or_default();
                if known.is_empty() {
                    *known = name;
                }
            }
        }
    }

    /// For the error output; nothing if there was none.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<_> = self
            .all
            .iter()
            .take(SHOWN)
            .map(|(race, name)| line(race, name))
            .collect();
        let rest = self.all.len().saturating_sub(SHOWN) as u64 + self.more;
        if rest > 0 {
            lines.push(format!("and {rest} more"));
        }
        lines
    }

    /// Prints the races.
    pub(crate) fn tell(&self) {
        for line in self.lines() {
            output::note(format_args!("pagemesh: {line}"));
        }
    }
}

fn line(race: &RaceLine, name: &str) -> String {
    let RaceLine {
        segment,
        page,
        begin,
        end,
        one,
        other,
    } = race;
    let first = u64::from(page.0) * PAGE_SIZE as u64 + u64::from(*begin);
    let called = match name {
        "" => String::new(),
        name => format!(" `{name}`,"),
    };
    format!(
        "race: nodes {one} and {other} both wrote{called} bytes {begin} to {} of page {page} of segment {segment} \
         (from offset {first:#x}), and no lock or barrier of the segment was between them",
        end - 1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::{NodeId, PageIndex, SegmentId};

    #[test]
    fn races_are_told_with_page_offset_and_nodes() {
        let mut races = Races::default();
        assert!(races.lines().is_empty());
        for page in 0..60 {
            let race = RaceLine {
                segment: SegmentId(1 << 48),
                page: PageIndex(page),
                begin: 8,
                end: 16,
                one: NodeId(1),
                other: NodeId(3),
            };
            let name = if page == 2 { "*grid + 8" } else { "" };
            races.all.insert(race, name.to_owned());
        }
        races.more = 2;
        let lines = races.lines();
        assert_eq!(lines.len(), SHOWN + 1);
        assert!(
            lines[2].contains("bytes 8 to 15 of page 2 "),
            "{}",
            lines[2]
        );
        assert!(lines[2].contains("offset 0x2008"), "{}", lines[2]);
        assert!(
            lines[2].contains("wrote `*grid + 8`, bytes"),
            "{}",
            lines[2]
        );
        assert_eq!(lines[SHOWN], "and 12 more");
    }
}
