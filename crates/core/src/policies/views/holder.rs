//! The consistent copy: faults, requests for it, and its moves. It is on one node, and moves as a
//! whole; the node that gives it away keeps an inconsistent copy.

use super::backing::release_keepers;
use super::messages::{Body, Pass, Refresh, Run, Stamp, Want, Wish};
use super::page::{Page, Passing, Valid, Wanted};
use super::refresh::part;
use super::{HOLD, HOPS, QUEUE, RUN, Views};
use crate::effect::{Effect, Mappings, Rights, Source};
use crate::event::Event;
use crate::shell::Cx;
use crate::timers::Timer;
use core::time::Duration;
use pagemesh_wire::local::View;
use pagemesh_wire::peer::{Refusal, Subject};
use pagemesh_wire::{MappingId, NodeId, NodeSet, PAGE_SIZE, PageIndex, RequestId, Version};

impl Views {
    pub(super) fn page(&mut self, cx: &Cx<'_>, index: PageIndex) -> &mut Page {
        let home = self.segment.home();
        let here = home == cx.me();
        let page = self.pages.entry(index);
        page.or_insert_with(|| Page::new(home, here))
    }

    pub(super) fn page_timer(&self, page: PageIndex) -> Timer {
        let segment = self.segment;
        Timer::Subject(Subject::Page { segment, page })
    }

    /// The thread's access is served now, or when the page is here.
    pub(super) fn access(
        &mut self,
        cx: &mut Cx<'_>,
        mapping: MappingId,
        view: View,
        index: PageIndex,
    ) {
        let segment = self.segment;
        if self.is_lost_to(cx, index, mapping) {
            return;
        }
        let page = self.page(cx, index);
        if page.serves(view) {
            cx.emit(Event::LocalFault {
                segment,
                page: index,
            });
            return self.grant(cx, index, mapping, view);
        }
        if page.faults.contains(&(mapping, view)) {
            return cx.emit(Event::RepeatedFault {
                segment,
                page: index,
            });
        }
        cx.emit(if view.consistent {
            Event::WriteFault {
                segment,
                page: index,
            }
        } else {
            Event::ReadFault {
                segment,
                page: index,
            }
        });
        page.faults.push((mapping, view));
        self.ask(cx, index);
    }

    pub(super) fn grant(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        mapping: MappingId,
        view: View,
    ) {
        self.materialize(cx, index);
        let rights = if view.consistent {
            Rights::Write
        } else {
            Rights::Read
        };
        cx.push(Effect::Map {
            mappings: Mappings::One(mapping),
            pages: (self.segment, index).into(),
            rights,
        });
    }

    /// Gives the holder's page a frame.
    pub(super) fn materialize(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let segment = self.segment;
        let page = self.page(cx, index);
        if page.holds && !page.filled {
            page.filled = true;
            page.valid = Valid::Whole;
            cx.push(Effect::Fill {
                pages: (segment, index).into(),
                source: Source::Zero,
            });
        }
    }

    /// Serves the threads that can be served, and asks for what the others want.
    pub(super) fn serve(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let segment = self.segment;
        let page = self.page(cx, index);
        let faults = core::mem::take(&mut page.faults);
        let (ready, rest) = faults.into_iter().partition(|(_, view)| page.serves(*view));
        page.faults = rest;
        let ready: Vec<_> = ready;
        for (mapping, view) in ready {
            cx.emit(Event::Granted {
                segment,
                page: index,
            });
            self.grant(cx, index, mapping, view);
        }
        self.ask(cx, index);
    }

    /// Sees to it that exactly what is wanted here is asked for.
    pub(super) fn ask(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let (timer, renews) = (self.page_timer(index), self.renews);
        let page = self.page(cx, index);
        let (wish, has) = (page.wish(renews), page.want.as_ref().map(|want| want.wish));
        if wish == has {
            return;
        }
        if let Some(want) = page.want.take() {
            cx.end(&want.backoff, timer);
        }
        let Some(wish) = wish else { return };
        self.open(cx, index, wish);
    }

    /// Opens a request.
    pub(super) fn open(&mut self, cx: &mut Cx<'_>, index: PageIndex, wish: Wish) {
        let timer = self.page_timer(index);
        let want = Wanted {
            wish,
            request: cx.next_request(),
            since: cx.now,
            tries: 0,
            backoff: cx.backoff(timer),
        };
        self.page(cx, index).want = Some(want);
        self.send_want(cx, index);
    }

