//! The corridor between the rooms of a node: who gets which input, and which
//! room answers which call. Rooms never call each other; they meet here.

use crate::calls::{Caller, Calls, Then};
use crate::directory::Opening;
use crate::effect::{Effect, Reply};
use crate::event::Event;
use crate::input::{Input, Request};
use crate::leaving::Leaving;
use crate::limits::{GROUPS, LIST_PAGE};
use crate::link::Sender;
use crate::membership::{Coordinator, Forsaken, Membership, Standing, Verdict};
use crate::order::Early;
use crate::policies::Who;
use crate::reductions::Reductions;
use crate::segment::Segment;
use crate::shell::Cx;
use crate::sync::{Barriers, Conditions, Locks};
use crate::sysv::{Sysv, Why};
use crate::timers::Timer;
use pagemesh_wire::local::Advice;
use pagemesh_wire::peer::{self, Access, Call, Health, MemberView, Refusal, SegmentInfo, Subject};
use pagemesh_wire::sysv;
use pagemesh_wire::{CallId, ClientId, MappingId, NodeId, PageCount, PageIndex, SegmentId, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Every room of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Rooms {
    pub(crate) membership: Membership,
    pub(crate) coordinator: Option<Coordinator>,
    pub(crate) calls: Calls,
    pub(crate) segments: BTreeMap<SegmentId, Segment>,
    pub(crate) mappings: BTreeMap<MappingId, (SegmentId, ClientId)>,
    pub(crate) locks: Locks,
    pub(crate) barriers: Barriers,
    pub(crate) conditions: Conditions,
    pub(crate) leaving: Leaving,
    pub(crate) sysv: Sysv,
    pub(crate) early: Vec<Early>,
    pub(crate) reductions: Reductions,
}

impl Rooms {
    pub(crate) fn new() -> Self {
        Self {
            membership: Membership::new(),
            coordinator: None,
            calls: Calls::default(),
            segments: BTreeMap::new(),
            mappings: BTreeMap::new(),
            locks: Locks::default(),
            barriers: Barriers::default(),
            conditions: Conditions::default(),
            leaving: Leaving::default(),
            sysv: Sysv::default(),
            early: Vec::new(),
            reductions: Reductions::default(),
        }
    }

    pub(crate) fn handle(&mut self, cx: &mut Cx<'_>, input: Input<'_>) {
        match input {
            Input::Datagram { source, key, bytes } => self.datagram(cx, source, key, bytes),
            Input::Fault {
                mapping,
                page,
                access,
            } => self.fault(cx, mapping, page, access),
            Input::Request {
                ticket,
                client,
                request,
            } => {
                self.request(cx, ticket, client, request);
            }
            Input::Cancel { ticket } => self.cancel(cx, ticket),
            Input::Mapped {
                mapping,
                segment,
                client,
            } => {
                self.mappings.insert(mapping, (segment, client));
            }
            Input::Unmapped { mapping } => self.unmapped(mapping),
            Input::Closed { segment, client } => self.closed(cx, segment, client),
            Input::Forked { parent, child } => self.forked(cx, parent, child),
            Input::ClientGone { client } => self.client_gone(cx, client),
            Input::LockReturned { key, recovered } => {
                if self.membership.standing == Standing::Member {
                    self.locks.returned(cx, &mut self.segments, key, recovered);
                }
            }
            Input::UseConfirmed {
                segment,
                page,
                used,
            } => {
                if let Some(segment) = self.segments.get_mut(&segment) {
                    segment.policy.use_confirmed(cx, page, used);
                }
            }
            Input::Unchanged { segment, page } => {
                if let Some(segment) = self.segments.get_mut(&segment) {
                    segment.policy.unchanged(page);
                }
            }
            Input::Deadline => self.deadline(cx),
        }
        self.go_on(cx);
        self.go_on_leaving(cx);
    }

    fn deadline(&mut self, cx: &mut Cx<'_>) {
        if let Some(coordinator) = self.membership.start(cx) {
            self.coordinator = Some(coordinator);
        }
        while let Some(timer) = cx.shell.timers.pop_due(cx.now) {
            match timer {
                Timer::Join => self.membership.join_due(cx),
                Timer::Heartbeat => {
                    self.membership.heartbeat(cx);
                    self.despair_of_leaving(cx);
                }
                Timer::Suspect(node) => self.suspect(cx, node),
                Timer::Call(call) => self.call_due(cx, call),
                Timer::Subject(subject) => self.subject_due(cx, subject),
                Timer::Order(segment) => {
                    if let Some(order) = self.order(segment) {
                        order.due_again(cx);
                    }
                }
                Timer::Ahead(segment) => {
                    if let Some(segment) = self.segments.get_mut(&segment) {
                        segment.policy.look_ahead(cx);
                    }
                }
            }
        }
    }

    /// Something about a page or a token is due. Nobody waits for ever for a first
    /// node that is silent.
    fn subject_due(&mut self, cx: &mut Cx<'_>, subject: Subject) {
        let forsaken = self.membership.forsaken(cx);
        match subject {
            Subject::Lock(key) => {
                if let Some(forsaken) = forsaken {
                    self.locks.forsake(cx, key, forsaken);
                }
                self.locks.due(cx, &mut self.segments, key);
            }
            Subject::Page { segment, page } => {
                let Some(segment) = self.segments.get_mut(&segment) else {
                    return;
                };
                if let Some(Forsaken { patience, .. }) = forsaken {
                    segment.policy.forsake(cx, page, patience);
                }
                segment.policy.due(cx, page);
            }
        }
    }

    fn fault(&mut self, cx: &mut Cx<'_>, mapping: MappingId, page: PageIndex, access: Access) {
        let Some((id, client)) = self.mappings.get(&mapping).copied() else {
            return;
        };
        if let Standing::Out(why) = &self.membership.standing {
            let why = why.clone();
            cx.push(Effect::Fail {
                mapping,
                segment: id,
                page,
                why,
            });
            return;
        }
        if self.leaving.has_begun() {
            // What came now would have to be handed over at once.
            let why = Refusal::NotMember;
            cx.push(Effect::Fail {
                mapping,
                segment: id,
                page,
                why,
            });
            return;
        }
        if let Some(segment) = self.segments.get_mut(&id) {
            let pages = segment.info.spec.size.pages().map_or(0, |pages| pages.0);
            let who = Who {
                mapping,
                client,
                pages,
            };
            segment.policy.fault(cx, who, page, access);
        } else {
            // It went with the node that kept it for itself.
            let why = Refusal::NodeGone(id.home());
            cx.push(Effect::Fail {
                mapping,
                segment: id,
                page,
                why,
            });
        }
    }

    fn unmapped(&mut self, mapping: MappingId) {
        if let Some((segment, _)) = self.mappings.remove(&mapping)
            && let Some(segment) = self.segments.get_mut(&segment)
        {
            segment.policy.unmapped(mapping);
        }
    }

    // ---- local requests ------------------------------------------------------

    fn request(&mut self, cx: &mut Cx<'_>, ticket: Ticket, client: ClientId, request: Request) {
        match &self.membership.standing {
            Standing::Member if self.leaving.has_begun() => {
                return cx.refuse(ticket, Refusal::NotMember);
            }
            Standing::Member => {}
            Standing::Out(why) => return cx.refuse(ticket, why.clone()),
            Standing::Unborn | Standing::Joining(_) => {
                return cx.refuse(ticket, Refusal::NotYetMember);
            }
        }
        if let Some(why) = unfit(&request) {
            return cx.refuse(ticket, why);
        }
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
            Request::Lock { key } if self.is_open_by(key.segment, client) => {
                self.locks
                    .lock(cx, &mut self.segments, (ticket, client), key);
            }
            Request::Lock { .. } => cx.refuse(ticket, Refusal::NotFound),
            Request::Watch { segment, page } => {
                self.with_page(cx, ticket, client, segment, page, |segment, cx| {
                    segment.policy.watch(cx, ticket, page);
                });
            }
            Request::Pin {
                segment,
                first,
                count,
            } => {
                let last = PageIndex(first.0.saturating_add(count.0.saturating_sub(1)));
                self.with_page(cx, ticket, client, segment, last, |segment, cx| {
                    segment.policy.pin(cx, ticket, client, first, count);
                });
            }
            Request::Unpin {
                segment,
                first,
                count,
            } => {
                self.with_page(cx, ticket, client, segment, first, |segment, cx| {
                    segment.policy.unpin(cx, client, first, count);
                    cx.reply(ticket, Reply::Done);
                });
            }
            Request::Leave => self.leave(cx, ticket),
            Request::Advise {
                segment,
                first,
                count,
                advice,
            } => self.advise(cx, (ticket, client), segment, (first, count), advice),
            Request::Sysv(ask) => self.sysv(cx, ticket, client, ask),
        }
    }

    fn open(&mut self, cx: &mut Cx<'_>, client: (Ticket, ClientId), call: Call) {
        let Call::Open { name, .. } = &call else {
            return;
        };
        let then = Then::Open {
            client: Some(client),
            name: name.clone(),
        };
        self.call(cx, NodeId::COORDINATOR, call, then);
    }

    fn advise(
        &mut self,
        cx: &mut Cx<'_>,
        (ticket, client): (Ticket, ClientId),
        id: SegmentId,
        (first, count): (PageIndex, PageCount),
        advice: Advice,
    ) {
        let last = PageIndex(first.0.saturating_add(count.0.saturating_sub(1)));
        let mut mappings = self.mappings.iter();
        let mapping = mappings.find(|(_, of)| **of == (id, client));
        let who = (client, mapping.map(|(mapping, _)| *mapping));
        self.with_page(cx, ticket, client, id, last, |segment, cx| {
            segment.policy.advise(cx, who, (first, count), advice);
            cx.reply(ticket, Reply::Done);
        });
    }

    fn is_open_by(&self, segment: SegmentId, client: ClientId) -> bool {
        self.segments
            .get(&segment)
            .is_some_and(|segment| segment.is_open_by(client))
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
            && !self.is_open_by(key.segment, client)
        {
            return cx.refuse(ticket, Refusal::NotFound);
        }
        // A node named by a person must exist; the home of a segment does,
        // though we may not have heard of it yet.
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
                let call = self.with_news(cx, call);
                self.call(cx, node, call, Then::Tell(ticket, client));
            }
            None => cx.refuse(ticket, Refusal::Invalid("not for clients".into())),
        }
    }

    /// Does `work` on a segment the client has open, if the page is inside it.
    fn with_page(
        &mut self,
        cx: &mut Cx<'_>,
        ticket: Ticket,
        client: ClientId,
        id: SegmentId,
        page: PageIndex,
        work: impl FnOnce(&mut Segment, &mut Cx<'_>),
    ) {
        let segment = self
            .segments
            .get_mut(&id)
            .filter(|segment| segment.is_open_by(client));
        let Some(segment) = segment else {
            return cx.refuse(ticket, Refusal::NotFound);
        };
        if segment
            .info
            .spec
            .size
            .pages()
            .is_none_or(|pages| page.0 >= pages.0)
        {
            return cx.refuse(
                ticket,
                Refusal::Invalid("beyond the end of the segment".into()),
            );
        }
        work(segment, cx);
    }

    /// Withdraws a request; one that was answered already needs no answer.
    fn cancel(&mut self, cx: &mut Cx<'_>, ticket: Ticket) {
        let calls = self.calls.cancel(cx, ticket);
        let mut had = calls.is_some();
        for caller in calls.into_iter().flatten() {
            self.forget_caller(caller);
        }
        had |= self.locks.cancel(ticket);
        had |= self.sysv.withdraw(ticket);
        for segment in self.segments.values_mut() {
            had |= segment.policy.cancel(ticket);
        }
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

    fn closed(&mut self, cx: &mut Cx<'_>, id: SegmentId, client: ClientId) {
        let last = self
            .segments
            .get_mut(&id)
            .is_some_and(|segment| segment.close(client));
        let client = Some(client);
        let detached = true;
        self.sysv_attached(cx, id, Why { client, detached });
        if last {
            self.close(cx, id);
        }
    }

    /// Nobody here has the segment open; its pages stay where they are.
    fn close(&mut self, cx: &mut Cx<'_>, id: SegmentId) {
        let Some(segment) = self.segments.get(&id) else {
            return;
        };
        let named = sysv::keeper(id).is_none();
        if named && !segment.is_open() && !self.calls.opening(&segment.info.name) {
            self.call(
                cx,
                NodeId::COORDINATOR,
                Call::Close { segment: id },
                Then::Nothing,
            );
        }
    }

    fn forked(&mut self, cx: &mut Cx<'_>, parent: ClientId, child: ClientId) {
        for segment in self.segments.values_mut() {
            segment.inherit(parent, child);
        }
        for id in self.sysv_segments(child) {
            let client = Some(parent);
            let detached = false;
            self.sysv_attached(cx, id, Why { client, detached });
        }
    }

    /// Segments of System V objects that a process has attached.
    fn sysv_segments(&self, client: ClientId) -> Vec<SegmentId> {
        let open = self
            .segments
            .iter()
            .filter(|(id, segment)| sysv::keeper(**id).is_some() && segment.is_open_by(client));
        open.map(|(id, _)| *id).collect()
    }

    fn client_gone(&mut self, cx: &mut Cx<'_>, client: ClientId) {
        let gone: Vec<_> = self
            .mappings
            .iter()
            .filter(|(_, (_, owner))| *owner == client)
            .map(|(mapping, _)| *mapping)
            .collect();
        for mapping in gone {
            self.unmapped(mapping);
        }
        for caller in self.calls.client_gone(cx, client) {
            self.forget_caller(caller);
        }
        self.locks.client_gone(client);
        let attached = self.sysv_segments(client);
        let ids: Vec<_> = self.segments.keys().copied().collect();
        for id in ids {
            let segment = self.segments.get_mut(&id).expect("listed just now");
            segment.policy.client_gone(cx, client);
            if segment.close_all(client) {
                self.close(cx, id);
            }
        }
        for id in attached {
            let client = Some(client);
            let detached = true;
            self.sysv_attached(cx, id, Why { client, detached });
        }
        self.sysv_exit(cx, client);
    }

    // ---- calls ---------------------------------------------------------------

    pub(crate) fn call(&mut self, cx: &mut Cx<'_>, to: NodeId, call: Call, then: Then) {
        let caller = self.calls.call(cx, to, call.clone(), then);
        if to == cx.me() {
            self.execute(cx, caller, call);
        }
    }

    /// Nobody waits for ever for names that nobody keeps any more, nor for a home that
    /// nobody buries.
    fn call_due(&mut self, cx: &mut Cx<'_>, call: CallId) {
        let silent = self.membership.silent(cx);
        if let Some((server, then)) = self.calls.give_up(cx, call, silent) {
            let why = Refusal::NodeGone(server);
            self.carry_on(cx, server, then, peer::Reply::Refused(why));
        }
        self.calls.due(cx, call);
    }

    /// Answers a call, wherever it came from.
    pub(crate) fn answer(&mut self, cx: &mut Cx<'_>, caller: Caller, reply: peer::Reply) {
        if caller.node == cx.me() {
            self.replied(cx, caller.node, caller.call, reply);
        } else {
            self.calls.answer(cx, caller, reply);
        }
    }

    /// Executes a call once.
    pub(crate) fn execute(&mut self, cx: &mut Cx<'_>, caller: Caller, call: Call) {
        let reply = match call {
            Call::Probe => peer::Reply::Done,
            Call::Barrier { key, parties } => {
                return self.arrived(cx, caller, key, parties, None);
            }
            Call::Arrive { key, parties, news } => {
                return self.arrive(cx, caller, (key, parties), &news);
            }
            Call::Declare { segment, reduction } => {
                return self.declare(cx, caller, segment, reduction);
            }
            Call::Reduce {
                segment,
                reductions,
            } => {
                self.reduce(caller.node, segment, reductions);
                peer::Reply::Done
            }
            Call::Collect { segment, step } => return self.collect(cx, caller, segment, step),
            Call::CondWait { key } => {
                self.conditions.wait(caller, key);
                peer::Reply::Waiting
            }
            Call::CondSignal { key, all } => {
                let woken = self.conditions.signal(key, all);
                let count = woken.len() as u32;
                for waiter in woken {
                    self.answer(cx, waiter, peer::Reply::Done);
                }
                peer::Reply::Woken(count)
            }
            Call::Members(view) => {
                if caller.node == NodeId::COORDINATOR {
                    self.members_changed(cx, view);
                }
                peer::Reply::Done
            }
            Call::Sysv(ask) => return self.sysv_serve(cx, caller, &ask),
            Call::SysvNews(news) => {
                self.sysv_news(cx, caller, news);
                peer::Reply::Done
            }
            Call::Forget { segment } => {
                if self.keeps(caller.node, segment) {
                    self.forget(cx, segment);
                }
                peer::Reply::Done
            }
            Call::Inherit(piece) => {
                if self.coordinator.is_some() {
                    self.inherit(cx, piece);
                }
                peer::Reply::Done
            }
            Call::Leave => {
                self.answer(cx, caller, peer::Reply::Done);
                self.bury(cx, caller.node, Health::Left);
                return;
            }
            Call::Revoke { node } => self.revoke(cx, node),
            Call::Open { .. }
            | Call::Close { .. }
            | Call::Remove { .. }
            | Call::Stat { .. }
            | Call::List { .. } => self.look_up(cx, caller, call),
        };
        self.answer(cx, caller, reply);
    }

    /// Calls to the directory, which only the coordinator has.
    fn look_up(&mut self, cx: &mut Cx<'_>, caller: Caller, call: Call) -> peer::Reply {
        let Some(coordinator) = &mut self.coordinator else {
            return peer::Reply::Refused(Refusal::Invalid("this node keeps no names".into()));
        };
        let directory = &mut coordinator.directory;
        let mut unused = None;
        let reductions = &self.reductions;
        let segment = |info: SegmentInfo| match reductions.of(info.id) {
            [] => peer::Reply::Segment(info),
            some => peer::Reply::Reducing(info, some.to_vec()),
        };
        let result = match call {
            Call::Open {
                name,
                create,
                exclusive,
                write,
                credentials,
            } => directory
                .open(&Opening {
                    node: caller.node,
                    call: caller.call,
                    name: &name,
                    create: create.as_ref(),
                    exclusive,
                    write,
                    credentials: &credentials,
                })
                .map(segment),
            Call::Close { segment } => {
                unused = directory.close(caller.node, caller.call, segment);
                Ok(peer::Reply::Done)
            }
            Call::Remove { name, credentials } => {
                directory.remove(&name, &credentials).map(|segment| {
                    unused = segment;
                    peer::Reply::Done
                })
            }
            Call::Stat { name } => directory.stat(&name).map(segment),
            Call::List { after } => Ok(peer::Reply::Segments(directory.list(&after, LIST_PAGE))),
            other => Err(Refusal::Invalid(format!(
                "{other:?} is no question of names"
            ))),
        };
        if let Some(segment) = unused {
            self.spread_forget(cx, segment);
        }
        result.unwrap_or_else(peer::Reply::Refused)
    }

    /// Nobody uses a segment any more: every node may drop what it has of it.
    fn spread_forget(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        for node in cx.shell.alive.iter() {
            self.call(cx, node, Call::Forget { segment }, Then::Nothing);
        }
    }

    pub(crate) fn forget(&mut self, cx: &mut Cx<'_>, id: SegmentId) {
        self.locks.forget(id);
        self.barriers.forget(id);
        self.conditions.forget(id);
        self.reductions.forget(id);
        let Some(mut segment) = self.segments.remove(&id) else {
            return;
        };
        if segment.is_open() {
            // Only what a node kept for itself goes while others use it: with that
            // node. Nobody may wait for its pages, or go on with them.
            segment.policy.expelled(cx);
        } else {
            cx.push(Effect::Forget { segment: id });
        }
    }

    /// A reply arrived.
    pub(crate) fn replied(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        call: CallId,
        reply: peer::Reply,
    ) {
        let then = self.calls.replied(cx, from, call, &reply);
        if then.is_some() {
            self.sysv_made(cx, &reply);
        }
        match then {
            None => cx.emit(Event::Stale {}),
            Some(then) => self.carry_on(cx, from, then, reply),
        }
    }

    pub(crate) fn carry_on(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        then: Then,
        reply: peer::Reply,
    ) {
        match then {
            Then::Nothing => {}
            Then::WakeAnother(key) => {
                let call = Call::CondSignal { key, all: false };
                self.call(cx, cx.home(key.segment), call, Then::Nothing);
            }
            Then::Collected(segment, round) => self.step_done(cx, from, (segment, round), &reply),
            Then::Tell(ticket, client) => match reply {
                peer::Reply::Depart { segment, news } => {
                    self.depart(cx, from, segment, &news, Then::Tell(ticket, client));
                }
                reply => {
                    let reply = self.sysv_local(cx, reply);
                    cx.reply(ticket, to_local(reply));
                }
            },
            Then::Declared(caller) => self.declared(cx, caller, from),
            Then::Mourn(client) => self.sysv_exit(cx, client),
            Then::Told => self.sysv_told(cx),
            Then::Left => self.expelled(cx),
            Then::Bequeathed => self.bequeath(cx),
            Then::Open { client, name } => self.opened(cx, client, &name, reply),
        }
    }

    fn opened(
        &mut self,
        cx: &mut Cx<'_>,
        client: Option<(Ticket, ClientId)>,
        name: &str,
        reply: peer::Reply,
    ) {
        let reply = match reply {
            peer::Reply::Reducing(info, reductions) => {
                self.reduce(NodeId::COORDINATOR, info.id, reductions);
                peer::Reply::Segment(info)
            }
            other => other,
        };
        if let peer::Reply::Segment(info) = &reply {
            let segment = self
                .segments
                .entry(info.id)
                .or_insert_with(|| Segment::new(info.clone()));
            if let Some((_, client)) = client {
                segment.open(client);
            }
        }
        let opened = client.is_some() && matches!(reply, peer::Reply::Segment(_));
        let known = match &reply {
            peer::Reply::Segment(info) => Some(info.id),
            _ => None,
        };
        if let Some((ticket, _)) = client {
            cx.reply(ticket, to_local(reply));
        }
        if let Some(id) = known {
            self.inform_of_reductions(id);
            self.count_early(cx, id);
        }
        self.close_by_name(cx, name, opened);
    }

    /// An opening has ended: a close that waited for it may be due.
    fn close_by_name(&mut self, cx: &mut Cx<'_>, name: &str, opened: bool) {
        let named = self
            .segments
            .values()
            .filter(|segment| segment.info.name == name);
        for id in named.map(|segment| segment.info.id).collect::<Vec<_>>() {
            self.close(cx, id);
            if !opened {
                // It was counted as one that is on its way.
                let (client, detached) = (None, true);
                self.sysv_attached(cx, id, Why { client, detached });
            }
        }
    }

    // ---- members -------------------------------------------------------------

    pub(crate) fn join(&mut self, cx: &mut Cx<'_>, from: Sender, join: &peer::Join) {
        let Some(coordinator) = &mut self.coordinator else {
            return self.redirect(cx, from.0, join);
        };
        if let Verdict::Changed(view) = coordinator.join(cx, from, join) {
            self.spread_view(cx, view);
        }
    }

    /// We are not the one who admits; but we know who is.
    fn redirect(&mut self, cx: &mut Cx<'_>, source: core::net::SocketAddr, join: &peer::Join) {
        let members = &cx.shell.view.members;
        let coordinator = members
            .iter()
            .find(|member| member.id == NodeId::COORDINATOR);
        let Some(to) = coordinator.map(|member| member.address) else {
            return;
        };
        let message = peer::Message::Redirect {
            incarnation: join.incarnation,
            to,
        };
        let header = cx.header(NodeId::NONE);
        cx.push(Effect::Send {
            address: source,
            header,
            message: Box::new(message),
            page: None,
        });
    }

    fn suspect(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        if cx.is_alive(node) && coordinator.suspect(cx, node) {
            self.bury(cx, node, Health::Dead);
        }
    }

    /// Puts a node out, whatever it says; dead ones too, lest they come back.
    fn revoke(&mut self, cx: &mut Cx<'_>, node: NodeId) -> peer::Reply {
        let no = |why: &str| peer::Reply::Refused(Refusal::Invalid(why.into()));
        let known = cx
            .shell
            .view
            .members
            .iter()
            .find(|member| member.id == node);
        match known.map(|member| member.health) {
            _ if self.coordinator.is_none() => no("only the coordinator can put a node out"),
            None => no("there never was a node of this number"),
            Some(_) if node == NodeId::COORDINATOR => {
                no("the coordinator cannot be put out; stop its daemon, and the cluster ends")
            }
            Some(Health::Revoked) => peer::Reply::Done,
            Some(_) => {
                cx.send(node, peer::Message::Expelled);
                self.bury(cx, node, Health::Revoked);
                peer::Reply::Done
            }
        }
    }

    fn bury(&mut self, cx: &mut Cx<'_>, node: NodeId, health: Health) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        let view = coordinator.without(cx, node, health);
        self.spread_view(cx, view);
    }

    fn spread_view(&mut self, cx: &mut Cx<'_>, view: MemberView) {
        self.members_changed(cx, view.clone());
        for node in cx.shell.peers().iter() {
            self.call(cx, node, Call::Members(view.clone()), Then::Nothing);
        }
    }

    fn members_changed(&mut self, cx: &mut Cx<'_>, view: MemberView) {
        if view.epoch <= cx.shell.view.epoch {
            return;
        }
        // Those, too, of whom this node had not heard that they ever came: others
        // have, and grants name them.
        let gone: Vec<_> = view
            .members
            .iter()
            .filter(|member| member.health != Health::Alive && !cx.is_gone(member.id))
            .map(|member| member.id)
            .collect();
        let known: Vec<_> = cx
            .shell
            .view
            .members
            .iter()
            .map(|member| member.id)
            .collect();
        for member in view
            .members
            .iter()
            .filter(|member| !known.contains(&member.id))
        {
            cx.emit(Event::Joined { node: member.id });
        }
        cx.shell.set_view(view);
        for node in gone {
            self.member_gone(cx, node);
        }
    }

    fn member_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if node == cx.me() {
            if !self.leaving.empty {
                self.expelled(cx);
            }
            return;
        }
        let left = cx
            .shell
            .view
            .members
            .iter()
            .any(|member| member.id == node && member.health == Health::Left);
        cx.emit(if left {
            Event::Left { node }
        } else {
            Event::Died { node }
        });
        if left {
            self.ask_heir(cx, node);
        } else {
            self.barriers.home_died(node);
            self.conditions.home_died(node);
        }
        for then in self.calls.member_gone(node) {
            let why = Refusal::NodeGone(node);
            self.carry_on(cx, node, then, peer::Reply::Refused(why));
        }
        self.barriers.member_gone(node);
        self.early.retain(|early| early.caller.node != node);
        self.conditions.member_gone(node);
        self.locks.member_gone(cx, &mut self.segments, node);
        self.sysv_member_gone(cx, node);
        for segment in self.segments.values_mut() {
            segment.policy.member_gone(cx, node);
        }
        if let Some(coordinator) = &mut self.coordinator {
            for segment in coordinator.directory.member_gone(node) {
                self.spread_forget(cx, segment);
            }
        }
    }

    /// We are no member any more. If we were leaving, that is the answer to our
    /// leave-taking. Nothing here is the truth any more: local processes must
    /// not go on with it, and nobody may wait for what will never come.
    pub(crate) fn expelled(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.membership.standing, Standing::Out(_)) {
            return;
        }
        if self.leaving.empty
            && let Some(ticket) = self.leaving.asked.take()
        {
            cx.reply(ticket, Reply::Done);
        } else {
            cx.emit(Event::Expelled {});
        }
        self.membership.standing = Standing::Out(Refusal::NotMember);
        for then in self.calls.expelled() {
            if !matches!(then, Then::Left | Then::Bequeathed) {
                let why = Refusal::NotMember;
                self.carry_on(cx, cx.me(), then, peer::Reply::Refused(why));
            }
        }
        self.locks.expelled(cx);
        for segment in self.segments.values_mut() {
            segment.policy.expelled(cx);
        }
    }

    /// Everything is handed over: nothing more may be taken.
    pub(crate) fn has_left(&self) -> bool {
        self.leaving.empty
    }

    /// The home of a segment is gone and this node answers for it now.
    pub(crate) fn adopt(&mut self, id: SegmentId) {
        let Some(coordinator) = &self.coordinator else {
            return;
        };
        let named = coordinator.directory.get(id).cloned();
        if let Some(info) = named.or_else(|| self.sysv.segment(id)) {
            self.segments
                .entry(id)
                .or_insert_with(|| Segment::new(info));
            self.inform_of_reductions(id);
        }
    }
}

