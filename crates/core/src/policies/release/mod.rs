//! Lazy release consistency (TreadMarks): what a node wrote becomes visible to
//! whoever acquires after it released. Decision 0019 says how.
//!
//! [`history`] is what the node knows of everybody's intervals, [`learn`] how it
//! comes to know more, [`page`] one page, [`notices`] its writers, [`memory`] what accesses and notices do
//! to pages, [`lingering`] which stay writable from interval to interval, [`spread`] what is sent before anybody asks, [`regulars`] who has asked so
//! often that it need not and [`usage`] how it shows that it still wants them, [`miss`] how a page is made whole, [`ahead`] which before anybody needs it, [`serve`] what others want of this node, [`collect`] how all of it is
//! forgotten again, led by the home ([`round`]) when somebody holds too much or
//! leaves ([`full`], [`leave`]), [`death`] what becomes of copies when a node is gone,
//! [`reductions`] where nodes accumulate, [`races`] who wrote the same bytes without
//! knowing of each other.

mod ahead;
mod base;
mod collect;
mod death;
mod full;
mod history;
mod learn;
mod leave;
mod lingering;
mod memory;
mod miss;
mod notices;
mod page;
mod races;
mod reductions;
mod regulars;
mod round;
mod serve;
mod spread;
mod usage;
mod wants;

use super::{After, Inspection, Letter, Who};
use crate::calls::Caller;
use crate::effect::{Effect, Rights};
use crate::prefetch::Prefetch;
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use collect::Collecting;
use core::time::Duration;
use full::Fullness;
use history::History;
use learn::{Goal, Inquiry};
use lingering::Lingering;
use page::{Copy, Page};
use pagemesh_wire::local::PageLine;
use pagemesh_wire::peer::{Access, DiffName, Message, News, Reduction, Refusal, Spread, Subject};
use pagemesh_wire::{
    ClientId, MappingId, NodeId, NodeSet, PageCount, PageIndex, SegmentId, Ticket, VectorTime,
    Version,
};
use regulars::Regulars;
use round::Round;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The pages of one segment as this node knows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Release {
    segment: SegmentId,
    /// Pages of the segment.
    size: u32,
    spread: Spread,
    /// Ranges in which nodes accumulate.
    reductions: Vec<Reduction>,
    history: History,
    pages: BTreeMap<PageIndex, Page>,
    /// Pages that were used until somebody else wrote them.
    habits: BTreeSet<PageIndex>,
    /// What is asked for before it is touched.
    prefetch: Prefetch,
    /// Who uses the changes that this node makes, and gets some unasked.
    regulars: Regulars,
    /// Pages whose changes came unasked and were used, of which their writers are not told yet.
    used: BTreeSet<PageIndex>,
    /// Pages with a twin that the present interval is going to name.
    dirty: BTreeSet<PageIndex>,
    /// Pages that stayed writable, of which it is not known whether they were written
    /// since.
    lingering: Lingering,
    /// Diffs that the driver keeps, and those of them whose notices have not come.
    held: BTreeSet<DiffName>,
    early: BTreeSet<DiffName>,
    /// What others have said that they know.
    heard: BTreeMap<NodeId, VectorTime>,
    /// Notices that pages have, and how many pages have any.
    notices: usize,
    named: usize,
    /// Pages whose diff this node has named and nobody has asked for.
    undiffed: usize,
    /// What the home is known to know.
    home_time: VectorTime,
    goals: Vec<Goal>,
    inquiries: BTreeMap<NodeId, Inquiry>,
    collecting: Option<Collecting>,
    /// Whose round this node took part in last.
    led: Option<Caller>,
    /// At the home: a collection under way, when the last one ended, and who
    /// may keep nothing any more.
    round: Option<Round>,
    round_ended: Option<Time>,
    leavers: NodeSet,
    /// What is collected somewhere, as far as this node has heard.
    rumoured: VectorTime,
    full: Fullness,
    leaving: bool,
    greeted: Greeting,
}

impl Release {
    pub(super) fn new(segment: SegmentId, size: u32, spread: Spread) -> Self {
        Self {
            segment,
            size,
            spread,
            reductions: Vec::new(),
            history: History::default(),
            pages: BTreeMap::new(),
            habits: BTreeSet::new(),
            prefetch: Prefetch::default(),
            regulars: Regulars::new(),
            used: BTreeSet::new(),
            dirty: BTreeSet::new(),
            lingering: Lingering::default(),
            held: BTreeSet::new(),
            early: BTreeSet::new(),
            heard: BTreeMap::new(),
            notices: 0,
            named: 0,
            undiffed: 0,
            home_time: VectorTime::ZERO,
            goals: Vec::new(),
            inquiries: BTreeMap::new(),
            collecting: None,
            led: None,
            round: None,
            round_ended: None,
            leavers: NodeSet::EMPTY,
            rumoured: VectorTime::ZERO,
            full: Fullness::No,
            leaving: false,
            greeted: Greeting::NotYet,
        }
    }

