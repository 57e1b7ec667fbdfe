//! The one way in: everything that can happen to a node.

use core::net::SocketAddr;
use pagemesh_wire::local::Advice;
use pagemesh_wire::peer::{Access, Call, Credentials};
use pagemesh_wire::{
    ClientId, MappingId, NodeId, PageCount, PageIndex, PublicKey, SegmentId, SyncKey, Ticket,
};
use serde::{Deserialize, Serialize};

/// Something happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Input<'a> {
    /// A datagram arrived. Hostile until its header and message were checked.
    Datagram {
        /// Where it came from.
        source: SocketAddr,
        /// Whose seal it bore; none where nothing is sealed.
        #[serde(with = "if_any")]
        key: PublicKey,
        /// All of it, without the seal. Effects of this very call may name its page as
        /// [`Source::Payload`](crate::Source::Payload).
        #[serde(serialize_with = "at_once")]
        bytes: &'a [u8],
    },
    /// A thread of a local process stopped at a page. May come again and again
    /// for one access (docs/design/kernel.md, "Faults are repeated"); repetitions cost nothing.
    Fault {
        /// In which mapping.
        mapping: MappingId,
        /// At which page of its segment.
        page: PageIndex,
        /// Loading or storing.
        access: Access,
    },
    /// Several threads of a local process stopped, each as in [`Input::Fault`]: what
    /// they need from one node is asked for together.
    Faults {
        /// In which mapping.
        mapping: MappingId,
        /// At which pages of its segment, and whether loading or storing.
        faults: Vec<(PageIndex, Access)>,
    },
    /// A local process wants something. Answered by
    /// [`Effect::Reply`](crate::Effect::Reply) with the same ticket, at once or later.
    Request {
        /// Names the request in its reply. Never used twice.
        ticket: Ticket,
        /// Which process.
        client: ClientId,
        /// What it wants.
        request: Request,
    },
    /// The process withdraws a request that still waits.
    Cancel {
        /// Which.
        ticket: Ticket,
    },
    /// A mapping of a segment exists; faults of it may follow.
    Mapped {
        /// Its number. Never used twice.
        mapping: MappingId,
        /// Of which segment; open on this node.
        segment: SegmentId,
        /// In which process.
        client: ClientId,
    },
    /// The mapping is gone.
    Unmapped {
        /// Which.
        mapping: MappingId,
    },
    /// A process closed a segment it had opened; as often as it opened it.
    Closed {
        /// Which segment.
        segment: SegmentId,
        /// Which process.
        client: ClientId,
    },
    /// A process forked: the child has open what its parent has open now.
    Forked {
        /// The process.
        parent: ClientId,
        /// Its child.
        child: ClientId,
    },
    /// A process is gone, with its mappings, open segments and requests.
    ClientGone {
        /// Which.
        client: ClientId,
    },
    /// The token that [`Effect::LendLock`](crate::Effect::LendLock) lent to
    /// the clients of this node is back: swapped out of a free word, or given
    /// back by its holder, or taken from a dead one.
    LockReturned {
        /// Which lock.
        key: SyncKey,
        /// Its holder died holding it.
        recovered: bool,
    },
    /// The answer to [`Effect::ConfirmUse`](crate::Effect::ConfirmUse).
    UseConfirmed {
        /// Of which segment.
        segment: SegmentId,
        /// Which page.
        page: PageIndex,
        /// Whether every thread that waited for the page has run since.
        used: bool,
    },
    /// [`DiffWork::Diff`](crate::DiffWork::Diff) with
    /// [`Afterwards::Refresh`](crate::Afterwards::Refresh) found no change: the page
    /// is not written in every interval any more. Comes at once.
    Unchanged {
        /// Of which segment.
        segment: SegmentId,
        /// Which page.
        page: PageIndex,
    },
    /// A deadline of [`Node::next_deadline`](crate::Node::next_deadline) has come.
    Deadline,
    /// The frames of these pages equal their twins. Means something only for the request
    /// that is the very next input: what is stored afterwards happens after that.
    Untouched {
        /// Of which segment.
        segment: SegmentId,
        /// Of [`Node::resting`](crate::Node::resting).
        pages: Vec<PageIndex>,
    },
}

