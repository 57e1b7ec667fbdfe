//! Pages that were asked for, and have not come.

use super::Private;
use super::memory::Memory;
use super::page::{Donors, Place};
use crate::backoff::Backoff;
use crate::effect::{Effect, Rights, Source};
use crate::event::Event;
use crate::patience::Awaited;
use crate::prefetch::Ahead;
use crate::shell::Cx;
use crate::time::Time;
use pagemesh_wire::peer::{Access, Backing, Global, LentPage, Message, Refusal};
use pagemesh_wire::{MappingId, NodeId, PageIndex, Version};
use serde::{Deserialize, Serialize};

/// After so many requests without an answer a page is read from the disk if it is there. It is a
/// bound for a donor that is slow, not gone.
const PATIENCE: u8 = 3;

/// A request to a donor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Fetch {
    /// The threads that wait; none if the page is asked for ahead.
    pub(super) waiters: Vec<(MappingId, Access)>,
    /// The mapping that is expected to touch a page asked for ahead.
    pub(super) ahead: Option<Ahead>,
    /// How a thread walks that is expected to come to the page.
    #[serde(default)]
    pub(super) walk: Option<Access>,
    /// The donor that was asked last.
    from: NodeId,
    since: Time,
    backoff: Backoff,
    tries: u8,
}

impl Private {
    /// A thread faulted at a page that was asked for, or that waits for room already.
    pub(super) fn wait_too(&mut self, page: PageIndex, mapping: MappingId, access: Access) -> bool {
        let Some(fetch) = self.fetches.get_mut(&page) else {
            let mut blocked = self.blocked.iter();
            let same = |blocked: &&super::Blocked| {
                (blocked.page, blocked.mapping) == (page, mapping) && blocked.access >= access
            };
            return blocked.any(|blocked| same(&blocked));
        };
        let waiter = (mapping, access);
        if !fetch.waiters.contains(&waiter) {
            fetch.waiters.push(waiter);
        }
        true
    }

    /// Asks a donor for a page. Room for it is counted already.
    pub(super) fn fetch(
        &mut self,
        cx: &mut Cx<'_>,
        page: PageIndex,
        waiter: Option<(MappingId, Access)>,
    ) {
        let Some(from) = self.open_fetch(cx, page, waiter, (None, None)) else {
            return;
        };
        self.ask(cx, from, &[page]);
    }

    /// Opens a request; the caller sends it to the node that is returned.
    pub(super) fn open_fetch(
        &mut self,
        cx: &mut Cx<'_>,
        page: PageIndex,
        waiter: Option<(MappingId, Access)>,
        (ahead, walk): (Option<Ahead>, Option<Access>),
    ) -> Option<NodeId> {
        let is_late = |node| cx.shell.memory.is_late(cx.now, node);
        let from = self.memory.pages.get(&page)?.donors.first(is_late)?;
        let backoff = cx.prompt_backoff(Awaited::Page, self.memory.timer(page));
        let fetch = Fetch {
            waiters: waiter.into_iter().collect(),
            ahead,
            walk,
            from,
            since: cx.now,
            backoff,
            tries: 1,
        };
        self.fetches.insert(page, fetch);
        Some(from)
    }

    /// Sends a request for some pages of which this node has open requests.
    pub(super) fn ask(&self, cx: &mut Cx<'_>, from: NodeId, pages: &[PageIndex]) {
        let segment = self.memory.rules.segment;
        let forget = self.memory.forgets(cx);
        for pages in pages.chunks(Global::PAGES) {
            let version = |page: &PageIndex| Some((*page, self.memory.pages.get(page)?.version));
            let pages = pages.iter().filter_map(version).collect();
            let get = Global::Get {
                segment,
                pages,
                forget,
            };
            cx.send(from, Message::Global(get));
        }
        for page in pages {
            cx.emit(Event::Asked {
                segment,
                page: *page,
            });
        }
    }

