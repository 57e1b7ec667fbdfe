//! Hosts that died or left, and the failures that this excuses.

/// The losses of a run so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Losses {
    /// Hosts that are not expected to survive.
    pub(crate) expected: Vec<usize>,
    /// A host died that was expected to survive: threads that relied on it are excused.
    pub(crate) casualties: bool,
    /// Some host has crashed: calls to it may be refused.
    pub(crate) crashed: bool,
    /// How many nanoseconds later than planned the first host failed.
    pub(crate) late: u64,
    /// Some node has heard that another left.
    pub(crate) somebody_left: bool,
}

impl Losses {
    /// A host has crashed, or was declared dead.
    pub(crate) fn crash(&mut self, host: usize) {
        self.casualties |= !self.is_expected(host);
        self.crashed = true;
    }

    /// Whether the host is not expected to survive.
    pub(crate) fn is_expected(&self, host: usize) -> bool {
        self.expected.contains(&host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_death_that_was_not_expected_excuses_threads() {
        let mut losses = Losses {
            expected: vec![2],
            ..Losses::default()
        };
        losses.crash(2);
        assert!(losses.crashed && !losses.casualties);
        losses.crash(1);
        assert!(losses.casualties);
    }
}
