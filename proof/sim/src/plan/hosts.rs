//! The hosts of a run.

use super::{Features, MICRO, MILLI, Profile};
use crate::dice::Dice;
use crate::step::HostPlan;

pub(super) fn host(dice: &mut Dice, at: usize, profile: Profile, features: Features) -> HostPlan {
    let late = at > 0 && features.late_hosts && dice.chance(400);
    let sluggish = profile.is_harsh() && dice.chance(200);
    HostPlan {
        successor_of: None,
        resumes: None,
        starts_at: if late {
            dice.below(20 * MILLI)
        } else {
            dice.below(100 * MICRO) * at as u64
        },
        clock_offset: dice.below(1 << 50),
        cost: dice.between(300, 3_000) * if sluggish { 50 } else { 1 },
        wake: *dice.pick(&[2 * MICRO, 20 * MICRO, 200 * MICRO, 3 * MILLI]),
    }
}
