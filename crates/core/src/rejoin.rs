//! What a node keeps while it joins again, after it was declared dead (decision 40): the segments
//! of its processes, what they wait for, and what was lost.

mod under_way;

use crate::calls::{Calls, LeftBehind};
use crate::effect::Effect;
use crate::event::Event;
use crate::global::Memory;
use crate::input::Request;
use crate::limits::{FORSAKEN, REJOINS};
use crate::on_reply::OnReply;
use crate::policies::Waiting;
use crate::segment::Segment;
use crate::segments::{Mappings, Segments, close};
use crate::shell::Cx;
use crate::steps::Step;
use crate::sync::Locks;
use crate::trapping::Trapping;
use core::net::SocketAddr;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::local::View;
use pagemesh_wire::peer::{Call, Credentials, Refusal, Reply};
use pagemesh_wire::sysv;
use pagemesh_wire::{ClientId, Incarnation, MappingId, NodeId, SegmentId, SyncKey, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use under_way::UnderWay;

/// What was lost, by segment.
pub(crate) type Losses = SortedMap<SegmentId, String>;

/// Every time that this node was declared dead and joined again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Rejoin {
    /// How often this node has begun to join again.
    times: u32,
    /// While this node joins again.
    under_way: Option<UnderWay>,
    /// Segments of which something was lost, while processes have them open. No process opens them
    /// again until then: their frames and lock words belong to the processes that lost them.
    lost: SortedMap<SegmentId, LostSegment>,
}

/// A segment of which something was lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct LostSegment {
    segment: Segment,
    why: Refusal,
}

/// What people are told about a node that was declared dead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rejoined {
    /// How often it has begun to join again.
    pub times: u32,
    /// Whether it is joining again now.
    pub under_way: bool,
    /// Segments that processes have open and of which something was lost, with the reason.
    pub lost: Vec<(String, Refusal)>,
}

impl Rejoin {
    /// For people.
    pub(crate) fn report(&self) -> Rejoined {
        let lost = self.lost.values();
        Rejoined {
            times: self.times,
            under_way: self.under_way.is_some(),
            lost: lost
                .map(|lost| (lost.segment.info.name.clone(), lost.why.clone()))
                .collect(),
        }
    }

    /// Why a segment is lost, if it is.
    pub(crate) fn lost(&self, id: SegmentId) -> Option<&Refusal> {
        self.lost.get(&id).map(|lost| &lost.why)
    }

    /// Something of a segment was lost.
    fn lose(&mut self, cx: &mut Cx<'_>, segment: Segment, was: NodeId, lost: String) {
        let id = segment.info.id;
        if !segment.is_open() {
            return cx.push(Effect::Forget { segment: id });
        }
        let why = Refusal::DeclaredDead { was, lost };
        self.lost.insert(id, LostSegment { segment, why });
    }

    /// Whether this node, when its membership ends, joins again by itself as far as this part knows.
    pub(crate) fn may_begin(&self, cx: &Cx<'_>) -> bool {
        cx.shell.config.rejoin && self.times < REJOINS && !cx.shell.peers().is_empty()
    }

    /// This node's membership has ended, and these calls are open. Returns which segments lose
    /// something by that, and how to go on with calls whose answers are lost.
    pub(crate) fn begin(
        &mut self,
        cx: &mut Cx<'_>,
        calls: Vec<LeftBehind>,
    ) -> (Losses, Vec<OnReply>) {
        self.times += 1;
        let under_way = self.under_way.get_or_insert_with(|| UnderWay::new(cx));
        under_way.sort_calls(cx, calls)
    }

    /// Sorts the segments into those that go on and those of which something was lost. `doubtful` is
    /// whether this node may have gone on alone for a while.
    pub(crate) fn keep(
        &mut self,
        cx: &mut Cx<'_>,
        (segments, locks, trapping): (&mut Segments, &mut Locks, &mut Trapping),
        mut losses: Losses,
        doubtful: bool,
    ) {
        let Some(mut again) = self.under_way.take() else {
            return;
        };
        for (id, mut segment) in core::mem::take(&mut **segments) {
            again.shown.extend(segment.policy.shown());
            let dropped = match segment.trapped {
                true => segment.policy.leave_behind(cx),
                false => Err("a segment that only this node has used".into()),
            };
            trapping.begin(cx, &mut segment);
            let lost = match dropped {
                Err(lost) => Some(lost),
                Ok(_) if sysv::keeper(id).is_some() => Some("a System V segment".into()),
                Ok(_) if doubtful => Some(
                    "what its programs saw while this node was cut off from the coordinator alone"
                        .into(),
                ),
                Ok(faults) => {
                    again.faults.extend(faults);
                    losses.remove(&id)
                }
            };
            match lost {
                Some(lost) => self.lose(cx, segment, again.was, lost),
                None if segment.is_open() => drop(again.segments.insert(id, segment)),
                None => cx.push(Effect::Forget { segment: id }),
            }
        }
        again.sort_locks(cx, locks);
        self.under_way = Some(again);
    }