    /// A page has come from a donor. Its contents are those of `version`: the driver has opened
    /// them.
    pub(super) fn came(&mut self, cx: &mut Cx<'_>, from: NodeId, lent: LentPage) {
        let LentPage { page, version, .. } = lent;
        let segment = self.memory.rules.segment;
        let known = self.memory.pages.get(&page);
        let is_it =
            known.is_some_and(|known| (known.version, known.place) == (version, Place::Out));
        let fetch = is_it.then(|| self.fetches.remove(&page)).flatten();
        let Some(fetch) = fetch else {
            return cx.emit(Event::Stale {});
        };
        cx.end(&fetch.backoff, self.memory.timer(page));
        cx.answered(Awaited::Page, fetch.since, &fetch.backoff);
        if from == fetch.from {
            cx.progressed(from, &fetch.backoff);
        }
        cx.emit(Event::BytesArrived { segment, page });
        if self.memory.forgets(cx) {
            self.memory.dropped_by(page, from);
        }
        self.memory.renew_if_told(page);
        if fetch.waiters.is_empty() && fetch.ahead.is_none() {
            // It was fetched to be sent again: it needs no frame.
            cx.push(Effect::Stow { segment, page });
            self.stage_again(cx, page);
        } else {
            self.memory.fill(cx, page, Source::Payload, &fetch.waiters);
            if fetch.waiters.is_empty()
                && let Some(ahead) = fetch.ahead
            {
                cx.emit(Event::CameAhead { segment, page });
                self.memory.show_ahead(cx, ahead, fetch.walk, page);
            }
            if fetch.walk.is_some() {
                self.memory.came_by_walk(cx, page);
            }
        }
        self.came_ahead(cx, page);
    }

    /// A donor does not have the page that it was asked for.
    pub(super) fn missing(&mut self, cx: &mut Cx<'_>, from: NodeId, lent: LentPage) {
        let page = lent.page;
        if self.memory.page_of(lent).is_none() {
            return cx.emit(Event::Stale {});
        }
        let segment = self.memory.rules.segment;
        cx.emit(Event::DonorMissed { segment, page });
        self.memory.dropped_by(page, from);
        if self.fetches.contains_key(&page) {
            self.again(cx, page);
        }
    }

    /// A donor sent something else than the page: it would again, since donors keep what they send.
    /// A page that is on no disk is asked for again nevertheless.
    pub(super) fn spoiled(&mut self, cx: &mut Cx<'_>, from: NodeId, lent: LentPage) {
        if self.memory.is_on_disk(lent.page) {
            self.missing(cx, from, lent);
        } else {
            cx.emit(Event::Stale {});
        }
    }

    /// A donor has sent a page on to another node, which has it from now on (G26).
    pub(super) fn moved(&mut self, cx: &mut Cx<'_>, from: NodeId, (lent, to): (LentPage, NodeId)) {
        let page = lent.page;
        let known = self.memory.page_of(lent).filter(|known| known.on_disk);
        let Some(known) = known.filter(|known| known.donors.all().contains(from)) else {
            return cx.emit(Event::Stale {});
        };
        known.donors.remove(from);
        if to != cx.me() && cx.is_alive(to) {
            known.donors.add(to, true);
        }
        if self
            .fetches
            .get(&page)
            .is_some_and(|fetch| fetch.from == from)
        {
            self.again(cx, page);
        }
    }

    /// Asks for a page again: another donor if there is one, else the disk.
    fn again(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        let (Some(known), Some(fetch)) =
            (self.memory.pages.get(&page), self.fetches.get_mut(&page))
        else {
            return;
        };
        if let Some(from) = known.donors.after(Some(fetch.from)) {
            fetch.from = from;
            return self.ask(cx, from, &[page]);
        }
        self.give_up(cx, page);
    }

    /// No donor has the page, or none answers: it is read from the disk.
    fn give_up(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        let Some(fetch) = self.fetches.remove(&page) else {
            return;
        };
        cx.end(&fetch.backoff, self.memory.timer(page));
        let Some(known) = self.memory.pages.get_mut(&page) else {
            return;
        };
        let (version, on_disk) = (known.version, known.on_disk);
        let donors = core::mem::take(&mut known.donors);
        self.memory.release(cx, page, version, donors);
        if fetch.waiters.is_empty() {
            // No thread waits for the page, so it is not read.
            return self.memory.unhold(cx);
        }
        if on_disk {
            return self.memory.load(cx, page, &fetch.waiters);
        }
        self.memory.unhold(cx);
        for (mapping, _) in fetch.waiters {
            self.memory
                .fail(cx, mapping, page, Refusal::NodeGone(fetch.from));
        }
    }

