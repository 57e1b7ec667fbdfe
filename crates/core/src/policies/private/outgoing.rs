//! Pages on their way to donors (G24, GB1).

use super::Private;
use super::memory::Memory;
use super::page::{Donors, Place};
use crate::backoff::Backoff;
use crate::effect::Source;
use crate::event::Event;
use crate::global::age_in_millis;
use crate::limits::DISK_RETRY;
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use pagemesh_sorted::{LongMap, SortedMap};
use pagemesh_wire::peer::{Backing, LentPage, Message, PageSeal, Put};
use pagemesh_wire::{NodeId, NodeSet, PageIndex, SegmentId, Version};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Pages sent to one donor without an answer at most: they fit into its socket buffer.
const WINDOW: u32 = 128;

/// Every so many pages an answer is asked for.
const ANSWER: u32 = 32;

/// Once a page was sent so often that the next wait is this many times the first one, its donors are
/// given up: after some 0.6 s.
const PATIENCE: u32 = 32;

/// Pages that are sent again to another donor, or fetched for that, at once.
const REPAIRED: usize = 32;

/// Pages under way to donors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Outgoing {
    /// Pages that a donor was sent and has not answered for.
    windows: SortedMap<NodeId, Window>,
    /// Pages that two donors are to keep, until both have said so.
    sending: LongMap<PageIndex, Backoff>,
    /// Pages of which one copy was lost with its donor.
    pub(super) repair: BTreeSet<PageIndex>,
    /// The disk is tried again then.
    disk: Option<Time>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Window {
    sent: u32,
    /// Since when it is closed.
    closed: Option<Time>,
}

impl Outgoing {
    /// A thread wants the page back.
    pub(super) fn withdraw(&mut self, page: PageIndex) {
        self.sending.remove(&page);
    }

    /// The number of pages that donors have been sent and have not said that they keep.
    pub(super) fn sending(&self) -> u32 {
        self.sending.len() as u32
    }

    /// No more copies are to be sent now.
    pub(super) fn is_full(&self) -> bool {
        self.sending() >= WINDOW
    }

    /// The disk takes pages again.
    pub(super) fn disk_takes(&mut self) {
        self.disk = None;
    }

    pub(super) fn donor_gone(&mut self, node: NodeId) {
        self.windows.remove(&node);
    }

    /// The disk was full, and is not tried yet.
    pub(super) fn disk_waits(&self, now: Time) -> bool {
        self.disk.is_some_and(|disk| now < disk)
    }

    pub(super) fn wait_for_disk(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        let again = cx.now + DISK_RETRY;
        self.disk = Some(again);
        cx.arm(again, Timer::Segment(segment));
    }
}

impl Private {
    /// A staged page that is on the disk leaves this node's memory; unless it is too old, it goes
    /// to a donor. False if it has to wait for its donor.
    pub(super) fn put(&mut self, cx: &mut Cx<'_>, page: PageIndex) -> bool {
        let Some(known) = self.memory.pages.get(&page).copied() else {
            return true;
        };
        let used = known.place.used().unwrap_or(cx.now);
        if !known.donors.sure().is_empty() {
            // It was not stored to since its donor sent it, and kept it.
            self.memory.leave(cx, page);
            return true;
        }
        // A donor with an older version has room for this one.
        let chosen = self.memory.donor(cx, used, NodeSet::EMPTY).map(|node| {
            let before = known.donors.after(None);
            let stays = |node: &NodeId| cx.is_alive(*node) && !cx.shell.memory.is_leaving(*node);
            before.filter(stays).unwrap_or(node)
        });
        let mut old = known.donors;
        if let Some(node) = chosen {
            let Some(answer) = self.take_window(cx, node) else {
                return false;
            };
            self.memory.send_put(cx, node, page, answer);
            old.remove(node);
        }
        let version = known.version;
        self.memory.release(cx, page, version, old);
        if let Some(known) = self.memory.pages.get_mut(&page) {
            known.donors = Donors::NONE;
            if let Some(node) = chosen {
                known.donors.add(node, true);
            }
        }
        self.memory.leave(cx, page);
        true
    }