    /// The next member to ask for admission, if this node joins again.
    pub(crate) fn next_to_ask(&mut self, cx: &Cx<'_>) -> Option<SocketAddr> {
        let again = self.under_way.as_mut()?;
        let members = members_to_ask(cx, again.was);
        let address = members.get(again.asked % members.len().max(1)).copied();
        again.asked += 1;
        address
    }

    /// It is time to ask once more. What has waited for too long fails.
    pub(crate) fn due(&mut self, cx: &mut Cx<'_>, mappings: &Mappings) -> Option<SocketAddr> {
        let again = self.under_way.as_mut()?;
        if cx.now - again.since > cx.pace().dead_after * FORSAKEN {
            again.fail_waiting(cx, mappings);
        }
        self.next_to_ask(cx)
    }

    /// Whether this host, which asked for admission and was refused, asks once more, in another
    /// incarnation. An elected node knows from the store that its predecessor had admitted the host,
    /// and found it silent because the host has never heard of that.
    pub(crate) fn asks_as_another(&mut self, cx: &mut Cx<'_>, why: &Refusal) -> bool {
        let asks = cx.shell.config.elected && *why == Refusal::NotMember && self.times < REJOINS;
        if asks {
            self.times += 1;
            become_another(cx);
        }
        asks
    }

    /// This node is a member again: opens the segments of its processes. Members vouch for the users
    /// of their programs, and these had been allowed to open them.
    pub(crate) fn open_again(&mut self, cx: &mut Cx<'_>) -> Vec<Step> {
        let Some(again) = &mut self.under_way else {
            return Vec::new();
        };
        if again.cluster != cx.shell.cluster {
            let was = again.was;
            for segment in core::mem::take(&mut again.segments).into_values() {
                let lost = "the cluster, which has been started anew";
                self.lose(cx, segment, was, lost.into());
            }
            return Vec::new();
        }
        let open = |segment: &Segment| {
            let info = &segment.info;
            let call = Call::Open {
                name: info.name.clone(),
                create: None,
                exclusive: false,
                write: false,
                credentials: Credentials::root(),
            };
            Step::Call(cx.coordinator(), call, OnReply::Reopened(info.id))
        };
        again.segments.values().map(open).collect()
    }

    /// The coordinator has answered whether a segment is still there.
    pub(crate) fn reopened(
        &mut self,
        cx: &mut Cx<'_>,
        (mappings, segments): (&Mappings, &mut Segments),
        id: SegmentId,
        reply: Reply,
    ) -> Option<Step> {
        let again = self.under_way.as_mut()?;
        let mut segment = again.segments.remove(&id)?;
        let found = match reply {
            Reply::Segment(info) | Reply::Reducing(info, _) => Some(info),
            _ => None,
        };
        let open = segment.is_open();
        match found {
            Some(info) if info.id == id && open && segment.renew(info.clone()).is_ok() => {
                let of_segment = mappings.iter().filter(|(_, (of, _))| *of == id);
                for (mapping, _) in of_segment {
                    let view = again.shown.get(mapping).copied().unwrap_or_default();
                    segment.policy.mapped(cx, *mapping, view);
                }
                segments.insert(id, segment);
                None
            }
            other => {
                let was = again.was;
                let lost = "its name, which was removed meanwhile";
                self.lose(cx, segment, was, lost.into());
                other.map(|info| close(cx, info.id))
            }
        }
    }

    /// If all segments are open again: what waited goes on.
    pub(crate) fn finish(
        &mut self,
        cx: &mut Cx<'_>,
        calls: &Calls,
        segments: &mut Segments,
    ) -> Option<Finished> {
        let done = |again: &mut UnderWay| again.segments.is_empty();
        let again = self.under_way.take_if(done)?;
        let mut steps = Vec::new();
        for SyncKey { segment, number } in again.held {
            if let Some(segment) = segments.remove(&segment) {
                let lost = format!("lock {number}, which a program held");
                steps.push(close(cx, segment.info.id));
                self.lose(cx, segment, again.was, lost);
            }
        }
        cx.emit(Event::Rejoined { node: cx.me() });
        // Processes may have closed segments meanwhile.
        let closed = segments
            .keys()
            .filter_map(|id| segments.close(cx, calls, *id));
        steps.extend(closed);
        Some(Finished {
            steps,
            requests: again.requests,
            faults: again.faults,
        })
    }

    /// This node is not admitted again: everything that waited for that fails, and is lost.
    pub(crate) fn end(&mut self, cx: &mut Cx<'_>, mappings: &Mappings) {
        let Some(mut again) = self.under_way.take() else {
            return;
        };
        again.fail_waiting(cx, mappings);
        for segment in again.segments.into_values() {
            let lost = "its membership: the cluster does not admit this node again";
            self.lose(cx, segment, again.was, lost.into());
        }
    }

    /// The processes gave a token back. Returns whether that ends the matter.
    pub(crate) fn takes_token(&mut self, key: SyncKey) -> bool {
        let again = self.under_way.as_mut();
        again.is_some_and(|again| again.held.remove(&key)) || self.lost(key.segment).is_some()
    }

