//! How patient nodes are.

use crate::dice::Dice;
use crate::step::HostPlan;
use pagemesh_core::Pace;
use pagemesh_core::limits::{
    AHEAD, LARGE_DIFF, LARGE_DIFFS_SHOWN, LEFT_TO_READER, NOTICES_KEPT, TWINS_KEPT,
};
use std::time::Duration;

pub(crate) fn pace(dice: &mut Dice) -> Pace {
    let resend_first = Duration::from_micros(*dice.pick(&[300, 1_000, 10_000]));
    Pace {
        resend_first,
        resend_soonest: resend_first / 5,
        resend_ceiling: resend_first * *dice.pick(&[8, 64]),
        heartbeat: Duration::from_millis(*dice.pick(&[100, 200])),
        dead_after: Duration::from_secs(3),
        ahead: AHEAD,
        notices: NOTICES_KEPT,
        twins: TWINS_KEPT,
        large_diff: LARGE_DIFF,
        shown: LARGE_DIFFS_SHOWN,
        left_to_reader: LEFT_TO_READER,
        frames_at_once: 3,
    }
}

/// The least ceiling of resend intervals that the slowest host bears. With real times it could
/// answer some 100,000 resent messages a second; below a hundred it would do nothing else, and no
/// node would ever get its turn (wild seed 431175119).
pub(super) fn bearable(hosts: &[HostPlan]) -> Duration {
    let slowest = hosts.iter().map(|host| host.cost).max().unwrap_or(0);
    Duration::from_nanos(100 * slowest)
}
