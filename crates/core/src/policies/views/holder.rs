//! The consistent copy: faults, requests for it, and its moves. It is on one node, and moves as a
//! whole; the node that gives it away keeps an inconsistent copy.

use super::backing::release_keepers;
use super::context::PageContext;
use super::messages::{Body, Pass, Refresh, Run, Stamp, Want, Wish};
use super::page::{Page, Passing, Unanswered, Valid, Wanted};
use super::refresh::part;
use super::{HOLD, HOPS, QUEUE, RUN, Views};
use crate::effect::{Effect, Mappings, Rights, Source};
use crate::event::Event;
use crate::shell::Cx;
use core::time::Duration;
use pagemesh_wire::local::View;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{MappingId, NodeId, NodeSet, PAGE_SIZE, PageIndex, RequestId, Version};

impl PageContext<'_, '_> {
    /// The thread's access is served now, or when the page is here.
    pub(super) fn access(&mut self, mapping: MappingId, view: View) {
        if self.is_lost_to(mapping) {
            return;
        }
        let (segment, page) = self.id();
        let known = self.page();
        if known.serves(view) {
            self.cx.emit(Event::LocalFault { segment, page });
            return self.grant(mapping, view);
        }
        if known.faults.contains(&(mapping, view)) {
            return self.cx.emit(Event::RepeatedFault { segment, page });
        }
        known.faults.push((mapping, view));
        self.cx.emit(if view.consistent {
            Event::WriteFault { segment, page }
        } else {
            Event::ReadFault { segment, page }
        });
        self.ask();
    }

    pub(super) fn grant(&mut self, mapping: MappingId, view: View) {
        self.materialize();
        let rights = if view.consistent {
            Rights::Write
        } else {
            Rights::Read
        };
        let (mappings, pages) = (Mappings::One(mapping), self.id().into());
        self.cx.push(Effect::Map {
            mappings,
            pages,
            rights,
        });
    }

    /// Gives the holder's page a frame.
    pub(super) fn materialize(&mut self) {
        let page = self.page();
        if page.holds && !page.filled {
            (page.filled, page.valid) = (true, Valid::Whole);
            self.fill(Source::Zero);
        }
    }

    /// Serves the threads that can be served, and asks for what the others want.
    pub(super) fn serve(&mut self) {
        let (segment, page) = self.id();
        let known = self.page();
        let faults = core::mem::take(&mut known.faults).into_iter();
        let (ready, rest): (Vec<_>, Vec<_>) = faults.partition(|(_, view)| known.serves(*view));
        known.faults = rest;
        for (mapping, view) in ready {
            self.cx.emit(Event::Granted { segment, page });
            self.grant(mapping, view);
        }
        self.ask();
    }

    /// Sees to it that exactly what is wanted here is asked for.
    pub(super) fn ask(&mut self) {
        let (timer, renews) = (self.timer(), self.views.renews);
        let (page, cx) = self.parts();
        let (wish, has) = (page.wish(renews), page.want.as_ref().map(|want| want.wish));
        if wish == has {
            return;
        }
        if let Some(want) = page.want.take() {
            cx.end(&want.backoff, timer);
        }
        if let Some(wish) = wish {
            self.open(wish);
        }
    }

    /// What was asked for before a purge may be older than what was stored before it: threads that
    /// still wait are asked for anew (INV-purge-finds).
    pub(super) fn ask_after_purge(&mut self, short: bool) {
        let timer = self.timer();
        let (page, cx) = self.parts();
        let purge = Unanswered::since(cx.last_request(), short, page.unanswered.as_ref());
        page.unanswered = Some(purge);
        // The consistent copy itself is never old.
        if let Some(want) = page.want.take_if(|want| want.wish < Wish::Move) {
            cx.end(&want.backoff, timer);
            self.ask();
        }
    }

    /// Opens a request.
    pub(super) fn open(&mut self, wish: Wish) {
        let timer = self.timer();
        let (page, cx) = self.parts();
        page.want = Some(Wanted {
            wish,
            request: cx.next_request(),
            since: cx.now,
            tries: 0,
            backoff: cx.backoff(timer),
        });
        self.send_want();
    }

