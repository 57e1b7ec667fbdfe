//! A segment on this node: which processes have it open, and the policy's state of its pages.

use crate::policies::Policy;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{Message, Refusal, SegmentInfo};
use pagemesh_wire::{ClientId, PageIndex};
use serde::{Deserialize, Serialize};

/// One segment that this node takes part in. Its pages may still be here after the last process has
/// closed it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Segment {
    pub(crate) info: SegmentInfo,
    pub(crate) policy: Policy,
    /// How often each process here has it open.
    opens: SortedMap<ClientId, u32>,
    /// Whether the driver reports the faults of its mappings, or is told to now
    /// ([`crate::trapping`]).
    #[serde(default = "yes")]
    pub(crate) trapped: bool,
}

fn yes() -> bool {
    true
}

impl Segment {
    /// A segment of whose pages nothing is known yet.
    ///
    /// # Errors
    /// If this daemon does not have its policy.
    pub(crate) fn new(info: SegmentInfo) -> Result<Self, Refusal> {
        let pages = info.spec.size.pages().map_or(0, |pages| pages.0);
        let policy = Policy::open(info.id, pages, &info.spec)?;
        Ok(Self {
            info,
            policy,
            opens: SortedMap::new(),
            trapped: true,
        })
    }

    /// Forgets all that is known of its pages, since this node takes part in it as another node from
    /// now on. Processes keep it open.
    ///
    /// # Errors
    /// As [`Segment::new`].
    pub(crate) fn renew(&mut self, info: SegmentInfo) -> Result<(), Refusal> {
        let fresh = Self::new(info)?;
        let opens = core::mem::take(&mut self.opens);
        *self = Self { opens, ..fresh };
        Ok(())
    }

    /// Whether the page is inside the segment.
    pub(crate) fn has(&self, page: PageIndex) -> bool {
        let pages = self.info.spec.size.pages();
        pages.is_some_and(|pages| page.0 < pages.0)
    }

    /// Removes what a message about many pages says of pages that the segment has not.
    pub(crate) fn keep_pages_it_has(&self, message: &mut Message) {
        match message {
            Message::AskMany(many) => many.requests.retain(|request| self.has(request.page)),
            Message::SendCopies(send) => send.copies.retain(|copy| self.has(copy.page)),
            _ => {}
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.opens.is_empty()
    }

    pub(crate) fn is_open_by(&self, client: ClientId) -> bool {
        self.opens.contains_key(&client)
    }

    /// The number of openings by all processes here.
    pub(crate) fn openings(&self) -> u32 {
        self.opens.values().sum()
    }

    pub(crate) fn open(&mut self, client: ClientId) {
        *self.opens.entry(client).or_default() += 1;
    }

    /// The child has the segment open as often as its parent.
    pub(crate) fn inherit(&mut self, parent: ClientId, child: ClientId) {
        if let Some(count) = self.opens.get(&parent).copied() {
            self.opens.insert(child, count);
        }
    }

    /// Closes one opening. Returns true if it was the last on this node.
    pub(crate) fn close(&mut self, client: ClientId) -> bool {
        let Some(count) = self.opens.get_mut(&client) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.opens.remove(&client);
        }
        self.opens.is_empty()
    }

    /// A process ended. Returns true if it had the last opening on this node.
    pub(crate) fn close_all(&mut self, client: ClientId) -> bool {
        self.opens.remove(&client).is_some() && self.opens.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::peer::SegmentSpec;
    use pagemesh_wire::{ByteLen, NodeId, NodeSet, SegmentId};

    fn segment() -> Segment {
        Segment::new(SegmentInfo {
            id: SegmentId::new(NodeId(1), 1),
            name: "s".into(),
            spec: SegmentSpec {
                size: ByteLen(4096),
                mode: 0o600,
                policy: pagemesh_wire::peer::Policy::default(),
                replicas: 0,
            },
            owner: (0, 0),
            removed: false,
            attached: NodeSet::default(),
        })
        .unwrap()
    }

    #[test]
    fn a_child_keeps_open_what_its_parent_closes() {
        let (parent, child, stranger) = (ClientId(1), ClientId(2), ClientId(3));
        let mut segment = segment();
        segment.open(parent);
        segment.open(parent);
        segment.inherit(parent, child);
        segment.inherit(stranger, ClientId(4));
        assert!(!segment.close_all(parent));
        assert!(!segment.close(child), "it has it open twice");
        assert!(segment.is_open_by(child));
        assert!(segment.close(child), "and nobody else has");
        assert!(!segment.is_open());
    }
}
