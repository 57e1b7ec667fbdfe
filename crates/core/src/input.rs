//! Inputs of a node: everything that can happen to it.

use crate::control::Kept;
use crate::effect::PageRange;
use core::net::SocketAddr;
use pagemesh_wire::local::{Advice, View};
use pagemesh_wire::peer::{Access, Call, Credentials};
use pagemesh_wire::{
    ClientId, MappingId, NodeId, NodeSet, PageCount, PageIndex, Program, PublicKey, SegmentId,
    SyncKey, Term, Ticket, Versions,
};
use serde::{Deserialize, Serialize};

/// An input of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Input<'a> {
    /// A datagram arrived. It is untrusted until its header and message have been checked.
    Datagram {
        /// The address it came from.
        source: SocketAddr,
        /// The public key of the seal it bore; none if datagrams are not sealed.
        #[serde(with = "if_any")]
        key: PublicKey,
        /// The whole datagram without its seal. Effects of this input may name its page as
        /// [`Source::Payload`](crate::Source::Payload).
        #[serde(serialize_with = "at_once")]
        bytes: &'a [u8],
    },
    /// A thread of a local process faulted at a page. The input may come many times for one access
    /// (docs/design/kernel.md, "Faults are repeated"); repetitions change nothing.
    Fault {
        /// The mapping that the thread accessed.
        mapping: MappingId,
        /// The page of the segment.
        page: PageIndex,
        /// Whether the access is a load or a store.
        access: Access,
    },
    /// Several threads of a local process faulted, each as in [`Input::Fault`]. The node sends the
    /// requests to one owner together.
    Faults {
        /// The mapping that the threads accessed.
        mapping: MappingId,
        /// The pages of the segment, each with load or store.
        faults: Vec<(PageIndex, Access)>,
    },
    /// A request of a local process. The node answers it by [`Effect::Reply`](crate::Effect::Reply)
    /// with the same ticket, at once or later.
    Request {
        /// Names the request in its reply. A ticket is never used twice.
        ticket: Ticket,
        /// The process that asks.
        client: ClientId,
        /// The request.
        request: Request,
    },
    /// The process withdraws a request that has not been answered.
    Cancel {
        /// The ticket of the request.
        ticket: Ticket,
    },
    /// A process has mapped a segment; faults of the mapping may follow.
    Mapped {
        /// The mapping's number, which is never used twice.
        mapping: MappingId,
        /// The mapped segment, which is open on this node.
        segment: SegmentId,
        /// The process that has the mapping.
        client: ClientId,
    },
    /// A mapping was removed.
    Unmapped {
        /// The mapping.
        mapping: MappingId,
    },
    /// A process closed a segment. This input comes once for each time the process opened it.
    Closed {
        /// The segment.
        segment: SegmentId,
        /// The process.
        client: ClientId,
    },
    /// A process forked: the child has the same segments open as its parent has now.
    Forked {
        /// The parent process.
        parent: ClientId,
        /// The child process.
        child: ClientId,
    },
    /// A process ended, with its mappings, open segments and requests.
    ClientGone {
        /// The process.
        client: ClientId,
    },
    /// The token that [`Effect::LendLock`](crate::Effect::LendLock) lent to the clients of this
    /// node is back: the daemon swapped it out of a free word, its holder gave it back, or it was
    /// taken from a dead holder.
    LockReturned {
        /// The lock.
        key: SyncKey,
        /// True if its holder died holding it.
        recovered: bool,
    },
    /// The answer to [`Effect::ConfirmUse`](crate::Effect::ConfirmUse).
    UseConfirmed {
        /// The segment.
        segment: SegmentId,
        /// The page.
        page: PageIndex,
        /// Whether every thread that waited for the page has run since it was mapped.
        used: bool,
    },
    /// [`DiffWork::Diff`](crate::DiffWork::Diff) with
    /// [`Afterwards::Refresh`](crate::Afterwards::Refresh) found no change: the page is not written
    /// in every interval any more. This input comes directly after the effects of that call.
    Unchanged {
        /// The segment.
        segment: SegmentId,
        /// The page.
        page: PageIndex,
    },
    /// A deadline of [`Node::next_deadline`](crate::Node::next_deadline) has come.
    Deadline,
    /// The frames of these pages equal their twins. The node uses this only if the very next input
    /// is a request: stores that happen later belong to a later interval.
    Untouched {
        /// The segment.
        segment: SegmentId,
        /// The pages, a part of [`Node::kept_writable`](crate::Node::kept_writable).
        pages: Vec<PageIndex>,
    },
    /// As [`Input::Mapped`], with a view other than that of an ordinary mapping.
    MappedView {
        /// The mapping's number, which is never used twice.
        mapping: MappingId,
        /// The mapped segment, which is open on this node.
        segment: SegmentId,
        /// The process that has the mapping.
        client: ClientId,
        /// What the mapping shows.
        view: View,
    },
    /// The answer to [`Effect::Store`](crate::Effect::Store). This input comes directly
    /// after the effects of that call.
    Stored {
        /// The pages.
        pages: PageRange,
        /// Whether the disk has all of them.
        done: bool,
    },
    /// The host gives more memory, or less.
    Budgets(crate::Budgets),
    /// The disk has the batches of [`Effect::Keep`](crate::Effect::Keep) up to this one for sure.
    Kept {
        /// The number of the last one.
        batch: u64,
    },
    /// The disk may lack batches that were given to it, because another daemon went on for the one
    /// that wrote them: everything is to be written anew.
    KeepAnew,
    /// Another program goes on in the place of the daemon before.
    Runs(Program),
    /// The answer to [`Effect::Elect`](crate::Effect::Elect): this node has the claim to coordinate,
    /// and no older coordinator can put anything into the store any more.
    Elected {
        /// The term of the claim.
        term: Term,
        /// What the store has.
        kept: Box<Kept>,
    },
    /// The answer to [`Effect::ListAsking`](crate::Effect::ListAsking).
    Asking {
        /// The term of which it was asked.
        term: Term,
        /// The nodes that have asked for the claim since it was taken in that term.
        nodes: NodeSet,
    },
    /// The answer to [`Effect::Seek`](crate::Effect::Seek): the node at this address coordinates.
    Coordinates {
        /// The address.
        address: SocketAddr,
    },
    /// The answer to [`Effect::Trap`](crate::Effect::Trap). This input comes directly after the
    /// effects of that call.
    Trapped {
        /// The segment.
        segment: SegmentId,
        /// The pages that have frames: threads may have stored to them. Mappings may have all rights
        /// to them, and have none to others.
        pages: Vec<PageRange>,
    },
}