    /// Sends the request: at first to where the holder seems to be, later to everybody.
    fn send_want(&mut self) {
        let (me, home) = (self.cx.me(), self.home());
        let (segment, page) = self.id();
        let known = self.page();
        let Some(wanted) = &known.want else { return };
        let want = Want {
            page,
            count: 1,
            wish: wanted.wish,
            asker: me,
            request: wanted.request,
            hops: 0,
            tries: wanted.tries,
        };
        let (hint, tries) = (known.hint, wanted.tries);
        self.cx.emit(Event::Asked { segment, page });
        if tries > 0 {
            for node in self.cx.shell.peers().iter() {
                self.say(node, &Body::Want(want));
            }
        } else if hint != me && self.cx.is_alive(hint) {
            self.say(hint, &Body::Want(want));
        } else if home != me {
            self.say(home, &Body::Want(want));
        }
        self.search_if_gone(hint, tries);
    }

    /// At the home: searches the holder if it is gone, or does not answer.
    fn search_if_gone(&mut self, hint: NodeId, tries: u8) {
        let me = self.cx.me();
        if self.home() == me && (hint == me || self.cx.is_gone(hint) || tries > 1) {
            self.search();
        }
    }

    /// A node wants the page.
    pub(super) fn wanted(&mut self, want: Want) {
        let me = self.cx.me();
        let (segment, page) = self.id();
        let lost = self.page().lost;
        if want.asker == me || !self.cx.is_alive(want.asker) {
            return self.cx.emit(Event::Stale {});
        }
        if let Some(with) = lost {
            if want.wish < Wish::Anew {
                let request = want.request;
                let lost = Body::Lost {
                    page,
                    request,
                    with,
                };
                return self.say(want.asker, &lost);
            }
            self.renew();
        }
        let known = self.page();
        if known.holds {
            return match want.wish {
                Wish::Move | Wish::Anew => self.enqueue((want.asker, want.request)),
                Wish::Prefix | Wish::Whole => self.views.give_copies(self.cx, want),
            };
        }
        let (hint, version) = (known.hint, known.version);
        let passing_to_asker = known.passing.as_ref().is_some_and(|p| p.to == want.asker);
        if passing_to_asker {
            return; // It is on its way there, again and again.
        }
        self.search_if_gone(hint, want.tries);
        // Repeated requests reach everybody as it is.
        let forward = want.tries == 0 && want.hops < HOPS && version > 0;
        if forward && hint != me && hint != want.asker && self.cx.is_alive(hint) {
            self.cx.emit(Event::Forwarded { segment, page });
            let hops = want.hops + 1;
            self.say(hint, &Body::Want(Want { hops, ..want }));
        }
    }

    /// Sends a copy of so many bytes.
    fn give_copy(&mut self, to: NodeId, answers: RequestId, bytes: u16) {
        self.materialize();
        let (segment, page) = self.id();
        // Stores may have been made since the last copy: this one is newer.
        let stamp = &mut self.page().stamp;
        stamp.number += 1;
        let run = Run::of_one(page, *stamp);
        let refresh = self.refresh((run, bytes), answers);
        self.cx.emit(Event::CopyGiven { segment, page });
        self.say_page(to, &Body::Refresh(refresh), part(bytes, Source::Frame));
    }

    pub(super) fn refresh(&mut self, (run, bytes): (Run, u16), answers: RequestId) -> Refresh {
        let (page, me) = (self.index, self.cx.me());
        let known = self.page();
        Refresh {
            page,
            stamp: known.stamp,
            bytes,
            run,
            holder: known.hint_of(me),
            answers,
        }
    }

    fn enqueue(&mut self, who: (NodeId, RequestId)) {
        let queue = &mut self.page().queue;
        match queue.iter().position(|(node, _)| *node == who.0) {
            Some(place) => queue[place].1 = who.1,
            None if queue.len() < QUEUE => queue.push_back(who),
            None => return self.cx.emit(Event::Stale {}),
        }
        self.serve_queue();
    }

