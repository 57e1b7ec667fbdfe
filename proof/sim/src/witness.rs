//! What threads saw and stored, written down, and judged by those who know
//! nothing of the golden memory: the judge of real runs.

use crate::check::{Check, ensure};
use crate::kernel::{PageKey, ThreadId};
use crate::world::World;
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

/// Everything that was written down.
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

impl World {
    /// A thread has just ended an access that it began when its present operation
    /// began.
    pub(crate) fn witness(
        &mut self,
        id: ThreadId,
        key: PageKey,
        word: usize,
        value: u64,
        store: bool,
    ) {
        let began = self.processes.threads[id.0].since.unwrap_or(self.now);
        self.history.push(Access {
            place: Word(key, word),
            store,
            value,
            began: began.0,
            ended: Some(self.now.0),
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
