//! What a node keeps while it joins again, after it was declared dead (decision 40): the segments
//! of its processes, what they wait for, and what was lost.

use crate::effect::Effect;
use crate::input::Request;
use crate::limits::KEPT_WAITING;
use crate::policies::Waiting;
use crate::segment::Segment;
use crate::shell::Cx;
use crate::time::Time;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::local::View;
use pagemesh_wire::peer::{Call, Refusal};
use pagemesh_wire::{ClientId, ClusterId, MappingId, NodeId, SegmentId, SyncKey, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Every time that this node was declared dead and joined again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Rejoin {
    /// How often this node has begun to join again.
    pub(crate) times: u32,
    /// While this node joins again.
    pub(crate) under_way: Option<UnderWay>,
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

/// What goes on under the next membership.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct UnderWay {
    /// The number of this node before.
    pub(crate) was: NodeId,
    pub(crate) cluster: ClusterId,
    pub(crate) since: Time,
    /// Members to ask for admission, in turn.
    pub(crate) asked: usize,
    /// Segments that have not been opened again yet.
    pub(crate) segments: SortedMap<SegmentId, Segment>,
    /// Locks that processes may still hold.
    pub(crate) held: BTreeSet<SyncKey>,
    /// Requests that wait for the end.
    pub(crate) requests: Vec<(Ticket, ClientId, Request)>,
    /// Accesses that wait for the end.
    pub(crate) faults: BTreeSet<Waiting>,
    /// What mappings show, where they differ in that.
    #[serde(default)]
    pub(crate) shown: SortedMap<MappingId, View>,
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
    pub(crate) fn lose(&mut self, cx: &mut Cx<'_>, segment: Segment, was: NodeId, lost: String) {
        let id = segment.info.id;
        if !segment.is_open() {
            return cx.push(Effect::Forget { segment: id });
        }
        let why = Refusal::DeclaredDead { was, lost };
        self.lost.insert(id, LostSegment { segment, why });
    }

    /// Why a request fails, if it is about a segment of which something was lost.
    pub(crate) fn why_lost(&self, request: &Request) -> Option<Refusal> {
        let id = segment_of(request).filter(|_| !self.lost.is_empty())?;
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

impl UnderWay {
    /// This node, which had this number, begins to join again.
    pub(crate) fn new(cx: &Cx<'_>) -> Self {
        Self {
            was: cx.me(),
            cluster: cx.shell.cluster,
            since: cx.now,
            asked: 0,
            segments: SortedMap::new(),
            held: BTreeSet::new(),
            requests: Vec::new(),
            faults: BTreeSet::new(),
            shown: SortedMap::new(),
        }
    }

    fn has_room(&self) -> bool {
        self.requests.len() + self.faults.len() < KEPT_WAITING
    }
}

/// Whether a request waits until this node has joined again. A node that is to leave or to take over
/// is told at once that it is no member.
fn may_wait(request: &Request) -> bool {
    !matches!(
        request,
        Request::Leave | Request::Promote | Request::MakeRoom { .. }
    )
}

/// The segment that a request is about.
fn segment_of(request: &Request) -> Option<SegmentId> {
    match request {
        Request::Open { .. }
        | Request::Leave
        | Request::Promote
        | Request::MakeRoom { .. }
        | Request::Sysv(_) => None,
        Request::Call { call, .. } => match call {
            Call::Declare { segment, .. }
            | Call::Close { segment }
            | Call::Name { segment, .. } => Some(*segment),
            other => other.key().map(|key| key.segment),
        },
        Request::Lock { key } => Some(key.segment),
        Request::Watch { segment, .. }
        | Request::Pin { segment, .. }
        | Request::PinShort { segment, .. }
        | Request::Redeem { segment }
        | Request::Unpin { segment, .. }
        | Request::Advise { segment, .. }
        | Request::Purge { segment, .. }
        | Request::WatchRange { segment, .. }
        | Request::Publish { segment, .. }
        | Request::Hold { segment }
        | Request::EndHold { segment }
        | Request::FilePages { segment, .. }
        | Request::FilePagesDone { segment, .. } => Some(*segment),
    }
}
