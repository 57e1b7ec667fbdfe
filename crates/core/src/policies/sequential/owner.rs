//! The owner's side: serving the queue, first come first served.

use super::context::PageContext;
use super::page::{Gather, Page};
use super::page_here::PageHere;
use crate::effect::{Rights, Source};
use crate::event::Event;
use crate::ownership::grant;
use crate::patience::Awaited;
use core::time::Duration;
use pagemesh_wire::peer::{Access, Contents, Data, Invalidate, Message, Pass, Waiter};
use pagemesh_wire::{NodeId, NodeSet, RequestId, Version};

impl Page {
    /// The request that the owner serves next; none while it is about to write.
    fn next_waiter(&self, me: NodeId) -> Option<Waiter> {
        let busy = self.busy()?;
        if self.own.hint != me || self.gathers() {
            return None;
        }
        busy.queue.front().copied()
    }

    fn pop(&mut self) {
        self.own.busy_mut().queue.pop_front();
    }
}

impl PageContext<'_, '_> {
    /// Serves the queue until it is empty or the next request must wait.
    pub(super) fn serve(&mut self) {
        while let Some(waiter) = self.here.page.next_waiter(self.here.cx.me()) {
            let served = if waiter.node == self.here.cx.me() {
                self.serve_self(waiter)
            } else if waiter.access == Access::Read {
                let served = self.here.serve_reader(waiter);
                if served {
                    self.here.page.pop();
                }
                served
            } else {
                self.here.serve_writer(waiter)
            };
            if !served {
                return;
            }
        }
    }

    /// Serves this node's own request. Returns false if copies elsewhere must be invalidated first.
    fn serve_self(&mut self, waiter: Waiter) -> bool {
        if !self.here.page.own.wants(waiter.request) {
            self.here.page.pop();
            self.tell_served(waiter.request);
            return true;
        }
        self.here.fill_if_empty();
        if waiter.access == Access::Read {
            self.here.page.rights = self.here.page.rights.max(Rights::Read);
            self.here.page.pop();
            self.grant();
            return true;
        }
        if self.here.page.rights < Rights::Write {
            if self.here.is_held() || self.here.notes.is_frozen() {
                self.here.grant_loads_only();
                return false;
            }
            let copies = self.here.invalidate_copies();
            self.await_acks(copies);
            return false;
        }
        self.here.page.pop();
        self.grant();
        true
    }

    /// Waits for acknowledgements of these readers. If none of them is left, this node becomes the
    /// writer at once.
    pub(super) fn await_acks(&mut self, missing: NodeSet) {
        let missing: NodeSet = missing
            .iter()
            .filter(|node| !self.here.cx.is_gone(*node))
            .collect();
        if missing.is_empty() {
            self.become_writer();
            return;
        }
        let timer = self.here.timer();
        let backoff = self.here.cx.prompt_backoff(Awaited::Page, timer);
        self.here.page.more().gather = Some(Gather { missing, backoff });
    }

    /// A reader acknowledged that it dropped its copy.
    pub(super) fn ack_arrived(&mut self, from: NodeId, version: Version) {
        let known = self.here.page.own.version;
        let Some(busy) = self.here.page.own.busy_if_any() else {
            return self.here.cx.emit(Event::Stale {});
        };
        if let Some(gather) = &mut busy.more.gather
            && version == known
        {
            gather.missing.remove(from);
            if let Some(gather) = busy.more.gather.take_if(|gather| gather.missing.is_empty()) {
                self.here.cx.end(&gather.backoff, self.here.timer());
                self.become_writer();
            }
        } else if let Some(want) = &mut busy.want
            && version > known
        {
            // The acknowledgement overtook the grant.
            match &mut want.early {
                Some((early, acked)) if *early == version => acked.insert(from),
                early => *early = Some((version, NodeSet::only(from))),
            }
        } else {
            self.here.cx.emit(Event::Stale {});
        }
    }