    /// The consistent copy goes to who waits first, unless it is to stay for a while.
    pub(super) fn serve_queue(&mut self) {
        let (now, timer) = (self.cx.now, self.timer());
        let (page, cx) = self.parts();
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
        if let Some((to, _)) = page.queue.pop_front() {
            self.pass(to);
        }
    }

    /// Gives the consistent copy away. All listeners see it pass.
    pub(super) fn pass(&mut self, to: NodeId) {
        self.materialize();
        self.evict(true);
        let ((segment, index), timer) = (self.id(), self.timer());
        let (page, cx) = self.parts();
        let stamp = Stamp {
            version: page.version + 1,
            number: page.stamp.number + 1,
        };
        let queue = page.queue.drain(..).filter(|(node, _)| *node != to);
        page.passing = Some(Passing {
            to,
            stamp,
            queue: queue.collect(),
            backoff: cx.backoff(timer),
            keepers: NodeSet::EMPTY,
        });
        (page.holds, page.filled, page.kept) = (false, false, None);
        (page.version, page.hint, page.stamp) = (stamp.version, to, stamp);
        (page.valid, page.purged, page.elected) = (Valid::Whole, false, None);
        page.locks.clear();
        cx.emit(Event::OwnershipGiven {
            segment,
            page: index,
            to,
            version: Version(stamp.version),
        });
        self.send_pass();
        self.keep_given(to);
        let run = Run::of_one(index, stamp);
        let me = self.cx.me();
        for node in self.views.listeners.nodes.iter() {
            if node != to && node != me && self.cx.is_alive(node) {
                let refresh = self.refresh((run, PAGE_SIZE as u16), RequestId::NONE);
                self.say_page(node, &Body::Refresh(refresh), Source::Stash);
            }
        }
        self.fill(Source::Stash);
        // Threads of consistent views ask for it anew when they touch it; others go on.
        self.serve();
    }

    fn send_pass(&mut self) {
        let page = self.index;
        let Some(passing) = &self.page().passing else {
            return;
        };
        let (to, stamp, queue) = (passing.to, passing.stamp, passing.queue.clone());
        let pass = Pass { page, stamp, queue };
        self.say_page(to, &Body::Pass(pass), Source::Stash);
    }

    /// The consistent copy has come.
    pub(super) fn passed_here(&mut self, from: NodeId, pass: Pass) {
        let (me, version) = (self.cx.me(), pass.stamp.version);
        let page = pass.page;
        self.say(from, &Body::Passed { page, version });
        let page = self.page();
        // The home may have heard in a census that it is on its way here.
        let awaited = page.version == version && page.hint == me;
        let is_new = page.version < version || awaited;
        if !pass.stamp.is_possible() || page.holds || !is_new {
            return self.cx.emit(Event::Stale {});
        }
        self.arrived(version);
        self.drop_arriving();
        self.fill(Source::Payload);
        let (now, keeps) = (self.cx.now, self.views.replicas.on);
        let page = self.page();
        (page.holds, page.filled, page.valid) = (true, true, Valid::Whole);
        (page.version, page.hint, page.stamp) = (version, me, pass.stamp);
        (page.prefix_purged, page.purged, page.seen) = (false, false, now);
        page.blank = false;
        page.unveil();
        page.giver = Some(from).filter(|_| keeps);
        let queue = pass.queue.into_iter().take(QUEUE);
        page.queue = queue.filter(|(node, _)| *node != me).collect();
        self.holds_now();
    }

    /// This node has the consistent copy from now on.
    pub(super) fn holds_now(&mut self) {
        let ((segment, index), renews) = (self.id(), self.views.renews);
        let (page, cx) = self.parts();
        page.kept = page.wish(renews).map(|_| cx.now + HOLD);
        let version = Version(page.version);
        (page.census, page.elected, page.lost) = (None, None, None);
        page.unanswered = None;
        cx.emit(Event::Owned {
            segment,
            page: index,
            version,
        });
        self.replicate();
        self.views.watches.changed(self.cx, (segment, index));
        self.serve();
        self.serve_queue();
    }

