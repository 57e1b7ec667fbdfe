//! The consistent copy: faults, requests for it, and its moves. It is on one node, and moves as a
//! whole; the node that gives it away keeps an inconsistent copy.

use super::backing::release_keepers;
use super::context::PageContext;
use super::messages::{Body, Pass, Run, Stamp, Want, Wish};
use super::page::{Page, Passing, Valid, Wanted};
use super::page_here::PageHere;
use super::{HOLD, HOPS, QUEUE, RUN, Views};
use crate::effect::Source;
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
        let (segment, page) = self.at;
        let mut here = self.here();
        if here.page.serves(view) {
            here.cx.emit(Event::LocalFault { segment, page });
            return here.grant(mapping, view);
        }
        if here.page.faults.contains(&(mapping, view)) {
            return here.cx.emit(Event::RepeatedFault { segment, page });
        }
        here.page.faults.push((mapping, view));
        here.cx.emit(if view.consistent {
            Event::WriteFault { segment, page }
        } else {
            Event::ReadFault { segment, page }
        });
        self.ask();
    }

    /// Serves the threads that can be served, and asks for what the others want.
    pub(super) fn serve(&mut self) {
        self.here().grant_ready();
        self.ask();
    }

    /// Sees to it that exactly what is wanted here is asked for.
    pub(super) fn ask(&mut self) {
        let renews = self.views.renews;
        let mut here = self.here();
        let wish = here.page.wish(renews);
        if wish == here.page.want.as_ref().map(|want| want.wish) {
            return;
        }
        here.withdraw(|_| true);
        if let Some(wish) = wish {
            self.open(wish);
        }
    }

    /// Opens a request.
    pub(super) fn open(&mut self, wish: Wish) {
        if self.here().open(wish) {
            self.search();
        }
    }

    /// A node wants the page.
    pub(super) fn wanted(&mut self, want: Want) {
        let (segment, page) = self.at;
        let mut here = self.here();
        let me = here.cx.me();
        if want.asker == me || !here.cx.is_alive(want.asker) {
            return here.cx.emit(Event::Stale {});
        }
        if let Some(with) = here.page.lost {
            if want.wish < Wish::Anew {
                let request = want.request;
                let lost = Body::Lost {
                    page,
                    request,
                    with,
                };
                return here.say(want.asker, &lost);
            }
            self.renew();
        }
        let here = self.here();
        if here.page.holds {
            return match want.wish {
                Wish::Move | Wish::Anew => match here.page.enqueue((want.asker, want.request)) {
                    true => self.serve_queue(),
                    false => here.cx.emit(Event::Stale {}),
                },
                Wish::Prefix | Wish::Whole => self.views.give_copies(self.cx, want),
            };
        }
        let (hint, version) = (here.page.hint, here.page.version);
        let passing = here.page.passing.as_ref();
        if passing.is_some_and(|passing| passing.to == want.asker) {
            return; // It is on its way there, again and again.
        }
        if here.must_search(want.tries) {
            self.search();
        }
        // Repeated requests reach everybody as it is.
        let forward = want.tries == 0 && want.hops < HOPS && version > 0;
        if forward && hint != me && hint != want.asker && self.cx.is_alive(hint) {
            self.cx.emit(Event::Forwarded { segment, page });
            let hops = want.hops + 1;
            self.here().say(hint, &Body::Want(Want { hops, ..want }));
        }
    }

    /// The consistent copy goes to who waits first, unless it is to stay for a while.
    pub(super) fn serve_queue(&mut self) {
        if let Some(to) = self.here().next_holder() {
            self.pass(to);
        }
    }

    /// Gives the consistent copy away. All listeners see it pass.
    pub(super) fn pass(&mut self, to: NodeId) {
        self.here().give_away(to);
        if self.views.replicas.on {
            self.name_keepers(to);
        }
        let me = self.cx.me();
        let run = Run::of_one(self.at.1, self.page().stamp);
        for node in self.views.listeners.nodes.iter() {
            if node != to && node != me && self.cx.is_alive(node) {
                let whole = (run, PAGE_SIZE as u16);
                let mut here = self.here();
                here.send_refresh(node, whole, RequestId::NONE, Source::Stash);
            }
        }
        self.here().fill(Source::Stash);
        // Threads of consistent views ask for it anew when they touch it; others go on.
        self.serve();
    }

    /// The consistent copy has come.
    pub(super) fn passed_here(&mut self, from: NodeId, pass: Pass) {
        let (page, version) = (pass.page, pass.stamp.version);
        let mut here = self.here();
        let me = here.cx.me();
        here.say(from, &Body::Passed { page, version });
        // The home may have heard in a census that it is on its way here.
        let awaited = here.page.version == version && here.page.hint == me;
        let is_new = here.page.version < version || awaited;
        if !pass.stamp.is_possible() || here.page.holds || !is_new {
            return here.cx.emit(Event::Stale {});
        }
        self.arrived(version);
        let keeps = self.views.replicas.on;
        let mut here = self.here();
        here.drop_arriving();
        here.fill(Source::Payload);
        let (page, now) = (here.page, here.cx.now);
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
        let ((segment, index), renews) = (self.at, self.views.renews);
        let PageHere { page, cx, .. } = self.here();
        page.kept = page.wish(renews).map(|_| cx.now + HOLD);
        (page.census, page.elected, page.lost) = (None, None, None);
        page.unanswered = None;
        cx.emit(Event::Owned {
            segment,
            page: index,
            version: Version(page.version),
        });
        self.replicate();
        self.views.watches.changed(self.cx, self.at);
        self.serve();
        self.serve_queue();
    }

    /// The consistent copy was seen behind where this node has sent it.
    pub(super) fn arrived(&mut self, version: u64) {
        let mut here = self.here();
        if let Some(passing) = here.end_pass(|passing| passing.stamp.version <= version) {
            release_keepers(self.cx, self.at, &passing);
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
        if self.here().resend() {
            self.search();
        }
        self.here().census_due();
        self.serve_queue();
    }

    /// The coordinator has been silent for long: threads that have waited as long wait no more.
    fn time_out(&mut self, patience: Duration) {
        let here = self.here();
        let want = here.page.want.as_ref();
        if want.is_some_and(|want| here.cx.now - want.since >= patience) {
            let why = Refusal::NodeGone(here.cx.coordinator());
            self.fail(&why);
        }
    }

    /// Threads that wait for the page cannot be served.
    pub(super) fn fail(&mut self, why: &Refusal) {
        self.here().refuse_all(why);
        self.ask();
    }

    /// A member is gone: what it was to have, or had, is elsewhere or lost.
    pub(super) fn member_gone(&mut self, node: NodeId) {
        let mut here = self.here();
        here.page.queue.retain(|(waiting, _)| *waiting != node);
        here.page.elected = here.page.elected.filter(|elected| *elected != node);
        // Whether it came there, and went on from there, the home finds out.
        here.end_pass(|passing| passing.to == node);
        // A member that was to answer a census is gone, and its knowledge with it. All answer anew: they
        // must not take anything of that node any more, either.
        if here.end_census() {
            self.search();
        }
        let mut here = self.here();
        if let Some(want) = &mut here.page.want {
            want.tries = want.tries.max(1);
            if here.send_want() {
                self.search();
            }
        }
    }
}