    /// Sends the request: at first to where the holder seems to be, later to everybody.
    fn send_want(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let (me, home) = (cx.me(), cx.home(self.segment));
        let segment = self.segment;
        let page = self.page(cx, index);
        let Some(wanted) = &page.want else { return };
        let want = Want {
            page: index,
            count: 1,
            wish: wanted.wish,
            asker: me,
            request: wanted.request,
            hops: 0,
            tries: wanted.tries,
        };
        let (hint, tries) = (page.hint, wanted.tries);
        cx.emit(Event::Asked {
            segment,
            page: index,
        });
        if tries > 0 {
            for node in cx.shell.peers().iter() {
                self.say(cx, node, &Body::Want(want));
            }
        } else if hint != me && cx.is_alive(hint) {
            self.say(cx, hint, &Body::Want(want));
        } else if home != me {
            self.say(cx, home, &Body::Want(want));
        }
        let lost = hint == me || cx.is_gone(hint);
        if home == me && (lost || tries > 1) {
            self.search(cx, index);
        }
    }

    /// A node wants a page.
    pub(super) fn wanted(&mut self, cx: &mut Cx<'_>, want: Want) {
        let (me, home, index) = (cx.me(), cx.home(self.segment), want.page);
        let page = self.page(cx, index);
        if want.asker == me || !cx.is_alive(want.asker) {
            return cx.emit(Event::Stale {});
        }
        if let Some(with) = page.lost {
            if want.wish < Wish::Anew {
                let (page, request) = (index, want.request);
                let lost = Body::Lost {
                    page,
                    request,
                    with,
                };
                return self.say(cx, want.asker, &lost);
            }
            self.renew(cx, index);
        }
        let page = self.page(cx, index);
        if page.holds {
            return match want.wish {
                Wish::Move | Wish::Anew => self.enqueue(cx, index, (want.asker, want.request)),
                Wish::Prefix | Wish::Whole => self.copy_to(cx, want),
            };
        }
        let (hint, version) = (page.hint, page.version);
        let passing_to_asker = page.passing.as_ref().is_some_and(|p| p.to == want.asker);
        if passing_to_asker {
            return; // It is on its way there, again and again.
        }
        let lost = hint == me || cx.is_gone(hint);
        if home == me && (lost || want.tries > 1) {
            self.search(cx, index);
        }
        // Repeated requests reach everybody as it is.
        let forward = want.tries == 0 && want.hops < HOPS && version > 0;
        if forward && hint != me && hint != want.asker && cx.is_alive(hint) {
            let segment = self.segment;
            cx.emit(Event::Forwarded {
                segment,
                page: index,
            });
            let hops = want.hops + 1;
            self.say(cx, hint, &Body::Want(Want { hops, ..want }));
        }
    }

    /// Sends copies of pages that are here.
    fn copy_to(&mut self, cx: &mut Cx<'_>, want: Want) {
        let bytes = match want.wish {
            Wish::Prefix => self.prefix,
            _ => PAGE_SIZE as u16,
        };
        for step in 0..want.count.min(RUN) {
            let index = PageIndex(want.page.0.saturating_add(step));
            if index.0 >= self.size || !self.page(cx, index).holds {
                continue;
            }
            self.materialize(cx, index);
            // Stores may have been made since the last copy: this one is newer.
            let stamp = &mut self.page(cx, index).stamp;
            stamp.number += 1;
            let run = Run {
                first: index,
                count: 1,
                stamp: *stamp,
            };
            let refresh = self.refresh(cx, index, (run, bytes), want.request);
            let segment = self.segment;
            cx.emit(Event::CopyGiven {
                segment,
                page: index,
            });
            let source = part(bytes, Source::Frame);
            self.say_page(cx, want.asker, &Body::Refresh(refresh), source);
        }
    }

    pub(super) fn refresh(
        &mut self,
        cx: &Cx<'_>,
        page: PageIndex,
        (run, bytes): (Run, u16),
        answers: RequestId,
    ) -> Refresh {
        let known = self.page(cx, page);
        Refresh {
            page,
            stamp: known.stamp,
            bytes,
            run,
            holder: known.hint_of(cx.me()),
            answers,
        }
    }