    /// What this node knows, as a wish for a token says it.
    pub(crate) fn time(&self) -> VectorTime {
        self.history.time.clone()
    }

    /// A lock is released: the interval ends, and somebody who knows `known` is told what
    /// it lacks (T12, T13).
    pub(crate) fn release(&mut self, cx: &mut Cx<'_>, to: NodeId, known: &VectorTime) -> News {
        self.hears_of(to, known);
        let written = self.written(&[]);
        let named = self.end_interval_of(cx, &written);
        self.named_at(false, &named);
        self.show_use(cx);
        self.push(cx, &named);
        self.push_to_regular(cx, to, &named);
        self.history.since(known)
    }

    /// A node has said what it knows.
    fn hears_of(&mut self, node: NodeId, time: &VectorTime) {
        self.heard.entry(node).or_default().join(time);
    }

    /// A barrier is reached: as a release towards the home (T14). The driver has looked
    /// at pages that stayed writable, and these were `untouched`.
    pub(crate) fn arrive(&mut self, cx: &mut Cx<'_>, untouched: &[PageIndex]) -> News {
        let (home, known) = (cx.home(self.segment), self.home_time.clone());
        self.hears_of(home, &known);
        let written = self.written(untouched);
        let named = self.end_interval_of(cx, &written);
        self.named_at(true, &named);
        self.show_use(cx);
        self.push(cx, &named);
        self.push_to_regulars(cx);
        self.history.since(&known)
    }

    /// What somebody who knows `known` lacks of what this node knows.
    pub(crate) fn news(&self, known: &VectorTime) -> News {
        self.history.since(known)
    }