    /// No copy is left elsewhere: this node may write.
    pub(super) fn become_writer(&mut self) {
        let me = self.here.cx.me();
        let wanted = self.here.page.own.want().map(|want| want.waiter);
        let stores = wanted.filter(|waiter| waiter.access == Access::Write);
        if let Some(waiter) = stores
            && self.here.is_held()
        {
            self.here.store_later(waiter);
            return;
        }
        if stores.is_some() {
            self.here.fill_if_empty();
            self.here.page.more().wake_watchers(self.here.cx);
            self.here.page.rights = Rights::Write;
            self.here.page.pristine = false;
            self.here.notes.store();
            let queue = &mut self.here.page.own.busy_mut().queue;
            queue.retain(|waiter| waiter.node != me);
            self.grant();
        } else if wanted.is_some() {
            self.submit_again();
        } else {
            self.request();
        }
        self.serve();
    }

    /// Rights rose: lets the waiting accesses go on, and closes this node's request.
    pub(super) fn grant(&mut self) {
        let (segment, page) = self.here.at();
        let rights = self.here.page.rights;
        let allowed = |access: Access| match access {
            Access::Read => rights >= Rights::Read,
            Access::Write => rights == Rights::Write,
        };
        let want = self.here.page.own.busy_mut().want.take();
        let ahead = self.show_ahead();
        let mut served = false;
        let faults = core::mem::take(&mut self.here.page.more().faults);
        let loads = faults.iter().all(|(_, access)| *access == Access::Read);
        let rights = if loads && !faults.is_empty() && want.is_some() {
            self.here.page.note_load(self.here.rules)
        } else {
            rights
        };
        for (mapping, access) in faults {
            if allowed(access) {
                served = true;
                self.here.map(mapping, rights);
                self.here.cx.emit(Event::Granted { segment, page });
            } else {
                self.here.page.more().faults.push((mapping, access));
            }
        }
        if let Some(want) = want {
            let here = &mut self.here;
            here.cx.end(&want.backoff, here.timer());
            let now = here.cx.now;
            here.cx.answered(Awaited::Page, want.since, &want.backoff);
            here.page
                .open_window(now, here.rules, now - want.since, served);
            if ahead && !served {
                // No thread waits for the page: it may leave at once.
                here.page.hold_for(Duration::ZERO);
            }
            self.tell_served(want.waiter.request);
        }
        if self.here.page.rights == Rights::Write {
            let pinning = core::mem::take(&mut self.here.page.more().pinning);
            self.after.pinned.extend(pinning);
        }
        self.request();
    }
}

impl PageHere<'_, '_> {
    /// Serves a reader elsewhere without the queue, if nothing is under way about the page. Returns
    /// false if that is not possible.
    pub(super) fn serve_at_once(&mut self, waiter: Waiter) -> bool {
        let free = self.page.busy().is_none() && self.is_owner();
        if !free || waiter.access != Access::Read || !self.cx.is_alive(waiter.node) {
            return false;
        }
        if !self.serve_reader(waiter) {
            self.page.own.enqueue(waiter);
        }
        true
    }

    /// Serves a reader elsewhere. Returns false if the writer here may keep the page for now.
    fn serve_reader(&mut self, waiter: Waiter) -> bool {
        if self.page.rights == Rights::Write && !self.may_leave() || !self.notes.is_kept() {
            return false;
        }
        if self.page.rights == Rights::Write {
            self.downgrade();
        }
        let (segment, page) = self.at();
        self.page.copies.insert(waiter.node);
        let contents = if self.page.pristine {
            Contents::Zero
        } else {
            Contents::Bytes
        };
        let data = Data {
            segment,
            page,
            request: waiter.request,
            version: self.page.own.version,
            owner: self.cx.me(),
            contents,
        };
        self.send_contents(waiter.node, Message::Data(data), Source::Frame);
        self.cx.emit(Event::CopyGiven { segment, page });
        true
    }

