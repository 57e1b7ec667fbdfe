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

impl PageContext<'_, '_> {
    /// At the home: searches the holder of the page, if that does not go on already.
    pub(super) fn search(&mut self) {
        let (timer, copy) = (self.timer(), self.offer());
        let (page, cx) = self.parts();
        if page.holds || page.census.is_some() || page.passing.is_some() || page.lost.is_some() {
            return;
        }
        if let Some(node) = page.elected {
            return self.appoint(node);
        }
        page.census = Some(Census {
            round: cx.next_request(),
            missing: cx.shell.peers(),
            backoff: cx.backoff(timer),
            held: false,
            version: page.version,
            hint: page.hint,
            best: copy.map(|copy| (copy, cx.me())),
            number: page.stamp.number,
        });
        self.ask_all();
        self.conclude();
    }

    fn ask_all(&mut self) {
        let (page, epoch) = (self.index, self.cx.shell.view.epoch);
        let Some(census) = &self.page().census else {
            return;
        };
        let (round, missing) = (census.round, census.missing.clone());
        for node in missing.iter() {
            self.say(node, &Body::Census { page, round, epoch });
        }
    }

    pub(super) fn census_due(&mut self) {
        let timer = self.timer();
        let (page, cx) = self.parts();
        if let Some(census) = &mut page.census
            && cx.fire(&mut census.backoff, timer)
        {
            self.ask_all();
        }
    }

    /// The home asks what this node knows.
    pub(super) fn counted(&mut self, home: NodeId, round: RequestId, epoch: u64) {
        if self.cx.shell.view.epoch < epoch {
            return; // It asks again.
        }
        let (segment, page) = self.id();
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
        self.say(home, &Body::Found(found));
    }

    /// The copy that this node can offer as the consistent one: its own, or zeros for a page that it
    /// has not heard to have moved.
    fn offer(&self) -> Option<Copied> {
        let page = self.views.pages.get(&self.index);
        let unmoved = page.is_none_or(|page| page.version == 0);
        let zeros = unmoved && self.views.replicas.zeros.of.is_some();
        let zeros = zeros.then_some(Copied {
            stamp: Stamp::default(),
            whole: false,
        });
        page.and_then(Page::copy).or(zeros)
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

    /// The home has heard of a later move: what was answered before that says nothing of it. Returns
    /// whether there was a census.
    pub(super) fn end_census(&mut self) -> bool {
        let timer = self.timer();
        let (page, cx) = self.parts();
        let census = page.census.take();
        if let Some(census) = &census {
            cx.end(&census.backoff, timer);
        }
        census.is_some()
    }

    /// A member that was to answer is gone, and its knowledge with it. All answer anew: they must not
    /// take anything of that node any more, either.
    pub(super) fn search_anew(&mut self) {
        if self.end_census() {
            self.search();
        }
    }

    /// Everybody has answered: decides.
    fn conclude(&mut self) {
        let (me, home, timer) = (self.cx.me(), self.views.segment.home(), self.timer());
        let (page, cx) = self.parts();
        let Some(census) = page.census.take_if(|census| census.missing.is_empty()) else {
            return;
        };
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
            return;
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
                self.appoint(node);
            }
            None if !untouched => {
                page.hint = me;
                self.lost(census.hint);
            }
            _ => self.regain(),
        }
    }

    /// Tells a node that it is the holder from now on.
    fn appoint(&mut self, node: NodeId) {
        let page = self.index;
        let known = self.page();
        let (version, number) = (known.version, known.stamp.number);
        let said = Body::Become {
            page,
            version,
            number,
        };
        self.say(node, &said);
    }

    /// The copy here is the consistent one from now on.
    fn regain(&mut self) {
        let me = self.cx.me();
        let page = self.page();
        (page.holds, page.filled) = (true, page.copy().is_some());
        (page.hint, page.stamp.version) = (me, page.version);
        page.unveil();
        if !page.filled {
            page.valid = Valid::Nothing;
        }
        self.holds_again();
    }

    /// This node is the holder of a page whose holder was gone.
    pub(super) fn holds_again(&mut self) {
        let (segment, page) = self.id();
        self.drop_arriving();
        self.cx.emit(Event::Regained { segment, page });
        self.holds_now();
    }

    /// The home says that the copy here is the consistent one from now on.
    pub(super) fn become_holder(&mut self, home: NodeId, Stamp { version, number }: Stamp) {
        let (index, from_home) = (self.index, home == self.home());
        let offer = self.offer();
        let page = self.page();
        if number >= 1 << 62 {
            return self.cx.emit(Event::Malformed {});
        }
        if !from_home || version >= 1 << 62 || page.holds {
            return self.cx.emit(Event::Stale {});
        }
        // A node that has declined, or had the copy and gave it away, says so again and again: the
        // home must not wait for it, and a late repetition must not make it the holder.
        let over = page.version >= version;
        if over || offer.is_none() || page.passing.is_some() {
            if !over {
                (page.version, page.hint) = (version, home);
            }
            let page = index;
            return self.say(home, &Body::NoCopy { page, version });
        }
        page.version = version;
        page.stamp.number = page.stamp.number.max(number);
        page.valid = match page.copy() {
            Some(_) => Valid::Whole,
            None => Valid::Nothing,
        };
        (page.prefix_purged, page.purged, page.blank) = (false, false, false);
        self.regain();
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
