//! Why something is not done.

use crate::header::PROTOCOL_VERSION;
use crate::{NodeId, PAGE_SIZE, Versions};
use serde::{Deserialize, Serialize};

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// No segment of that name.
    #[error("no segment of that name; `pagemesh segment ls` shows what there is")]
    NotFound,
    /// A segment of that name exists, and the caller wanted a new one.
    #[error("a segment of that name exists already; open it, or remove it first")]
    Exists,
    /// Owner, group and mode do not allow it.
    #[error("permission denied by the segment's owner, group and mode")]
    Permission,
    /// A name must have 1 to 255 bytes, none of them NUL or '/'.
    #[error("a segment name has 1 to 255 bytes and neither '/' nor NUL")]
    BadName,
    /// Zero, or more than 16 TiB.
    #[error("a segment has between 1 byte and 16 TiB")]
    BadSize,
    /// The node that must answer is dead or has left.
    #[error("{0}, which answers for this, is gone")]
    NodeGone(NodeId),
    /// This daemon belongs to no cluster (any more).
    #[error("this node is not a member of the cluster (any more): restart its daemon")]
    NotMember,
    /// The hosts' pages differ in size.
    #[error(
        "page size {theirs} differs from the cluster's {PAGE_SIZE}; such hosts cannot share memory"
    )]
    PageSize {
        /// Bytes of the refused host's pages.
        theirs: u32,
    },
    /// No number left for another node.
    #[error("the cluster is full: all {} numbers are taken or held back; forget dead hosts (`pagemesh members forget`) or remove segments that former nodes made", NodeId::NEAR - 1)]
    ClusterFull,
    /// The node cannot leave in order.
    #[error("{0}")]
    CannotLeave(String),
    /// The call makes no sense in this state.
    #[error("{0}")]
    Invalid(String),
    /// The caller withdrew the request, or its process died.
    #[error("withdrawn")]
    Cancelled,
    /// A limit of `limits.rs` was reached.
    #[error("limit reached: {0}")]
    Limit(String),
    /// The cluster speaks another version of the protocol: what version 4 reads.
    #[error(
        "the cluster speaks protocol version {theirs}, this daemon version {PROTOCOL_VERSION}: \
         install the same release on all nodes (`pagemesh version` shows what each has)"
    )]
    Version {
        /// The protocol version of the node that was asked.
        theirs: u8,
    },
    /// This daemon has not been admitted yet.
    #[error(
        "this node is not admitted to a cluster yet: the daemon it is to join does not answer \
         (`pagemesh status` says whom it asks)"
    )]
    NotYetMember,
    /// This node was the coordinator, and another node is now.
    #[error(
        "{by} coordinates the cluster now, and this node, which did before, is no member any more: \
         end its programs and restart its daemon with `--join` naming a member"
    )]
    Superseded {
        /// The coordinator.
        by: NodeId,
    },
    /// This node was declared dead and has joined again, and something was lost with its former
    /// membership.
    #[error(
        "this node was declared dead as {was}, because it was stopped or cut off, and has joined \
         again; lost with that: {lost}; end the programs that use it and start them again"
    )]
    DeclaredDead {
        /// Its number before.
        was: NodeId,
        /// What was lost.
        lost: String,
    },
    /// The cluster and this daemon have no version of the protocol in common.
    #[error(
        "the cluster speaks protocol versions {cluster}, this daemon {here}: install a release on \
         this host that speaks one of the cluster's (`pagemesh members -o wide` there shows them, \
         `pagemesh version` what this one speaks)"
    )]
    Versions {
        /// Those that all members speak.
        cluster: Versions,
        /// Those of the daemon that was refused.
        here: Versions,
    },
}