impl PageHere<'_, '_> {
    /// Opens a request. Returns whether the holder must be searched.
    fn open(&mut self, wish: Wish) -> bool {
        let timer = self.timer();
        self.page.want = Some(Wanted {
            wish,
            request: self.cx.next_request(),
            since: self.cx.now,
            tries: 0,
            backoff: self.cx.backoff(timer),
        });
        self.send_want()
    }

    /// Sends the request: at first to where the holder seems to be, later to everybody. Returns
    /// whether the holder must be searched.
    fn send_want(&mut self) -> bool {
        let (me, home) = (self.cx.me(), self.home());
        let (segment, page) = self.at;
        let Some(wanted) = &self.page.want else {
            return false;
        };
        let want = Want {
            page,
            count: 1,
            wish: wanted.wish,
            asker: me,
            request: wanted.request,
            hops: 0,
            tries: wanted.tries,
        };
        let hint = self.page.hint;
        self.cx.emit(Event::Asked { segment, page });
        if want.tries > 0 {
            for node in self.cx.shell.peers().iter() {
                self.say(node, &Body::Want(want));
            }
        } else if hint != me && self.cx.is_alive(hint) {
            self.say(hint, &Body::Want(want));
        } else if home != me {
            self.say(home, &Body::Want(want));
        }
        self.must_search(want.tries)
    }

    /// Whether this node is the home, and the holder is gone, or does not answer.
    fn must_search(&self, tries: u8) -> bool {
        let (me, hint) = (self.cx.me(), self.page.hint);
        self.home() == me && (hint == me || self.cx.is_gone(hint) || tries > 1)
    }

