//! The search for the consistent copy of a page whose holder is gone. The home asks all members;
//! if the latest move that anybody knows led to a member that is gone, or to one that does not have
//! the copy and will not get it, the newest copy becomes the consistent one. Without any copy the
//! page is [lost](super::loss).
//!
//! A member answers when it knows the members of the home's epoch: from then on it takes nothing
//! from a node that is gone, so no copy is under way that the census does not see.

use super::Views;
use super::messages::{Body, Copied, Found, Stamp};
use super::page::{Census, Valid};
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_wire::{NodeId, PageIndex, RequestId};

impl Views {
    /// At the home: searches the holder of a page, if that does not go on already.
    pub(super) fn search(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let timer = self.page_timer(index);
        let page = self.page(cx, index);
        if page.holds || page.census.is_some() || page.passing.is_some() || page.lost.is_some() {
            return;
        }
        let version = page.version;
        if let Some(node) = page.elected {
            let number = page.stamp.number;
            let page = index;
            let said = Body::Become {
                page,
                version,
                number,
            };
            return self.say(cx, node, &said);
        }
        let (hint, number) = (page.hint, page.stamp.number);
        let copy = self.offer(self.pages.get(&index));
        let census = Census {
            round: cx.next_request(),
            missing: cx.shell.peers(),
            backoff: cx.backoff(timer),
            held: false,
            version,
            hint,
            best: copy.map(|copy| (copy, cx.me())),
            number,
        };
        self.page(cx, index).census = Some(census);
        self.ask_all(cx, index);
        self.conclude(cx, index);
    }

    fn ask_all(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let epoch = cx.shell.view.epoch;
        let Some(census) = &self.page(cx, index).census else {
            return;
        };
        let (round, missing) = (census.round, census.missing.clone());
        for node in missing.iter() {
            let page = index;
            self.say(cx, node, &Body::Census { page, round, epoch });
        }
    }

    pub(super) fn census_due(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let timer = self.page_timer(index);
        if let Some(census) = &mut self.page(cx, index).census
            && cx.fire(&mut census.backoff, timer)
        {
            self.ask_all(cx, index);
        }
    }

    /// The home asks what this node knows.
    pub(super) fn counted(
        &mut self,
        cx: &mut Cx<'_>,
        home: NodeId,
        index: PageIndex,
        (round, epoch): (RequestId, u64),
    ) {
        if cx.shell.view.epoch < epoch {
            return; // It asks again.
        }
        let found = match self.pages.get(&index) {
            None => Found {
                page: index,
                round,
                version: 0,
                hint: self.segment.home(),
                holds: self.segment.home() == cx.me(),
                copy: self.offer(None),
                number: 0,
            },
            Some(page) => Found {
                page: index,
                round,
                version: page.version,
                hint: page.hint,
                holds: page.holds || page.passing.is_some(),
                copy: self.offer(Some(page)),
                number: page.stamp.number,
            },
        };
        self.say(cx, home, &Body::Found(found));
    }

    /// A member has answered.
    pub(super) fn found(&mut self, cx: &mut Cx<'_>, from: NodeId, found: Found) {
        let index = found.page;
        let whole_first = self.replicas.on;
        let Some(census) = &mut self.page(cx, index).census else {
            return cx.emit(Event::Stale {});
        };
        let stamps = found.copy.map(|copy| copy.stamp);
        let possible = stamps.is_none_or(|stamp| stamp.is_possible())
            && found.version.max(found.number) < 1 << 62;
        if !possible || census.round != found.round || !census.missing.remove(from) {
            return cx.emit(Event::Stale {});
        }
        census.held |= found.holds;
        if found.version > census.version {
            (census.version, census.hint) = (found.version, found.hint);
        }
        census.number = census.number.max(found.number);
        // A replica is whole; a newer copy that is not has less of what was published.
        let rank = |copy: Copied| (whole_first && copy.whole, copy);
        let better = |copy: &Copied| census.best.is_none_or(|(best, _)| rank(*copy) > rank(best));
        if let Some(copy) = found.copy.filter(better) {
            census.best = Some((copy, from));
        }
        self.conclude(cx, index);
    }

