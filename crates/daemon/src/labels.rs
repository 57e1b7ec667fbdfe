//! Programs' names for the parts of their segments, for reports of races.

use pagemesh_sorted::LongMap;
use pagemesh_wire::local::{Label, RaceLine};
use pagemesh_wire::{PAGE_SIZE, SegmentId};

/// Labels that are remembered, of all segments together.
const KEPT: usize = 4096;

/// Bytes of a name: a variable of a program that needs more is cut.
const LONGEST: usize = 80;

/// Names by the place where the named memory begins.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    known: LongMap<(SegmentId, u64), (u64, String)>,
}

impl Labels {
    /// A program names a part. The latest name counts.
    pub(crate) fn add(&mut self, segment: SegmentId, labels: Vec<Label>) {
        for label in labels {
            let place = (segment, label.offset);
            if self.known.len() == KEPT && !self.known.contains_key(&place) {
                return;
            }
            let printable = label.name.chars().filter(|outgoing| !outgoing.is_control());
            let mut name = String::new();
            for outgoing in printable {
                if name.len() + outgoing.len_utf8() > LONGEST {
                    break;
                }
                name.push(outgoing);
            }
            self.known.insert(place, (label.length, name));
        }
    }

    /// The name of the bytes of a race; empty if no program named them.
    pub(crate) fn name(&self, race: &RaceLine) -> String {
        let offset = u64::from(race.page.0) * PAGE_SIZE as u64 + u64::from(race.begin);
        let before = (race.segment, 0)..=(race.segment, offset);
        let nearest = self.known.range(before).next_back();
        let Some(((_, begin), (length, name))) = nearest else {
            return String::new();
        };
        match offset - begin {
            beyond if beyond >= *length => String::new(),
            0 => name.clone(),
            inside => format!("{name} + {inside}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::{NodeId, PageIndex};

    fn race(segment: u64, page: u32, begin: u16) -> RaceLine {
        RaceLine {
            segment: SegmentId(segment),
            page: PageIndex(page),
            begin,
            end: begin + 1,
            one: NodeId(1),
            other: NodeId(2),
        }
    }

    fn label(offset: u64, length: u64, name: &str) -> Label {
        let name = name.to_owned();
        Label {
            offset,
            length,
            name,
        }
    }

    #[test]
    fn the_nearest_part_that_reaches_so_far_is_named() {
        let mut labels = Labels::default();
        labels.add(
            SegmentId(7),
            vec![label(4096, 100, "*grid"), label(8, 8, "*sum")],
        );
        assert_eq!(labels.name(&race(7, 1, 0)), "*grid");
        assert_eq!(labels.name(&race(7, 1, 99)), "*grid + 99");
        assert_eq!(labels.name(&race(7, 1, 100)), "", "beyond its end");
        assert_eq!(labels.name(&race(7, 0, 7)), "");
        assert_eq!(labels.name(&race(8, 1, 0)), "", "another segment");
    }

    #[test]
    fn names_are_short_and_few() {
        let mut labels = Labels::default();
        let long = format!("a\n\x1b{}", "é".repeat(100));
        labels.add(SegmentId(7), vec![label(0, 8, &long)]);
        let name = labels.name(&race(7, 0, 0));
        assert!(name.starts_with("aé") && name.len() <= LONGEST, "{name:?}");
        let many = (1..2 * KEPT as u64).map(|at| label(8 * at, u64::MAX, "x"));
        labels.add(SegmentId(7), many.collect());
        assert_eq!(labels.known.len(), KEPT);
        assert_eq!(labels.name(&race(u64::MAX, u32::MAX, 4095)), "");
    }
}
