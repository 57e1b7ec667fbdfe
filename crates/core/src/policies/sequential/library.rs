//! The library site of a fixed manager (MIRAGE+, M7-M9): every request for a page of the segment
//! comes here, is queued, and is served in its turn. The clock site, which owns the page, sends it
//! straight to the requester; the requester tells the library site, which then serves the next.

use super::memory::Memory;
use super::page::Page;
use super::rules::Rules;
use crate::backoff::Backoff;
use crate::effect::Rights;
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_sorted::LongMap;
use pagemesh_wire::peer::Waiter;
use pagemesh_wire::{NodeId, PageIndex, RequestId, Version};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The requests at the library site. What a method returns is to be handed to the clock site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Libraries {
    pages: LongMap<PageIndex, Library>,
}

/// The request that is being served and those that wait, for one page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Library {
    queue: VecDeque<Waiter>,
    checked_out: Option<(Waiter, Backoff)>,
}

impl Library {
    fn admit(&mut self, waiter: Waiter) -> bool {
        if let Some((current, _)) = &self.checked_out
            && current.node == waiter.node
        {
            if current.request == waiter.request {
                return true;
            }
            if current.request > waiter.request {
                return false;
            }
            // A newer request: the older one was served, and the report of that was lost.
            self.checked_out = None;
        }
        match self
            .queue
            .iter_mut()
            .find(|other| other.node == waiter.node)
        {
            Some(other) if other.request < waiter.request => *other = waiter,
            Some(_) => {}
            None => self.queue.push_back(waiter),
        }
        false
    }
}

impl Libraries {
    /// A request arrives, for the first time or repeated.
    fn ask(&mut self, cx: &mut Cx<'_>, at: (Rules, PageIndex), waiter: Waiter) -> Option<Waiter> {
        if self.pages.entry(at.1).or_default().admit(waiter) {
            return Some(waiter);
        }
        self.advance(cx, at)
    }

    /// The next request, if none is being served.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_>, at: (Rules, PageIndex)) -> Option<Waiter> {
        let (rules, page) = at;
        let library = self.pages.get_mut(&page)?;
        if library.checked_out.is_some() {
            return None;
        }
        let Some(waiter) = library.queue.pop_front() else {
            self.pages.remove(&page);
            return None;
        };
        library.checked_out = Some((waiter, cx.backoff(rules.timer(page))));
        Some(waiter)
    }

    /// A node says that a request of it was served.
    fn served(
        &mut self,
        cx: &mut Cx<'_>,
        at: (Rules, PageIndex),
        by: (NodeId, RequestId),
    ) -> Option<Waiter> {
        let library = self.pages.get_mut(&at.1);
        let current = library.and_then(|library| {
            let out = &mut library.checked_out;
            out.take_if(|(waiter, _)| (waiter.node, waiter.request) == by)
        });
        if current.is_none() {
            cx.emit(Event::Stale {});
            return None;
        }
        self.advance(cx, at)
    }

    /// The request that was not reported as served, if it is time to repeat it.
    pub(super) fn due(&mut self, cx: &mut Cx<'_>, at: (Rules, PageIndex)) -> Option<Waiter> {
        let (rules, page) = at;
        let library = self.pages.get_mut(&page)?;
        let (waiter, backoff) = library.checked_out.as_mut()?;
        cx.fire(backoff, rules.timer(page)).then_some(*waiter)
    }

    /// A member is gone: its requests are removed. Returns the pages that may have a next request.
    pub(super) fn forget(&mut self, node: NodeId) -> Vec<PageIndex> {
        for library in self.pages.values_mut() {
            library.queue.retain(|waiter| waiter.node != node);
            let out = &mut library.checked_out;
            out.take_if(|(waiter, _)| waiter.node == node);
        }
        self.pages.keys().copied().collect()
    }
}

