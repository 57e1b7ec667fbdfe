//! Publications of several pages that are arriving: all pages become visible together, so those that
//! are here wait in the stash for the others.

use super::messages::{Body, Refresh, Run, Stamp};
use super::{ASKS, MISSING, REPAIR, say};
use crate::effect::Effect;
use crate::event::Event;
use crate::shell::Cx;
use crate::time::Time;
use core::time::Duration;
use pagemesh_sorted::{LongMap, SortedMap};
use pagemesh_wire::{NodeId, PageIndex, SegmentId};
use serde::{Deserialize, Serialize};

/// A publication that is arriving.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Arriving {
    run: Run,
    bytes: u16,
    from: NodeId,
    /// Pages that are here, with their stamps.
    came: LongMap<PageIndex, Stamp>,
    /// When to ask for the others, and how long to wait then.
    due: Time,
    wait: Duration,
    /// How often they were asked for.
    #[serde(default)]
    asked: u8,
}

/// All that are arriving, by their first pages. No two have a page in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Arrivals(SortedMap<PageIndex, Arriving>);

impl Arrivals {
    /// Whether this publication is arriving; none if neither it nor a newer one is.
    pub(super) fn has(&self, run: Run) -> Option<bool> {
        let known = self.0.get(&run.first)?.run;
        (known == run || known.stamp > run.stamp).then_some(known == run)
    }

    /// Expects a publication: pages of others that it has are dropped. Returns when to look for what
    /// did not come.
    pub(super) fn expect(
        &mut self,
        cx: &mut Cx<'_>,
        segment: SegmentId,
        from: NodeId,
        (run, bytes): (Run, u16),
    ) -> Time {
        for page in run.pages() {
            self.drop_with(cx, segment, page);
        }
        let due = cx.now + REPAIR;
        let arriving = Arriving {
            run,
            bytes,
            from,
            came: LongMap::new(),
            due,
            wait: REPAIR,
            asked: 0,
        };
        self.0.insert(run.first, arriving);
        due
    }

    /// A page has come of a publication that is expected. Returns all of its pages if this was the
    /// last.
    pub(super) fn stow(
        &mut self,
        cx: &mut Cx<'_>,
        segment: SegmentId,
        refresh: &Refresh,
    ) -> Option<LongMap<PageIndex, Stamp>> {
        let (page, run) = (refresh.page, refresh.run);
        let arriving = self.0.get_mut(&run.first)?;
        if arriving.came.insert(page, refresh.stamp).is_some() {
            cx.emit(Event::Stale {});
            return None;
        }
        cx.push(Effect::Stow { segment, page });
        if arriving.came.len() as u32 != run.count {
            return None;
        }
        self.0.remove(&run.first).map(|whole| whole.came)
    }

    /// Gives up what has come of publications with this page.
    pub(super) fn drop_with(&mut self, cx: &mut Cx<'_>, segment: SegmentId, page: PageIndex) {
        let over = self.0.iter().filter(|(_, of)| of.run.contains(page));
        for first in over.map(|(first, _)| *first).collect::<Vec<_>>() {
            let gone = self.0.remove(&first).into_iter();
            for page in gone.flat_map(|gone| gone.came.into_keys()) {
                cx.push(Effect::DropStash { segment, page });
            }
        }
    }

    /// The rest of a publication older than this one never comes: its sender answers with the newest.
    pub(super) fn drop_older(&mut self, cx: &mut Cx<'_>, segment: SegmentId, run: Run) {
        let older = |known: &Arriving| known.run.stamp < run.stamp;
        if self.0.get(&run.first).is_some_and(older) {
            self.drop_with(cx, segment, run.first);
        }
    }

    /// Asks for what did not come.
    pub(super) fn ask(&mut self, cx: &mut Cx<'_>, segment: SegmentId, first: PageIndex) {
        let Some(arriving) = self.0.get_mut(&first) else {
            return;
        };
        let run = arriving.run;
        let missing = run.pages();
        let missing = missing.filter(|page| !arriving.came.contains_key(page));
        let pages: Vec<_> = missing.take(MISSING).collect();
        arriving.asked = arriving.asked.saturating_add(1);
        if arriving.asked > ASKS {
            return self.drop_with(cx, segment, first);
        }
        let page = first;
        cx.emit(Event::Repaired { segment, page });
        say(cx, segment, arriving.from, &Body::Missing { run, pages });
    }

    /// True if all publications that were heard of are here.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Asks for what should have come. Returns when to look again.
    pub(super) fn due(&mut self, cx: &mut Cx<'_>, segment: SegmentId) -> Option<Time> {
        let mut lacking = Vec::new();
        for (first, arriving) in &mut self.0 {
            if arriving.due <= cx.now {
                arriving.wait = (arriving.wait * 2).min(cx.pace().resend_ceiling);
                arriving.due = cx.now + arriving.wait;
                lacking.push((*first, arriving.from));
            }
        }
        let next = self.0.values().map(|arriving| arriving.due).min();
        for (first, from) in lacking {
            if cx.is_gone(from) {
                self.drop_with(cx, segment, first);
            } else {
                self.ask(cx, segment, first);
            }
        }
        next
    }
}
