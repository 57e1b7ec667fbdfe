//! The segments of a run.

use super::{Features, MICRO, MILLI};
use crate::dice::Dice;
use crate::step::SegmentPlan;
use pagemesh_core::Pace;
use pagemesh_core::limits::{AHEAD, LEFT_TO_READER};
use pagemesh_wire::peer::{Manager, Policy, Window};

/// How many pages are asked for ahead, and how many of a burst are left to another reader.
const STROLLS: [(u32, u8); 3] = [(3, 2), (16, 2), (AHEAD, LEFT_TO_READER)];

/// Main segments, which come first, and others; and how many main ones there are.
pub(super) fn segments(dice: &mut Dice, features: Features) -> (Vec<SegmentPlan>, usize) {
    let mains = dice.between(1, 3) as usize;
    let tenants = if features.tenants { 3 } else { 0 };
    let segment = |at: usize| {
        let manager = *dice.pick(&[Manager::Dynamic, Manager::Fixed]);
        let window = match dice.below(4) {
            0 => Window::Auto,
            1 | 2 => Window::Nanos(0),
            _ => Window::Nanos(dice.between(MICRO, 2 * MILLI)),
        };
        SegmentPlan {
            name: if at < mains {
                format!("main{at}")
            } else {
                format!("let{}", at - mains)
            },
            pages: dice.between(1, 6) as u32,
            policy: Policy::Sequential { manager, window },
            replicas: 0,
        }
    };
    let mut segments: Vec<SegmentPlan> = (0..mains + tenants).map(segment).collect();
    if features.races {
        segments.push(SegmentPlan {
            name: "race".into(),
            pages: 1,
            policy: Policy::default(),
            replicas: 0,
        });
    }
    (segments, mains)
}

/// Makes segments so long that threads can walk through them.
pub(super) fn make_walkable(seed: u64, pace: &mut Pace, segments: &mut [SegmentPlan]) {
    let mut dice = Dice::stream(seed, "grounds");
    (pace.ahead, pace.left_to_reader) = *dice.pick(&STROLLS);
    for segment in segments {
        segment.pages += dice.between(10, 60) as u32;
    }
}
