//! When it is time to collect: this node holds too much, or leaves.

use super::messages::{Body, Full};
use super::{Collecting, Release};
use crate::backoff::Backoff;
use crate::limits::PAGES_NAMED;
use crate::shell::Cx;
use crate::timers::Timer;
use serde::{Deserialize, Serialize};

/// Whether this node is reporting to the home that it is time to collect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Fullness {
    #[default]
    No,
    /// The home was told, and is told again at ever longer intervals.
    Said(Backoff),
}

impl Release {
    /// Starts a round of collection, or asks the home for one, if this node holds too much or
    /// leaves.
    pub(super) fn mind_the_bound(&mut self, cx: &mut Cx<'_>) {
        if self.full != Fullness::No || self.round.is_some() || !self.wants_round(cx) {
            return;
        }
        if cx.home(self.segment) == cx.me() {
            return self.begin_round(cx);
        }
        let orphaned = |collecting: &Collecting| collecting.led_by_the_dead;
        if self.collecting.as_ref().is_none_or(orphaned) {
            let backoff = cx.backoff(Timer::Segment(self.segment));
            self.full = Fullness::Said(backoff);
            self.say_full(cx);
        }
    }

    fn wants_round(&self, cx: &Cx<'_>) -> bool {
        let much = self.remembered(cx) > cx.pace().notices as usize;
        much || self.leaving && self.is_needed(cx.me())
    }

    /// What counts against the bound. A page's first notice does not, as long as its diff was not
    /// requested: only a twin is kept for it, which the page needs for the next store in any case.
    /// If it counted, a program that writes more pages than the bound in each of its phases would
    /// have all of them collected at each barrier, and fault on each of them again. Twins have a
    /// bound of their own, since they take as much memory as their pages.
    pub(super) fn remembered(&self, cx: &Cx<'_>) -> usize {
        let again = self.notices - self.named;
        let named = self.named.saturating_sub(PAGES_NAMED);
        let twins = self.undiffed.saturating_sub(cx.pace().twins as usize);
        again.max(self.held.len()) + named.max(twins) + self.history.len()
    }

    fn say_full(&self, cx: &mut Cx<'_>) {
        let home = cx.home(self.segment);
        if home != cx.me() {
            let full = Full {
                floor: self.history.floor.clone(),
                leaving: self.leaving,
            };
            self.say(cx, home, &Body::Full(full));
        }
    }

    /// The home may not have received the report: it is repeated as long as this node is full, at
    /// ever longer intervals.
    pub(super) fn full_due(&mut self, cx: &mut Cx<'_>) {
        let wanted = self.wants_round(cx) && cx.home(self.segment) != cx.me();
        let Fullness::Said(backoff) = &mut self.full else {
            return;
        };
        if !wanted {
            cx.end(backoff, Timer::Segment(self.segment));
            self.full = Fullness::No;
            return self.mind_the_bound(cx);
        }
        if cx.fire(backoff, Timer::Segment(self.segment)) {
            self.say_full(cx);
        }
    }
}
