//! The library site of a fixed manager (MIRAGE+, M7-M9): every request for a page of the segment
//! comes here, is queued, and is served in its turn. The clock site, which owns the page, sends it
//! straight to the requester; the requester tells the library site, which then serves the next.

use super::Sequential;
use super::context::PageContext;
use crate::backoff::Backoff;
use crate::effect::Rights;
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_wire::peer::Waiter;
use pagemesh_wire::{NodeId, PageIndex, RequestId, Version};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The request that is being served and those that wait, for one page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Library {
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

impl Sequential {
    pub(super) fn goes_to_library(&self, ask: &pagemesh_wire::peer::Ask) -> bool {
        self.rules.manager == pagemesh_wire::peer::Manager::Fixed && !ask.by_library
    }

    /// A request arrives, for the first time or repeated.
    pub(super) fn library_ask(&mut self, cx: &mut Cx<'_>, page: PageIndex, waiter: Waiter) {
        let again = self.libraries.entry(page).or_default().admit(waiter);
        if again {
            self.at(cx, page, |context| context.check_out(waiter));
        } else {
            self.library_advance(cx, page);
        }
    }

    fn library_advance(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        let timer = self.rules.timer(page);
        let Some(library) = self.libraries.get_mut(&page) else {
            return;
        };
        if library.checked_out.is_some() {
            return;
        }
        let Some(waiter) = library.queue.pop_front() else {
            self.libraries.remove(&page);
            return;
        };
        library.checked_out = Some((waiter, cx.backoff(timer)));
        self.at(cx, page, |context| context.check_out(waiter));
    }

    /// The requester has the page; `clock` is the version since which it owns the page.
    pub(super) fn library_served(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        page: PageIndex,
        request: RequestId,
        clock: Option<Version>,
    ) {
        if let Some(version) = clock {
            self.at(cx, page, |context| context.learn_clock(from, version));
        }
        let current = self.libraries.get_mut(&page).and_then(|library| {
            let (current, _) = library.checked_out.as_ref()?;
            (current.node == from && current.request == request).then(|| library.checked_out = None)
        });
        match current {
            Some(()) => self.library_advance(cx, page),
            None => cx.emit(Event::Stale {}),
        }
    }

    /// Repeats the handing out of a request that was not reported as served.
    pub(super) fn library_due(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        let timer = self.rules.timer(page);
        let Some(library) = self.libraries.get_mut(&page) else {
            return;
        };
        let Some((waiter, backoff)) = &mut library.checked_out else {
            return;
        };
        if cx.fire(backoff, timer) {
            let waiter = *waiter;
            self.at(cx, page, |context| context.check_out(waiter));
        }
    }

    /// A member is gone: its requests are removed.
    pub(super) fn library_forget(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        for library in self.libraries.values_mut() {
            library.queue.retain(|waiter| waiter.node != node);
            if library
                .checked_out
                .as_ref()
                .is_some_and(|(waiter, _)| waiter.node == node)
            {
                library.checked_out = None;
            }
        }
        for page in self.libraries.keys().copied().collect::<Vec<_>>() {
            self.library_advance(cx, page);
        }
    }
}

impl PageContext<'_, '_> {
    /// The library site learns which node is the clock site (M9). While it still holds a copy, the
    /// invalidation is yet to come and will tell it.
    pub(super) fn learn_clock(&mut self, node: NodeId, version: Version) {
        if self.page.rights == Rights::None {
            self.page.own.learn(self.cx, node, version);
        }
    }
}
