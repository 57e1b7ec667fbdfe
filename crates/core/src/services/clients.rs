//! Requests of this node's processes, and the cleanup after a process ends.

use super::Services;
use crate::caller::Caller;
use crate::control::Promotion;
use crate::input::Request;
use crate::limits::GROUPS;
use crate::membership::Upgrade;
use crate::policies::{Gone, ProgramRequest};
use crate::segments::{last_of, open};
use crate::shell::Cx;
use crate::sysv::Why;
use crate::trapping::Delayed;
use pagemesh_wire::local::Advice;
use pagemesh_wire::peer::{Call, Refusal};
use pagemesh_wire::{ClientId, PageCount, PageIndex, SegmentId, Ticket};

impl Services {
    pub(crate) fn request(
        &mut self,
        cx: &mut Cx<'_>,
        ticket: Ticket,
        client: ClientId,
        request: Request,
    ) {
        let Some(request) = self.admit_request(cx, (ticket, client), request) else {
            return;
        };
        match request {
            request @ Request::Open { .. } => {
                let step = open(cx, (ticket, client), request);
                self.follow(cx, step);
            }
            Request::Call { to, call } => {
                let (who, untouched) = ((ticket, client), &mut self.untouched);
                let call = self.segments.client_call(cx, untouched, who, (to, call));
                self.follow(cx, call);
            }
            Request::Lock { key } if self.segments.is_open_by(key.segment, client) => {
                self.locks
                    .lock(cx, &mut self.segments, (ticket, client), key);
            }
            Request::Lock { .. } => cx.refuse(ticket, Refusal::NotFound),
            Request::Leave => self.leave(cx, ticket),
            Request::Promote => self.promote(cx, ticket),
            Request::MakeRoom { speaks } => {
                if self.membership.upgrade.make_room(cx, ticket, speaks) {
                    self.tell_program(cx, Upgrade::tells);
                }
            }
            Request::Advise {
                segment,
                first,
                count,
                advice,
            } => {
                let about = ((ticket, client), segment);
                let pages = vec![(first, count)];
                self.segments
                    .advise(cx, &self.mappings, about, pages, advice);
            }
            Request::WillNeed { segment, ranges } => {
                let about = ((ticket, client), segment);
                self.segments
                    .advise(cx, &self.mappings, about, ranges, Advice::WillNeed);
            }
            Request::Sysv(ask) => {
                let steps = self.sysv.request(cx, &self.calls, (ticket, client), ask);
                self.follow(cx, steps);
            }
            Request::Redeem { segment } => self.segments.redeem(cx, (ticket, client), segment),
            request @ (Request::FilePages { .. } | Request::FilePagesDone { .. }) => {
                self.about_files(cx, (ticket, client), &request);
            }
            request @ (Request::Watch { .. }
            | Request::Pin { .. }
            | Request::PinShort { .. }
            | Request::Unpin { .. }
            | Request::Purge { .. }
            | Request::WatchRange { .. }
            | Request::Publish { .. }
            | Request::Hold { .. }
            | Request::EndHold { .. }) => {
                let (segment, last, request) = about_pages(&request);
                self.segments
                    .request(cx, (ticket, client), segment, last, request);
            }
        }
    }

    /// Refuses a request that cannot be served, and keeps one that has to wait. Returns any other.
    fn admit_request(
        &mut self,
        cx: &mut Cx<'_>,
        (ticket, client): (Ticket, ClientId),
        request: Request,
    ) -> Option<Request> {
        let refused = self.rejoin.why_lost(&request).or_else(|| unfit(&request));
        if let Some(why) = refused {
            cx.refuse(ticket, why);
            return None;
        }
        let request = self.rejoin.takes_request(ticket, client, request)?;
        let leaving = self.leaving.has_begun();
        if let Some(why) = self.membership.not_taking_part(leaving) {
            cx.refuse(ticket, why);
            return None;
        }
        if self.delays_request(cx, &request) {
            let waiting = Delayed::Request(ticket, client, request);
            self.trapping.wait(waiting);
            return None;
        }
        Some(request)
    }

    /// Withdraws a request; if it was answered already, nothing happens.
    pub(super) fn cancel(&mut self, cx: &mut Cx<'_>, ticket: Ticket) {
        let calls = self.calls.cancel(cx, ticket);
        let mut had = calls.is_some();
        for caller in calls.into_iter().flatten() {
            self.forget_caller(caller);
        }
        had |= self.locks.cancel(ticket);
        had |= self.rejoin.cancel(ticket);
        had |= self.trapping.cancel(ticket);
        had |= self.sysv.withdraw(ticket);
        had |= Promotion::withdraw(&mut self.promotion, ticket);
        if self.membership.upgrade.withdraw(ticket) {
            self.tell_program(cx, Upgrade::tells);
            had = true;
        }
        had |= self.global.shared.cancel(cx, ticket);
        had |= self.segments.cancel(ticket);
        if had {
            cx.refuse(ticket, Refusal::Cancelled);
        }
    }