impl Input<'_> {
    /// The input for as long as anybody likes; nothing if it is a datagram,
    /// whose bytes are somebody else's.
    #[must_use]
    pub fn detach(self) -> Option<Input<'static>> {
        Some(match self {
            Self::Datagram { .. } => return None,
            Self::Fault {
                mapping,
                page,
                access,
            } => Input::Fault {
                mapping,
                page,
                access,
            },
            Self::Faults { mapping, faults } => Input::Faults { mapping, faults },
            Self::Request {
                ticket,
                client,
                request,
            } => Input::Request {
                ticket,
                client,
                request,
            },
            Self::Cancel { ticket } => Input::Cancel { ticket },
            Self::Mapped {
                mapping,
                segment,
                client,
            } => Input::Mapped {
                mapping,
                segment,
                client,
            },
            Self::Unmapped { mapping } => Input::Unmapped { mapping },
            Self::Closed { segment, client } => Input::Closed { segment, client },
            Self::Forked { parent, child } => Input::Forked { parent, child },
            Self::ClientGone { client } => Input::ClientGone { client },
            Self::LockReturned { key, recovered } => Input::LockReturned { key, recovered },
            Self::UseConfirmed {
                segment,
                page,
                used,
            } => Input::UseConfirmed {
                segment,
                page,
                used,
            },
            Self::Unchanged { segment, page } => Input::Unchanged { segment, page },
            Self::Deadline => Input::Deadline,
            Self::Untouched { segment, pages } => Input::Untouched { segment, pages },
        })
    }
}

/// A key as serde should see it: nothing, where nothing is sealed.
mod if_any {
    use pagemesh_wire::PublicKey;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(key: &PublicKey, to: S) -> Result<S::Ok, S::Error> {
        (*key != PublicKey::NONE).then_some(key).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PublicKey, D::Error> {
        let key = Option::<PublicKey>::deserialize(from)?;
        Ok(key.unwrap_or(PublicKey::NONE))
    }
}

/// Bytes as serde should see them: at once, not one by one.
fn at_once<S: serde::Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// What a local process can want of its node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Request {
    /// Create or open a segment; counts as one opening until `Input::Closed`.
    Open {
        /// Its name.
        name: String,
        /// Create it if it does not exist.
        create: Option<pagemesh_wire::peer::SegmentSpec>,
        /// Fail if it exists.
        exclusive: bool,
        /// The process wants to write.
        write: bool,
        /// The process.
        credentials: Credentials,
    },
    /// Something some node answers: remove, stat, list, barrier, condition
    /// variable, probe.
    Call {
        /// Who answers; `None` means whoever the call belongs to.
        to: Option<NodeId>,
        /// What.
        call: Call,
    },
    /// Take a lock whose shared word could not be swapped.
    Lock {
        /// Which.
        key: SyncKey,
    },
    /// Watch a page (F7).
    Watch {
        /// Of which segment.
        segment: SegmentId,
        /// Which page.
        page: PageIndex,
    },
    /// Keep pages here, writable (M14).
    Pin {
        /// Of which segment.
        segment: SegmentId,
        /// From which page.
        first: PageIndex,
        /// How many.
        count: PageCount,
    },
    /// Let them go.
    Unpin {
        /// Of which segment.
        segment: SegmentId,
        /// From which page.
        first: PageIndex,
        /// How many.
        count: PageCount,
    },
    /// Hand over all pages and leave the cluster.
    Leave,
    /// Says how the process will use pages of a segment.
    Advise {
        /// Of which segment.
        segment: SegmentId,
        /// From which page.
        first: PageIndex,
        /// How many.
        count: PageCount,
        /// What it will do.
        advice: Advice,
    },
    /// A System V call.
    Sysv(Box<pagemesh_wire::sysv::Ask>),
}
