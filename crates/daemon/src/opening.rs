//! Segments that processes have open.

use serde::{Deserialize, Serialize};

/// How a process has a segment open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opening {
    /// How often.
    pub(crate) count: u32,
    /// It may write.
    pub(crate) write: bool,
    /// Pages the segment has.
    pub(crate) size: pagemesh_wire::ByteLen,
}
