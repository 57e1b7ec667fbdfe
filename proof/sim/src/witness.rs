//! The loads and stores of threads, recorded, and checked without the golden memory: by the checker
//! of real runs.

use crate::check::{Check, ensure};
use crate::checkers::Checkers;
use crate::kernel::PageKey;
use pagemesh_core::Time;
use pagemesh_history::{Access, INITIAL, check};
use std::collections::BTreeSet;
use std::fmt;

/// A word of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Word(PageKey, usize);

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// All recorded accesses.
pub(crate) type History = Vec<Access<Word>>;

/// Words to which some value, or the first one, was stored twice.
fn flags(history: &History) -> BTreeSet<Word> {
    let mut stores = BTreeSet::new();
    let stored = history.iter().filter(|access| access.store);
    stored
        .filter(|access| access.value == INITIAL || !stores.insert((access.place, access.value)))
        .map(|access| access.place)
        .collect()
}

impl Checkers {
    /// A thread loaded or stored a value in this time.
    pub(crate) fn witness(
        &mut self,
        (key, word): (PageKey, usize),
        value: u64,
        store: bool,
        (began, ended): (Time, Time),
    ) {
        self.history.push(Access {
            place: Word(key, word),
            store,
            value,
            began: began.0,
            ended: Some(ended.0),
        });
    }

    /// Whether one memory could have done all that. Pages that were lost once
    /// are excused, since they may have gone back, and so are flags, to which
    /// the same value is stored again and again.
    pub(crate) fn judge(&self) -> Check {
        let flags = flags(&self.history);
        let excused = |place: Word| self.golden.was_lost(place.0) || flags.contains(&place);
        let history = self.history.iter().filter(|access| !excused(access.place));
        if let Err(contradiction) = check(&history.copied().collect::<History>()) {
            ensure!(false, LatestValue, "{contradiction}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::{PageIndex, SegmentId};

    #[test]
    fn a_load_of_what_was_overwritten_before_is_found() {
        let mut checkers = Checkers::default();
        let segment = SegmentId(1);
        let page = PageIndex(2);
        let place = (PageKey { segment, page }, 3);
        let time = |began, ended| (Time(began), Time(ended));
        checkers.witness(place, 5, true, time(1, 2));
        checkers.witness(place, 6, true, time(3, 4));
        checkers.witness(place, 6, false, time(5, 6));
        assert!(checkers.judge().is_ok());
        checkers.witness(place, 5, false, time(7, 8));
        assert!(checkers.judge().is_err());
    }
}
