//! Refreshes: inconsistent copies that pass by. The newest wins, nothing is queued; who lacks some
//! pages of the newest publication asks for them.

use super::messages::{Body, Refresh, Run, Stamp};
use super::page::Valid;
use super::{ASKS, MISSING, REMIND, REPAIR, Views};
use crate::effect::{Effect, PageRange, Reply, Source};
use crate::event::Event;
use crate::shell::Cx;
use crate::time::Time;
use core::time::Duration;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ClientId, NodeId, NodeSet, PAGE_SIZE, PageIndex, RequestId, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A publication that is arriving; its pages are in the stash.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Arriving {
    run: Run,
    bytes: u16,
    from: NodeId,
    /// Pages that are here, with their stamps.
    came: BTreeMap<PageIndex, Stamp>,
    /// When to ask for the others, and how long to wait then.
    due: Time,
    wait: Duration,
    /// How often they were asked for.
    #[serde(default)]
    asked: u8,
}

impl Views {
    /// Publishes pages that this node holds: one refresh goes to every listener.
    pub(super) fn publish(
        &mut self,
        cx: &mut Cx<'_>,
        ((ticket, client), waits): ((Ticket, ClientId), bool),
        (first, count): (PageIndex, u32),
        short: bool,
    ) {
        let mut run = Run {
            first,
            count,
            stamp: Stamp::default(),
        };
        if let Some(elsewhere) = run.pages().find(|page| !self.page(cx, *page).holds) {
            if count == 1 {
                // All have seen it pass as it moved.
                return cx.reply(ticket, Reply::Done);
            }
            let why = format!(
                "the consistent copy of page {elsewhere} is on another node: store to all pages, \
                 under a lock if others store, too, and publish again"
            );
            return cx.refuse(ticket, Refusal::Invalid(why));
        }
        let numbers = run.pages().map(|page| self.page(cx, page).stamp.number);
        let number = numbers.max().unwrap_or(0) + 1;
        let whole = PAGE_SIZE as u16;
        // A backup needs whole pages, and a publication of several has one length for all.
        let is_short = short && (count == 1 || !self.replicas.on);
        let bytes = if is_short { self.prefix } else { whole };
        let now = cx.now;
        for index in run.pages() {
            self.materialize(cx, index);
            let page = self.page(cx, index);
            page.stamp = Stamp {
                version: page.version,
                number,
            };
            page.seen = now;
        }
        run.stamp = self.page(cx, first).stamp;
        let (me, backup) = (cx.me(), self.replicas.backup());
        let nodes = backup.map_or(NodeSet::EMPTY, NodeSet::only);
        let nodes = nodes.union(&self.listeners.nodes);
        for node in nodes.iter().filter(|node| *node != me) {
            if cx.is_alive(node) {
                let bytes = if Some(node) == backup { whole } else { bytes };
                self.send_run(cx, node, (run, bytes), run.pages());
            }
        }
        self.supersede(run);
        self.published.add(run, bytes);
        self.remind = Some(now + REMIND);
        self.arm(cx, now + REMIND);
        for index in run.pages() {
            self.changed(cx, index);
            let page = self.page(cx, index);
            if core::mem::take(&mut page.purged) {
                self.serve(cx, index);
            }
        }
        self.replicas.lacks(first);
        self.pump_replicas(cx);
        if !waits || !self.replicas.on {
            return cx.reply(ticket, Reply::Done);
        }
        let (replicas, held) = self.replicas();
        replicas.wait(cx, held, (ticket, client), (first, count));
    }

    /// Takes the pages of a publication out of the ones before.
    pub(super) fn supersede(&mut self, run: Run) {
        let pages = &self.pages;
        let version = |page| pages.get(&page).map_or(0, |page| page.version);
        for (first, left) in self.published.supersede(run, version) {
            if self.replicas.superseded(first, first == run.first) {
                left.into_iter()
                    .for_each(|first| self.replicas.lacks(first));
            }
        }
    }

    fn send_run(
        &mut self,
        cx: &mut Cx<'_>,
        to: NodeId,
        (run, bytes): (Run, u16),
        pages: impl Iterator<Item = PageIndex>,
    ) {
        for index in pages {
            let refresh = self.refresh(cx, index, (run, bytes), RequestId::NONE);
            let source = part(bytes, Source::Frame);
            self.say_page(cx, to, &Body::Refresh(refresh), source);
        }
    }

