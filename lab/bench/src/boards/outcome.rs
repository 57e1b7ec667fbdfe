//! What processes say of a measurement, put together.

use super::super::report::Samples;
use serde::Deserialize;

/// What a writer says.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Wrote {
    pub(super) published: u64,
    /// Nanoseconds of publishing.
    pub(super) took: Vec<u64>,
    pub(super) worst: u64,
    pub(super) seconds: f64,
    pub(super) cpu: u64,
}

/// What a reader says.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Watched {
    pub(super) seen: u64,
    pub(super) torn: u64,
    /// States that were older than one seen before.
    pub(super) back: u64,
    /// The number of the last one.
    pub(super) last: u64,
    pub(super) ages: Vec<u64>,
    pub(super) last_age: u64,
    /// Nanoseconds from joining to the first state; negative if none came.
    pub(super) first: i64,
    /// How often the broker closed its connection.
    pub(super) cut_off: u64,
    pub(super) cpu: u64,
}

/// What a player of ping-pong says.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Played {
    pub(super) trips: Vec<u64>,
    pub(super) lost: u64,
}

/// All rounds of a case.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) ages: Samples,
    pub(super) publishing: Samples,
    /// The slowest.
    pub(super) worst: u64,
    pub(super) published: u64,
    pub(super) seconds: f64,
    /// Readers, and how many states they saw, all together.
    pub(super) watched: u64,
    pub(super) seen: u64,
    /// States that they could have seen.
    pub(super) shown: u64,
    pub(super) torn: u64,
    pub(super) back: u64,
    pub(super) cut_off: u64,
    /// Readers that never saw the last state, and its age where it was seen.
    pub(super) without_last: u64,
    pub(super) last_ages: Samples,
    /// Median age in the last quarter to that in the first, of each reader, in thousandths.
    pub(super) growth: Samples,
    pub(super) joined: Samples,
    pub(super) never_joined: u64,
    pub(super) trips: Samples,
    pub(super) lost: u64,
    /// Nanoseconds of processor, their daemons' too.
    pub(super) cpu_writer: u64,
    pub(super) cpu_readers: u64,
    pub(super) cpu_broker: u64,
    /// Bytes that left the writer's node.
    pub(super) sent: u64,
}

impl Outcome {
    /// A writer and its readers. One that was stopped has ages that tell of the stop only.
    pub(super) fn of(wrote: Wrote, watched: Vec<Watched>, stopped: Option<usize>) -> Self {
        let mut outcome = Self {
            published: wrote.published,
            seconds: wrote.seconds,
            worst: wrote.worst,
            cpu_writer: wrote.cpu,
            ..Self::default()
        };
        outcome.publishing.extend(wrote.took);
        for (reader, one) in watched.into_iter().enumerate() {
            outcome.torn += one.torn;
            outcome.back += one.back;
            outcome.cut_off += one.cut_off;
            outcome.cpu_readers += one.cpu;
            if one.last == wrote.published {
                outcome.last_ages.extend(vec![one.last_age]);
            } else {
                outcome.without_last += 1;
            }
            if stopped == Some(reader) {
                continue;
            }
            outcome.watched += 1;
            outcome.seen += one.seen;
            outcome.shown += wrote.published;
            outcome.growth.extend(growth(&one.ages));
            outcome.ages.extend(one.ages);
        }
        outcome
    }

    /// Somebody came late.
    pub(super) fn of_join(watched: &Watched) -> Self {
        let mut outcome = Self::default();
        match u64::try_from(watched.first) {
            Ok(first) => outcome.joined.extend(vec![first]),
            Err(_) => outcome.never_joined = 1,
        }
        outcome.torn = watched.torn;
        outcome
    }

    pub(super) fn of_play(played: Played) -> Self {
        let mut outcome = Self::default();
        outcome.trips.extend(played.trips);
        outcome.lost = played.lost;
        outcome
    }

    /// One more round.
    pub(super) fn add(&mut self, more: Self) {
        self.ages.merge(more.ages);
        self.publishing.merge(more.publishing);
        self.last_ages.merge(more.last_ages);
        self.growth.merge(more.growth);
        self.joined.merge(more.joined);
        self.trips.merge(more.trips);
        self.worst = self.worst.max(more.worst);
        self.seconds += more.seconds;
        for (sum, one) in [
            (&mut self.published, more.published),
            (&mut self.watched, more.watched),
            (&mut self.seen, more.seen),
            (&mut self.shown, more.shown),
            (&mut self.torn, more.torn),
            (&mut self.back, more.back),
            (&mut self.cut_off, more.cut_off),
            (&mut self.without_last, more.without_last),
            (&mut self.never_joined, more.never_joined),
            (&mut self.lost, more.lost),
            (&mut self.cpu_writer, more.cpu_writer),
            (&mut self.cpu_readers, more.cpu_readers),
            (&mut self.cpu_broker, more.cpu_broker),
            (&mut self.sent, more.sent),
        ] {
            *sum += one;
        }
    }
}

/// The median of the last quarter to that of the first, in thousandths; nothing of few.
fn growth(ages: &[u64]) -> Vec<u64> {
    let quarter = ages.len() / 4;
    if quarter < 4 {
        return Vec::new();
    }
    let median = |ages: &[u64]| {
        let mut samples = Samples::default();
        samples.extend(ages.to_vec());
        samples.median()
    };
    let (first, last) = (
        median(&ages[..quarter]),
        median(&ages[ages.len() - quarter..]),
    );
    vec![(last / first * 1000.0) as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_that_grow_are_told() {
        let ages: Vec<u64> = (1..=100).map(|number| number * 1000).collect();
        let found = growth(&ages)[0];
        assert!((6000..8000).contains(&found), "{found}");
        assert_eq!(growth(&[700; 40]), [1000]);
        assert!(growth(&[1, 2, 3]).is_empty());
    }

    #[test]
    fn a_reader_without_the_last_state_is_counted_and_a_stopped_one_set_aside() {
        let wrote = Wrote {
            published: 9,
            ..Wrote::default()
        };
        let reader = |last, seen| Watched {
            last,
            seen,
            ..Watched::default()
        };
        let outcome = Outcome::of(wrote, vec![reader(9, 5), reader(8, 8)], Some(0));
        assert_eq!((outcome.without_last, outcome.last_ages.len()), (1, 1));
        assert_eq!((outcome.seen, outcome.shown, outcome.watched), (8, 9, 1));
    }
}
