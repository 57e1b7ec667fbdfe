//! Requests of this node's processes, and the cleanup after a process ends.

use super::Services;
use crate::caller::Caller;
use crate::continuation::Continuation;
use crate::control::Promotion;
use crate::effect::Reply;
use crate::input::Request;
use crate::limits::GROUPS;
use crate::membership::{Standing, Upgrade};
use crate::on_reply::OnReply;
use crate::policies::{Gone, ProgramRequest};
use crate::shell::Cx;
use crate::sysv::Why;
use crate::trapping::Waiting;
use pagemesh_wire::local::Advice;
use pagemesh_wire::peer::{Call, Refusal, SegmentSpec};
use pagemesh_wire::sysv;
use pagemesh_wire::{ClientId, NodeId, PageCount, PageIndex, SegmentId, Ticket};

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
            Request::Open {
                name,
                create,
                exclusive,
                write,
                credentials,
            } => {
                let call = Call::Open {
                    name,
                    create,
                    exclusive,
                    write,
                    credentials,
                };
                self.open(cx, (ticket, client), call);
            }
            Request::Call { to, call } => self.client_call(cx, ticket, client, to, call),
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
            } => self.advise(cx, (ticket, client), segment, (first, count), advice),
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
        if let Some(why) = self.not_taking_part() {
            cx.refuse(ticket, why);
            return None;
        }
        if self.delays_request(cx, &request) {
            let waiting = Waiting::Request(ticket, client, request);
            self.trapping.wait(waiting);
            return None;
        }
        Some(request)
    }

    /// The reason why this node serves no requests, if it does not.
    pub(crate) fn not_taking_part(&self) -> Option<Refusal> {
        match &self.membership.standing {
            Standing::Member if self.leaving.has_begun() => Some(Refusal::NotMember),
            Standing::Member => None,
            Standing::Out(why) => Some(why.clone()),
            Standing::Unborn | Standing::Joining(_) | Standing::Resuming => {
                Some(Refusal::NotYetMember)
            }
        }
    }

    fn open(&mut self, cx: &mut Cx<'_>, client: (Ticket, ClientId), call: Call) {
        let Call::Open { name, create, .. } = &call else {
            return;
        };
        if let Some(why) = create.as_ref().and_then(|spec| too_new(cx, spec)) {
            return cx.refuse(client.0, why);
        }
        let then = OnReply::Open {
            client: Some(client),
            name: name.clone(),
        };
        self.call(cx, cx.coordinator(), call, then);
    }

    fn advise(
        &mut self,
        cx: &mut Cx<'_>,
        (ticket, client): (Ticket, ClientId),
        id: SegmentId,
        (first, count): (PageIndex, PageCount),
        advice: Advice,
    ) {
        let known = self.segments.get(&id);
        if known.is_some_and(|segment| !segment.trapped && segment.is_open_by(client)) {
            // All pages are here, and at no other node.
            return cx.reply(ticket, Reply::Done);
        }
        let last = PageIndex(first.0.saturating_add(count.0.saturating_sub(1)));
        let mut mappings = self.mappings.iter();
        let mapping = mappings.find(|(_, of)| **of == (id, client));
        let mapping = mapping.map(|(mapping, _)| *mapping);
        let request = ProgramRequest::Advise(first, count, advice, mapping);
        self.segments
            .request(cx, (ticket, client), id, last, request);
    }

    fn client_call(
        &mut self,
        cx: &mut Cx<'_>,
        ticket: Ticket,
        client: ClientId,
        to: Option<NodeId>,
        call: Call,
    ) {
        if let Some(key) = call.key()
            && !self.segments.is_open_by(key.segment, client)
        {
            return cx.refuse(ticket, Refusal::NotFound);
        }
        if let Call::Barrier { key, .. } = &call {
            let segment = key.segment;
            let arrival = Continuation::SendArrival {
                ticket,
                client,
                to,
                call: call.clone(),
            };
            if !self.may_arrive(cx, segment, &arrival) {
                return;
            }
        }
        self.send_call(cx, (ticket, client), to, call);
    }

    /// A process arrives at a barrier, as it asked for before.
    pub(crate) fn send_arrival(
        &mut self,
        cx: &mut Cx<'_>,
        (ticket, client): (Ticket, ClientId),
        to: Option<NodeId>,
        call: Call,
    ) {
        match &self.membership.standing {
            Standing::Out(why) => cx.refuse(ticket, why.clone()),
            _ => self.send_call(cx, (ticket, client), to, call),
        }
    }

    fn send_call(
        &mut self,
        cx: &mut Cx<'_>,
        (ticket, client): (Ticket, ClientId),
        to: Option<NodeId>,
        call: Call,
    ) {
        // A node that a person names must exist. The home of a segment exists, though this node may
        // not have heard of it yet.
        let gone = |node| {
            if to.is_some() {
                !cx.is_alive(node)
            } else {
                cx.is_gone(node)
            }
        };
        let server = to.or_else(|| home_of(cx, &call));
        match server {
            Some(node) if gone(node) => cx.refuse(ticket, Refusal::NodeGone(node)),
            Some(node) => {
                let call = self.with_payload(cx, call);
                self.call(cx, node, call, OnReply::Tell(ticket, client));
            }
            None => cx.refuse(ticket, Refusal::Invalid("not for clients".into())),
        }
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
        self.early.retain(|early| early.caller != caller);
        self.conditions.cancel(caller);
        self.sysv.cancel(caller);
    }

    pub(super) fn closed(&mut self, cx: &mut Cx<'_>, id: SegmentId, client: ClientId) {
        let last = self
            .segments
            .get_mut(&id)
            .is_some_and(|segment| segment.close(client));
        self.rejoin.closed(cx, id, |segment| segment.close(client));
        let client = Some(client);
        let detached = true;
        self.sysv_attached(cx, id, Why { client, detached });
        if last {
            self.close(cx, id);
        }
    }

    /// No process here has the segment open; its pages stay where they are.
    pub(super) fn close(&mut self, cx: &mut Cx<'_>, id: SegmentId) {
        let Some(segment) = self.segments.get(&id) else {
            return;
        };
        let named = sysv::keeper(id).is_none();
        if named && !segment.is_open() && !self.calls.opening(&segment.info.name) {
            self.call(
                cx,
                cx.coordinator(),
                Call::Close { segment: id },
                OnReply::Nothing,
            );
        }
    }

    pub(super) fn forked(&mut self, cx: &mut Cx<'_>, parent: ClientId, child: ClientId) {
        self.segments.forked(parent, child);
        self.rejoin.forked(parent, child);
        for id in self.segments.of_sysv(child) {
            let client = Some(parent);
            let detached = false;
            self.sysv_attached(cx, id, Why { client, detached });
        }
    }

    /// Tells the home of a System V segment how many attachments this node has or will have.
    pub(super) fn sysv_attached(&mut self, cx: &mut Cx<'_>, id: SegmentId, why: Why) {
        let segment = self.segments.get(&id);
        let told = segment.and_then(|segment| self.sysv.attached(cx, &self.calls, segment, why));
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
                self.close(cx, id);
            }
        }
        for id in attached {
            let client = Some(client);
            let detached = true;
            self.sysv_attached(cx, id, Why { client, detached });
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
    let last = PageIndex(first.0.saturating_add(count.0.saturating_sub(1)));
    (segment, last, request)
}

/// Why a segment like this cannot be created while some member runs an older program.
fn too_new(cx: &Cx<'_>, spec: &SegmentSpec) -> Option<Refusal> {
    let (since, spoken) = (spec.since_version(), cx.shell.spoken);
    (spoken < since).then(|| {
        let why = format!(
            "a segment like this needs version {since} of the protocol on all members, and the \
             cluster speaks {spoken}: `pagemesh members` shows who is to be upgraded"
        );
        Refusal::Invalid(why)
    })
}

/// The node that answers a call which names none.
fn home_of(cx: &Cx<'_>, call: &Call) -> Option<NodeId> {
    if let Some(key) = call.key() {
        let home = key.segment.home();
        // If the home died, its arrivals and waiters are lost, and no successor is asked.
        let successor = cx.has_left(home).then(|| cx.home(key.segment));
        return Some(successor.unwrap_or(home));
    }
    let names = matches!(
        call,
        Call::Remove { .. }
            | Call::Stat { .. }
            | Call::List { .. }
            | Call::Name { .. }
            | Call::Declare { .. }
    );
    names.then_some(cx.coordinator())
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