    /// Ends the watches of a page.
    pub(super) fn changed(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let over = |watch: &mut (PageIndex, u32, Ticket)| {
            index
                .0
                .checked_sub(watch.0.0)
                .is_some_and(|step| step < watch.1)
        };
        for (.., ticket) in self.watches.extract_if(.., over) {
            cx.reply(ticket, Reply::Changed);
        }
    }

    /// A refresh has come.
    pub(super) fn refreshed(&mut self, cx: &mut Cx<'_>, from: NodeId, refresh: &Refresh) {
        let (index, run) = (refresh.page, refresh.run);
        let fits = run.fits(self.size) && run.contains(index) && refresh.stamp.is_possible();
        if !fits || refresh.bytes == 0 || usize::from(refresh.bytes) > PAGE_SIZE {
            return cx.emit(Event::Malformed {});
        }
        self.learn_holder(cx, index, refresh.stamp.version, refresh.holder);
        if self.page(cx, index).holds {
            return cx.emit(Event::Stale {});
        }
        self.keep_refreshed(cx, from, refresh);
        if run.count > 1 {
            return self.gather(cx, from, refresh);
        }
        let page = self.page(cx, index);
        let answers = page.want.as_ref().is_some_and(|want| {
            refresh.answers != RequestId::NONE && want.request == refresh.answers
        });
        let is_new = refresh.stamp > page.stamp || (answers && refresh.stamp == page.stamp);
        // What was purged comes again only in answer to a request that followed.
        let same = refresh.stamp == page.stamp && !page.purged;
        let grows = same && page.shown() < valid(refresh);
        if !(is_new || grows) {
            return cx.emit(Event::Stale {});
        }
        if !answers && self.needs_none_of(run) {
            cx.emit(Event::Stale {});
            return self.listeners.deaf(cx, self.segment);
        }
        cx.push(Effect::Fill {
            pages: (self.segment, index).into(),
            source: part(refresh.bytes, Source::Payload),
        });
        self.take(cx, index, refresh);
    }

    /// Whether no process maps these pages, and no holder counts on this node.
    fn needs_none_of(&self, run: Run) -> bool {
        let keeps = |page: PageIndex| self.pages.get(&page).is_some_and(|p| p.keeps.is_some());
        self.mappings.is_empty() && !run.pages().any(keeps)
    }

    /// The consistent copy has moved, and this node hears where.
    pub(super) fn learn_holder(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        version: u64,
        holder: NodeId,
    ) {
        let me = cx.me();
        if version <= self.page(cx, index).version || holder == me || !holder.is_valid() {
            return;
        }
        self.arrived(cx, index, version);
        let segment = self.segment;
        let page = self.page(cx, index);
        (page.version, page.hint, page.elected) = (version, holder, None);
        page.lost = None;
        if core::mem::take(&mut page.holds) {
            // This node was declared dead, and does not know it yet.
            (page.filled, page.kept) = (false, None);
            page.locks.clear();
            page.valid = Valid::Nothing;
            let pages = (segment, index).into();
            cx.push(Effect::Evict { pages, keep: false });
        }
    }

    /// New contents are in the frame.
    fn take(&mut self, cx: &mut Cx<'_>, index: PageIndex, refresh: &Refresh) {
        let (segment, now) = (self.segment, cx.now);
        let page = self.page(cx, index);
        let (old, new) = (page.stamp, refresh.stamp);
        if old.number > 0 && new.number > old.number + 1 && old.version == new.version {
            page.missed += new.number - old.number - 1;
        }
        if core::mem::take(&mut page.blank) {
            (page.valid, page.veiled) = (Valid::Nothing, None);
        }
        let shown = page.shown().max(valid(refresh));
        page.valid = page.valid.max(valid(refresh));
        page.veiled = Some(shown).filter(|shown| page.veiled.is_some() && *shown < page.valid);
        (page.prefix_purged, page.purged) = (false, false);
        (page.stamp, page.seen) = (new, now);
        cx.emit(Event::CopyArrived {
            segment,
            page: index,
        });
        self.changed(cx, index);
        self.serve(cx, index);
    }