    /// A member that was to answer is gone, and its knowledge with it.
    pub(super) fn census_without(&mut self, cx: &mut Cx<'_>, index: PageIndex, node: NodeId) {
        let timer = self.page_timer(index);
        let page = self.page(cx, index);
        if let Some(census) = page.census.take() {
            // All answer anew: they must not take anything of that node any more, either.
            cx.end(&census.backoff, timer);
            let _ = node;
            self.search(cx, index);
        }
    }

    /// Everybody has answered: decides.
    fn conclude(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let (me, segment, timer) = (cx.me(), self.segment, self.page_timer(index));
        let page = self.page(cx, index);
        let Some(census) = page.census.take_if(|census| census.missing.is_empty()) else {
            return;
        };
        cx.end(&census.backoff, timer);
        if census.version > page.version {
            (page.version, page.hint) = (census.version, census.hint);
        }
        // Where the latest move led to a living node, the copy may have arrived there after that node
        // answered, and before the giver answered that it passes nothing on. In a second census any
        // living node that has the copy says so, or there was a later move. Else it was lost on its
        // way from a node that died.
        let leads_to_living = census.hint != me && cx.is_alive(census.hint);
        let may_arrive = leads_to_living && page.counted != page.version;
        if census.held || may_arrive {
            if !census.held {
                page.counted = page.version;
            }
            return;
        }
        let untouched = page.version == 0 && cx.has_left(segment.home());
        // Zeros stand for pages that never moved.
        let zeros = |copy: Copied| copy.stamp == Stamp::default();
        let moved = page.version > 0;
        let best = census.best.filter(|(copy, _)| !(moved && zeros(*copy)));
        page.version += 1;
        let version = page.version;
        page.stamp.number = page.stamp.number.max(census.number);
        let number = page.stamp.number;
        match best {
            Some((_, node)) if node != me => {
                (page.hint, page.elected) = (node, Some(node));
                let page = index;
                let said = Body::Become {
                    page,
                    version,
                    number,
                };
                self.say(cx, node, &said);
            }
            None if !untouched => {
                page.hint = me;
                self.lost(cx, index, census.hint);
            }
            _ => {
                page.hint = me;
                (page.holds, page.filled) = (true, page.copy().is_some());
                page.stamp.version = version;
                page.unveil();
                if !page.filled {
                    page.valid = Valid::Nothing;
                }
                self.drop_runs(cx, index);
                cx.emit(Event::Regained {
                    segment,
                    page: index,
                });
                self.holds_now(cx, index);
            }
        }
    }

    /// The home says that the copy here is the consistent one from now on.
    pub(super) fn become_holder(
        &mut self,
        cx: &mut Cx<'_>,
        home: NodeId,
        index: PageIndex,
        Stamp { version, number }: Stamp,
    ) {
        let (me, segment) = (cx.me(), self.segment);
        let offer = self.offer(self.pages.get(&index));
        let page = self.page(cx, index);
        if number >= 1 << 62 {
            return cx.emit(Event::Malformed {});
        }
        if home != cx.home(segment) || version >= 1 << 62 || page.holds {
            return cx.emit(Event::Stale {});
        }
        // A node that has declined, or had the copy and gave it away, says so again and again: the
        // home must not wait for it, and a late repetition must not make it the holder.
        let over = page.version >= version;
        if over || offer.is_none() || page.passing.is_some() {
            if !over {
                (page.version, page.hint) = (version, home);
            }
            return self.say(
                cx,
                home,
                &Body::NoCopy {
                    page: index,
                    version,
                },
            );
        }
        (page.holds, page.filled) = (true, page.copy().is_some());
        (page.version, page.hint, page.stamp.version) = (version, me, version);
        page.stamp.number = page.stamp.number.max(number);
        (page.prefix_purged, page.purged, page.blank) = (false, false, false);
        page.unveil();
        page.valid = match page.filled {
            true => Valid::Whole,
            false => Valid::Nothing,
        };
        self.drop_runs(cx, index);
        cx.emit(Event::Regained {
            segment,
            page: index,
        });
        self.holds_now(cx, index);
    }

    /// The node that was to become the holder has no copy any more.
    pub(super) fn no_copy(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        index: PageIndex,
        version: u64,
    ) {
        let page = self.page(cx, index);
        if page.elected != Some(from) || page.version != version {
            return cx.emit(Event::Stale {});
        }
        page.elected = None;
        page.hint = cx.me();
        self.search(cx, index);
    }
}
