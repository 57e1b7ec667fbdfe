//! How long to wait for an answer before it counts as lost: the longest time that answers took
//! lately, as TCP estimates it (Jacobson: the mean and four times its deviation). An answer that
//! follows a resend as soon as answers usually come belongs to that resend, and teaches nothing
//! (Karn). A later one belongs to the first request: it was resent too early, and the estimate
//! grows.

use crate::config::Pace;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// The kind of answer that a node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// A page of policy `sequential`. Pages of `release` are not in here: computing nodes are asked
    /// for many at once and answer when they get a processor, so early resends would not help.
    Page,
    /// The token of a lock, which other nodes may hold for any time.
    Token,
}

/// Estimates of how long answers take, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Patience {
    pages: Answers,
    tokens: Answers,
}

/// The estimate for one kind of answer, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Answers {
    /// Eight times the mean.
    usual: u32,
    /// Four times the mean deviation.
    varies: u32,
    /// Whether any answer has come.
    known: bool,
}

/// Longest time, in microseconds, that enters the estimate; longer ones count as this.
const LONGEST: u32 = 1_000_000;

impl Patience {
    /// An answer came `took` after the request was first sent, and `again` after its last resend,
    /// if there was one.
    pub(crate) fn answered(
        &mut self,
        awaited: Awaited,
        (took, again): (Duration, Option<Duration>),
        pace: &Pace,
    ) {
        // An answer without any delay came from this node and says nothing of others. If the first
        // wait is fixed, nothing is learnt, because explorations would never end.
        if !took.is_zero() && pace.resend_soonest < pace.resend_first {
            self.of_mut(awaited).answered(took, again);
        }
    }

    /// The wait before the first resend, rounded up to steps, so that requests sent together are
    /// due together.
    pub(crate) fn first_wait(&self, awaited: Awaited, pace: &Pace) -> Duration {
        let answers = match awaited {
            Awaited::Page => &self.pages,
            Awaited::Token => &self.tokens,
        };
        let (soonest, latest) = (pace.resend_soonest, pace.resend_first);
        if !answers.known || soonest.is_zero() || soonest >= latest {
            return latest;
        }
        let steps = answers.longest().as_nanos().div_ceil(soonest.as_nanos());
        let steps = u32::try_from(steps).unwrap_or(u32::MAX).max(1);
        soonest.saturating_mul(steps).min(latest)
    }

    fn of_mut(&mut self, awaited: Awaited) -> &mut Answers {
        match awaited {
            Awaited::Page => &mut self.pages,
            Awaited::Token => &mut self.tokens,
        }
    }
}

impl Answers {
    fn answered(&mut self, took: Duration, again: Option<Duration>) {
        if again.is_some_and(|again| !self.known || again <= self.longest()) {
            return;
        }
        let took = u32::try_from(took.as_micros()).unwrap_or(LONGEST);
        let took = took.min(LONGEST);
        if !core::mem::replace(&mut self.known, true) {
            (self.usual, self.varies) = (took * 8, took * 2);
            return;
        }
        let off = took.abs_diff(self.usual / 8);
        self.varies = self.varies - self.varies / 4 + off;
        self.usual = self.usual - self.usual / 8 + took;
    }

    fn longest(self) -> Duration {
        Duration::from_micros(u64::from(self.usual / 8) + u64::from(self.varies))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn pace() -> Pace {
        Pace {
            resend_soonest: 2 * MILLI,
            resend_first: 10 * MILLI,
            ..Pace::default()
        }
    }

    fn after(answers: impl IntoIterator<Item = Duration>) -> Patience {
        let mut patience = Patience::default();
        for took in answers {
            patience.answered(Awaited::Page, (took, None), &pace());
        }
        patience
    }

    fn wait(patience: &Patience) -> Duration {
        patience.first_wait(Awaited::Page, &pace())
    }

    #[test]
    fn who_knows_nothing_waits_long() {
        let patience = after([20 * MILLI / 1000]);
        assert_eq!(wait(&Patience::default()), 10 * MILLI);
        assert_eq!(wait(&patience), 2 * MILLI);
        let tokens = patience.first_wait(Awaited::Token, &pace());
        assert_eq!(tokens, 10 * MILLI, "of locks nothing is known yet");
    }

    #[test]
    fn quick_answers_make_it_short_and_slow_ones_long() {
        let quick = [MILLI / 50; 20];
        assert_eq!(wait(&after(quick)), 2 * MILLI);
        let slow = quick.into_iter().chain([4 * MILLI; 3]);
        assert_eq!(wait(&after(slow.clone())), 10 * MILLI);
        let again = slow.chain([MILLI / 50; 20]);
        assert_eq!(wait(&after(again)), 2 * MILLI);
        assert_eq!(wait(&after([3 * MILLI; 40])), 4 * MILLI, "all alike");
        assert_eq!(wait(&after([Duration::MAX; 4])), 10 * MILLI);
    }

    #[test]
    fn what_was_here_says_nothing() {
        assert_eq!(after([Duration::ZERO; 3]), Patience::default());
    }

    #[test]
    fn what_was_lost_says_nothing_and_what_came_late_does() {
        let mut patience = after([MILLI / 50; 20]);
        let mut again = |took, again| {
            let answer = (took, Some(again));
            patience.answered(Awaited::Page, answer, &pace());
            wait(&patience)
        };
        assert_eq!(again(2 * MILLI, MILLI / 50), 2 * MILLI, "lost");
        assert_eq!(again(3 * MILLI, MILLI), 4 * MILLI, "late");
        let nothing = (2 * MILLI, Some(MILLI));
        patience = Patience::default();
        patience.answered(Awaited::Page, nothing, &pace());
        assert_eq!(patience, Patience::default(), "who knows which it answers");
    }

    #[test]
    fn where_the_wait_is_fixed_nothing_is_learnt() {
        let pace = Pace {
            resend_soonest: MILLI,
            resend_first: MILLI,
            ..Pace::default()
        };
        let mut patience = Patience::default();
        patience.answered(Awaited::Token, (MILLI, None), &pace);
        assert_eq!(patience, Patience::default());
        assert_eq!(patience.first_wait(Awaited::Token, &pace), MILLI);
    }
}