    /// A page of a publication of several: all become visible together.
    fn gather(&mut self, cx: &mut Cx<'_>, from: NodeId, refresh: &Refresh) {
        let (run, segment) = (refresh.run, self.segment);
        if self.needs_none_of(run) {
            cx.emit(Event::Stale {});
            return self.listeners.deaf(cx, self.segment);
        }
        if !self.expect(cx, from, (run, refresh.bytes)) {
            return cx.emit(Event::Stale {});
        }
        let arriving = self
            .arriving
            .get_mut(&run.first)
            .expect("expected just now");
        if arriving.came.insert(refresh.page, refresh.stamp).is_some() {
            return cx.emit(Event::Stale {});
        }
        let whole = arriving.came.len() as u32 == run.count;
        cx.push(Effect::Stow {
            segment,
            page: refresh.page,
        });
        if whole {
            self.complete(cx, refresh);
        }
    }

    /// All pages of a publication are here, the last of them with this message. Pages that are as
    /// new already stay: an answer to a request may have brought them.
    fn complete(&mut self, cx: &mut Cx<'_>, last: &Refresh) {
        let segment = self.segment;
        let Some(arrived) = self.arriving.remove(&last.run.first) else {
            return;
        };
        let mut fresh = arrived.came.clone();
        fresh.retain(|page, stamp| *stamp > self.page(cx, *page).stamp);
        let mut fills: Vec<PageRange> = Vec::new();
        for index in fresh.keys() {
            let next = |fill: &PageRange| fill.first.0 + fill.count == index.0 && fill.count < 64;
            match fills.last_mut().filter(|fill| next(fill)) {
                Some(fill) => fill.count += 1,
                None => fills.push((segment, *index).into()),
            }
        }
        for pages in fills {
            let source = Source::Stash;
            cx.push(Effect::Fill { pages, source });
        }
        for page in arrived.came.into_keys() {
            cx.push(Effect::DropStash { segment, page });
        }
        for (page, stamp) in fresh {
            let refresh = Refresh {
                page,
                stamp,
                ..*last
            };
            self.take(cx, page, &refresh);
        }
    }

    /// Whether pages of this publication are of use: some of them are older here.
    fn expect(&mut self, cx: &mut Cx<'_>, from: NodeId, (run, bytes): (Run, u16)) -> bool {
        if let Some(known) = self.arriving.get(&run.first)
            && (known.run == run || known.run.stamp > run.stamp)
        {
            return known.run == run;
        }
        let has = |page: &super::Page| page.stamp.number >= run.stamp.number;
        if run.pages().all(|page| has(self.page(cx, page))) {
            return false;
        }
        // A node that has one of the pages, or sends it, has the stash in use for that.
        let busy = |page: &super::Page| page.holds || page.passing.is_some();
        if run.pages().any(|page| busy(self.page(cx, page))) {
            return false;
        }
        for page in run.pages() {
            self.drop_runs(cx, page);
        }
        let due = cx.now + REPAIR;
        self.arm(cx, due);
        self.arriving.insert(
            run.first,
            Arriving {
                run,
                bytes,
                from,
                came: BTreeMap::new(),
                due,
                wait: REPAIR,
                asked: 0,
            },
        );
        true
    }

    /// Gives up what has come of publications with this page.
    pub(super) fn drop_runs(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        if self.arriving.is_empty() {
            return;
        }
        let segment = self.segment;
        let over = |arriving: &Arriving| arriving.run.contains(index);
        let runs = self.arriving.iter().filter(|(_, arriving)| over(arriving));
        for first in runs.map(|(first, _)| *first).collect::<Vec<_>>() {
            let arriving = self.arriving.remove(&first);
            for page in arriving.into_iter().flat_map(|gone| gone.came.into_keys()) {
                cx.push(Effect::DropStash { segment, page });
            }
        }
    }

    /// The holder says what its newest publication is.
    pub(super) fn newest(&mut self, cx: &mut Cx<'_>, from: NodeId, (run, bytes): (Run, u16)) {
        if !run.fits(self.size) {
            return cx.emit(Event::Malformed {});
        }
        if self.needs_none_of(run) {
            return self.listeners.deaf(cx, self.segment);
        }
        // The rest of an older publication never comes: its sender answers with the newest.
        let older = |arriving: &Arriving| arriving.run.stamp < run.stamp;
        if self.arriving.get(&run.first).is_some_and(older) {
            self.drop_runs(cx, run.first);
        }
        let page = self.page(cx, run.first);
        if run.count == 1 {
            if page.holds || page.stamp >= run.stamp {
                return;
            }
            let pages = vec![run.first];
            return self.say(cx, from, &Body::Missing { run, pages });
        }
        if self.expect(cx, from, (run, bytes)) {
            self.ask_missing(cx, run.first);
        }
    }