    /// Serves a writer elsewhere: ownership and the rest of the queue go there. Returns false if
    /// the page may not leave yet.
    fn serve_writer(&mut self, waiter: Waiter) -> bool {
        let is_held = self.is_held();
        let stays = is_held || self.page.rights > Rights::None && !self.may_leave();
        if stays || !self.notes.is_kept() {
            // Loads under the hold wait for no other node: the writer waits for the hold.
            let has_contents = self.page.filled || self.page.pristine;
            if is_held && has_contents && self.page.rights == Rights::None {
                self.grant_loads_only();
            }
            return false;
        }
        self.page.pop();
        self.give(waiter.node, waiter.request, waiter.have);
        true
    }

    /// Gives ownership to `to`, which holds a copy of version `have`.
    pub(super) fn give(&mut self, to: NodeId, request: RequestId, have: Option<Version>) {
        let (segment, page) = self.at();
        let version = self.page.own.version.next();
        let current = have == Some(self.page.own.version) && self.page.copies.contains(to);
        let readers = core::mem::take(&mut self.page.copies);
        let awaiting = readers.without(&NodeSet::only(to));
        self.tell_invalid(&awaiting, version, to);
        let pristine = self.page.pristine;
        self.evict(!pristine);
        self.notes.gave(self.cx, self.page, (to, version));
        let queue = core::mem::take(&mut self.page.own.busy_mut().queue);
        let pass = Pass {
            contents: match (pristine, current) {
                (true, _) => Contents::Zero,
                (false, true) => Contents::Same,
                (false, false) => Contents::Bytes,
            },
            pristine,
            awaiting,
            queue: queue.into_iter().collect(),
            ..grant(self.subject(), request, version)
        };
        self.page.own.pass(self.cx, to, pass.clone());
        self.send_contents(to, Message::Pass(pass), Source::Stash);
        self.cx.emit(Event::OwnershipGiven {
            segment,
            page,
            to,
            version,
        });
    }

    /// Repeats a grant: its receiver may have missed it, or may lack the copy that the grant relies
    /// on.
    pub(super) fn pass_again(&mut self, waiter: Waiter) {
        let passing = self
            .page
            .own
            .busy_mut()
            .passing
            .as_mut()
            .expect("a grant is under way");
        if passing.pass.contents == Contents::Same
            && waiter.have.map(Version::next) != Some(passing.pass.version)
        {
            passing.pass.contents = Contents::Bytes;
        }
        let (to, pass) = (passing.to, passing.pass.clone());
        self.cx.emit(Event::Resent {});
        self.send_contents(to, Message::Pass(pass), Source::Stash);
    }

    /// This node leaves: ownership goes to `to`, which did not request it.
    pub(super) fn hand_over(&mut self, to: NodeId) {
        if self.is_owner() && !self.page.gathers() && self.notes.is_kept() {
            self.page.own.busy_mut().want = None;
            self.give(to, RequestId::NONE, None);
        }
    }

    /// This node is about to write: invalidates all copies elsewhere, and returns who has them.
    fn invalidate_copies(&mut self) -> NodeSet {
        let version = self.page.own.version.next();
        self.page.own.version = version;
        let copies = core::mem::take(&mut self.page.copies);
        self.tell_invalid(&copies, version, self.cx.me());
        copies
    }

    /// Asks all readers to drop their copies and to acknowledge to `writer` (M18).
    pub(super) fn tell_invalid(&mut self, readers: &NodeSet, version: Version, writer: NodeId) {
        let (segment, page) = self.at();
        for reader in readers.iter() {
            let invalidate = Invalidate {
                segment,
                page,
                version,
                writer,
            };
            self.cx.send(reader, Message::Invalidate(invalidate));
            self.cx.emit(Event::InvalidationSent { segment, page });
        }
    }
}