    /// Counts a page sent to a donor. True if an answer is to be asked for; none if too many are
    /// under way.
    fn take_window(&mut self, cx: &mut Cx<'_>, node: NodeId) -> Option<bool> {
        let resend = cx.pace().resend_first * 2;
        let window = self.outgoing.windows.entry(node).or_default();
        if window.sent >= WINDOW {
            let closed = *window.closed.get_or_insert(cx.now);
            if cx.now < closed + resend {
                cx.arm(closed + resend, Timer::Segment(self.memory.rules.segment));
                return None;
            }
            // The answers were lost, or the donor is slow: so are the pages, which are on the disk.
            *window = Window::default();
        }
        window.sent += 1;
        Some(window.sent.is_multiple_of(ANSWER))
    }

    /// Sends a staged page to two donors. False if there are no two.
    pub(super) fn send_copies(&mut self, cx: &mut Cx<'_>, page: PageIndex) -> bool {
        self.memory.release_leavers(cx, page);
        let Some(mut known) = self.memory.pages.get(&page).copied() else {
            return true;
        };
        let Place::Staged { used } = known.place else {
            return true;
        };
        let before = known.donors;
        for _ in known.donors.all().iter().count()..2 {
            let Some(node) = self.memory.donor(cx, used, known.donors.all()) else {
                break;
            };
            known.donors.add(node, false);
        }
        if known.donors.all().iter().count() < 2 {
            known.donors = before;
            let (version, unsure) = (known.version, known.donors.take_unsure());
            if !unsure.is_empty() {
                known.renew();
            }
            self.memory.pages.insert(page, known);
            self.memory.release(cx, page, version, unsure);
            return false;
        }
        self.memory.pages.insert(page, known);
        if known.donors.sure() == known.donors.all() {
            // They have this version since it was last sent.
            self.memory.leave(cx, page);
            return true;
        }
        let backoff = cx.backoff(self.memory.timer(page));
        self.outgoing.sending.insert(page, backoff);
        self.memory.staged.remove(used, page);
        self.memory
            .pages
            .entry(page)
            .and_modify(|known| known.place = Place::Sending { used });
        self.memory.send_to_unsure(cx, page);
        true
    }

    /// A donor keeps a page.
    pub(super) fn kept(&mut self, cx: &mut Cx<'_>, from: NodeId, lent: LentPage) {
        let page = lent.page;
        if self.memory.rules.backing == Backing::File {
            if let Some(window) = self.outgoing.windows.get_mut(&from) {
                window.sent = window.sent.saturating_sub(ANSWER);
                window.closed = None;
            }
            return;
        }
        let Some(known) = self.memory.page_of(lent) else {
            return cx.emit(Event::Stale {});
        };
        if !known.donors.kept(from) {
            return cx.emit(Event::Stale {});
        }
        let complete = known.donors.sure().iter().count() == 2;
        if complete && matches!(known.place, Place::Sending { .. }) {
            if let Some(backoff) = self.outgoing.sending.remove(&page) {
                cx.end(&backoff, self.memory.timer(page));
            }
            self.memory.leave(cx, page);
        }
    }

    /// A donor has no room.
    pub(super) fn refused(&mut self, cx: &mut Cx<'_>, from: NodeId, lent: LentPage) {
        let page = lent.page;
        let now = cx.now;
        cx.shell.memory.refused(now, from);
        if let Some(window) = self.outgoing.windows.get_mut(&from) {
            window.sent = window.sent.saturating_sub(1);
        }
        let Some(known) = self.memory.page_of(lent) else {
            return cx.emit(Event::Stale {});
        };
        known.donors.remove(from);
        if let Place::Sending { used } = known.place {
            self.outgoing.sending.remove(&page);
            self.memory.stage(page, used);
            self.store(cx, vec![page]);
        }
    }

