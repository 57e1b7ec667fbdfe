//! What arrives at a page (copies, ownership, invalidations) and what its timers do.

use super::context::PageContext;
use super::page_here::PageHere;
use crate::effect::{Rights, Source};
use crate::event::Event;
use crate::ownership::acknowledge;
use pagemesh_wire::peer::{
    Access, Ask, Contents, Data, Invalidate, InvalidateAck, Manager, Message, Pass, Waiter,
};
use pagemesh_wire::{NodeId, NodeSet, RequestId};

impl PageContext<'_, '_> {
    /// A read copy arrived.
    pub(super) fn data_arrived(&mut self, data: &Data) {
        let (segment, page) = self.here.at();
        let want = self.here.page.own.want().map(|want| want.waiter);
        let Some(waiter) =
            want.filter(|waiter| waiter.request == data.request && waiter.access == Access::Read)
        else {
            self.here.cx.emit(Event::Stale {});
            self.tell_served(data.request);
            return;
        };
        if data.version < self.here.page.own.version || self.here.is_owner() {
            // An invalidation overtook the copy: ask the present owner.
            self.here.cx.emit(Event::Stale {});
            self.submit(waiter);
            return;
        }
        if data.owner == self.here.cx.me() {
            return self.here.cx.emit(Event::Malformed {});
        }
        if self.here.cx.is_gone(data.owner) {
            // A search may have counted the copies before this one came.
            self.here.cx.emit(Event::Stale {});
            self.submit(waiter);
            return;
        }
        let Some(source) = source(data.contents) else {
            return self.here.cx.emit(Event::Malformed {});
        };
        self.note_progress(data.owner);
        self.here.passing_settled();
        if let Some(busy) = self.here.page.own.busy_if_any() {
            busy.search = None;
            busy.more.lost = None;
        }
        self.here.fill(source);
        self.here.page.own.version = data.version;
        self.here.page.own.hint = data.owner;
        self.here.page.rights = Rights::Read;
        self.here.cx.emit(Event::CopyArrived { segment, page });
        self.grant();
        let subject = self.here.subject();
        self.here.page.own.send_on(self.here.cx, subject);
    }

    /// A copy came from the owner, or from a reader to which that has left the request: those that
    /// were requested at the same time are on their way.
    fn note_progress(&mut self, owner: NodeId) {
        let Some(want) = self.here.page.own.want() else {
            return;
        };
        if self.here.rules.manager != Manager::Dynamic {
            return;
        }
        let backoff = want.backoff.clone();
        match self.after.from {
            Some(from) if from == owner => self.here.cx.progressed(owner, &backoff),
            Some(_) => self.here.cx.progressed_elsewhere(owner, &backoff),
            None => {}
        }
    }

    /// Ownership arrived.
    pub(super) fn pass_arrived(&mut self, from: NodeId, pass: &Pass) {
        let (segment, page) = self.here.at();
        if pass.contents == Contents::None || (pass.contents == Contents::Zero) != pass.pristine {
            return self.here.cx.emit(Event::Malformed {});
        }
        if pass.version > self.here.page.own.version && !self.here.can_take(from, pass) {
            return;
        }
        let want = self.here.page.own.want();
        let early = want.and_then(|want| want.early.clone());
        let stashed = self.here.page.own.passing().is_some();
        let wanted = self.here.page.own.wants(pass.request) || pass.request == RequestId::NONE;
        if !self.here.page.own.accept(self.here.cx, from, pass) {
            self.here.cx.emit(Event::Stale {});
            self.tell_served(pass.request);
            return;
        }
        if stashed {
            self.here.drop_stash();
        }
        self.here.cx.emit(Event::OwnershipArrived { segment, page });
        self.here.cx.emit(Event::Owned {
            segment,
            page,
            version: pass.version,
        });
        self.here.notes.came_from(self.here.cx, from);
        self.here.take_contents(pass);
        let acked = early.filter(|(version, _)| *version == pass.version);
        let acked = acked.map_or(NodeSet::EMPTY, |(_, acked)| acked);
        let me = NodeSet::only(self.here.cx.me());
        self.await_acks(pass.awaiting.without(&acked).without(&me));
        acknowledge(self.here.cx, from, pass);
        if !wanted {
            // An earlier report that the request was served may have been lost, and a leaving node
            // gives the page back before it is asked: without this report the library site would
            // serve this request for ever.
            self.tell_served(pass.request);
        }
    }