    fn enqueue(&mut self, cx: &mut Cx<'_>, index: PageIndex, who: (NodeId, RequestId)) {
        let queue = &mut self.page(cx, index).queue;
        match queue.iter().position(|(node, _)| *node == who.0) {
            Some(place) => queue[place].1 = who.1,
            None if queue.len() < QUEUE => queue.push_back(who),
            None => return cx.emit(Event::Stale {}),
        }
        self.serve_queue(cx, index);
    }

    /// The consistent copy goes to who waits first, unless it is to stay for a while.
    pub(super) fn serve_queue(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let (now, timer) = (cx.now, self.page_timer(index));
        let page = self.page(cx, index);
        page.locks.retain(|(_, until)| *until > now);
        page.queue.retain(|(node, _)| cx.is_alive(*node));
        if !page.holds || page.queue.is_empty() {
            return;
        }
        let locked = page.locks.iter().map(|(_, until)| *until).max();
        let until = page.kept.max(locked).filter(|until| *until > now);
        if let Some(until) = until {
            return cx.arm(until, timer);
        }
        let Some((to, _)) = page.queue.pop_front() else {
            return;
        };
        self.pass(cx, index, to);
    }

    /// Gives the consistent copy away. All listeners see it pass.
    pub(super) fn pass(&mut self, cx: &mut Cx<'_>, index: PageIndex, to: NodeId) {
        self.materialize(cx, index);
        let (segment, timer) = (self.segment, self.page_timer(index));
        let pages = (segment, index).into();
        cx.push(Effect::Evict { pages, keep: true });
        let backoff = cx.backoff(timer);
        let page = self.page(cx, index);
        let stamp = Stamp {
            version: page.version + 1,
            number: page.stamp.number + 1,
        };
        let queue: Vec<_> = page
            .queue
            .drain(..)
            .filter(|(node, _)| *node != to)
            .collect();
        (page.holds, page.filled, page.kept) = (false, false, None);
        (page.version, page.hint, page.stamp) = (stamp.version, to, stamp);
        (page.valid, page.purged, page.elected) = (Valid::Whole, false, None);
        page.locks.clear();
        page.passing = Some(Passing {
            to,
            stamp,
            queue,
            backoff,
            keepers: NodeSet::EMPTY,
        });
        cx.emit(Event::OwnershipGiven {
            segment,
            page: index,
            to,
            version: Version(stamp.version),
        });
        self.send_pass(cx, index);
        self.keep_given(cx, index, to);
        let run = Run {
            first: index,
            count: 1,
            stamp,
        };
        let me = cx.me();
        for node in self.listeners.nodes.iter() {
            if node != to && node != me && cx.is_alive(node) {
                let whole = PAGE_SIZE as u16;
                let refresh = self.refresh(cx, index, (run, whole), RequestId::NONE);
                self.say_page(cx, node, &Body::Refresh(refresh), Source::Stash);
            }
        }
        cx.push(Effect::Fill {
            pages,
            source: Source::Stash,
        });
        // Threads of consistent views ask for it anew when they touch it; others go on.
        self.serve(cx, index);
    }

    fn send_pass(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let Some(passing) = &self.page(cx, index).passing else {
            return;
        };
        let (to, stamp, queue) = (passing.to, passing.stamp, passing.queue.clone());
        let pass = Body::Pass(Pass {
            page: index,
            stamp,
            queue,
        });
        self.say_page(cx, to, &pass, Source::Stash);
    }

    /// The consistent copy has come.
    pub(super) fn passed_here(&mut self, cx: &mut Cx<'_>, from: NodeId, pass: Pass) {
        let (me, index, segment) = (cx.me(), pass.page, self.segment);
        let version = pass.stamp.version;
        self.say(
            cx,
            from,
            &Body::Passed {
                page: index,
                version,
            },
        );
        let page = self.page(cx, index);
        // The home may have heard in a census that it is on its way here.
        let awaited = page.version == version && page.hint == me;
        let is_new = page.version < version || awaited;
        if !pass.stamp.is_possible() || page.holds || !is_new {
            return cx.emit(Event::Stale {});
        }
        self.arrived(cx, index, version);
        self.drop_runs(cx, index);
        cx.push(Effect::Fill {
            pages: (segment, index).into(),
            source: Source::Payload,
        });
        let (now, keeps) = (cx.now, self.replicas.on);
        let page = self.page(cx, index);
        (page.holds, page.filled, page.valid) = (true, true, Valid::Whole);
        (page.version, page.hint, page.stamp) = (version, me, pass.stamp);
        (page.prefix_purged, page.purged, page.seen) = (false, false, now);
        page.blank = false;
        page.unveil();
        page.giver = Some(from).filter(|_| keeps);
        let queue = pass.queue.into_iter().take(QUEUE);
        page.queue = queue.filter(|(node, _)| *node != me).collect();
        self.holds_now(cx, index);
    }