/// Which node answers a call that names none.
fn home_of(cx: &Cx<'_>, call: &Call) -> Option<NodeId> {
    if let Some(key) = call.key() {
        let home = key.segment.home();
        // One that died took with it who had arrived and who waited.
        let heir = cx.has_left(home).then(|| cx.home(key.segment));
        return Some(heir.unwrap_or(home));
    }
    let names = matches!(
        call,
        Call::Remove { .. } | Call::Stat { .. } | Call::List { .. } | Call::Declare { .. }
    );
    names.then_some(NodeId::COORDINATOR)
}

/// Why a request cannot even be sent: whatever travels has bounded size.
fn unfit(request: &Request) -> Option<Refusal> {
    let (name, groups) = match request {
        Request::Open {
            name, credentials, ..
        }
        | Request::Call {
            call: Call::Remove { name, credentials },
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

fn to_local(reply: peer::Reply) -> Reply {
    match reply {
        peer::Reply::Done => Reply::Done,
        peer::Reply::Waiting => Reply::Waiting,
        peer::Reply::Segment(info) | peer::Reply::Reducing(info, _) => Reply::Segment(info),
        peer::Reply::Segments(infos) => Reply::Segments(infos),
        peer::Reply::Woken(count) => Reply::Woken(count),
        peer::Reply::Depart { .. } | peer::Reply::Reached(_) => Reply::Done,
        peer::Reply::Refused(why) => Reply::Refused(why),
        peer::Reply::Sysv(outcome) => Reply::Sysv(outcome),
    }
}
