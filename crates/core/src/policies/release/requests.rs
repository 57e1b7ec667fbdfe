//! Requests for copies and diffs that leave together: those for pages asked for ahead would each
//! take a datagram of their own.

use super::messages::{Body, CopyRequest, CopyRequests, DiffRequest};
use super::say;
use crate::shell::Cx;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::DiffName;
use pagemesh_wire::{NodeId, PageIndex, RequestId, SegmentId, VectorTime};

/// Requests that were opened and have not been sent.
#[derive(Debug, Default)]
pub(super) struct Requests {
    copies: SortedMap<NodeId, Vec<(PageIndex, RequestId)>>,
    diffs: SortedMap<NodeId, (RequestId, Vec<DiffName>)>,
    /// They are for several pages, of which no thread waits for most.
    many: bool,
}

impl Requests {
    /// Requests for several pages.
    pub(super) fn many() -> Self {
        Self {
            many: true,
            ..Self::default()
        }
    }

    /// Whether they are for several pages.
    pub(super) fn are_many(&self) -> bool {
        self.many
    }

    /// Adds the request for a copy.
    pub(super) fn copy(&mut self, from: NodeId, page: PageIndex, request: RequestId) {
        self.copies.entry(from).or_default().push((page, request));
    }

    /// The number of an open request to a node that has room for so many diffs, if there is one.
    pub(super) fn number(&self, node: NodeId, diffs: usize) -> Option<RequestId> {
        let (request, names) = self.diffs.get(&node)?;
        (names.len() + diffs <= DiffRequest::LIMIT).then_some(*request)
    }

    /// Adds diffs to the open request with this number, or opens it. Returns the request that has to
    /// leave before.
    pub(super) fn diffs(
        &mut self,
        node: NodeId,
        request: RequestId,
        diffs: Vec<DiffName>,
    ) -> Option<DiffRequest> {
        match self.diffs.get_mut(&node) {
            Some((open, names)) if *open == request => {
                names.extend(diffs);
                None
            }
            _ => {
                let (request, diffs) = self.diffs.insert(node, (request, diffs))?;
                Some(DiffRequest { request, diffs })
            }
        }
    }

    /// Sends them; copies must have all of `floor`.
    pub(super) fn send(self, cx: &mut Cx<'_>, segment: SegmentId, floor: &VectorTime) {
        for (node, (request, diffs)) in self.diffs {
            let want = DiffRequest { request, diffs };
            say(cx, segment, node, &Body::DiffRequest(want));
        }
        for (node, copies) in self.copies {
            for copies in copies.chunks(CopyRequests::LIMIT) {
                ask_copies(cx, segment, node, (floor, copies));
            }
        }
    }
}

fn ask_copies(
    cx: &mut Cx<'_>,
    segment: SegmentId,
    node: NodeId,
    (floor, copies): (&VectorTime, &[(PageIndex, RequestId)]),
) {
    let floor = floor.clone();
    let body = match *copies {
        [(page, request)] => Body::CopyRequest(CopyRequest {
            page,
            reader: cx.me(),
            request,
            floor,
            hops: 0,
        }),
        _ => Body::CopyRequests(CopyRequests {
            floor,
            copies: copies.to_vec(),
        }),
    };
    say(cx, segment, node, &body);
}
