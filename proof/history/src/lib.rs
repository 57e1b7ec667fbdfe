//! Recorded loads and stores, each with the moments when it began and ended: is there one memory
//! that could have given all these values?
//!
//! Every place is checked alone: its accesses must fit into one order in which each load sees the
//! latest store, and an access that ended before another began comes before it (linearizability).
//! No two stores to one place store
//! the same value, so each load names its store, and the question is answered by
//! sorting (Gibbons and Korach, "Testing shared memories", 1997). A store and its
//! loads form a *zone*, from the first end to the last beginning among them. If the
//! end comes first, the value must have been there all that time (*forward*): so no
//! two forward zones overlap, and no other zone lies within one.

#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

/// The value of every place before the first store there.
pub const INITIAL: u64 = 0;

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access<P> {
    /// Where.
    pub place: P,
    /// Whether it stored; else it loaded.
    pub store: bool,
    /// The value.
    pub value: u64,
    /// When it began.
    pub began: u64,
    /// When it ended; none if that is unknown, or it never did.
    pub ended: Option<u64>,
}

/// Why no memory could have done that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contradiction<P> {
    /// Two stores of one value: such a history cannot be judged.
    StoredTwice(Access<P>),
    /// A load of a value that was never stored.
    NeverStored(Access<P>),
    /// A load that ended before its store began.
    TooEarly(Access<P>),
    /// These two values were there at the same time, or the second one came
    /// and went while the first one was there.
    Together {
        /// Where.
        place: P,
        /// One value.
        first: u64,
        /// The other one.
        second: u64,
        /// From when on the first one was there for sure.
        from: u64,
        /// Until when.
        until: u64,
    },
}

/// A store and the loads that saw it. Moments are counted from 1; the initial value was there
/// before that.
#[derive(Clone, Copy, Debug)]
struct Zone {
    value: u64,
    /// When the store began.
    began: u64,
    first_end: u64,
    last_begin: u64,
    /// The store has ended, or a load saw it: it happened.
    happened: bool,
}

impl Zone {
    const INITIAL: Self = Self {
        value: INITIAL,
        began: 0,
        first_end: 0,
        last_begin: 0,
        happened: true,
    };

    fn of_store(value: u64, began: u64, ended: Option<u64>) -> Self {
        Self {
            value,
            began: began + 1,
            first_end: ended.map_or(u64::MAX, |ended| ended + 1),
            last_begin: began + 1,
            happened: ended.is_some(),
        }
    }

    fn is_forward(&self) -> bool {
        self.first_end < self.last_begin
    }
}

/// Judges a history. Returns at how many places there were accesses.
///
/// # Errors
/// The first contradiction found.
pub fn check<P: Ord + Copy>(history: &[Access<P>]) -> Result<usize, Contradiction<P>> {
    let mut places: BTreeMap<P, Vec<&Access<P>>> = BTreeMap::new();
    for access in history {
        places.entry(access.place).or_default().push(access);
    }
    for (place, accesses) in &places {
        let zones = zones(accesses)?;
        judge(*place, &zones)?;
    }
    Ok(places.len())
}

fn zones<P: Copy>(accesses: &[&Access<P>]) -> Result<Vec<Zone>, Contradiction<P>> {
    let mut zones = BTreeMap::from([(INITIAL, Zone::INITIAL)]);
    for access in accesses.iter().filter(|access| access.store) {
        let zone = Zone::of_store(access.value, access.began, access.ended);
        if zones.insert(access.value, zone).is_some() {
            return Err(Contradiction::StoredTwice(**access));
        }
    }
    for access in accesses.iter().filter(|access| !access.store) {
        // A load that did not end saw nothing.
        let Some(ended) = access.ended else { continue };
        let Some(zone) = zones.get_mut(&access.value) else {
            return Err(Contradiction::NeverStored(**access));
        };
        let (began, ended) = (access.began + 1, ended + 1);
        if ended < zone.began {
            return Err(Contradiction::TooEarly(**access));
        }
        zone.first_end = zone.first_end.min(ended);
        zone.last_begin = zone.last_begin.max(began);
        zone.happened = true;
    }
    Ok(zones.into_values().filter(|zone| zone.happened).collect())
}

fn judge<P: Copy>(place: P, zones: &[Zone]) -> Result<(), Contradiction<P>> {
    let (mut forward, others): (Vec<Zone>, Vec<Zone>) =
        zones.iter().partition(|zone| zone.is_forward());
    forward.sort_unstable_by_key(|zone| zone.first_end);
    let together = |first: &Zone, second: &Zone| Contradiction::Together {
        place,
        first: first.value,
        second: second.value,
        from: first.first_end.saturating_sub(1),
        until: first.last_begin - 1,
    };
    for pair in forward.windows(2) {
        if pair[1].first_end < pair[0].last_begin {
            return Err(together(&pair[0], &pair[1]));
        }
    }
    for other in &others {
        // They do not overlap, so only the last one that began before can
        // contain it.
        let before = forward.partition_point(|zone| zone.first_end < other.last_begin);
        if let Some(around) = before.checked_sub(1).map(|at| &forward[at])
            && other.first_end < around.last_begin
        {
            return Err(together(around, other));
        }
    }
    Ok(())
}

impl<P: fmt::Display> fmt::Display for Access<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.store { "store" } else { "load" };
        let Self {
            place,
            value,
            began,
            ..
        } = self;
        write!(f, "{what} of {value:#x} at {place}, from {began} to ")?;
        match self.ended {
            Some(ended) => write!(f, "{ended}"),
            None => f.write_str("nobody knows when"),
        }
    }
}

impl<P: fmt::Display> fmt::Display for Contradiction<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StoredTwice(access) => write!(f, "a second {access}"),
            Self::NeverStored(access) => write!(f, "{access}: nobody stored that"),
            Self::TooEarly(access) => write!(f, "{access}: before it was stored"),
            Self::Together {
                place,
                first,
                second,
                from,
                until,
            } => write!(
                f,
                "at {place} {first:#x} was there from {from} to {until}, and {second:#x} meanwhile"
            ),
        }
    }
}