    /// What other daemons say about the segment.
    pub(crate) fn message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        match message {
            Message::Inquire(inquire) => self.inquired(cx, from, &inquire),
            Message::Told(told) => self.told(cx, from, &told),
            Message::Fetch(fetch) => self.fetch(cx, fetch),
            Message::Base(base) => self.base(cx, from, &base),
            Message::Want(want) => self.wanted(cx, from, &want),
            Message::Diffs(diffs) => self.diffs(cx, &diffs),
            Message::Absent(absent) => self.absent(cx, from, &absent),
            Message::Full { floor, leaving, .. } => {
                self.somebody_is_full(cx, from, &floor, leaving);
            }
            other => unreachable!("not for a policy: {other:?}"),
        }
    }

    pub(super) fn fault(&mut self, cx: &mut Cx<'_>, who: Who, page: PageIndex, access: Access) {
        if page.0 < self.size {
            // Those ahead are expected before this one is asked for, since they do not come
            // along with it, and asked for behind it.
            let ahead = self.walk(cx, who, page, access);
            self.touched(cx, who.mapping, page, access);
            self.ask_ahead(cx, ahead);
        }
    }

    /// What is said of owned pages means nothing here.
    #[expect(clippy::unused_self, reason = "an entry point of every policy")]
    pub(super) fn letter(&mut self, cx: &mut Cx<'_>, _: NodeId, _: PageIndex, _: Letter) {
        cx.emit(crate::Event::Stale {});
    }

    #[expect(clippy::unused_self, reason = "an entry point of every policy")]
    pub(super) fn use_confirmed(&mut self, _: &mut Cx<'_>, _: PageIndex, _: bool) {}

    pub(super) fn unmapped(&mut self, mapping: MappingId) {
        for page in self.pages.values_mut() {
            if let Some(miss) = &mut page.miss {
                miss.faults.retain(|(waiting, _)| *waiting != mapping);
                if let Some(ahead) = &mut miss.ahead {
                    ahead.mark |= ahead.mapping == mapping;
                }
            }
        }
        self.prefetch.unmapped(mapping);
    }

    /// A page changes here only when its node acquires, so nobody would ever be
    /// woken.
    #[expect(clippy::unused_self, reason = "an entry point of every policy")]
    pub(super) fn watch(&mut self, cx: &mut Cx<'_>, ticket: Ticket, _: PageIndex) {
        let why = pagemesh_wire::peer::Policy::NO_WATCH;
        cx.refuse(ticket, Refusal::Invalid(why.into()));
    }

    /// Nobody takes a page away, so nobody has to hold on to it.
    #[expect(clippy::unused_self, reason = "an entry point of every policy")]
    pub(super) fn pin(
        &mut self,
        cx: &mut Cx<'_>,
        ticket: Ticket,
        _: ClientId,
        _: PageIndex,
        _: PageCount,
    ) {
        let why = "pages of policy release have many writers and are never taken away; what must \
                   not be disturbed needs a lock";
        cx.refuse(ticket, Refusal::Invalid(why.into()));
    }

    #[expect(clippy::unused_self, reason = "an entry point of every policy")]
    pub(super) fn unpin(&mut self, _: &mut Cx<'_>, _: ClientId, _: PageIndex, _: PageCount) {}

    /// What waits for a page has waited in vain for too long, with the first node
    /// silent.
    pub(super) fn forsake(&mut self, cx: &mut Cx<'_>, page: PageIndex, patience: Duration) {
        self.miss_forsaken(cx, page, patience);
    }

    #[expect(clippy::unused_self, reason = "an entry point of every policy")]
    pub(super) fn forsake_pins(&mut self, _: &mut Cx<'_>) {}

    #[expect(clippy::unused_self, reason = "an entry point of every policy")]
    pub(super) fn cancel(&mut self, _: Ticket) -> bool {
        false
    }

    pub(super) fn client_gone(&mut self, _: &mut Cx<'_>, client: ClientId) {
        self.prefetch.client_gone(client);
    }

    pub(super) fn member_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.heard.remove(&node);
        self.regulars.retain(|(user, _), _| *user != node);
        self.drop_what_nobody_told(cx);
        for page in self.pages.values_mut() {
            page.users.remove(node);
        }
        self.round_lost(cx, node);
        self.leader_gone(cx, node);
        self.source_gone(cx, node);
        let waiting = self.pages_where(|page| page.miss.is_some());
        for index in waiting {
            self.helper_gone(cx, index, node);
        }
    }

    pub(super) fn expelled(&mut self, cx: &mut Cx<'_>) {
        let segment = self.segment;
        self.goals.clear();
        self.inquiries.clear();
        self.collecting = None;
        self.round = None;
        self.prefetch = Prefetch::default();
        for (page, state) in core::mem::take(&mut self.pages) {
            let keep = false;
            match state.copy {
                Copy::None => {}
                Copy::Stash => cx.push(Effect::DropStash { segment, page }),
                Copy::Frame => cx.push(Effect::Evict {
                    segment,
                    page,
                    keep,
                }),
            }
            for (mapping, _) in state.miss.into_iter().flat_map(|miss| miss.faults) {
                let why = Refusal::NotMember;
                cx.push(Effect::Fail {
                    mapping,
                    segment,
                    page,
                    why,
                });
            }
        }
        self.used.clear();
        self.dirty.clear();
        self.lingering = Lingering::default();
    }

    pub(super) fn due(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        self.miss_due(cx, page);
    }

    /// Who keeps what is collected, for the heir of this home.
    pub(super) fn legacy(&self, me: NodeId) -> Vec<(PageIndex, Version, NodeId)> {
        let kept = |(index, page): (&PageIndex, &Page)| {
            let keeper = page.keeper.filter(|keeper| *keeper != me)?;
            Some((*index, Version(0), keeper))
        };
        self.pages.iter().filter_map(kept).collect()
    }

    pub(super) fn learn(&mut self, page: PageIndex, keeper: NodeId) {
        let page = self.pages.entry(page).or_default();
        page.keeper = page.keeper.or(Some(keeper));
    }

    pub(super) fn inspect(&self, me: NodeId, first: PageIndex, limit: usize) -> Inspection {
        let count =
            |pick: &dyn Fn(&Page) -> bool| self.pages.values().filter(|page| pick(page)).count();
        let line = |(index, page): (&PageIndex, &Page)| PageLine {
            page: *index,
            rights: page.rights as u8,
            owner: page.keeper == Some(me),
            hint: page.keeper.unwrap_or(self.segment.home()),
            version: page.notices.applied().intervals(),
            copies: NodeSet::EMPTY,
            queued: 0,
        };
        Inspection {
            known: self.pages.len() as u64,
            readable: count(&|page| page.rights >= Rights::Read) as u64,
            writable: count(&|page| page.rights == Rights::Write) as u64,
            owned: count(&|page| page.keeper == Some(me)) as u64,
            pages: self.pages.range(first..).take(limit).map(line).collect(),
        }
    }

    fn pages_where(&self, pick: impl Fn(&Page) -> bool) -> Vec<PageIndex> {
        let picked = self.pages.iter().filter(|(_, page)| pick(page));
        picked.map(|(index, _)| *index).collect()
    }

    fn timer(&self, page: PageIndex) -> Timer {
        Timer::Subject(Subject::Page {
            segment: self.segment,
            page,
        })
    }
}

/// Whether this node has asked what happened before it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Greeting {
    NotYet,
    UnderWay,
    Done,
}

/// Tells the corridor what may go on now.
fn ready(cx: &mut Cx<'_>, after: After) {
    cx.shell.ready.push_back(after);
}
