//! Pages that were asked for ahead and have not come: how many may be under way, and which must
//! have been lost.
//!
//! A node sends pages in the order in which they were asked for. A page that is passed by others from
//! the node that sent those before it was lost, or is kept for a while; it is asked for again, a few
//! times (*selective repair*). The asked node may have left a part of a burst to another one, so pages
//! from elsewhere say nothing. While pages come, those that are late are on a slow way, and asking
//! again would make it slower. After that, and where no more pages come, the repetition of the request
//! itself helps, as for any other page.

use super::walk::Fare;
use crate::time::Time;
use core::time::Duration;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::{NodeId, PageIndex};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// As many pages asked for later must have come before a page counts as lost.
const PASSED: u8 = 3;

/// How often a page is asked for again here.
const AGAIN: u8 = 3;

/// While pages come, the others may take so many times as long.
const FLOWING: u32 = 4;

/// As long as no page has come, they may take so many times as long.
const UNKNOWN: u32 = 5;

/// Pages asked for again at once.
const ONCE: usize = 64;

/// Losses are counted in this part of a hundredth; see [`Fare::lost`].
const LOSS: u32 = 128;

/// Pages under way, by the node that was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Flights {
    of: SortedMap<NodeId, VecDeque<InFlight>>,
    count: u32,
    took_micros: u32,
    /// How many of a hundred were asked for again lately, in parts.
    lost: u32,
    /// Time of the next check for missing pages.
    look: Option<Time>,
    /// When a page came last.
    #[serde(default)]
    last_came: Option<Time>,
    /// The longest that a page took lately from the first time it was asked for; zero before any came.
    #[serde(default)]
    slowest_micros: u32,
}

/// One page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct InFlight {
    page: PageIndex,
    asked: Time,
    #[serde(default)]
    first_asked: Option<Time>,
    passed: u8,
    again: u8,
    /// The node that sent the pages before it which were asked for in the same moment.
    #[serde(default)]
    via: Option<NodeId>,
}

impl Flights {
    /// How it goes, if `limit` pages may be under way.
    pub(crate) fn fare(&self, limit: u32) -> Fare {
        Fare {
            took: Duration::from_micros(self.took_micros.into()),
            lost: self.lost / LOSS,
            room: limit.saturating_sub(self.count),
        }
    }

    /// A node was asked for a page. Returns when to check, if no timer is set yet.
    pub(crate) fn asked(
        &mut self,
        now: Time,
        node: NodeId,
        page: PageIndex,
        quiet: Duration,
    ) -> Option<Time> {
        self.count += 1;
        self.of.entry(node).or_default().push_back(InFlight {
            page,
            asked: now,
            first_asked: None,
            passed: 0,
            again: 0,
            via: None,
        });
        if self.look.is_some() {
            return None;
        }
        self.look = Some(now + self.patience(quiet));
        self.look
    }

    /// How long a page may stay out while none comes. An answer that came late to be asked for again
    /// makes it longer: else ever more would be asked for, and come, twice.
    fn patience(&self, quiet: Duration) -> Duration {
        if self.last_came.is_none() {
            return quiet * UNKNOWN;
        }
        quiet.max(Duration::from_micros(self.slowest_micros.into()) * 2)
    }

    /// A page came, from that node, or else from the asked one. Returns those to ask for again; none if
    /// the page was not asked for.
    pub(crate) fn came(
        &mut self,
        now: Time,
        page: PageIndex,
        from: Option<NodeId>,
    ) -> Option<Vec<PageIndex>> {
        let found = self.of.iter_mut().find_map(|(asked, flight)| {
            let at = flight.iter().position(|out| out.page == page)?;
            Some((from.unwrap_or(*asked), flight, at))
        });
        let (from, flight, at) = found?;
        let came = flight.remove(at).expect("it was found there");
        self.count -= 1;
        self.last_came = Some(now);
        self.lost -= self.lost.div_ceil(128);
        let waited = now - came.first_asked.unwrap_or(came.asked);
        let waited = u32::try_from(waited.as_micros()).unwrap_or(u32::MAX);
        self.slowest_micros = waited.max(self.slowest_micros - self.slowest_micros / 64);
        if came.again == 0 {
            let took = u32::try_from((now - came.asked).as_micros()).unwrap_or(u32::MAX);
            self.took_micros = took.max(self.took_micros - self.took_micros / 16);
        }
        let after = flight.iter_mut().skip(at);
        for out in after.take_while(|out| out.asked == came.asked) {
            out.via = Some(from);
        }
        let mut passed: Vec<InFlight> = flight.drain(..at).collect();
        let mut again = Vec::new();
        passed.retain_mut(|out| {
            out.passed += u8::from(out.via == Some(from));
            if out.passed == PASSED {
                again.push(*out);
            }
            out.passed < PASSED
        });
        for out in passed.into_iter().rev() {
            flight.push_front(out);
        }
        let all = again.len() as u32;
        self.lost = (self.lost + LOSS * all).min(100 * LOSS);
        again.retain(|out| out.again < AGAIN);
        self.count -= all - again.len() as u32;
        flight.extend(again.iter().map(|out| out.once_more(now)));
        Some(again.into_iter().map(|out| out.page).collect())
    }

    /// No thread waits for a page any more.
    pub(crate) fn forget(&mut self, page: PageIndex) {
        for flight in self.of.values_mut() {
            if let Some(at) = flight.iter().position(|out| out.page == page) {
                flight.remove(at);
                self.count -= 1;
            }
        }
    }