    /// Ends the request of this node, if it is such a one. Returns whether it was.
    pub(super) fn withdraw(&mut self, over: impl FnOnce(&mut Wanted) -> bool) -> bool {
        let timer = self.timer();
        let over = self.page.want.take_if(over);
        over.map(|want| self.cx.end(&want.backoff, timer)).is_some()
    }

    /// Sends again what is not answered. Returns whether the holder must be searched.
    fn resend(&mut self) -> bool {
        let timer = self.timer();
        if let Some(passing) = &mut self.page.passing
            && self.cx.fire(&mut passing.backoff, timer)
        {
            self.send_pass();
        }
        let Some(want) = &mut self.page.want else {
            return false;
        };
        if !self.cx.fire(&mut want.backoff, timer) {
            return false;
        }
        want.tries = want.tries.saturating_add(1);
        self.send_want()
    }

    /// Sends a copy of so many bytes.
    fn give_copy(&mut self, to: NodeId, answers: RequestId, bytes: u16) {
        self.materialize();
        let (segment, page) = self.at;
        // Stores may have been made since the last copy: this one is newer.
        self.page.stamp.number += 1;
        let run = Run::of_one(page, self.page.stamp);
        self.cx.emit(Event::CopyGiven { segment, page });
        self.send_refresh(to, (run, bytes), answers, Source::Frame);
    }

    /// The node that gets the consistent copy now: who waits first, unless it is to stay for a while.
    fn next_holder(&mut self) -> Option<NodeId> {
        let (now, timer) = (self.cx.now, self.timer());
        let (page, cx) = (&mut *self.page, &mut *self.cx);
        page.locks.retain(|(_, until)| *until > now);
        page.queue.retain(|(node, _)| cx.is_alive(*node));
        if !page.holds || page.queue.is_empty() {
            return None;
        }
        let locked = page.locks.iter().map(|(_, until)| *until).max();
        if let Some(until) = page.kept.max(locked).filter(|until| *until > now) {
            cx.arm(until, timer);
            return None;
        }
        page.queue.pop_front().map(|(to, _)| to)
    }

    /// The consistent copy, and the queue, go to a node. What was given stays here until it has arrived.
    fn give_away(&mut self, to: NodeId) {
        self.materialize();
        self.evict(true);
        let ((segment, index), timer) = (self.at, self.timer());
        let page = &mut *self.page;
        let stamp = Stamp {
            version: page.version + 1,
            number: page.stamp.number + 1,
        };
        let queue = page.queue.drain(..).filter(|(node, _)| *node != to);
        page.passing = Some(Passing {
            to,
            stamp,
            queue: queue.collect(),
            backoff: self.cx.backoff(timer),
            keepers: NodeSet::EMPTY,
        });
        (page.keeps, page.veiled, page.kept_at) = (Some(to), None, page.version);
        (page.holds, page.filled, page.kept) = (false, false, None);
        (page.version, page.hint, page.stamp) = (stamp.version, to, stamp);
        (page.valid, page.purged, page.elected) = (Valid::Whole, false, None);
        page.locks.clear();
        self.cx.emit(Event::OwnershipGiven {
            segment,
            page: index,
            to,
            version: Version(stamp.version),
        });
        self.send_pass();
    }

    fn send_pass(&mut self) {
        let page = self.at.1;
        let Some(passing) = &self.page.passing else {
            return;
        };
        let (to, stamp, queue) = (passing.to, passing.stamp, passing.queue.clone());
        let pass = Pass { page, stamp, queue };
        self.say_page(to, &Body::Pass(pass), Source::Stash);
    }

    /// Ends the move of the consistent copy from here, if it is such a one, and returns it.
    fn end_pass(&mut self, over: impl FnOnce(&mut Passing) -> bool) -> Option<Passing> {
        let timer = self.timer();
        let passing = self.page.passing.take_if(over)?;
        self.cx.end(&passing.backoff, timer);
        self.drop_stash();
        Some(passing)
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
                page.here().give_copy(want.asker, want.request, bytes);
            }
        }
    }
}

impl Page {
    /// The node with the consistent copy, as far as `me` knows.
    pub(super) fn hint_of(&self, me: NodeId) -> NodeId {
        if self.holds { me } else { self.hint }
    }

    /// A node waits for the consistent copy; of an earlier request it waits no more. Returns false if
    /// there are too many.
    fn enqueue(&mut self, who: (NodeId, RequestId)) -> bool {
        match self.queue.iter().position(|(node, _)| *node == who.0) {
            Some(place) => self.queue[place].1 = who.1,
            None if self.queue.len() < QUEUE => self.queue.push_back(who),
            None => return false,
        }
        true
    }
}
