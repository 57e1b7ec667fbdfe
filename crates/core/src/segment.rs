//! A segment on this node: who has it open, and what the policy knows of its pages.

use crate::policies::Policy;
use pagemesh_wire::ClientId;
use pagemesh_wire::peer::SegmentInfo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One segment that this node takes part in, or took part in: its pages may
/// still be here when the last process has closed it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Segment {
    pub(crate) info: SegmentInfo,
    pub(crate) policy: Policy,
    /// How often each process here has it open.
    opens: BTreeMap<ClientId, u32>,
}

impl Segment {
    pub(crate) fn new(info: SegmentInfo) -> Self {
        let policy = Policy::new(info.id, info.spec.policy);
        Self {
            info,
            policy,
            opens: BTreeMap::new(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.opens.is_empty()
    }

    pub(crate) fn is_open_by(&self, client: ClientId) -> bool {
        self.opens.contains_key(&client)
    }

    pub(crate) fn open(&mut self, client: ClientId) {
        *self.opens.entry(client).or_default() += 1;
    }

    /// True if that was the last opening on this node.
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

    /// The process is gone. True if it had the last opening on this node.
    pub(crate) fn close_all(&mut self, client: ClientId) -> bool {
        self.opens.remove(&client).is_some() && self.opens.is_empty()
    }
}