    /// The check is due: returns the pages that have been missing for too long, to ask for again if
    /// `waits` for them still, and the time of the next check.
    pub(crate) fn look(
        &mut self,
        now: Time,
        quiet: Duration,
        waits: impl Fn(PageIndex) -> bool,
    ) -> (Vec<PageIndex>, Option<Time>) {
        if self.look.is_none_or(|at| now < at) {
            return (Vec::new(), None);
        }
        let patience = self.patience(quiet);
        let flows = self.last_came.is_some_and(|came| now < came + quiet);
        let most = if flows { patience * FLOWING } else { patience };
        let mut again = Vec::new();
        for flight in self.of.values_mut() {
            flight.retain_mut(|out| {
                if now < out.asked + most * (1 << out.again) {
                    return true;
                }
                if out.again == AGAIN || again.len() == ONCE || !waits(out.page) {
                    return false;
                }
                *out = out.once_more(now);
                again.push(out.page);
                true
            });
        }
        self.of.retain(|_, flight| !flight.is_empty());
        self.count = self.of.values().map(|flight| flight.len() as u32).sum();
        self.look = (self.count > 0).then(|| now + patience);
        (again, self.look)
    }
}

impl InFlight {
    fn once_more(self, now: Time) -> Self {
        Self {
            page: self.page,
            asked: now,
            first_asked: Some(self.first_asked.unwrap_or(self.asked)),
            passed: 0,
            again: self.again + 1,
            via: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: NodeId = NodeId(2);
    const QUIET: Duration = Duration::from_millis(2);

    fn asked(pages: std::ops::Range<u32>) -> Flights {
        let mut flights = Flights::default();
        for page in pages {
            flights.asked(Time(0), OWNER, PageIndex(page), QUIET);
        }
        flights
    }

    fn came(flights: &mut Flights, pages: impl IntoIterator<Item = u32>) -> Vec<u32> {
        let again = pages
            .into_iter()
            .filter_map(|page| flights.came(Time(1000), PageIndex(page), None));
        let again = again.flatten();
        again.map(|page| page.0).collect()
    }

    #[test]
    fn what_comes_in_order_is_asked_for_once() {
        let mut flights = asked(0..100);
        assert_eq!(flights.fare(100).room, 0);
        assert_eq!(came(&mut flights, 0..100), []);
        assert_eq!(flights.fare(100).room, 100);
        assert_eq!(
            flights.came(Time(0), PageIndex(3), None),
            None,
            "nobody asked"
        );
    }

    #[test]
    fn neighbours_that_change_places_are_not_lost() {
        let mut flights = asked(0..100);
        let swapped = (0..100).map(|page| page ^ 1);
        assert_eq!(came(&mut flights, swapped), []);
    }

    #[test]
    fn a_lost_page_is_asked_for_once_and_if_lost_again_once_more() {
        let mut flights = asked(0..100);
        assert_eq!(came(&mut flights, [0, 1]), []);
        // 2 is lost, and so is 3.
        assert_eq!(came(&mut flights, [4, 5, 6]), [2, 3]);
        assert_eq!(came(&mut flights, 7..20), []);
        assert!(flights.fare(100).lost > 0);
        for page in 100..110 {
            flights.asked(Time(1000), OWNER, PageIndex(page), QUIET);
        }
        // All asked for before has come, but for the two.
        assert_eq!(came(&mut flights, 20..100), []);
        assert_eq!(came(&mut flights, [2, 100, 101, 102]), [3]);
    }

    #[test]
    fn what_another_node_sends_is_not_lost() {
        const READER: NodeId = NodeId(3);
        let mut flights = asked(0..20);
        let mut came = |page, from| {
            let again = flights.came(Time(1000), PageIndex(page), Some(from));
            again.unwrap().iter().map(|page| page.0).collect::<Vec<_>>()
        };
        for page in 10..15 {
            assert_eq!(came(page, OWNER), []);
        }
        for page in [0, 2, 3] {
            assert_eq!(came(page, READER), []);
        }
        assert_eq!(came(4, READER), [1], "the reader sent what follows");
    }

    #[test]
    fn while_pages_come_the_others_have_time() {
        let mut flights = asked(0..10);
        let look = flights.look.unwrap();
        flights.came(look, PageIndex(0), None);
        let (again, next) = flights.look(look, QUIET, |_| true);
        assert!(again.is_empty());
        let (again, _) = flights.look(next.unwrap(), QUIET, |_| true);
        assert_eq!(again.len(), 9, "nothing has come for so long");
    }

    #[test]
    fn there_is_no_storm_of_repetitions() {
        let mut flights = asked(0..64);
        let (mut again, mut now, mut looks) = (0, Time(0), 0);
        while let Some(look) = flights.look {
            now = look;
            let (pages, _) = flights.look(now, QUIET, |_| true);
            again += pages.len();
            looks += 1;
        }
        assert_eq!(again, 64 * usize::from(AGAIN));
        assert!(looks < 32, "{looks} looks until {now}");
    }

    #[test]
    fn what_nobody_waits_for_is_forgotten() {
        let mut flights = asked(0..10);
        let look = flights.look.unwrap();
        let (again, next) = flights.look(look, QUIET, |page| page.0 == 7);
        assert_eq!((again, next.is_some()), (vec![PageIndex(7)], true));
        assert_eq!(flights.fare(10).room, 9);
    }
}
