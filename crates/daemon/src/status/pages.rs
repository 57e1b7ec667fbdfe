//! The pages that this node knows.

use super::Status;
use pagemesh_core::{Inspection, PageRange, Rights};
use pagemesh_wire::local::{PageLine, PageReport, Reply};
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{NodeId, NodeSet, PageIndex, SegmentId};

/// Pages in one report: as many as surely fit in a packet.
const REPORTED: usize = 1000;

impl Status<'_> {
    /// What this node knows of some pages of a segment.
    ///
    /// # Errors
    /// If it has no segment of that name open.
    pub(crate) fn inspect(
        &self,
        name: &str,
        first: PageIndex,
        limit: u32,
    ) -> Result<Reply, Refusal> {
        let info = self.node.segment_named(name).ok_or(Refusal::NotFound)?;
        let limit = usize::try_from(limit).unwrap_or(REPORTED).min(REPORTED);
        let seen = self.inspected(info.id, first, limit);
        let seen = seen.ok_or(Refusal::NotFound)?;
        Ok(Reply::Pages(PageReport {
            info: info.clone(),
            known: seen.known,
            readable: seen.readable,
            writable: seen.writable,
            owned: seen.owned,
            unreplicated: seen.unreplicated,
            pages: seen.pages,
        }))
    }

    /// The state of some pages of a segment here. Until it is trapped, all that have frames were used by
    /// processes of this node alone.
    fn inspected(&self, id: SegmentId, first: PageIndex, limit: usize) -> Option<Inspection> {
        let seen = self.node.inspect(id, first, limit)?;
        if self.node.is_trapped(id) {
            return Some(seen);
        }
        let me = self.node.id()?;
        let framed = self.executor.pages.framed(id).unwrap_or_default();
        Some(used_here_alone(me, &framed, first, limit))
    }

    /// Number of pages known here, over all segments.
    pub(super) fn known(&self) -> u64 {
        let segments = self.node.segments();
        segments
            .filter_map(|info| self.inspected(info.id, PageIndex(0), 0))
            .map(|inspection| inspection.known)
            .sum()
    }

    /// Pages of segments with replicas that this node has, and no second node yet.
    pub(super) fn unreplicated(&self) -> u64 {
        let segments = self.node.segments();
        let segments = segments.filter(|info| info.spec.replicas > 0);
        segments
            .filter_map(|info| self.node.inspect(info.id, PageIndex(0), 0))
            .map(|inspection| inspection.unreplicated)
            .sum()
    }
}

fn used_here_alone(me: NodeId, framed: &[PageRange], first: PageIndex, limit: usize) -> Inspection {
    let count = framed.iter().map(|run| u64::from(run.count)).sum();
    let from_here = framed
        .iter()
        .filter(|run| run.first.0 + run.count > first.0);
    let pages = from_here.flat_map(|run| run.iter().map(|(_, page)| page));
    let line = |page| PageLine {
        page,
        rights: Rights::Write as u8,
        owner: true,
        hint: me,
        version: 0,
        copies: NodeSet::EMPTY,
        queued: 0,
    };
    let asked = pages.filter(|page| *page >= first).take(limit);
    Inspection {
        known: count,
        readable: count,
        writable: count,
        owned: count,
        unreplicated: 0,
        pages: asked.map(line).collect(),
    }
}
