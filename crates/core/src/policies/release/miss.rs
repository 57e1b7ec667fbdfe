//! Making a page whole: what it needs next, until accesses may happen (T15). The base copy is in
//! [`super::copies`], the diffs it lacks are in [`super::diff_requests`].

use super::Release;
use super::collector::Collector;
use super::diff_sizes::DiffSizes;
use super::history::History;
use super::intervals::Intervals;
use super::memory::Memory;
use super::messages::CopyReply;
use super::page::{Copy, Miss, Page};
use super::push_credit::PushCredit;
use super::replicas::Replicas;
use super::requests::Requests;
use super::rules::Rules;
use crate::backoff::Backoff;
use crate::effect::{DiffWork, Effect, Source};
use crate::prefetch::WillneedRanges as _;
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use core::time::Duration;
use pagemesh_wire::peer::{DiffName, Refusal};
use pagemesh_wire::{NodeId, PageIndex};

/// Whether this node does not know yet that there is such a member.
pub(super) fn is_out_of_reach(cx: &Cx<'_>, node: NodeId) -> bool {
    !cx.is_alive(node) && !cx.is_gone(node)
}

/// When what a page needs is requested again.
pub(super) fn schedule(cx: &mut Cx<'_>, timer: Timer, thread_waits: bool) -> Backoff {
    match thread_waits {
        true => cx.backoff(timer),
        false => cx.unhurried_backoff(timer),
    }
}

/// What a page needs next.
pub(super) enum Need {
    /// Nothing: no modification of it was ever collected, so it starts from zeros.
    Zeros,
    /// A base copy of this node.
    CopyReply(NodeId),
    /// An answer that has not arrived yet.
    Patience,
    /// These diffs.
    Diffs(Vec<DiffName>),
    /// Nothing: it is in its frame.
    Nothing,
    /// Nothing from other nodes: these diffs are to be merged.
    Merge(Vec<DiffName>),
    /// Something that no node has: the page is lost with this node.
    Lost(NodeId),
}

/// What has become of a page that is being made whole.
pub(super) enum Outcome {
    /// It waits for other nodes.
    Waits,
    /// It waits, and a copy was requested again from that node, after a request at that time.
    Repeats(NodeId, Time),
    /// It is whole with these contents, and these diffs.
    Whole(Source, Vec<DiffName>),
    /// It is in its frame already.
    InFrame,
    /// A modification of it is lost with a node.
    Lost(NodeId),
}

/// A page, with what says what it lacks.
pub(super) struct PageContext<'a, 'b> {
    pub(super) cx: &'a mut Cx<'b>,
    pub(super) rules: Rules,
    pub(super) index: PageIndex,
    pub(super) intervals: &'a mut Intervals,
    pub(super) memory: &'a mut Memory,
    pub(super) push: &'a mut PushCredit,
    pub(super) sizes: &'a DiffSizes,
    pub(super) collector: &'a Collector,
    pub(super) replicas: &'a Replicas,
}

impl PageContext<'_, '_> {
    pub(super) fn miss(&mut self) -> Option<&mut Miss> {
        self.memory.pages.miss(self.index)
    }

    /// Does the next step. What is to be requested is added to `requests`.
    pub(super) fn go_on(&mut self, requests: &mut Requests) -> Outcome {
        let Some(page) = self.memory.pages.get(&self.index) else {
            return Outcome::Waits;
        };
        let Some(miss) = &page.miss else {
            return Outcome::Waits;
        };
        match self.need(page, miss) {
            Need::Zeros => self.start_from_zeros(),
            Need::CopyReply(from) => {
                self.ask_base(from, requests);
                Outcome::Waits
            }
            Need::Patience => Outcome::Waits,
            Need::Diffs(names) => match self.ask_diffs(&names, requests) {
                Some(lost) => Outcome::Lost(lost),
                None => Outcome::Waits,
            },
            Need::Nothing => Outcome::InFrame,
            Need::Merge(names) => Outcome::Whole(Source::Stash, names),
            Need::Lost(with) => Outcome::Lost(with),
        }
    }

    /// Does the next step, and sends what is to be requested.
    pub(super) fn go_on_alone(&mut self) -> Outcome {
        let mut requests = Requests::default();
        let outcome = self.go_on(&mut requests);
        let floor = self.intervals.history.floor();
        requests.send(self.cx, self.rules.segment, floor);
        outcome
    }

    fn need(&self, page: &Page, miss: &Miss) -> Need {
        if page.copy == Copy::Frame {
            return Need::Nothing;
        }
        if miss.base.is_some() || !self.intervals.inquiries.is_synced() {
            return Need::Patience;
        }
        if self.memory.replicated && self.intervals.is_doubtful(self.cx, page) {
            return Need::Patience;
        }
        let pending = page.notices.pending(self.index);
        if page.copy == Copy::None {
            return self.need_base(page, miss, &pending);
        }
        // A backup has diffs that it never asked for.
        let here = self.memory.replicated && self.memory.diffs.has_all(&pending);
        if !here && let Some(from) = self.prefers_copy(page, miss, &pending) {
            return Need::CopyReply(from);
        }
        let missing: Vec<_> = pending
            .iter()
            .filter(|name| !self.memory.diffs.has(name))
            .copied()
            .collect();
        if missing.is_empty() {
            Need::Merge(pending)
        } else {
            Need::Diffs(missing)
        }
    }

