//! The trace of a process: read from the lines that `lab/apps/trace` wrote.

use pagemesh_wire::PageIndex;

/// One step of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Computes for so many nanoseconds.
    Work(u64),
    Load(PageIndex),
    /// Stores, and changes so many bytes until it synchronizes.
    Store(PageIndex, u16),
    Barrier(u64),
    Lock(u64),
    /// Takes a lock again, having waited for a condition.
    Relock(u64),
    Unlock(u64),
    /// Waits until a lock's conditions were signalled so often.
    Signalled(u64, u64),
    Signal(u64),
    /// Asks for the time.
    Note,
}

/// The steps of a process, from its start to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub(crate) steps: Vec<Step>,
}

/// A line that no trace has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {0} of a trace makes no sense: {1:?}; write it anew with this version's lab/apps/trace"
)]
pub struct BadTrace(usize, String);

/// No heap of a forecast has more pages.
const MOST_PAGES: u64 = 1 << 22;

impl Trace {
    /// Reads the lines of a trace.
    ///
    /// # Errors
    /// Names the first line that cannot be read.
    pub fn parse(text: &str) -> Result<Self, BadTrace> {
        let mut steps = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let bad = || BadTrace(number + 1, line.chars().take(40).collect());
            read(line, &mut steps).ok_or_else(bad)?;
        }
        Ok(Self { steps })
    }

    /// The time it computes altogether.
    #[must_use]
    pub fn computes(&self) -> core::time::Duration {
        let nanos = self.steps.iter().map(|step| match step {
            Step::Work(nanos) => *nanos,
            _ => 0,
        });
        core::time::Duration::from_nanos(nanos.sum())
    }

    /// The time it computes between the first two times it asks for the time.
    #[must_use]
    pub fn computes_in_part(&self) -> core::time::Duration {
        let mut part = self.steps.split(|step| *step == Step::Note);
        let steps = part.nth(1).unwrap_or_default().to_vec();
        Self { steps }.computes()
    }

    /// The same trace on a processor so many times as slow.
    #[must_use]
    pub fn slowed(&self, times: f64) -> Self {
        let slowed = |step: &Step| match step {
            Step::Work(nanos) => Step::Work((*nanos as f64 * times) as u64),
            other => *other,
        };
        Self {
            steps: self.steps.iter().map(slowed).collect(),
        }
    }

    /// Pages that the heap must have.
    pub(crate) fn pages(&self) -> u32 {
        let page = |step: &Step| match step {
            Step::Load(page) | Step::Store(page, _) => page.0 + 1,
            _ => 0,
        };
        self.steps.iter().map(page).max().unwrap_or(0)
    }
}

fn read(line: &str, steps: &mut Vec<Step>) -> Option<()> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let first = words.next().map(str::parse::<u64>).transpose().ok()?;
    let second = words.next().map(str::parse::<u64>).transpose().ok()?;
    if words.next().is_some() {
        return None;
    }
    let page = |number: u64| {
        let number = u32::try_from(number).ok()?;
        (u64::from(number) < MOST_PAGES).then_some(PageIndex(number))
    };
    let bytes = |number: u64| u16::try_from(number).ok();
    match (kind, first, second) {
        ("w", Some(nanos), None) => steps.push(Step::Work(nanos)),
        ("l", Some(number), None) => steps.push(Step::Load(page(number)?)),
        ("s", Some(number), Some(more)) => steps.push(Step::Store(page(number)?, bytes(more)?)),
        ("b", Some(number), None) => steps.push(Step::Barrier(number)),
        ("a", Some(number), None) => steps.push(Step::Lock(number)),
        ("r", Some(number), None) => steps.push(Step::Unlock(number)),
        ("c", Some(number), Some(signals)) => {
            let lock = [Step::Unlock(number), Step::Signalled(number, signals)];
            steps.extend(lock);
            steps.push(Step::Relock(number));
        }
        ("g", Some(number), None) => steps.push(Step::Signal(number)),
        ("n", None, None) => steps.push(Step::Note),
        _ => return None,
    }
    Some(())
}
