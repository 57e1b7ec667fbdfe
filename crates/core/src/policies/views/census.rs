//! The search for the consistent copy of a page whose holder is gone. The home asks all members;
//! if the latest move that anybody knows led to a member that is gone, or to one that does not have
//! the copy and will not get it, the newest copy becomes the consistent one. Without any copy the
//! page is [lost](super::loss).
//!
//! A member answers when it knows the members of the home's epoch: from then on it takes nothing
//! from a node that is gone, so no copy is under way that the census does not see.

use super::context::PageContext;
use super::messages::{Body, Copied, Found, Stamp};
use super::page::{Page, Valid};
use super::page_here::PageHere;
use super::replicas::Replicas;
use super::say;
use crate::backoff::Backoff;
use crate::event::Event;
use pagemesh_wire::{NodeId, NodeSet, RequestId};
use serde::{Deserialize, Serialize};

/// The search for a holder that is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Census {
    round: RequestId,
    /// The nodes that have not answered.
    missing: NodeSet,
    backoff: Backoff,
    /// A node that has answered has the consistent copy.
    held: bool,
    /// The latest move that a node knows which has answered.
    version: u64,
    hint: NodeId,
    best: Option<(Copied, NodeId)>,
    /// The greatest number of a refresh that such a node has seen.
    #[serde(default)]
    number: u64,
}

impl Census {
    /// Counts an answer in. False if it was not expected, or cannot be. A replica is whole; a newer copy
    /// that is not has less of what was published: if `whole_first`, it is not as good.
    fn count(&mut self, from: NodeId, found: Found, whole_first: bool) -> bool {
        let stamps = found.copy.map(|copy| copy.stamp);
        let possible = stamps.is_none_or(|stamp| stamp.is_possible())
            && found.version.max(found.number) < 1 << 62;
        if !possible || self.round != found.round || !self.missing.remove(from) {
            return false;
        }
        self.held |= found.holds;
        if found.version > self.version {
            (self.version, self.hint) = (found.version, found.hint);
        }
        self.number = self.number.max(found.number);
        let rank = |copy: Copied| (whole_first && copy.whole, copy);
        let better = |copy: &Copied| self.best.is_none_or(|(best, _)| rank(*copy) > rank(best));
        if let Some(copy) = found.copy.filter(better) {
            self.best = Some((copy, from));
        }
        true
    }
}

/// The result of a census: the node that becomes the holder of the page, or that the page is lost.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// That node has the best copy.
    Appoint(NodeId),
    /// This node has the best copy, or the page is zeros.
    Regain,
    /// There is no copy, and that node had one.
    Lost(NodeId),
}

impl PageContext<'_, '_> {
    /// At the home: searches the holder of the page, if that does not go on already.
    pub(super) fn search(&mut self) {
        let copy = self.offer();
        if self.here().call(copy) {
            self.conclude();
        }
    }

    /// The home asks what this node knows.
    pub(super) fn counted(&mut self, home: NodeId, round: RequestId, epoch: u64) {
        if self.cx.shell.view.epoch < epoch {
            return; // It asks again.
        }
        let (segment, page) = self.at;
        let known = self.views.pages.get(&page);
        let is_home = segment.home() == self.cx.me();
        let found = Found {
            page,
            round,
            version: known.map_or(0, |known| known.version),
            hint: known.map_or(segment.home(), |known| known.hint),
            holds: known.map_or(is_home, |known| known.holds || known.passing.is_some()),
            copy: self.offer(),
            number: known.map_or(0, |known| known.stamp.number),
        };
        say(self.cx, segment, home, &Body::Found(found));
    }

    /// The copy that this node can offer as the consistent one.
    fn offer(&self) -> Option<Copied> {
        let page = self.views.pages.get(&self.at.1);
        self.views.replicas.offer(page)
    }

    /// A member has answered.
    pub(super) fn found(&mut self, from: NodeId, found: Found) {
        let whole_first = self.views.replicas.on;
        let census = self.page().census.as_mut();
        if census.is_some_and(|census| census.count(from, found, whole_first)) {
            self.conclude();
        } else {
            self.cx.emit(Event::Stale {});
        }
    }

    /// Does what follows if everybody has answered.
    fn conclude(&mut self) {
        let mut here = self.here();
        match here.conclude() {
            Some(Verdict::Appoint(node)) => here.appoint(node),
            Some(Verdict::Regain) => {
                here.regain();
                self.holds_again();
            }
            Some(Verdict::Lost(with)) => self.lost(with),
            None => {}
        }
    }

    /// This node is the holder of a page whose holder was gone.
    pub(super) fn holds_again(&mut self) {
        let (segment, page) = self.at;
        let mut here = self.here();
        here.drop_arriving();
        here.cx.emit(Event::Regained { segment, page });
        self.holds_now();
    }