    pub(crate) fn forget_caller(&mut self, caller: Caller) {
        self.barriers.cancel(caller);
        self.early.cancel(caller);
        self.conditions.cancel(caller);
        self.sysv.cancel(caller);
    }

    pub(super) fn closed(&mut self, cx: &mut Cx<'_>, id: SegmentId, client: ClientId) {
        let known = self.segments.get_mut(&id);
        let last = known.is_some_and(|segment| segment.close(client));
        self.rejoin.closed(cx, id, |segment| segment.close(client));
        self.sysv_attached(cx, id, Why::detached(client));
        if last {
            let step = self.segments.close(cx, &self.calls, id);
            self.follow(cx, step);
        }
    }

    pub(super) fn forked(&mut self, cx: &mut Cx<'_>, parent: ClientId, child: ClientId) {
        self.segments.forked(parent, child);
        self.rejoin.forked(parent, child);
        for id in self.segments.of_sysv(child) {
            self.sysv_attached(cx, id, Why::attached(parent));
        }
    }

    /// Tells the home of a System V segment how many attachments this node has or will have.
    pub(super) fn sysv_attached(&mut self, cx: &mut Cx<'_>, id: SegmentId, why: Why) {
        let told = self.sysv.attached(cx, &self.calls, &self.segments, id, why);
        self.follow(cx, told);
    }

    pub(super) fn client_gone(&mut self, cx: &mut Cx<'_>, client: ClientId) {
        let gone: Vec<_> = self
            .mappings
            .iter()
            .filter(|(_, (_, owner))| *owner == client)
            .map(|(mapping, _)| *mapping)
            .collect();
        for mapping in gone {
            self.unmapped(cx, mapping);
        }
        for caller in self.calls.client_gone(cx, client) {
            self.forget_caller(caller);
        }
        self.locks.client_gone(client);
        self.rejoin.client_gone(cx, client);
        let attached = self.segments.of_sysv(client);
        let ids: Vec<_> = self.segments.keys().copied().collect();
        for id in ids {
            let segment = self.segments.get_mut(&id).expect("listed just now");
            segment.policy.gone(cx, Gone::Client(client));
            if segment.close_all(client) {
                let step = self.segments.close(cx, &self.calls, id);
                self.follow(cx, step);
            }
        }
        for id in attached {
            self.sysv_attached(cx, id, Why::detached(client));
        }
        let steps = self.sysv.exit(cx, &self.calls, client);
        self.follow(cx, steps);
    }
}

/// A request about pages, as the segment's policy answers it: the segment, and the last of the
/// pages.
fn about_pages(request: &Request) -> (SegmentId, PageIndex, ProgramRequest) {
    let (segment, first, count, request) = match *request {
        Request::Watch { segment, page } => {
            let request = ProgramRequest::Watch(page);
            (segment, page, PageCount(1), request)
        }
        Request::Pin {
            segment,
            first,
            count,
        } => (segment, first, count, ProgramRequest::Pin(first, count)),
        Request::PinShort {
            segment,
            first,
            count,
        } => {
            let request = ProgramRequest::PinShort(first, count);
            (segment, first, count, request)
        }
        Request::Unpin {
            segment,
            first,
            count,
        } => {
            // Pages beyond the end have no pins.
            let request = ProgramRequest::Unpin(first, count);
            (segment, first, PageCount(1), request)
        }
        Request::Purge {
            segment,
            first,
            count,
            short,
        } => {
            let request = ProgramRequest::Purge(first, count, short);
            (segment, first, count, request)
        }
        Request::WatchRange {
            segment,
            first,
            count,
        } => {
            let request = ProgramRequest::WatchRange(first, count);
            (segment, first, count, request)
        }
        Request::Publish {
            segment,
            first,
            count,
            short,
            waits,
        } => {
            let request = ProgramRequest::Publish {
                first,
                count,
                short,
                waits,
            };
            (segment, first, count, request)
        }
        Request::Hold { segment } => (segment, PageIndex(0), PageCount(1), ProgramRequest::Hold),
        Request::EndHold { segment } => {
            (segment, PageIndex(0), PageCount(1), ProgramRequest::EndHold)
        }
        ref other => unreachable!("no request about pages: {other:?}"),
    };
    (segment, last_of(first, count), request)
}

/// The reason why a request cannot be sent: all that travels has bounded size.
fn unfit(request: &Request) -> Option<Refusal> {
    let (name, groups) = match request {
        Request::Open {
            name, credentials, ..
        }
        | Request::Call {
            call:
                Call::Remove { name, credentials }
                | Call::Name {
                    name, credentials, ..
                },
            ..
        } => (name.as_str(), credentials.groups.len()),
        Request::Call {
            call: Call::Stat { name } | Call::List { after: name },
            ..
        } => (name.as_str(), 0),
        _ => return None,
    };
    if name.len() > 255 {
        return Some(Refusal::BadName);
    }
    let many = format!("a process in more than {GROUPS} groups cannot be judged by its groups");
    (groups > GROUPS).then_some(Refusal::Limit(many))
}
