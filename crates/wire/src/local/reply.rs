//! What a daemon answers its processes.

use super::{
    FileFrames, NodeStatus, PageReport, PageState, PathInfo, RaceReport, SharingReport, Stamp,
};
use crate::peer::{Member, MemoryReport, Refusal, SegmentInfo, version_4};
use crate::sysv;
use crate::{ByteLen, ClientId, MappingId, NodeId, SegmentId};
use serde::{Deserialize, Serialize};

/// Replies of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// Hello yourself.
    Welcome {
        /// The process's number in lock words.
        client: ClientId,
        /// This node.
        node: NodeId,
        /// A descriptor of `/dev/userfaultfd` comes with this packet.
        device: bool,
    },
    /// Done.
    Done,
    /// The segment is open.
    Opened {
        /// All about it.
        info: SegmentInfo,
    },
    /// The mapping is served from now on.
    Mapped {
        /// Its number.
        mapping: MappingId,
    },
    /// One segment.
    Segment(SegmentInfo),
    /// Segments; a short list means there are no more.
    Segments(Vec<SegmentInfo>),
    /// Pages known to this node.
    Pages(PageReport),
    /// Everyone, up to version 6.
    Members {
        /// Rises with every change.
        epoch: u64,
        /// By number.
        members: Vec<version_4::Member>,
    },
    /// This node.
    Status(NodeStatus),
    /// The lock's slot in the area.
    Slot {
        /// Which.
        index: u32,
    },
    /// The lock is the caller's.
    Locked {
        /// Its last holder died holding it: what it guards may be half-written.
        recovered: bool,
    },
    /// Number of waiters that were woken.
    Woken(u32),
    /// The first of two replies: a signal or change from now on is not missed.
    Waiting,
    /// The page may change from now on.
    Changed,
    /// Counters by name.
    Counters(Vec<(String, u64)>),
    /// Time stamps.
    Stamps(Vec<Stamp>),
    /// No, and why.
    Refused(Refusal),
    /// The flight recorder's record comes as a descriptor.
    Dumped {
        /// How long it is.
        length: ByteLen,
    },
    /// The recorded writes of nodes.
    Sharing(SharingReport),
    /// The result of a System V call.
    Sysv(sysv::Outcome),
    /// Races.
    Races(RaceReport),
    /// The ways to all other living members.
    Paths(Vec<PathInfo>),
    /// The request slot is open.
    RequestSlot,
    /// A System V call that came through the request slot was not made: this daemon does not know yet in
    /// whose name. It is to come through the socket, where the kernel says that.
    Unproven,
    /// The state of the pages from the asked one on; fewer than asked for only at the segment's
    /// end. Empty under policies that keep none.
    States(Vec<PageState>),
    /// Frames for pages of a file.
    FilePages(FileFrames),
    /// The memory of a node.
    Memory(MemoryReport),
    /// Everyone, since version 7.
    Everyone {
        /// Rises with every change.
        epoch: u64,
        /// The version of the protocol between daemons in which the cluster speaks.
        spoken: u8,
        /// By number.
        members: Vec<Member>,
    },
    /// A capability comes as a descriptor.
    Capability {
        /// For which segment.
        segment: SegmentId,
        /// It permits stores.
        write: bool,
    },
}

impl Reply {
    /// The same, for a process that speaks this version.
    #[must_use]
    pub fn in_version(self, version: u32) -> Self {
        match self {
            Self::Everyone { epoch, members, .. } if version < 7 => Self::Members {
                epoch,
                members: members.iter().map(Into::into).collect(),
            },
            Self::Refused(why @ Refusal::Versions { .. }) if version < 7 => {
                Self::Refused(Refusal::Invalid(why.to_string()))
            }
            other => other,
        }
    }

    /// The members, with their epoch and the version in which they speak, in a reply of any version.
    ///
    /// # Errors
    /// The reply, if it is another one.
    pub fn into_members(self) -> Result<(u64, u8, Vec<Member>), Box<Self>> {
        match self {
            Self::Everyone {
                epoch,
                spoken,
                members,
            } => Ok((epoch, spoken, members)),
            Self::Members { epoch, members } => {
                let members = members.into_iter().map(Into::into).collect();
                Ok((epoch, version_4::VERSION, members))
            }
            other => Err(Box::new(other)),
        }
    }
}