    /// The timer of a page is due.
    pub(super) fn page_due(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        let timer = self.memory.timer(page);
        let Some(fetch) = self.fetches.get_mut(&page) else {
            return self.sending_due(cx, page);
        };
        if !cx.fire_to([fetch.from], &mut fetch.backoff, timer) {
            return;
        }
        fetch.tries = fetch.tries.saturating_add(1);
        let on_disk = self.memory.is_on_disk(page);
        let ahead = fetch.waiters.is_empty() && fetch.ahead.is_some();
        if (on_disk || ahead) && fetch.tries > PATIENCE {
            if on_disk {
                cx.shell.memory.was_mute(cx.now, fetch.from);
            }
            return self.give_up_waiting(cx, page);
        }
        cx.shell.memory.was_late(cx.now, fetch.from);
        self.again(cx, page);
    }

    /// The donor is too slow. If nobody waits the page stays with it.
    fn give_up_waiting(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        let idle = self
            .fetches
            .get(&page)
            .is_some_and(|fetch| fetch.waiters.is_empty());
        if !idle {
            return self.give_up(cx, page);
        }
        if let Some(fetch) = self.fetches.remove(&page) {
            cx.end(&fetch.backoff, self.memory.timer(page));
            self.prefetch.flights.forget(page);
            self.memory.unhold(cx);
        }
    }

    /// A donor is gone.
    pub(super) fn donor_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.outgoing.donor_gone(node);
        let mut lost = Vec::new();
        for (page, known) in &mut self.memory.pages {
            if known.donors.remove(node) && known.place == Place::Out && !known.on_disk {
                lost.push(*page);
            }
        }
        let asked = self.fetches.iter().filter(|(_, fetch)| fetch.from == node);
        for page in asked.map(|(page, _)| *page).collect::<Vec<_>>() {
            self.again(cx, page);
        }
        self.outgoing.repair.extend(lost);
        self.outgoing_due(cx);
    }
}

impl Memory {
    /// Whether donors drop pages as they send them. While memory is not scarce they keep them: a page
    /// that is not stored to need not be sent again. If the donor was asked otherwise before memory
    /// became scarce, or the other way round, the page is read from the disk once.
    fn forgets(&self, cx: &Cx<'_>) -> bool {
        self.rules.backing == Backing::File && cx.shell.memory.is_scarce()
    }

    /// The donor has dropped the page, as it was asked to.
    fn dropped_by(&mut self, page: PageIndex, from: NodeId) {
        if let Some(known) = self.pages.get_mut(&page) {
            known.donors.remove(from);
        }
    }

    /// Tells donors that they need not keep a page of this version any more.
    pub(super) fn release(
        &self,
        cx: &mut Cx<'_>,
        page: PageIndex,
        version: Version,
        donors: Donors,
    ) {
        let segment = self.rules.segment;
        for node in donors
            .all()
            .iter()
            .filter(|node| cx.is_alive(*node))
            .collect::<Vec<_>>()
        {
            let pages = vec![(page, version)];
            cx.send(node, Message::Global(Global::Drop { segment, pages }));
        }
    }

    /// Maps a page that was asked for ahead, unless a fault at it is to be seen.
    fn show_ahead(&mut self, cx: &mut Cx<'_>, ahead: Ahead, walk: Option<Access>, page: PageIndex) {
        if ahead.mark {
            return;
        }
        let granted = match walk == Some(Access::Write) || self.stores.follow(page) {
            true => Rights::Write,
            false => Rights::Read,
        };
        if let Some(known) = self.pages.get_mut(&page)
            && let Place::Frame { rights, .. } = &mut known.place
        {
            *rights = (*rights).max(granted);
        }
        cx.push(Effect::Map {
            mappings: crate::effect::Mappings::One(ahead.mapping),
            pages: self.range(page),
            rights: granted,
        });
    }
}