    fn ask_missing(&mut self, cx: &mut Cx<'_>, first: PageIndex) {
        let Some(arriving) = self.arriving.get_mut(&first) else {
            return;
        };
        let (run, from) = (arriving.run, arriving.from);
        let missing = run.pages();
        let missing = missing.filter(|page| !arriving.came.contains_key(page));
        let pages: Vec<_> = missing.take(MISSING).collect();
        arriving.asked = arriving.asked.saturating_add(1);
        if arriving.asked > ASKS {
            return self.drop_runs(cx, first);
        }
        cx.emit(Event::Repaired {
            segment: self.segment,
            page: first,
        });
        self.say(cx, from, &Body::Missing { run, pages });
    }

    /// A listener lacks pages of a publication; if there are newer ones of these pages, it hears of
    /// those.
    pub(super) fn missing(&mut self, cx: &mut Cx<'_>, from: NodeId, run: Run, pages: &[PageIndex]) {
        if !run.fits(self.size) {
            return cx.emit(Event::Malformed {});
        }
        let mut known = self.published.meeting(run);
        known.retain(|(run, _)| run.pages().all(|page| self.page(cx, page).holds));
        let exact = known.iter().find(|(known, _)| *known == run);
        let Some((_, bytes)) = exact.copied() else {
            if known.is_empty() {
                cx.emit(Event::Stale {});
            }
            for (run, bytes) in known.into_iter().take(MISSING) {
                self.say(cx, from, &Body::Newest { run, bytes });
            }
            return;
        };
        let pages = pages.iter().copied().take(MISSING);
        let pages: Vec<_> = pages.filter(|page| run.contains(*page)).collect();
        let is_backup = self.replicas.backup() == Some(from);
        let bytes = if is_backup { PAGE_SIZE as u16 } else { bytes };
        self.send_run(cx, from, (run, bytes), pages.into_iter());
        if is_backup {
            // It says so as soon as it has them.
            self.say(cx, from, &Body::Keep { run });
        }
    }

    /// Reminds listeners of publications, and asks for what is lacking.
    pub(super) fn refreshes_due(&mut self, cx: &mut Cx<'_>) {
        let (now, me) = (cx.now, cx.me());
        let remind = self.published.remind(now, &mut self.remind);
        let mut next = self.remind;
        for (run, bytes) in remind {
            if !self.page(cx, run.first).holds {
                self.published.withdraw(run.first);
                continue;
            }
            for node in self.listeners.nodes.iter().filter(|node| *node != me) {
                if cx.is_alive(node) {
                    self.say(cx, node, &Body::Newest { run, bytes });
                }
            }
        }
        let mut lacking = Vec::new();
        for (first, arriving) in &mut self.arriving {
            if arriving.due <= now {
                arriving.wait = (arriving.wait * 2).min(cx.pace().resend_ceiling);
                arriving.due = now + arriving.wait;
                lacking.push(*first);
            }
            let due = Some(arriving.due);
            next = due
                .filter(|due| next.is_none_or(|next| *due < next))
                .or(next);
        }
        for first in lacking {
            if cx.is_gone(self.arriving[&first].from) {
                self.drop_runs(cx, first);
            } else {
                self.ask_missing(cx, first);
            }
        }
        if let Some(next) = next {
            self.arm(cx, next);
        }
    }
}

/// The source of so many bytes of a page; `whole` if that is all of it.
pub(super) fn part(bytes: u16, whole: Source) -> Source {
    if usize::from(bytes) == PAGE_SIZE {
        whole
    } else {
        Source::Prefix(bytes)
    }
}

/// How much of the frame is valid with a refresh.
fn valid(refresh: &Refresh) -> Valid {
    if usize::from(refresh.bytes) == PAGE_SIZE {
        Valid::Whole
    } else {
        Valid::Prefix
    }
}