impl Input<'_> {
    /// The input without a borrow; none if it is a datagram, because its bytes are borrowed.
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
            Self::MappedView {
                mapping,
                segment,
                client,
                view,
            } => Input::MappedView {
                mapping,
                segment,
                client,
                view,
            },
            Self::Stored { pages, done } => Input::Stored { pages, done },
            Self::Budgets(budgets) => Input::Budgets(budgets),
            Self::Kept { batch } => Input::Kept { batch },
            Self::KeepAnew => Input::KeepAnew,
            Self::Runs(program) => Input::Runs(program),
            Self::Elected { term, kept } => Input::Elected { term, kept },
            Self::Asking { term, nodes } => Input::Asking { term, nodes },
            Self::Coordinates { address } => Input::Coordinates { address },
            Self::Trapped { segment, pages } => Input::Trapped { segment, pages },
        })
    }
}

/// Serializes a key, or nothing if datagrams are not sealed.
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

/// Serializes a byte slice as bytes, not as a sequence of numbers.
fn at_once<S: serde::Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// A request of a local process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Request {
    /// Create or open a segment. A success counts as one opening until `Input::Closed`.
    Open {
        /// The segment's name.
        name: String,
        /// What to create if the segment does not exist; none to open only.
        create: Option<pagemesh_wire::peer::SegmentSpec>,
        /// Fail if the segment exists.
        exclusive: bool,
        /// Whether the process wants to write.
        write: bool,
        /// The credentials of the process.
        credentials: Credentials,
    },
    /// A call that some node answers: remove, stat, list, barrier, condition variable, probe.
    Call {
        /// The node that answers; `None` means the node that is responsible for such a call.
        to: Option<NodeId>,
        /// The call.
        call: Call,
    },
    /// Take a lock whose lock word the process could not swap.
    Lock {
        /// The lock.
        key: SyncKey,
    },
    /// Watch a page (F7).
    Watch {
        /// The segment.
        segment: SegmentId,
        /// The page.
        page: PageIndex,
    },
    /// Keep pages on this node, writable (M14).
    Pin {
        /// The segment.
        segment: SegmentId,
        /// The first page.
        first: PageIndex,
        /// The number of pages.
        count: PageCount,
    },
    /// Release pinned pages.
    Unpin {
        /// The segment.
        segment: SegmentId,
        /// The first page.
        first: PageIndex,
        /// The number of pages.
        count: PageCount,
    },
    /// Hand over all pages and leave the cluster.
    Leave,
    /// Become the coordinator in the place of one that is silent.
    Promote,
    /// Announce how the process will use pages of a segment.
    Advise {
        /// The segment.
        segment: SegmentId,
        /// The first page.
        first: PageIndex,
        /// The number of pages.
        count: PageCount,
        /// The announced use.
        advice: Advice,
    },
    /// Announce which pages of a segment the process will touch, wherever they lie.
    WillNeed {
        /// The segment.
        segment: SegmentId,
        /// First pages and numbers of pages.
        ranges: Vec<(PageIndex, PageCount)>,
    },
    /// A System V call.
    Sysv(Box<pagemesh_wire::sysv::Ask>),
    /// Drop copies of pages (E4).
    Purge {
        /// The segment.
        segment: SegmentId,
        /// The first page.
        first: PageIndex,
        /// The number of pages.
        count: PageCount,
        /// Of their prefixes only.
        short: bool,
    },
    /// Watch pages, until one of them changes.
    WatchRange {
        /// The segment.
        segment: SegmentId,
        /// The first page.
        first: PageIndex,
        /// The number of pages.
        count: PageCount,
    },
    /// Send copies of pages to all nodes that use them (E5).
    Publish {
        /// The segment.
        segment: SegmentId,
        /// The first page.
        first: PageIndex,
        /// The number of pages.
        count: PageCount,
        /// Of their prefixes only.
        short: bool,
        /// Answer only when the replica has them, too.
        waits: bool,
    },
    /// Keep a segment from changing, for a snapshot.
    Hold {
        /// The segment.
        segment: SegmentId,
    },
    /// Let a segment change again.
    EndHold {
        /// The segment.
        segment: SegmentId,
    },
    /// Frames for pages of a file.
    FilePages {
        /// The segment with the frames.
        segment: SegmentId,
        /// The pages.
        part: pagemesh_wire::peer::FilePart,
    },
    /// The process is done with frames that it got.
    FilePagesDone {
        /// The segment with the frames.
        segment: SegmentId,
        /// The pages.
        part: pagemesh_wire::peer::FilePart,
        /// Those whose frames the process has filled from the file.
        filled: u64,
        /// The frames, in the order of the pages.
        frames: Vec<PageIndex>,
    },
    /// A program that speaks these versions of the protocol, and not all that this one speaks, is to
    /// take the place of this one: answered when nobody speaks another version to this node.
    MakeRoom {
        /// The versions.
        speaks: Versions,
    },
    /// Keep short pages on this node, and take whole ones out of all views (E12).
    PinShort {
        /// The segment.
        segment: SegmentId,
        /// The first page.
        first: PageIndex,
        /// The number of pages.
        count: PageCount,
    },
    /// Open a segment that a process of this node has open, whatever its name and its mode: the
    /// process has shown a capability. A success counts as one opening until `Input::Closed`.
    Redeem {
        /// The segment.
        segment: SegmentId,
    },
}