    /// Does everything about the page that is due.
    pub(super) fn due(&mut self) {
        self.request_due();
        self.here.pass_due();
        self.here.gather_due();
        self.search_due();
        self.leave_if_due();
    }

    fn request_due(&mut self) {
        let timer = self.here.timer();
        let readable = self.here.page.rights >= Rights::Read;
        let (version, owner) = (self.here.page.own.version, self.here.page.own.hint);
        let left_to_readers = self.here.rules.manager == Manager::Dynamic;
        let Some(busy) = self.here.page.own.busy_if_any() else {
            return;
        };
        let Some(want) = &mut busy.want else { return };
        // While a grant to a node that left is unacknowledged, the request must stay open: its
        // answer shows whether the grant was taken.
        let orphaned = busy.passing.as_ref();
        let orphaned = orphaned.is_some_and(|passing| self.here.cx.has_left(passing.to));
        if busy.more.nobody_waits() && !orphaned {
            return self.give_up_ahead();
        }
        let may_be_left = left_to_readers && want.waiter.access == Access::Read;
        let due = match may_be_left {
            true => self.here.cx.fire_to([owner], &mut want.backoff, timer),
            false => self.here.cx.fire(&mut want.backoff, timer),
        };
        if due {
            want.waiter.have = readable.then_some(version);
            let waiter = want.waiter;
            self.submit(waiter);
        }
    }

    /// A member is gone: it holds no copy, and no acknowledgement of it will come.
    pub(super) fn member_gone(&mut self, node: NodeId) {
        self.here.page.copies.remove(node);
        self.here.page.own.forget_node(node);
        if let Some(more) = self.here.page.more_if_any() {
            more.forget_copy_waiter(node);
            if let Some(gather) = &mut more.gather {
                gather.missing.remove(node);
                if gather.missing.is_empty() {
                    more.gather = None;
                    self.become_writer();
                }
            }
        }
        self.here.passing_gone(node);
        self.submit_again();
    }
}

impl PageHere<'_, '_> {
    /// A grant that relies on a copy that this node does not hold (a late repetition of an old
    /// request can cause one) is not taken: this node asks its sender for the bytes.
    fn can_take(&mut self, from: NodeId, pass: &Pass) -> bool {
        if pass.contents != Contents::Same || self.page.filled {
            return true;
        }
        self.cx.emit(Event::Stale {});
        let waiter = Waiter {
            node: self.cx.me(),
            request: pass.request,
            access: Access::Write,
            have: None,
        };
        let ask = Ask {
            subject: self.subject(),
            waiter,
            since: self.page.own.version,
            hops: 0,
            by_library: true,
        };
        self.cx.send(from, Message::Ask(ask));
        false
    }

    fn take_contents(&mut self, pass: &Pass) {
        self.page.copies = NodeSet::EMPTY;
        self.page.pristine = pass.pristine;
        if let Some(more) = self.page.more_if_any() {
            more.lost = None;
            more.deferred = None;
        }
        match pass.contents {
            Contents::Same | Contents::None => {}
            Contents::Zero if self.page.filled => {}
            Contents::Zero => self.fill(Source::Zero),
            Contents::Bytes => {
                self.evict(false);
                self.fill(Source::Payload);
            }
        }
    }

