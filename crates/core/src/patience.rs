//! How long to wait for an answer before it counts as lost: as long as answers lately
//! took at most, as TCP estimates it (Jacobson: the usual time and four times how much
//! it varies). What comes as soon after a repetition as answers come answers that, and
//! says nothing new (Karn). What comes later answers what was said first: it looked lost too
//! early, and that teaches to wait longer.

use crate::node::Pace;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// Of what is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// A page of policy `sequential`. Under `release` nodes that compute are asked for many at
    /// once, and answer when they get a processor: there nothing is hurried.
    Page,
    /// The token of a lock, which others may hold for as long as they like.
    Token,
}

/// How long answers take, by what is waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Patience {
    pages: Answers,
    tokens: Answers,
}

/// How long answers of one kind take, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Answers {
    /// Eight times the usual time.
    usual: u32,
    /// Four times how much it varies.
    varies: u32,
    /// Whether any has come.
    known: bool,
}

/// No answer counts for more than this: one second tells all there is to tell.
const LONGEST: u32 = 1_000_000;

impl Patience {
    /// An answer came after so long, and, if it had to be asked for again, so long after
    /// that.
    pub(crate) fn answered(
        &mut self,
        awaited: Awaited,
        (took, again): (Duration, Option<Duration>),
        pace: &Pace,
    ) {
        // What was here at once says nothing of others. Where the wait is fixed, nothing is
        // learnt: explorations would never end.
        if !took.is_zero() && pace.resend_soonest < pace.resend_first {
            self.of_mut(awaited).answered(took, again);
        }
    }

    /// How long to wait before something is said again for the first time: in steps, so
    /// that what is asked for together is due together.
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
