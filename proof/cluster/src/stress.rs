//! The counts of the processes of a stress test, and whether they add up.

use serde::{Deserialize, Serialize};

/// Sums kept under locks, one lock each.
pub const TOTALS: usize = 8;

/// Sums kept by atomic additions.
pub const ATOMICS: usize = 8;

/// Pages written as a whole under locks.
pub const PATTERNS: usize = 4;

/// The operations of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// For each of its slots, how often it was raised.
    pub slots: Vec<(usize, u64)>,
    /// The sum it added to each of the totals.
    pub totals: [u64; TOTALS],
    /// The sum it added to each of the atomics.
    pub atomics: [u64; ATOMICS],
    /// How often it wrote each of the patterns.
    pub patterns: [u64; PATTERNS],
    /// Slots of others that were read and found whole.
    pub read: u64,
}

/// The values in memory at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finals {
    /// The count in every slot.
    pub slots: Vec<u64>,
    /// Every total.
    pub totals: [u64; TOTALS],
    /// The same totals, kept a second time on other pages.
    pub shadows: [u64; TOTALS],
    /// Every atomic.
    pub atomics: [u64; ATOMICS],
    /// How often each pattern was written.
    pub patterns: [u64; PATTERNS],
}

/// Whether memory holds the sums that all processes together put there.
///
/// # Errors
/// Names the first difference.
pub fn compare(reports: &[Report], finals: &Finals) -> Result<(), String> {
    check(reports, finals, "exactly", |done, found| done == found)
}

/// Whether memory holds at least the sums that these processes put there; others that were killed
/// may have added to them.
///
/// # Errors
/// Names the first difference.
pub fn compare_among_the_dead(reports: &[Report], finals: &Finals) -> Result<(), String> {
    check(reports, finals, "at least", |done, found| done <= found)
}

fn check(
    reports: &[Report],
    finals: &Finals,
    how: &str,
    fits: impl Fn(u64, u64) -> bool,
) -> Result<(), String> {
    // Only its owner ever stores to a slot.
    for (slot, count) in reports.iter().flat_map(|report| &report.slots) {
        let found = finals.slots.get(*slot).copied();
        if found != Some(*count) {
            return Err(format!(
                "slot {slot} was raised {count} times, not {found:?}"
            ));
        }
    }
    if finals.totals != finals.shadows {
        let (totals, shadows) = (finals.totals, finals.shadows);
        return Err(format!(
            "totals {totals:?} and their shadows {shadows:?} differ"
        ));
    }
    let sums = [
        (
            "totals",
            sums(reports, |report| &report.totals),
            &finals.totals[..],
        ),
        (
            "atomics",
            sums(reports, |report| &report.atomics),
            &finals.atomics,
        ),
        (
            "patterns",
            sums(reports, |report| &report.patterns),
            &finals.patterns,
        ),
    ];
    for (what, done, found) in sums {
        if !done
            .iter()
            .zip(found)
            .all(|(done, found)| fits(*done, *found))
        {
            return Err(format!("{what}: {found:?} in memory, not {how} {done:?}"));
        }
    }
    Ok(())
}

fn sums<const N: usize>(reports: &[Report], of: impl Fn(&Report) -> &[u64; N]) -> Vec<u64> {
    (0..N)
        .map(|which| reports.iter().map(|report| of(report)[which]).sum())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Vec<Report>, Finals) {
        let mut one = Report::default();
        one.slots.push((0, 3));
        one.totals[2] = 5;
        let mut two = Report::default();
        two.slots.push((1, 4));
        two.totals[2] = 1;
        two.atomics[7] = 9;
        let mut finals = Finals {
            slots: vec![3, 4],
            ..Finals::default()
        };
        finals.totals[2] = 6;
        finals.shadows[2] = 6;
        finals.atomics[7] = 9;
        (vec![one, two], finals)
    }

    #[test]
    fn what_adds_up_is_accepted_and_one_lost_step_is_not() {
        let (reports, finals) = pair();
        assert_eq!(compare(&reports, &finals), Ok(()));
        for spoil in [
            |finals: &mut Finals| finals.slots[1] -= 1,
            |finals: &mut Finals| finals.totals[2] -= 1,
            |finals: &mut Finals| finals.shadows[2] -= 1,
            |finals: &mut Finals| finals.atomics[7] -= 1,
            |finals: &mut Finals| finals.patterns[0] += 1,
        ] {
            let mut spoilt = finals.clone();
            spoil(&mut spoilt);
            assert!(compare(&reports, &spoilt).is_err());
        }
    }

    #[test]
    fn the_dead_may_have_added_but_never_taken() {
        let (reports, mut finals) = pair();
        finals.totals[2] += 1;
        finals.shadows[2] += 1;
        assert_eq!(compare_among_the_dead(&reports, &finals), Ok(()));
        assert!(compare(&reports, &finals).is_err());
        finals.atomics[7] -= 1;
        assert!(compare_among_the_dead(&reports, &finals).is_err());
    }
}