impl Request {
    /// The segment that a request is about.
    pub(crate) fn segment(&self) -> Option<SegmentId> {
        match self {
            Self::Open { .. }
            | Self::Leave
            | Self::Promote
            | Self::MakeRoom { .. }
            | Self::Sysv(_) => None,
            Self::Call { call, .. } => match call {
                Call::Declare { segment, .. }
                | Call::Close { segment }
                | Call::Name { segment, .. } => Some(*segment),
                other => other.key().map(|key| key.segment),
            },
            Self::Lock { key } => Some(key.segment),
            Self::Watch { segment, .. }
            | Self::Pin { segment, .. }
            | Self::PinShort { segment, .. }
            | Self::Redeem { segment }
            | Self::Unpin { segment, .. }
            | Self::Advise { segment, .. }
            | Self::WillNeed { segment, .. }
            | Self::Purge { segment, .. }
            | Self::WatchRange { segment, .. }
            | Self::Publish { segment, .. }
            | Self::Hold { segment }
            | Self::EndHold { segment }
            | Self::FilePages { segment, .. }
            | Self::FilePagesDone { segment, .. } => Some(*segment),
        }
    }

    /// The segment, if this is about the state of its pages.
    pub(crate) fn about_pages_of(&self) -> Option<SegmentId> {
        match self {
            Self::Call { call, .. } if !matches!(call, Call::Declare { .. }) => None,
            // A lock is no page. Advice about pages of an untrapped segment changes nothing.
            Self::Lock { .. }
            | Self::Redeem { .. }
            | Self::Advise { .. }
            | Self::WillNeed { .. }
            | Self::FilePages { .. }
            | Self::FilePagesDone { .. } => None,
            _ => self.segment(),
        }
    }
}
