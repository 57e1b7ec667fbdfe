//! The name of one call.

use pagemesh_wire::{CallId, NodeId};
use serde::{Deserialize, Serialize};

/// The calling node and the number of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Caller {
    pub(crate) node: NodeId,
    pub(crate) call: CallId,
}