    /// The home says that the copy here is the consistent one from now on.
    pub(super) fn become_holder(&mut self, home: NodeId, stamp: Stamp) {
        let offer = self.offer();
        if self.here().become_holder(home, stamp, offer) {
            self.holds_again();
        }
    }

    /// The node that was to become the holder has no copy any more.
    pub(super) fn no_copy(&mut self, from: NodeId, version: u64) {
        let me = self.cx.me();
        let page = self.page();
        if page.elected != Some(from) || page.version != version {
            return self.cx.emit(Event::Stale {});
        }
        (page.elected, page.hint) = (None, me);
        self.search();
    }
}

impl PageHere<'_, '_> {
    /// Begins a census, unless the holder is known or was elected; `copy` is what this node offers.
    /// Returns whether there is one now.
    fn call(&mut self, copy: Option<Copied>) -> bool {
        let timer = self.timer();
        let page = &mut *self.page;
        if page.holds || page.census.is_some() || page.passing.is_some() || page.lost.is_some() {
            return false;
        }
        if let Some(node) = page.elected {
            self.appoint(node);
            return false;
        }
        page.census = Some(Census {
            round: self.cx.next_request(),
            missing: self.cx.shell.peers(),
            backoff: self.cx.backoff(timer),
            held: false,
            version: page.version,
            hint: page.hint,
            best: copy.map(|copy| (copy, self.cx.me())),
            number: page.stamp.number,
        });
        self.ask_all();
        true
    }

    fn ask_all(&mut self) {
        let (page, epoch) = (self.at.1, self.cx.shell.view.epoch);
        let Some(census) = &self.page.census else {
            return;
        };
        let (round, missing) = (census.round, census.missing.clone());
        for node in missing.iter() {
            self.say(node, &Body::Census { page, round, epoch });
        }
    }

    pub(super) fn census_due(&mut self) {
        let timer = self.timer();
        if let Some(census) = &mut self.page.census
            && self.cx.fire(&mut census.backoff, timer)
        {
            self.ask_all();
        }
    }

    /// The home has heard of a later move: what was answered before that says nothing of it. Returns
    /// whether there was a census.
    pub(super) fn end_census(&mut self) -> bool {
        let timer = self.timer();
        let census = self.page.census.take();
        let ended = census.map(|census| self.cx.end(&census.backoff, timer));
        ended.is_some()
    }

    /// If everybody has answered: decides, unless the consistent copy is there, or may arrive.
    fn conclude(&mut self) -> Option<Verdict> {
        let (me, home, timer) = (self.cx.me(), self.at.0.home(), self.timer());
        let (page, cx) = (&mut *self.page, &mut *self.cx);
        let census = page.census.take_if(|census| census.missing.is_empty())?;
        cx.end(&census.backoff, timer);
        let is_news = census.version > page.version;
        if is_news {
            (page.version, page.hint) = (census.version, census.hint);
        }
        // Where the latest move led to a living node, the copy may have arrived there after that node
        // answered, and before the giver answered that it passes nothing on. Of a move that was known
        // when the census began, the giver has answered after it: in the next census any living node
        // that has the copy says so, or there was a later move. Else it was lost on its way from a
        // node that died. Of a move that is news, nodes may have answered before it. A node that the
        // home has not heard of yet was not asked.
        let may_arrive = match page.hint == me {
            true => is_news,
            false => !cx.is_gone(page.hint) && page.counted != page.version,
        };
        if census.held || may_arrive {
            if !census.held && !is_news && cx.is_alive(page.hint) {
                page.counted = page.version;
            }
            return None;
        }
        let untouched = page.version == 0 && cx.has_left(home);
        // Zeros stand for pages that never moved.
        let zeros = |copy: Copied| copy.stamp == Stamp::default();
        let moved = page.version > 0;
        let best = census.best.filter(|(copy, _)| !(moved && zeros(*copy)));
        page.version += 1;
        page.stamp.number = page.stamp.number.max(census.number);
        match best {
            Some((_, node)) if node != me => {
                (page.hint, page.elected) = (node, Some(node));
                Some(Verdict::Appoint(node))
            }
            None if !untouched => {
                page.hint = me;
                Some(Verdict::Lost(census.hint))
            }
            _ => Some(Verdict::Regain),
        }
    }

    /// Tells a node that it is the holder from now on.
    fn appoint(&mut self, node: NodeId) {
        let (version, number) = (self.page.version, self.page.stamp.number);
        let said = Body::Become {
            page: self.at.1,
            version,
            number,
        };
        self.say(node, &said);
    }