    /// This node has the consistent copy from now on.
    pub(super) fn holds_now(&mut self, cx: &mut Cx<'_>, index: PageIndex) {
        let (segment, now, renews) = (self.segment, cx.now, self.renews);
        let page = self.page(cx, index);
        page.kept = page.wish(renews).map(|_| now + HOLD);
        let version = Version(page.version);
        (page.census, page.elected, page.lost) = (None, None, None);
        cx.emit(Event::Owned {
            segment,
            page: index,
            version,
        });
        self.replicate(cx, index);
        self.changed(cx, index);
        self.serve(cx, index);
        self.serve_queue(cx, index);
    }

    /// The consistent copy was seen behind where this node has sent it.
    pub(super) fn arrived(&mut self, cx: &mut Cx<'_>, index: PageIndex, version: u64) {
        let (segment, timer) = (self.segment, self.page_timer(index));
        let page = self.page(cx, index);
        let done = |passing: &mut Passing| passing.stamp.version <= version;
        if let Some(passing) = page.passing.take_if(done) {
            cx.end(&passing.backoff, timer);
            cx.push(Effect::DropStash {
                segment,
                page: index,
            });
            release_keepers(cx, (segment, index), &passing);
            let (replicas, held) = self.replicas();
            replicas.settle(cx, held);
        }
    }

    /// A timer of a page is due.
    pub(super) fn page_due(
        &mut self,
        cx: &mut Cx<'_>,
        index: PageIndex,
        patience: Option<Duration>,
    ) {
        if !self.pages.contains_key(&index) {
            return;
        }
        if let Some(patience) = patience {
            self.time_out(cx, index, patience);
        }
        let timer = self.page_timer(index);
        let page = self.page(cx, index);
        if let Some(passing) = &mut page.passing
            && cx.fire(&mut passing.backoff, timer)
        {
            self.send_pass(cx, index);
        }
        let page = self.page(cx, index);
        if let Some(want) = &mut page.want
            && cx.fire(&mut want.backoff, timer)
        {
            want.tries = want.tries.saturating_add(1);
            self.send_want(cx, index);
        }
        self.census_due(cx, index);
        self.serve_queue(cx, index);
    }

    /// The coordinator has been silent for long: threads that have waited as long wait no more.
    fn time_out(&mut self, cx: &mut Cx<'_>, index: PageIndex, patience: Duration) {
        let now = cx.now;
        let page = self.page(cx, index);
        if page
            .want
            .as_ref()
            .is_some_and(|want| now - want.since >= patience)
        {
            self.fail(cx, index, &Refusal::NodeGone(cx.coordinator()));
        }
    }

    /// Threads that wait for the page cannot be served.
    pub(super) fn fail(&mut self, cx: &mut Cx<'_>, index: PageIndex, why: &Refusal) {
        let faults = core::mem::take(&mut self.page(cx, index).faults);
        for (mapping, _) in faults {
            cx.fail(mapping, (self.segment, index), why.clone());
        }
        self.ask(cx, index);
    }

    /// A member is gone: what it was to have, or had, is elsewhere or lost.
    pub(super) fn page_member_gone(&mut self, cx: &mut Cx<'_>, index: PageIndex, node: NodeId) {
        let (segment, timer) = (self.segment, self.page_timer(index));
        let page = self.page(cx, index);
        page.queue.retain(|(waiting, _)| *waiting != node);
        if let Some(passing) = page.passing.take_if(|passing| passing.to == node) {
            // Whether it came there, and went on from there, the home finds out.
            cx.end(&passing.backoff, timer);
            cx.push(Effect::DropStash {
                segment,
                page: index,
            });
        }
        if page.elected == Some(node) {
            page.elected = None;
        }
        self.census_without(cx, index, node);
        let page = self.page(cx, index);
        if let Some(want) = &mut page.want {
            want.tries = want.tries.max(1);
            self.send_want(cx, index);
        }
    }
}

impl Page {
    /// The node with the consistent copy, as far as `me` knows.
    pub(super) fn hint_of(&self, me: NodeId) -> NodeId {
        if self.holds { me } else { self.hint }
    }
}
