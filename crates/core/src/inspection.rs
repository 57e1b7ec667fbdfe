//! The state of pages on a node, as people see it.

use pagemesh_wire::local::PageLine;

/// How many pages a node knows, reads, writes and owns; and some of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Pages ever touched here.
    pub known: u64,
    /// Pages readable here.
    pub readable: u64,
    /// Pages writable here.
    pub writable: u64,
    /// Pages owned here.
    pub owned: u64,
    /// Pages that no second node has yet, in a segment with replicas.
    pub unreplicated: u64,
    /// The pages asked for.
    pub pages: Vec<PageLine>,
}