    /// Repeats the requests, if that is due.
    pub(super) fn due(&mut self) -> Outcome {
        let timer = self.rules.timer(self.index);
        let Some(miss) = self.memory.pages.miss(self.index) else {
            return Outcome::Waits;
        };
        let said = miss.backoff.said();
        let asked: Vec<NodeId> = miss.all_asked().collect();
        if !self.cx.fire_to(asked, &mut miss.backoff, timer) {
            return Outcome::Waits;
        }
        miss.asked.clear();
        let Some((from, request)) = miss.base.take() else {
            return self.go_on_alone();
        };
        // An answer that is still under way answers the repetition, too.
        let floor = self.copy_floor();
        self.request_copy(floor, (from, request));
        Outcome::Repeats(from, said)
    }

    /// Accesses that have waited longer than `patience` fail; the page is still made whole, for
    /// later accesses.
    pub(super) fn forsaken(&mut self, patience: Duration) {
        let (now, page) = (self.cx.now, (self.rules.segment, self.index));
        let why = self.cx.coordinator();
        let late = |miss: &&mut Miss| now - miss.since >= patience;
        let Some(miss) = self.memory.pages.miss(self.index).filter(late) else {
            return;
        };
        for (mapping, _) in core::mem::take(&mut miss.faults) {
            self.cx.fail(mapping, page, Refusal::NodeGone(why));
        }
    }

    /// A node is gone, which may have been asked: another node is asked.
    pub(super) fn helper_gone(&mut self, node: NodeId) -> Outcome {
        let Some(miss) = self.miss() else {
            return Outcome::Waits;
        };
        miss.base = miss.base.filter(|(asked, _)| *asked != node);
        miss.asked.retain(|_, (asked, _)| *asked != node);
        self.go_on_alone()
    }
}

impl Memory {
    /// A page is whole: fills its frame.
    fn finish(
        &mut self,
        cx: &mut Cx<'_>,
        history: &History,
        index: PageIndex,
        (source, names): (Source, Vec<DiffName>),
    ) {
        self.compare(cx, history, index, &names);
        let rules = self.reductions.rules(index);
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        let merged = names.iter().map(|name| (name.node, name.interval));
        page.notices.apply_all(merged);
        page.blank = source == Source::Zero && names.is_empty();
        self.pages.end_habit(index);
        self.put(cx, index, Copy::Frame);
        let (segment, page) = (self.segment, index);
        cx.push(if names.is_empty() {
            Effect::Fill {
                pages: (segment, page).into(),
                source,
            }
        } else {
            Effect::Diffs(DiffWork::Merge {
                segment,
                page,
                source,
                names,
                rules,
            })
        });
    }

    /// A modification of the page is lost with a node.
    fn lose(&mut self, cx: &mut Cx<'_>, rules: Rules, index: PageIndex, with: NodeId) {
        let Some(page) = self.pages.get_mut(&index) else {
            return;
        };
        page.lost = Some(with);
        if let Some(miss) = page.miss.take() {
            cx.end(&miss.backoff, rules.timer(index));
            for (mapping, _) in miss.faults {
                cx.fail(mapping, (rules.segment, index), Refusal::NodeGone(with));
            }
        }
    }
}

impl Release {
    /// Opens a page.
    pub(super) fn at<'a, 'b>(
        &'a mut self,
        cx: &'a mut Cx<'b>,
        index: PageIndex,
    ) -> PageContext<'a, 'b> {
        PageContext {
            cx,
            rules: self.rules,
            index,
            intervals: &mut self.intervals,
            memory: &mut self.memory,
            push: &mut self.push,
            sizes: &self.sizes,
            collector: &self.collector,
            replicas: &self.replicas,
        }
    }

    /// Does the next step for each of these pages that is being made whole.
    pub(super) fn go_on(&mut self, cx: &mut Cx<'_>, pages: impl IntoIterator<Item = PageIndex>) {
        for index in pages {
            let outcome = self.at(cx, index).go_on_alone();
            self.conclude(cx, index, outcome);
        }
    }

    /// As [`Release::go_on`] for one page, but what is to be requested is added to `requests`.
    pub(super) fn go_on_with(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        requests: &mut Requests,
    ) {
        let outcome = self.at(cx, index).go_on(requests);
        self.conclude(cx, index, outcome);
    }

    /// A base copy has arrived, or the news that the asked node has none.
    pub(super) fn base_arrived(&mut self, cx: &mut Cx<'_>, from: NodeId, base: &CopyReply) {
        let outcome = self.at(cx, base.page).base(from, base);
        self.conclude(cx, base.page, outcome);
    }

    /// A step was done for a page: if it is whole, or lost, those who wait for it go on.
    pub(super) fn conclude(&mut self, cx: &mut Cx<'_>, page: PageIndex, outcome: Outcome) {
        match outcome {
            Outcome::Waits => {}
            Outcome::Repeats(node, said) => self.repeat_burst(cx, page, (node, said)),
            Outcome::InFrame => self.serve_faults(cx, page),
            Outcome::Lost(with) => {
                self.memory.lose(cx, self.rules, page, with);
                self.prefetch.flights.forget(page);
                self.collector.is_whole(cx, page);
            }
            Outcome::Whole(source, names) => {
                let history = &self.intervals.history;
                self.memory.finish(cx, history, page, (source, names));
                self.serve_faults(cx, page);
                if source == Source::Stash {
                    let segment = self.rules.segment;
                    cx.push(Effect::DropStash { segment, page });
                }
            }
        }
    }

    fn serve_faults(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let timer = self.rules.timer(index);
        let Some(page) = self.memory.pages.get_mut(&index) else {
            return;
        };
        if let Some(miss) = page.miss.take() {
            cx.end(&miss.backoff, timer);
            self.memory.map(cx, index, &miss.faults);
            if self.walk(cx).came(index, &miss) {
                self.run_willneed_ranges(cx);
            }
            let mut supply = self.supply(cx);
            for fetch in miss.readers {
                supply.fetch(fetch);
            }
        }
        self.collector.is_whole(cx, index);
    }
}