impl Memory {
    /// A request arrives at the library site, for the first time or repeated.
    pub(super) fn ask_library(&mut self, cx: &mut Cx<'_>, page: PageIndex, waiter: Waiter) {
        let next = self.libraries.ask(cx, (self.rules, page), waiter);
        self.check_out(cx, page, next);
    }

    /// Hands a request to the clock site.
    pub(super) fn check_out(&mut self, cx: &mut Cx<'_>, page: PageIndex, next: Option<Waiter>) {
        if let Some(waiter) = next {
            self.at(cx, page, |context| context.check_out(waiter));
        }
    }

    /// The requester has the page; `clock` is the version since which it owns the page.
    pub(super) fn served(
        &mut self,
        cx: &mut Cx<'_>,
        page: PageIndex,
        by: (NodeId, RequestId),
        clock: Option<Version>,
    ) {
        if let Some(version) = clock {
            self.at(cx, page, |context| {
                let here = &mut context.here;
                here.page.learn_clock(here.cx, by.0, version);
            });
        }
        let next = self.libraries.served(cx, (self.rules, page), by);
        self.check_out(cx, page, next);
    }
}

impl Page {
    /// The library site learns which node is the clock site (M9). While it still holds a copy, the
    /// invalidation is yet to come and will tell it.
    pub(super) fn learn_clock(&mut self, cx: &Cx<'_>, node: NodeId, version: Version) {
        if self.rights == Rights::None {
            self.own.learn(cx, node, version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;
    use pagemesh_wire::SegmentId;
    use pagemesh_wire::peer::{Access, Manager, Window};

    const PAGE: PageIndex = PageIndex(7);

    fn request(node: u16, number: u64) -> Waiter {
        Waiter {
            node: NodeId(node),
            request: RequestId(number),
            access: Access::Write,
            have: None,
        }
    }

    fn at_library<T>(work: impl FnOnce(&mut Libraries, &mut Cx<'_>, (Rules, PageIndex)) -> T) -> T {
        let rules = Rules {
            segment: SegmentId::new(NodeId(1), 1),
            manager: Manager::Fixed,
            window: Window::Nanos(0),
        };
        let mut cx = Cx {
            now: Time(0),
            shell: &mut Shell::of_four(NodeId(1)),
            effects: &mut Effects::default(),
        };
        work(&mut Libraries::default(), &mut cx, (rules, PAGE))
    }

    #[test]
    fn requests_are_served_one_at_a_time_in_their_order() {
        at_library(|libraries, cx, at| {
            let (first, second) = (request(2, 1), request(3, 1));
            assert_eq!(libraries.ask(cx, at, first), Some(first));
            assert_eq!(libraries.ask(cx, at, second), None);
            assert_eq!(libraries.ask(cx, at, first), Some(first), "again");
            let early = (NodeId(3), RequestId(1));
            assert_eq!(libraries.served(cx, at, early), None);
            let by = (NodeId(2), RequestId(1));
            assert_eq!(libraries.served(cx, at, by), Some(second));
            assert_eq!(libraries.served(cx, at, early), None);
            assert_eq!(libraries.pages.len(), 0, "nothing is under way");
        });
    }

    #[test]
    fn a_newer_request_shows_that_the_one_before_was_served() {
        at_library(|libraries, cx, at| {
            libraries.ask(cx, at, request(2, 5));
            assert_eq!(libraries.ask(cx, at, request(2, 4)), None);
            let newer = request(2, 6);
            assert_eq!(libraries.ask(cx, at, newer), Some(newer));
        });
    }

    #[test]
    fn a_member_that_is_gone_holds_up_nobody() {
        at_library(|libraries, cx, at| {
            let next = request(4, 1);
            for waiter in [request(2, 1), request(3, 1), next] {
                libraries.ask(cx, at, waiter);
            }
            libraries.forget(NodeId(3));
            assert_eq!(libraries.forget(NodeId(2)), [PAGE]);
            assert_eq!(libraries.advance(cx, at), Some(next));
        });
    }
}