    /// The copy here is the consistent one from now on.
    fn regain(&mut self) {
        let (page, me) = (&mut *self.page, self.cx.me());
        (page.holds, page.filled) = (true, page.copy().is_some());
        (page.hint, page.stamp.version) = (me, page.version);
        page.unveil();
        if !page.filled {
            page.valid = Valid::Nothing;
        }
    }

    /// The home says that the copy here, which this node offers, is the consistent one from now on.
    /// Returns whether it is.
    fn become_holder(
        &mut self,
        home: NodeId,
        Stamp { version, number }: Stamp,
        offer: Option<Copied>,
    ) -> bool {
        let from_home = home == self.home();
        let page = &mut *self.page;
        if number >= 1 << 62 {
            self.cx.emit(Event::Malformed {});
            return false;
        }
        if !from_home || version >= 1 << 62 || page.holds {
            self.cx.emit(Event::Stale {});
            return false;
        }
        // A node that has declined, or had the copy and gave it away, says so again and again: the
        // home must not wait for it, and a late repetition must not make it the holder.
        let over = page.version >= version;
        if over || offer.is_none() || page.passing.is_some() {
            if !over {
                (page.version, page.hint) = (version, home);
            }
            let page = self.at.1;
            self.say(home, &Body::NoCopy { page, version });
            return false;
        }
        page.version = version;
        page.stamp.number = page.stamp.number.max(number);
        page.valid = match page.copy() {
            Some(_) => Valid::Whole,
            None => Valid::Nothing,
        };
        (page.prefix_purged, page.purged, page.blank) = (false, false, false);
        self.regain();
        true
    }
}

impl Replicas {
    /// The copy that this node can offer as the consistent one: what it has of the page, or zeros for a
    /// page that it has not heard to have moved.
    fn offer(&self, page: Option<&Page>) -> Option<Copied> {
        let unmoved = page.is_none_or(|page| page.version == 0);
        let zeros = unmoved && self.zeros.of.is_some();
        let zeros = zeros.then_some(Copied {
            stamp: Stamp::default(),
            whole: false,
        });
        page.and_then(Page::copy).or(zeros)
    }
}

#[cfg(test)]
mod tests {
    use super::super::page_here::tests::{HOME, at};
    use super::*;

    const HOLDER: NodeId = NodeId(4);

    /// A page that moved once, to a node that does not have it any more.
    fn moved() -> Page {
        let mut page = Page::new(HOME, false);
        (page.version, page.hint) = (1, HOLDER);
        page
    }

    fn copy(number: u64) -> Option<Copied> {
        let stamp = Stamp { version: 1, number };
        Some(Copied { stamp, whole: true })
    }

    /// All answer a census of the home, and that node has that copy.
    fn census(page: &mut Page, has: (NodeId, Option<Copied>)) -> Option<Verdict> {
        let mut verdict = None;
        at(HOME, page, |here| {
            assert!(here.call(None) && here.conclude().is_none());
            for from in [2, 3, 4].map(NodeId) {
                let census = here.page.census.as_mut().unwrap();
                let found = Found {
                    page: here.at.1,
                    round: census.round,
                    version: 1,
                    hint: HOLDER,
                    holds: false,
                    copy: has.1.filter(|_| has.0 == from),
                    number: 5,
                };
                assert!(census.count(from, found, false) && !census.count(from, found, false));
            }
            verdict = here.conclude();
        });
        verdict
    }

    #[test]
    fn a_page_may_arrive_until_a_second_census() {
        let mut page = moved();
        assert_eq!(census(&mut page, (NodeId(3), copy(5))), None);
        let verdict = census(&mut page, (NodeId(3), copy(5)));
        assert_eq!(verdict, Some(Verdict::Appoint(NodeId(3))));
        assert_eq!((page.version, page.elected), (2, Some(NodeId(3))));
        at(HOME, &mut page, |here| assert!(!here.call(None), "elected"));
    }

    #[test]
    fn a_page_that_moved_and_that_nobody_has_is_lost_zeros_or_not() {
        for zeros in [false, true] {
            let mut page = moved();
            let stamp = Stamp::default();
            let whole = false;
            let has = zeros.then_some(Copied { stamp, whole });
            census(&mut page, (NodeId(3), has));
            let verdict = census(&mut page, (NodeId(3), has));
            assert_eq!(verdict, Some(Verdict::Lost(HOLDER)));
        }
    }

    #[test]
    fn a_late_appointment_makes_no_holder() {
        let mut page = moved();
        let stamp = |version| Stamp { version, number: 7 };
        at(NodeId(2), &mut page, |here| {
            assert!(!here.become_holder(HOME, stamp(1), copy(5)), "late");
            assert!(
                !here.become_holder(NodeId(3), stamp(2), copy(5)),
                "not the home"
            );
            assert!(here.become_holder(HOME, stamp(2), copy(5)));
        });
        assert!(page.holds && page.stamp == stamp(2));
    }
}
