//! What a node keeps while it joins again.

use super::Losses;
use crate::calls::LeftBehind;
use crate::effect::Effect;
use crate::input::Request;
use crate::limits::KEPT_WAITING;
use crate::on_reply::OnReply;
use crate::policies::Waiting;
use crate::segment::Segment;
use crate::segments::Mappings;
use crate::shell::Cx;
use crate::sync::Locks;
use crate::sysv::is_sysv;
use crate::time::Time;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::local::View;
use pagemesh_wire::peer::{Call, Refusal};
use pagemesh_wire::{ClientId, ClusterId, MappingId, NodeId, SegmentId, SyncKey, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What goes on under the next membership.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct UnderWay {
    /// The number of this node before.
    pub(super) was: NodeId,
    pub(super) cluster: ClusterId,
    pub(super) since: Time,
    /// Members to ask for admission, in turn.
    pub(super) asked: usize,
    /// Segments that have not been opened again yet.
    pub(super) segments: SortedMap<SegmentId, Segment>,
    /// Locks that processes may still hold.
    pub(super) held: BTreeSet<SyncKey>,
    /// Requests that wait for the end.
    pub(super) requests: Vec<(Ticket, ClientId, Request)>,
    /// Accesses that wait for the end.
    pub(super) faults: BTreeSet<Waiting>,
    /// What mappings show, where they differ in that.
    #[serde(default)]
    pub(super) shown: SortedMap<MappingId, View>,
}

impl UnderWay {
    /// This node, which had this number, begins to join again.
    pub(super) fn new(cx: &Cx<'_>) -> Self {
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

    pub(super) fn has_room(&self) -> bool {
        self.requests.len() + self.faults.len() < KEPT_WAITING
    }

    /// Calls that only ask are made again. The answer to any other is lost, and so is what waits at
    /// a home that has forgotten this node. Returns that, and how to go on with calls that no process
    /// made, or that are about System V objects, whose state ends with the membership.
    pub(super) fn sort_calls(
        &mut self,
        cx: &mut Cx<'_>,
        calls: Vec<LeftBehind>,
    ) -> (Losses, Vec<OnReply>) {
        let (mut losses, mut ended) = (Losses::new(), Vec::new());
        for call in calls {
            let Some((ticket, client)) = call.then.client() else {
                ended.push(call.then);
                continue;
            };
            if let Call::Barrier { key, .. } | Call::CondWait { key } = &call.body {
                let waits = "the wait of a program at a barrier or for a condition";
                losses.insert(key.segment, waits.into());
            }
            match again_as(&call).filter(|_| !call.withdrawn) {
                Some(request) => self.requests.push((ticket, client, request)),
                None if is_sysv(&call.body) => ended.push(call.then),
                None => {
                    let lost = "the answer to a call of this program; it may have been executed";
                    let why = Refusal::DeclaredDead {
                        was: self.was,
                        lost: lost.into(),
                    };
                    cx.refuse(ticket, why);
                }
            }
        }
        (losses, ended)
    }

    /// Processes that wait for a lock ask again. One that holds a lock has lost it, unless it turns
    /// out to be free before this node has joined again: as no access of the process was served
    /// meanwhile, that is as if it had been released before.
    pub(super) fn sort_locks(&mut self, cx: &mut Cx<'_>, locks: &mut Locks) {
        let (waiting, lent) = locks.leave_behind(cx);
        for (key, ticket, client) in waiting {
            self.requests.push((ticket, client, Request::Lock { key }));
        }
        self.held.extend(lent);
    }

    pub(super) fn fail_waiting(&mut self, cx: &mut Cx<'_>, mappings: &Mappings) {
        let why = Refusal::NodeGone(cx.coordinator());
        for (ticket, ..) in core::mem::take(&mut self.requests) {
            cx.refuse(ticket, why.clone());
        }
        for (mapping, page, _) in core::mem::take(&mut self.faults) {
            if let Some((segment, _)) = mappings.get(&mapping).copied() {
                cx.push(Effect::Fail {
                    mapping,
                    segment,
                    page,
                    why: why.clone(),
                });
            }
        }
    }
}

/// The request that makes a call once more, if it does no harm that it may have been executed.
fn again_as(call: &LeftBehind) -> Option<Request> {
    let to = |node: Option<NodeId>| {
        let call = call.body.clone();
        Request::Call { to: node, call }
    };
    match &call.body {
        Call::Stat { .. } | Call::List { .. } | Call::CondSignal { .. } => Some(to(None)),
        Call::Probe | Call::Memory => Some(to(Some(call.to))),
        Call::Open {
            name,
            create: None,
            exclusive,
            write,
            credentials,
        } => Some(Request::Open {
            name: name.clone(),
            create: None,
            exclusive: *exclusive,
            write: *write,
            credentials: credentials.clone(),
        }),
        _ => None,
    }
}