    /// The consistent copy was seen behind where this node has sent it.
    pub(super) fn arrived(&mut self, version: u64) {
        let (id, timer) = (self.id(), self.timer());
        let (page, cx) = self.parts();
        let done = |passing: &mut Passing| passing.stamp.version <= version;
        if let Some(passing) = page.passing.take_if(done) {
            cx.end(&passing.backoff, timer);
            self.drop_stash();
            release_keepers(self.cx, id, &passing);
            let (replicas, held) = self.views.replicas();
            replicas.settle(self.cx, held);
            self.given();
        }
    }

    /// A timer of the page is due.
    pub(super) fn due(&mut self, patience: Option<Duration>) {
        if let Some(patience) = patience {
            self.time_out(patience);
        }
        let timer = self.timer();
        let (page, cx) = self.parts();
        if let Some(passing) = &mut page.passing
            && cx.fire(&mut passing.backoff, timer)
        {
            self.send_pass();
        }
        let (page, cx) = self.parts();
        if let Some(want) = &mut page.want
            && cx.fire(&mut want.backoff, timer)
        {
            want.tries = want.tries.saturating_add(1);
            self.send_want();
        }
        self.census_due();
        self.serve_queue();
    }

    /// The coordinator has been silent for long: threads that have waited as long wait no more.
    fn time_out(&mut self, patience: Duration) {
        let (page, cx) = self.parts();
        let want = page.want.as_ref();
        if want.is_some_and(|want| cx.now - want.since >= patience) {
            let why = Refusal::NodeGone(cx.coordinator());
            self.fail(&why);
        }
    }

    /// Threads that wait for the page cannot be served.
    pub(super) fn fail(&mut self, why: &Refusal) {
        let id = self.id();
        for (mapping, _) in core::mem::take(&mut self.page().faults) {
            self.cx.fail(mapping, id, why.clone());
        }
        self.ask();
    }

    /// A member is gone: what it was to have, or had, is elsewhere or lost.
    pub(super) fn member_gone(&mut self, node: NodeId) {
        let timer = self.timer();
        let (page, cx) = self.parts();
        page.queue.retain(|(waiting, _)| *waiting != node);
        page.elected = page.elected.filter(|elected| *elected != node);
        if let Some(passing) = page.passing.take_if(|passing| passing.to == node) {
            // Whether it came there, and went on from there, the home finds out.
            cx.end(&passing.backoff, timer);
            self.drop_stash();
        }
        self.search_anew();
        if let Some(want) = &mut self.page().want {
            want.tries = want.tries.max(1);
            self.send_want();
        }
    }

    /// This node is no member any more: what it has of the page is nobody's.
    pub(super) fn expelled(&mut self) {
        let id = self.id();
        let page = self.page();
        page.want = None;
        for (mapping, _) in core::mem::take(&mut page.faults) {
            self.cx.fail(mapping, id, Refusal::NotMember);
        }
        self.drop_arriving();
        let page = self.page();
        let (filled, passing) = (page.valid > Valid::Nothing, page.passing.take());
        if passing.is_some() {
            self.drop_stash();
        }
        if filled {
            self.evict(false);
        }
    }
}

impl Views {
    /// Sends copies of pages that are here.
    fn give_copies(&mut self, cx: &mut Cx<'_>, want: Want) {
        let bytes = match want.wish {
            Wish::Prefix => self.prefix,
            _ => PAGE_SIZE as u16,
        };
        for step in 0..want.count.min(RUN) {
            let index = PageIndex(want.page.0.saturating_add(step));
            if index.0 < self.size && self.page(cx, index).holds {
                let mut page = self.at(cx, index);
                page.give_copy(want.asker, want.request, bytes);
            }
        }
    }
}

impl Page {
    /// The node with the consistent copy, as far as `me` knows.
    pub(super) fn hint_of(&self, me: NodeId) -> NodeId {
        if self.holds { me } else { self.hint }
    }
}