    /// Another node is about to write.
    pub(super) fn invalidate_arrived(&mut self, invalidate: Invalidate) {
        if invalidate.version <= self.page.own.version {
            self.cx.emit(Event::Stale {});
            self.acknowledge(invalidate);
            return;
        }
        if self.is_owner() {
            // Only a faulty or hostile peer invalidates the owner.
            return self.cx.emit(Event::Stale {});
        }
        if self.page.rights > Rights::None && !self.may_leave() {
            self.page.more().deferred = Some(invalidate);
            return;
        }
        self.invalidate_now(invalidate);
    }

    pub(super) fn invalidate_now(&mut self, invalidate: Invalidate) {
        let (segment, page) = self.at();
        if self.page.filled {
            self.evict(false);
            self.cx.emit(Event::Invalidated { segment, page });
        }
        self.page.own.version = invalidate.version;
        self.page.own.hint = invalidate.writer;
        self.passing_settled();
        self.acknowledge(invalidate);
    }

    /// The page was granted or written elsewhere since, so the receiver of the last grant from here
    /// has got it: the stash is not needed any more.
    fn passing_settled(&mut self) {
        if let Some(busy) = self.page.own.busy_if_any()
            && busy.passing.take().is_some()
        {
            self.drop_stash();
        }
    }

    /// The page is lost. A grant to a node that left was taken and passed on to a node that died:
    /// drops it. A receiver that is still a member will acknowledge its grant.
    pub(super) fn forget_orphaned_grant(&mut self) {
        let passing = self.page.own.passing();
        if passing.is_some_and(|passing| self.cx.is_gone(passing.to)) {
            self.passing_settled();
        }
    }

    fn acknowledge(&mut self, invalidate: Invalidate) {
        let Invalidate {
            segment,
            page,
            version,
            writer,
        } = invalidate;
        if writer != self.cx.me() {
            let ack = InvalidateAck {
                segment,
                page,
                version,
            };
            self.cx.send(writer, Message::InvalidateAck(ack));
        }
    }

    fn pass_due(&mut self) {
        let timer = self.timer();
        let Some(busy) = self.page.own.busy_if_any() else {
            return;
        };
        let Some(passing) = &mut busy.passing else {
            return;
        };
        if !self.cx.is_gone(passing.to) && self.cx.fire(&mut passing.backoff, timer) {
            let waiter = Waiter {
                node: passing.to,
                request: passing.pass.request,
                access: Access::Write,
                have: Some(pagemesh_wire::Version(passing.pass.version.0 - 1)),
            };
            self.pass_again(waiter);
        }
    }

    fn gather_due(&mut self) {
        let timer = self.timer();
        let version = self.page.own.version;
        let me = self.cx.me();
        let Some(more) = self.page.own.busy_if_any().map(|busy| &mut busy.more) else {
            return;
        };
        let Some(gather) = &mut more.gather else {
            return;
        };
        if self.cx.fire(&mut gather.backoff, timer) {
            let missing = gather.missing.clone();
            self.tell_invalid(&missing, version, me);
        }
    }

    /// A node that died may have taken the page and stored into it: its contents are lost. A node
    /// that left gracefully has taken the page and handed it over, or has not taken it: requesting
    /// the page shows which.
    fn passing_gone(&mut self, node: NodeId) {
        let left = self.cx.has_left(node);
        let subject = self.subject();
        let Some(busy) = self.page.own.busy_if_any() else {
            return;
        };
        if busy
            .passing
            .as_ref()
            .is_none_or(|passing| passing.to != node)
        {
            return;
        }
        if !left {
            busy.passing = None;
            self.drop_stash();
        } else if busy.want.is_none() {
            let backoff = self.cx.backoff(self.timer());
            let request = (Access::Read, None);
            self.page.own.request(self.cx, subject, backoff, request);
        }
    }
}

fn source(contents: Contents) -> Option<Source> {
    match contents {
        Contents::Zero => Some(Source::Zero),
        Contents::Bytes => Some(Source::Payload),
        Contents::Same | Contents::None => None,
    }
}
