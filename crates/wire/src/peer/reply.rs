//! Answers to calls.

use super::{MemberView, MemoryReport, Payload, PolicyMessage, Reduction, Refusal, SegmentInfo};
use crate::sysv::{self, keys};
use serde::{Deserialize, Serialize};

/// The answer to a [`Call`](super::Call).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reply {
    /// Done; nothing to tell.
    Done,
    /// The call waits at the server (sent once for calls that may wait long).
    Waiting,
    /// The segment in question.
    Segment(SegmentInfo),
    /// Segments in order of their names; a short list means there are no more.
    Segments(Vec<SegmentInfo>),
    /// How many were woken.
    Woken(u32),
    /// No, and why.
    Refused(Refusal),
    /// The barrier is open, and the policy of the segment has something to say with it.
    Depart(PolicyMessage),
    /// The answer of a policy to [`Call::Policy`](super::Call::Policy).
    Policy(Payload),
    /// The result of a System V call.
    Sysv(sysv::Outcome),
    /// The segment in question, and its declared ranges.
    Reducing(SegmentInfo, Vec<Reduction>),
    /// The answer of the register about a key.
    SysvKey(keys::Word),
    /// The keys upon which the node decides now, of those it was lent.
    SysvLent(keys::Buckets),
    /// Which objects have the keys that were asked back.
    SysvEntries {
        /// In order, at most [`keys::ENTRIES`].
        entries: Vec<keys::Entry>,
        /// There are more.
        more: bool,
    },
    /// The members that the node knows; it has promised to believe no older coordinator.
    Members(MemberView),
    /// The answer to [`Call::Memory`](super::Call::Memory).
    Memory(MemoryReport),
    /// The answer to [`Call::Members`](super::Call::Members) with a new generation: the lives that are over and that the
    /// member still names.
    Names {
        /// The generation.
        generation: u64,
        /// Their numbers, as [`NodeSet::near_bytes`](crate::NodeSet::near_bytes) says. This is no set of
        /// nodes, because an answer that is remembered names nobody.
        names: [u8; 16],
    },
    /// The same, if one of the numbers is a far one.
    FarNames {
        /// The generation.
        generation: u64,
        /// Their numbers, as [`NodeSet::words`](crate::NodeSet::words) says.
        names: Vec<u64>,
    },
}
