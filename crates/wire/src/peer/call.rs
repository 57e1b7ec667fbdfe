//! Calls of one node to another.

use super::{
    Credentials, Decisions, Inheritance, MemberView, Payload, PolicyMessage, Reduction,
    SegmentInfo, SegmentSpec, ViewChange,
};
use crate::sysv::{self, keys};
use crate::{NodeId, SegmentId, SyncKey, Term};
use serde::{Deserialize, Serialize};

/// A call that some node answers once, however often it arrives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Call {
    /// Round trip through every layer (M24).
    Probe,
    /// Create or open a segment and count the calling node as attached (F4).
    Open {
        /// Its name.
        name: String,
        /// Create it if it does not exist.
        create: Option<SegmentSpec>,
        /// Fail if it exists.
        exclusive: bool,
        /// The process wants to write.
        write: bool,
        /// The process.
        credentials: Credentials,
    },
    /// No process of the calling node has the segment open any more (F5).
    Close {
        /// Which.
        segment: SegmentId,
    },
    /// Remove a segment's name; it vanishes when the last node closes it.
    Remove {
        /// Its name.
        name: String,
        /// The process.
        credentials: Credentials,
    },
    /// One segment.
    Stat {
        /// Its name.
        name: String,
    },
    /// Some segments, in order of their names.
    List {
        /// Names after this one.
        after: String,
    },
    /// From the coordinator: the members changed.
    Members(MemberView),
    /// From the coordinator: no process uses this segment any more.
    Forget {
        /// Which.
        segment: SegmentId,
    },
    /// To the coordinator: the caller has handed over its pages and goes.
    Leave,
    /// Wait until `parties` callers have come (T14); the reply is the departure.
    Barrier {
        /// Which barrier.
        key: SyncKey,
        /// How many make it open.
        parties: u32,
        /// The payload of the segment's policy on the calling node.
        payload: Payload,
    },
    /// Wait for a signal; the reply is the wake-up.
    CondWait {
        /// Which condition variable.
        key: SyncKey,
    },
    /// Wake waiters.
    CondSignal {
        /// Which condition variable.
        key: SyncKey,
        /// All of them, not one.
        all: bool,
    },
    /// To the coordinator: put a node out for good.
    Revoke {
        /// Which.
        node: NodeId,
    },
    /// A home that leaves hands its knowledge over to the coordinator.
    Inherit(Inheritance),
    /// A policy calls itself on another node; the answer is [`Reply::Policy`](super::Reply::Policy).
    Policy(PolicyMessage),
    /// A process wants something of a System V object.
    Sysv(Box<sysv::Ask>),
    /// To the home of System V objects: something happened to a process.
    SysvNews(sysv::News),
    /// To the coordinator: nodes are going to accumulate in a range.
    Declare {
        /// Of which segment.
        segment: SegmentId,
        /// Which range, and how.
        reduction: Reduction,
    },
    /// From the coordinator: these ranges are declared, all that there are.
    Reduce {
        /// Of which segment.
        segment: SegmentId,
        /// At most [`Reduction::LIMIT`].
        reductions: Vec<Reduction>,
    },
    /// To the coordinator: which System V object has this key?
    SysvKey {
        /// In which family.
        family: sysv::Family,
        /// Which.
        key: i32,
        /// And then.
        request: keys::KeyRequest,
    },
    /// From the coordinator: decide alone upon these keys from now on.
    SysvLend {
        /// Which.
        buckets: keys::Buckets,
    },
    /// From the coordinator: do not decide upon these keys any more, and say which of
    /// your objects have them.
    SysvRecall {
        /// Which.
        bucket: keys::Bucket,
        /// Those in order after this one.
        after: Option<keys::Name>,
    },
    /// To the coordinator: a dead node is to be marked as forgotten.
    ForgetMember {
        /// Which.
        node: NodeId,
    },
    /// To the coordinator: a segment whose name was removed gets a name again.
    Name {
        /// Which.
        segment: SegmentId,
        /// Its name.
        name: String,
        /// If another segment has the name, remove it from that one.
        replace: bool,
        /// The user who asks.
        credentials: Credentials,
    },
    /// From the coordinator to its standby: what it has decided.
    Log(Decisions),
    /// From the standby: it takes over as coordinator in this term. The receiver believes no
    /// coordinator of an older term from now on, and answers with the members it knows.
    TakeOver {
        /// The term of the new coordinator.
        term: Term,
    },
    /// From a new coordinator: do not decide upon any System V key any more, and say which of your
    /// objects have keys.
    SysvGather {
        /// Those in order after this one.
        after: Option<keys::Name>,
    },
    /// The memory of the node that is asked, as people see it.
    Memory,
    /// Take part in this segment, which has replicas; no process of the receiver opens it.
    TakePart(Box<SegmentInfo>),
    /// From the coordinator of a cluster with far numbers: the members changed. No version 5 of this
    /// program sends it to a cluster of real daemons, and version 4 does not know it.
    MembersChange(Box<ViewChange>),
}

impl Call {
    /// Whether the coordinator answers the call, whichever node that is.
    #[must_use]
    pub fn is_for_coordinator(&self) -> bool {
        let others = matches!(
            self,
            Self::SysvKey { .. } | Self::Revoke { .. } | Self::ForgetMember { .. }
        );
        others || self.is_about_names()
    }

    /// Whether the directory of names answers the call.
    #[must_use]
    pub fn is_about_names(&self) -> bool {
        matches!(
            self,
            Self::Open { .. }
                | Self::Close { .. }
                | Self::Remove { .. }
                | Self::Stat { .. }
                | Self::List { .. }
                | Self::Declare { .. }
                | Self::Name { .. }
        )
    }

    /// A process reaches a barrier. Its node adds the payload of the segment's policy.
    #[must_use]
    pub fn barrier(key: SyncKey, parties: u32) -> Self {
        Self::Barrier {
            key,
            parties,
            payload: Payload::EMPTY,
        }
    }

    /// The barrier or condition variable it is about.
    #[must_use]
    pub fn key(&self) -> Option<SyncKey> {
        match self {
            Self::Barrier { key, .. } | Self::CondWait { key } | Self::CondSignal { key, .. } => {
                Some(*key)
            }
            _ => None,
        }
    }
}