    /// Donors have not said that they keep a page.
    pub(super) fn sending_due(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        let timer = self.memory.timer(page);
        let Some(backoff) = self.outgoing.sending.get_mut(&page) else {
            return;
        };
        if !cx.fire(backoff, timer) {
            return;
        }
        if backoff.wait() > cx.pace().resend_first * PATIENCE {
            return self.give_up_silent(cx, page);
        }
        self.memory.send_to_unsure(cx, page);
    }

    /// Donors do not answer, and may live: a host that stands still, or a coordinator that nobody declares
    /// dead. They count as donors without room, because a thread may wait for the frame. If one of them
    /// has the page, it will ask whether its copy is counted on.
    fn give_up_silent(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        let Some(known) = self.memory.pages.get(&page) else {
            return;
        };
        let (now, version) = (cx.now, known.version);
        let silent = known.donors.all().without(&known.donors.sure());
        for node in silent.iter() {
            self.refused(cx, node, self.memory.lent(page, version));
            cx.shell.memory.silent(now, node);
        }
    }

    /// Something is due of the segment: a closed window, a full disk, copies that were lost.
    pub(super) fn outgoing_due(&mut self, cx: &mut Cx<'_>) {
        // Those that were under way to a donor that is gone find another one.
        let sending: Vec<_> = self.outgoing.sending.keys().copied().collect();
        for page in sending {
            let Some(known) = self.memory.pages.get_mut(&page) else {
                continue;
            };
            if let Place::Sending { used } = known.place
                && known.donors.all().iter().count() < 2
            {
                self.outgoing.sending.remove(&page);
                self.memory.stage(page, used);
                if !self.send_copies(cx, page) {
                    self.store(cx, vec![page]);
                }
            }
        }
        let repair: Vec<_> = self
            .outgoing
            .repair
            .iter()
            .copied()
            .take(REPAIRED)
            .collect();
        for page in repair {
            if self.memory.room(cx) == 0 {
                self.tend(cx, 1);
            }
            if self.memory.room(cx) == 0 {
                break;
            }
            self.outgoing.repair.remove(&page);
            let known = self.memory.pages.get(&page);
            let alone = known.is_some_and(|known| {
                known.place == Place::Out && !known.on_disk && !known.donors.is_empty()
            });
            if alone && !self.fetches.contains_key(&page) {
                self.memory.hold(cx);
                self.fetch(cx, page, None);
            }
        }
        if !self.outgoing.repair.is_empty() {
            let later = cx.now + cx.pace().resend_first;
            cx.arm(later, Timer::Segment(self.memory.rules.segment));
        }
    }
}

impl Memory {
    fn lent(&self, page: PageIndex, version: Version) -> LentPage {
        let segment = self.rules.segment;
        LentPage {
            segment,
            page,
            version,
        }
    }

    /// The donor for a page that was last used at `used`.
    fn donor(&self, cx: &mut Cx<'_>, used: Time, without: NodeSet) -> Option<NodeId> {
        let (now, peers) = (cx.now, cx.shell.peers());
        cx.shell.memory.choose(now, now - used, (&peers, &without))
    }

    fn send_put(&self, cx: &mut Cx<'_>, node: NodeId, page: PageIndex, answer: bool) {
        let Some(known) = self.pages.get(&page) else {
            return;
        };
        let age = cx.now - known.place.used().unwrap_or(cx.now);
        let put = Put {
            lent: self.lent(page, known.version),
            seal: PageSeal::default(),
            on_disk: known.on_disk,
            answer,
            age: age_in_millis(age),
        };
        let segment = self.rules.segment;
        let contents = Some((segment, page, Source::Stash));
        cx.send_page(node, Message::Put(put), contents);
        cx.emit(Event::PageLent { segment, page });
    }

    fn send_to_unsure(&self, cx: &mut Cx<'_>, page: PageIndex) {
        let Some(known) = self.pages.get(&page) else {
            return;
        };
        let unsure = known.donors.all().without(&known.donors.sure());
        for node in unsure.iter() {
            self.send_put(cx, node, page, true);
        }
    }
}