    /// Why a request fails, if it is about a segment of which something was lost.
    pub(crate) fn why_lost(&self, request: &Request) -> Option<Refusal> {
        let id = request.segment().filter(|_| !self.lost.is_empty())?;
        self.lost(id).cloned()
    }

    /// Keeps a request until this node has joined again; returns it if it need not wait.
    pub(crate) fn takes_request(
        &mut self,
        ticket: Ticket,
        client: ClientId,
        request: Request,
    ) -> Option<Request> {
        match &mut self.under_way {
            Some(under_way) if under_way.has_room() && may_wait(&request) => {
                under_way.requests.push((ticket, client, request));
                None
            }
            _ => Some(request),
        }
    }

    /// Keeps an access until this node has joined again, or fails it if its segment is lost. False
    /// if it is to be served now.
    pub(crate) fn takes_fault(
        &mut self,
        cx: &mut Cx<'_>,
        segment: SegmentId,
        waiting: Waiting,
    ) -> bool {
        let (mapping, page, _) = waiting;
        if let Some(why) = self.lost(segment).cloned() {
            cx.push(Effect::Fail {
                mapping,
                segment,
                page,
                why,
            });
            return true;
        }
        let Some(under_way) = self.under_way.as_mut().filter(|it| it.has_room()) else {
            return false;
        };
        under_way.faults.insert(waiting);
        true
    }

    /// A process has closed a segment: drops what was lost with its last opening.
    pub(crate) fn closed(
        &mut self,
        cx: &mut Cx<'_>,
        id: SegmentId,
        close: impl FnOnce(&mut Segment) -> bool,
    ) {
        let kept = self.under_way.as_mut().map(|it| &mut it.segments);
        if let Some(segment) = kept.and_then(|segments| segments.get_mut(&id)) {
            close(segment);
        } else if let Some(lost) = self.lost.get_mut(&id)
            && close(&mut lost.segment)
        {
            self.lost.remove(&id);
            cx.push(Effect::Forget { segment: id });
        }
    }

    /// A process is gone, with all that it has open and waits for.
    pub(crate) fn client_gone(&mut self, cx: &mut Cx<'_>, client: ClientId) {
        let mut ids: Vec<_> = self.lost.keys().copied().collect();
        if let Some(under_way) = &mut self.under_way {
            under_way.requests.retain(|(_, of, _)| *of != client);
            ids.extend(under_way.segments.keys());
        }
        for id in ids {
            self.closed(cx, id, |segment| segment.close_all(client));
        }
    }

    /// The child of a process has open what its parent has.
    pub(crate) fn forked(&mut self, parent: ClientId, child: ClientId) {
        let kept = self
            .under_way
            .iter_mut()
            .flat_map(|it| it.segments.values_mut());
        let lost = self.lost.values_mut().map(|lost| &mut lost.segment);
        for segment in kept.chain(lost) {
            segment.inherit(parent, child);
        }
    }

    /// A process has mapped a segment, which is told when this node has joined again.
    pub(crate) fn mapped(&mut self, mapping: MappingId, view: View) {
        if let Some(under_way) = &mut self.under_way {
            under_way.shown.insert(mapping, view);
        }
    }

    /// A mapping is gone: no thread waits in it.
    pub(crate) fn unmapped(&mut self, mapping: MappingId) {
        if let Some(under_way) = &mut self.under_way {
            under_way.faults.retain(|(of, ..)| *of != mapping);
            under_way.shown.remove(&mapping);
        }
    }

    /// A request is withdrawn. True if it waited here.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> bool {
        let Some(under_way) = &mut self.under_way else {
            return false;
        };
        let before = under_way.requests.len();
        under_way.requests.retain(|(of, ..)| *of != ticket);
        under_way.requests.len() < before
    }
}

/// What goes on when a node has joined again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    pub(crate) steps: Vec<Step>,
    pub(crate) requests: Vec<(Ticket, ClientId, Request)>,
    pub(crate) faults: BTreeSet<Waiting>,
}

/// The addresses of the members that may admit a host, or know which does: the coordinator first.
fn members_to_ask(cx: &Cx<'_>, was: NodeId) -> Vec<SocketAddr> {
    let coordinator = cx.coordinator();
    let others = cx.shell.view.living().filter(|member| member.id != was);
    let mut members: Vec<_> = others.collect();
    members.sort_by_key(|member| (member.id != coordinator, member.id));
    members.iter().map(|member| member.address).collect()
}

/// The next datagrams are those of another life.
pub(crate) fn become_another(cx: &mut Cx<'_>) {
    let budgets = cx.shell.memory.budgets;
    let next = Incarnation(cx.shell.config.incarnation.0.wrapping_add(1));
    cx.shell.config.incarnation = next;
    cx.shell.memory = Memory::new(next);
    cx.shell.memory.budgets = budgets;
}

/// Whether a request waits until this node has joined again. A node that is to leave or to take over
/// is told at once that it is no member.
fn may_wait(request: &Request) -> bool {
    !matches!(
        request,
        Request::Leave | Request::Promote | Request::MakeRoom { .. }
    )
}
