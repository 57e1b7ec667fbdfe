//! Which states that need a person this node is in, and has been in.

use pagemesh_sorted::SortedMap;
use pagemesh_wire::local::Trouble;

/// How often a daemon looks whether anything is wrong.
const EVERY: u64 = 1_000_000_000;

/// The states that this node is in, and has been in.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    /// How often each began, and whether it lasts.
    seen: SortedMap<Trouble, (u64, bool)>,
    next: u64,
}

impl Troubles {
    /// Looks once a second whether anything is wrong, and logs what was not a second ago.
    pub(crate) fn look(&mut self, now: u64, problems: impl FnOnce() -> Vec<String>) {
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        for line in self.note(problems()) {
            tracing::warn!("{line}");
        }
    }

    /// Notes what is wrong now. The lines of states that have begun since the last time.
    fn note(&mut self, lines: Vec<String>) -> Vec<String> {
        let mut now: SortedMap<Trouble, String> = SortedMap::new();
        for line in lines {
            if let Some(trouble) = Trouble::of_line(&line) {
                now.entry(trouble).or_insert(line);
            }
        }
        for (trouble, (_, lasts)) in &mut self.seen {
            if *lasts && !now.contains_key(trouble) {
                *lasts = false;
                if !is_logged_elsewhere(*trouble) {
                    tracing::info!("{}: it is over", trouble.name());
                }
            }
        }
        let mut begun = Vec::new();
        for (trouble, line) in now {
            let (times, lasts) = self.seen.entry(trouble).or_default();
            if !*lasts {
                (*times, *lasts) = (*times + 1, true);
                if !is_logged_elsewhere(trouble) {
                    begun.push(line);
                }
            }
        }
        begun
    }

    /// How often each state has begun.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (String, u64)> {
        Trouble::ALL.iter().map(|trouble| {
            let (times, _) = self.seen.get(trouble).copied().unwrap_or_default();
            (
                format!("trouble_{}", trouble.name().replace('-', "_")),
                times,
            )
        })
    }
}

/// Every daemon begins with joining, and one that takes long says so; what cannot be read or written
/// is logged in that moment.
const fn is_logged_elsewhere(trouble: Trouble) -> bool {
    matches!(
        trouble,
        Trouble::Joining | Trouble::DiskFull | Trouble::DiskFailed | Trouble::KeyUnreadable
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_told_when_it_begins_and_counted() {
        let mut troubles = Troubles::default();
        let dead = || Trouble::CoordinatorSilent.line("n1");
        assert_eq!(troubles.note(vec![dead(), dead()]), [dead()]);
        assert!(troubles.note(vec![dead()]).is_empty(), "it lasts");
        assert!(troubles.note(vec![]).is_empty());
        assert_eq!(troubles.note(vec![dead(), "odd".into()]), [dead()]);
        let counted: SortedMap<_, _> = troubles.counters().collect();
        assert_eq!(counted["trouble_coordinator_silent"], 2);
        assert_eq!(counted["trouble_disk_full"], 0);
    }
}
