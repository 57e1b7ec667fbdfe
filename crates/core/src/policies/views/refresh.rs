//! Refreshes: inconsistent copies that pass by. The newest wins, nothing is queued; who lacks some
//! pages of the newest publication asks for them.

use super::context::PageContext;
use super::messages::{Body, Refresh, Run, Stamp};
use super::page::{Page, Valid};
use super::page_here::part;
use super::{MISSING, REMIND, Views};
use crate::effect::{Effect, PageRange, Reply, Source};
use crate::event::Event;
use crate::shell::Cx;
use crate::time::Time;
use pagemesh_sorted::LongMap;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ClientId, NodeId, NodeSet, PAGE_SIZE, PageIndex, RequestId, Ticket};

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
            self.at(cx, index).here().materialize();
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
        self.put_off_reminders(cx, now + REMIND);
        for index in run.pages() {
            self.watches.changed(cx, (self.segment, index));
            if core::mem::take(&mut self.page(cx, index).purged) {
                self.at(cx, index).serve();
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

    /// A publication puts off the reminders of those before. Where states come often, the timer
    /// for these would wake the node once for each state, and for nothing.
    fn put_off_reminders(&mut self, cx: &mut Cx<'_>, at: Time) {
        let before = self.remind.replace(at);
        let is_alone = self.arriving.is_empty() && !self.replicas.on;
        if let Some(armed) = self.armed
            && before == self.armed
            && armed > cx.now
            && is_alone
        {
            cx.shell.timers.disarm(armed, self.timer());
            self.armed = None;
        }
        self.arm(cx, at);
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
            let mut page = self.at(cx, index);
            let mut here = page.here();
            here.send_refresh(to, (run, bytes), RequestId::NONE, Source::Frame);
        }
    }

    /// Whether no process maps these pages, and no holder counts on this node.
    fn needs_none_of(&self, run: Run) -> bool {
        let keeps = |page: PageIndex| self.pages.get(&page).is_some_and(|p| p.keeps.is_some());
        self.mappings.is_empty() && !run.pages().any(keeps)
    }

    /// A page of a publication of several: all become visible together.
    fn gather(&mut self, cx: &mut Cx<'_>, from: NodeId, refresh: &Refresh) {
        let run = refresh.run;
        if self.needs_none_of(run) {
            cx.emit(Event::Stale {});
            return self.listeners.deaf(cx, self.segment);
        }
        if !self.expect(cx, from, (run, refresh.bytes)) {
            return cx.emit(Event::Stale {});
        }
        if let Some(came) = self.arriving.stow(cx, self.segment, refresh) {
            self.complete(cx, came, refresh);
        }
    }

    /// All pages of a publication are here, the last of them with this message. Pages that are as
    /// new already stay: an answer to a request may have brought them.
    fn complete(&mut self, cx: &mut Cx<'_>, came: LongMap<PageIndex, Stamp>, last: &Refresh) {
        let segment = self.segment;
        let mut fresh = came.clone();
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
        for page in came.into_keys() {
            cx.push(Effect::DropStash { segment, page });
        }
        for (page, stamp) in fresh {
            let refresh = Refresh {
                page,
                stamp,
                answers: RequestId::NONE,
                ..*last
            };
            self.at(cx, page).take(&refresh);
        }
    }

    /// Whether pages of this publication are of use: some of them are older here.
    fn expect(&mut self, cx: &mut Cx<'_>, from: NodeId, (run, bytes): (Run, u16)) -> bool {
        if let Some(known) = self.arriving.has(run) {
            return known;
        }
        let has = |page: &Page| page.stamp.number >= run.stamp.number;
        if run.pages().all(|page| has(self.page(cx, page))) {
            return false;
        }
        // A node that has one of the pages, or sends it, has the stash in use for that.
        let busy = |page: &Page| page.holds || page.passing.is_some();
        if run.pages().any(|page| busy(self.page(cx, page))) {
            return false;
        }
        let due = self.arriving.expect(cx, self.segment, from, (run, bytes));
        self.arm(cx, due);
        true
    }

    /// The holder says what its newest publication is.
    pub(super) fn newest(&mut self, cx: &mut Cx<'_>, from: NodeId, (run, bytes): (Run, u16)) {
        if !run.fits(self.size) {
            return cx.emit(Event::Malformed {});
        }
        if self.needs_none_of(run) {
            return self.listeners.deaf(cx, self.segment);
        }
        self.arriving.drop_older(cx, self.segment, run);
        let page = self.page(cx, run.first);
        if run.count == 1 {
            if page.holds || page.stamp >= run.stamp {
                return;
            }
            let pages = vec![run.first];
            return self.say(cx, from, &Body::Missing { run, pages });
        }
        if self.expect(cx, from, (run, bytes)) {
            self.arriving.ask(cx, self.segment, run.first);
        }
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
        let arriving = self.arriving.due(cx, self.segment);
        let next = self.remind.into_iter().chain(arriving).min();
        if let Some(next) = next {
            self.arm(cx, next);
        }
    }
}

impl PageContext<'_, '_> {
    /// A refresh has come.
    pub(super) fn refreshed(&mut self, from: NodeId, refresh: &Refresh) {
        let run = refresh.run;
        let fits = run.fits(self.views.size) && run.contains(self.at.1);
        let possible = refresh.stamp.is_possible() && refresh.bytes > 0;
        if !fits || !possible || usize::from(refresh.bytes) > PAGE_SIZE {
            return self.cx.emit(Event::Malformed {});
        }
        self.learn_holder(refresh.stamp.version, refresh.holder);
        if self.page().holds {
            return self.cx.emit(Event::Stale {});
        }
        if self.views.replicas.on {
            let backs = self.views.replicas.backs(from);
            self.page().keep_refreshed(from, backs, refresh);
        }
        if run.count > 1 {
            return self.views.gather(self.cx, from, refresh);
        }
        let page = self.page();
        let answers = page.want.as_ref().is_some_and(|want| {
            refresh.answers != RequestId::NONE && want.request == refresh.answers
        });
        let is_new = refresh.stamp > page.stamp || (answers && refresh.stamp == page.stamp);
        // What was purged comes again only in answer to a request that followed.
        let same = refresh.stamp == page.stamp && !page.purged;
        let grows = same && page.shown() < valid(refresh);
        if !(is_new || grows) {
            if page.answered(refresh.answers, refresh.stamp) {
                self.serve();
            }
            return self.cx.emit(Event::Stale {});
        }
        if !answers && self.views.needs_none_of(run) {
            self.cx.emit(Event::Stale {});
            return self.views.listeners.deaf(self.cx, self.views.segment);
        }
        self.here().fill(part(refresh.bytes, Source::Payload));
        self.take(refresh);
    }

    /// The consistent copy has moved, and this node hears where.
    pub(super) fn learn_holder(&mut self, version: u64, holder: NodeId) {
        let known = self.page().version;
        if version <= known || holder == self.cx.me() || !holder.is_valid() {
            return;
        }
        self.arrived(version);
        let mut here = self.here();
        here.end_census();
        let page = &mut *here.page;
        (page.version, page.hint, page.elected) = (version, holder, None);
        page.lost = None;
        if core::mem::take(&mut page.holds) {
            // This node was declared dead, and does not know it yet.
            (page.filled, page.kept, page.valid) = (false, None, Valid::Nothing);
            page.locks.clear();
            here.evict(false);
        }
        self.given();
    }

    /// New contents are in the frame.
    fn take(&mut self, refresh: &Refresh) {
        let (segment, page) = self.at;
        let now = self.cx.now;
        self.page().take(refresh, now);
        self.cx.emit(Event::CopyArrived { segment, page });
        self.views.watches.changed(self.cx, self.at);
        self.serve();
    }
}

impl Page {
    /// New contents are in the frame.
    fn take(&mut self, refresh: &Refresh, now: Time) {
        let (old, new) = (self.stamp, refresh.stamp);
        if old.number > 0 && new.number > old.number + 1 && old.version == new.version {
            self.missed += new.number - old.number - 1;
        }
        if core::mem::take(&mut self.blank) {
            (self.valid, self.veiled) = (Valid::Nothing, None);
        }
        let shown = self.shown().max(valid(refresh));
        self.valid = self.valid.max(valid(refresh));
        self.veiled = Some(shown).filter(|shown| self.veiled.is_some() && *shown < self.valid);
        (self.prefix_purged, self.purged) = (false, false);
        (self.stamp, self.seen) = (new, now);
        self.came(new, valid(refresh) == Valid::Whole);
        self.answered(refresh.answers, new);
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
