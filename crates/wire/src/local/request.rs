//! What processes ask of their daemon.

use super::{Advice, LOCAL_VERSION, Label, OLDEST_LOCAL_VERSION, View};
#[cfg(doc)]
use super::{Refusal, Reply, Stamp};
use crate::peer::{FilePart, Reduction, SegmentSpec};
use crate::sysv;
use crate::{ByteLen, ByteOffset, MappingId, NodeId, PageCount, PageIndex, SegmentId, SyncKey};
use serde::{Deserialize, Serialize};

/// Requests of a process to its daemon.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Request {
    /// First on every socket. → [`Reply::Welcome`], with a descriptor of
    /// `/dev/userfaultfd` where the daemon has one to lend.
    Hello {
        /// From [`OLDEST_LOCAL_VERSION`] to [`LOCAL_VERSION`].
        version: u32,
        /// The program, for people who look.
        program: String,
    },
    /// Create or open a segment. → [`Reply::Opened`] with two descriptors: the
    /// segment's memory (read-only unless `write`) and the lock area.
    Open {
        /// Its name.
        name: String,
        /// Create it if it does not exist.
        create: Option<SegmentSpec>,
        /// Fail if it exists.
        exclusive: bool,
        /// The process wants to write.
        write: bool,
    },
    /// A mapping made by the process, with a fresh userfaultfd as descriptor.
    /// The daemon does the API handshake and registers the range. → [`Reply::Mapped`].
    Map {
        /// Which segment.
        segment: SegmentId,
        /// Where it is mapped.
        address: u64,
        /// Bytes mapped, a multiple of the page size.
        length: ByteLen,
        /// From which byte of the segment.
        offset: ByteOffset,
        /// Mapped shared and writable; else private and read-only.
        write: bool,
    },
    /// The mapping is gone. → [`Reply::Done`].
    Unmap {
        /// Which.
        mapping: MappingId,
    },
    /// The process is about to fork. With it comes one end of a socket pair: the
    /// daemon talks through it with the child, who has every segment open that
    /// the process has open when this arrives. Nothing is answered here; the
    /// child finds a [`Reply::Welcome`] numbered 0, and needs no hello.
    Fork,
    /// The process opened the segment once and is done with it. → [`Reply::Done`].
    Close {
        /// Which.
        segment: SegmentId,
    },
    /// Remove a name. → [`Reply::Done`].
    Remove {
        /// Which.
        name: String,
    },
    /// One segment. → [`Reply::Segment`].
    Stat {
        /// Which.
        name: String,
    },
    /// Segments in order of their names. → [`Reply::Segments`].
    List {
        /// Names after this one.
        after: String,
    },
    /// The state of a segment's pages on this node. → [`Reply::Pages`].
    Inspect {
        /// Which.
        name: String,
        /// From which page.
        first: PageIndex,
        /// At most so many known pages.
        limit: u32,
    },
    /// Everyone. → [`Reply::Everyone`].
    Members,
    /// This node. → [`Reply::Status`].
    Status,
    /// A slot of the segment's lock area for this lock. → [`Reply::Slot`].
    LockSlot {
        /// Which lock.
        key: SyncKey,
    },
    /// Take a lock whose word could not be swapped. → [`Reply::Locked`].
    Lock {
        /// Which.
        key: SyncKey,
    },
    /// Give back a lock whose word said `wanted`. → [`Reply::Done`].
    Unlock {
        /// Which.
        key: SyncKey,
    },
    /// Wait for a signal. → [`Reply::Waiting`] when no later signal can be missed
    /// (only then give back the lock), then [`Reply::Done`] when woken; the
    /// process takes its lock again by itself.
    CondWait {
        /// The condition variable.
        cond: SyncKey,
    },
    /// Wake one waiter, or all. → [`Reply::Woken`].
    CondSignal {
        /// The condition variable.
        cond: SyncKey,
        /// All.
        all: bool,
    },
    /// Wait until so many have come. → [`Reply::Done`].
    Barrier {
        /// Which.
        key: SyncKey,
        /// How many make it open.
        parties: u32,
    },
    /// Watch a page: from the first reply ([`Reply::Waiting`]) on it is
    /// guaranteed unchanged until the second ([`Reply::Changed`]) comes (F7).
    /// The second may come at once, and without the first.
    Watch {
        /// Which segment.
        segment: SegmentId,
        /// Which page.
        page: PageIndex,
    },
    /// Keep these pages here, writable, until [`Request::Unpin`] (M14). → [`Reply::Done`].
    Pin {
        /// Which segment.
        segment: SegmentId,
        /// From which page.
        first: PageIndex,
        /// How many.
        count: PageCount,
    },
    /// Let them go again. → [`Reply::Done`].
    Unpin {
        /// Which segment.
        segment: SegmentId,
        /// From which page.
        first: PageIndex,
        /// How many.
        count: PageCount,
    },
    /// Round trip to a node through every layer (M24). → [`Reply::Done`].
    Probe {
        /// Which.
        node: NodeId,
    },
    /// All counters of this node since its start (M23). → [`Reply::Counters`].
    Counters,
    /// Put a mark into this node's time stamps (M22). → [`Reply::Done`].
    Stamp {
        /// A number that the program chooses.
        tag: u64,
    },
    /// Time stamps from number `from` on (M22). → [`Reply::Stamps`].
    Stamps {
        /// The first one wanted.
        from: u64,
    },
    /// Withdraw a request of this socket that still waits. No reply of its own;
    /// the withdrawn one answers [`Refusal::Cancelled`] unless it was faster.
    Cancel {
        /// The number of the request.
        number: u64,
    },
    /// Hand over all pages and leave the cluster. → [`Reply::Done`].
    Leave,
    /// The contents of the flight recorder. → [`Reply::Dumped`], with a descriptor of a file to
    /// read.
    Dump,
    /// Put a node out for good. → [`Reply::Done`].
    Revoke {
        /// Which.
        node: NodeId,
    },
    /// End without leaving, for a daemon that goes on in this one's place.
    /// → [`Reply::Done`].
    Handover {
        /// The oldest schema of a handed-over state that it reads.
        oldest: u64,
        /// The newest.
        newest: u64,
    },
    /// Say how this process will use pages. → [`Reply::Done`], at once.
    Advise {
        /// Of which segment.
        segment: SegmentId,
        /// From which page.
        first: PageIndex,
        /// How many.
        count: PageCount,
        /// The announced use.
        advice: Advice,
    },
    /// Starts or stops recording on this node which nodes write which bytes of a segment's pages
    /// (MB5); earlier records are dropped. → [`Reply::Done`].
    WatchSharing {
        /// Which segment; it must be open here.
        name: String,
        /// From now on.
        on: bool,
    },
    /// The recorded writes. → [`Reply::Sharing`].
    Sharing {
        /// Which segment.
        name: String,
        /// From which page.
        first: PageIndex,
    },
    /// A System V call. The sender's credentials come with the packet. → [`Reply::Sysv`];
    /// for an attachment [`Reply::Opened`], as for [`Request::Open`].
    Sysv(sysv::Op),
    /// Which races this node has noticed. → [`Reply::Races`].
    Races {
        /// From the one of this number on.
        first: u32,
    },
    /// Declare a range of a segment of policy `release` in which nodes accumulate
    /// without a lock. → [`Reply::Done`] when every node knows.
    Reduce {
        /// Of which segment.
        segment: SegmentId,
        /// Which range, and how.
        reduction: Reduction,
    },
    /// The program's names for parts of a segment, for reports of races. → [`Reply::Done`].
    Label {
        /// Of which segment.
        segment: SegmentId,
        /// At most [`Label::AT_ONCE`] of them.
        labels: Vec<Label>,
    },
    /// The packet lengths that the paths to other members carry. → [`Reply::Paths`].
    Paths,
    /// A request slot for requests that are brief ([`Request::is_brief`]). → [`Reply::RequestSlot`], with its
    /// memory as descriptor.
    RequestSlot,
    /// A request lies in the request slot, in case the daemon does not look there. No reply.
    Knock,
    /// Marks a dead node as forgotten: `status` does not report it any more. → [`Reply::Done`].
    ForgetMember {
        /// Which.
        node: NodeId,
    },
    /// As [`Request::Map`], with a view of a segment of policy `views`. → [`Reply::Mapped`].
    MapView {
        /// Which segment.
        segment: SegmentId,
        /// Where it is mapped.
        address: u64,
        /// Bytes mapped, a multiple of the page size.
        length: ByteLen,
        /// From which byte of the segment.
        offset: ByteOffset,
        /// What it shows. A consistent view is mapped shared and writable, others are private and
        /// read-only.
        view: View,
    },
    /// Drop copies of pages, so that the next access sees newer contents (E4). → [`Reply::Done`].
    Purge {
        /// Of which segment.
        segment: SegmentId,
        /// From which page.
        first: PageIndex,
        /// How many.
        count: PageCount,
        /// Of their prefixes only.
        short: bool,
    },
    /// Send copies of these pages, as one, to all nodes that use them (E5). → [`Reply::Done`] when
    /// they are sent.
    Publish {
        /// Of which segment.
        segment: SegmentId,
        /// From which page.
        first: PageIndex,
        /// How many.
        count: PageCount,
        /// Of their prefixes only.
        short: bool,
        /// Answer only when the replica has them, too, if the segment has one.
        waits: bool,
    },
    /// As [`Request::Watch`], for any of these pages, in a segment of policy `views`.
    WatchRange {
        /// Of which segment.
        segment: SegmentId,
        /// From which page.
        first: PageIndex,
        /// How many.
        count: PageCount,
    },
    /// Keep the pages of a segment of policy `sequential` that are here, and those that arrive,
    /// from changing anywhere, until [`Request::EndHold`]. Loads go on. → [`Reply::Done`].
    Hold {
        /// Which segment.
        segment: SegmentId,
    },
    /// Let them change again. → [`Reply::Done`], or a refusal if the hold had ended before.
    EndHold {
        /// Which segment.
        segment: SegmentId,
    },
    /// The state of pages on this node. → [`Reply::States`].
    States {
        /// Of which segment.
        segment: SegmentId,
        /// From which page.
        first: PageIndex,
    },
    /// Give a segment that this process has open, and whose name was removed, a name again.
    /// → [`Reply::Done`].
    Name {
        /// Which segment.
        segment: SegmentId,
        /// Its name.
        name: String,
        /// If another segment has the name, remove it from that one.
        replace: bool,
    },
    /// Become the coordinator in the place of one that is silent. → [`Reply::Done`] when this node
    /// coordinates.
    Promote,
    /// Frames for pages of a file, filled as far as this node or another one caches them.
    /// → [`Reply::FilePages`]. The frames keep their contents until [`Request::FilePagesDone`].
    FilePages {
        /// The segment of policy `files` with the frames.
        segment: SegmentId,
        /// The pages. The daemon sets the user.
        part: FilePart,
    },
    /// The process does not read from frames any more that it got. → [`Reply::Done`].
    FilePagesDone {
        /// The segment.
        segment: SegmentId,
        /// The pages.
        part: FilePart,
        /// Those of them that the process has read from the file into their frames, and that it
        /// knows to be of this version.
        filled: u64,
        /// The frames, in the order of the pages.
        frames: Vec<PageIndex>,
    },
    /// Keep the daemon's memory out of swap space from now on, or do not any more. → [`Reply::Done`].
    LockMemory {
        /// From now on.
        on: bool,
    },
    /// The memory of a node: what is lent, borrowed, and may be. → [`Reply::Memory`].
    Memory {
        /// Which.
        node: NodeId,
    },
    /// As [`Request::Pin`], of short pages of a segment of policy `views` (E12): views of whole pages
    /// lose them. → [`Reply::Done`].
    PinShort {
        /// Of which segment.
        segment: SegmentId,
        /// From which page.
        first: PageIndex,
        /// How many.
        count: PageCount,
    },
    /// A descriptor of the memory of a segment that this process has open: a capability, which the
    /// process may hand to another one (E19). → [`Reply::Capability`].
    Capability {
        /// Which segment.
        segment: SegmentId,
        /// One that permits stores, too; only a process that may store gets it.
        write: bool,
    },
    /// Open the segment whose capability comes as a descriptor, for what that permits.
    /// → [`Reply::Opened`], as for [`Request::Open`].
    Redeem,
    /// Say which pages this process will touch, wherever they lie: what [`Request::Advise`] says of
    /// one range. → [`Reply::Done`], at once.
    WillNeed {
        /// Of which segment.
        segment: SegmentId,
        /// First pages and numbers of pages, at most [`Request::RANGES`] of them.
        ranges: Vec<(PageIndex, PageCount)>,
    },
}

impl Request {
    /// Ranges that one [`Request::WillNeed`] may name.
    pub const RANGES: usize = 1024;

    /// Versions and hellos of a process, the newest one and then older ones: a daemon of an older
    /// release refuses those that it does not speak, and listens for the next.
    pub fn hellos(program: &str) -> impl Iterator<Item = (u32, Self)> + use<> {
        let program = program.to_owned();
        let versions = (OLDEST_LOCAL_VERSION..=LOCAL_VERSION).rev();
        versions.map(move |version| {
            let program = program.clone();
            (version, Self::Hello { version, program })
        })
    }

    /// The version in which it came: a daemon that speaks an older one does not understand it.
    #[must_use]
    pub fn since(&self) -> u32 {
        match self {
            Self::WillNeed { .. } => 9,
            Self::PinShort { .. } | Self::Capability { .. } | Self::Redeem => 8,
            Self::Advise { advice, .. } if *advice == Advice::DontNeedShort => 8,
            _ => OLDEST_LOCAL_VERSION,
        }
    }

    /// Whether it may go through the request slot: as a rule it is short, its only reply is, too, and
    /// that comes soon.
    #[must_use]
    pub fn is_brief(&self) -> bool {
        match self {
            Self::LockSlot { .. }
            | Self::Lock { .. }
            | Self::Unlock { .. }
            | Self::CondSignal { .. }
            | Self::Barrier { .. }
            | Self::Purge { .. }
            | Self::Publish { .. } => true,
            // The reply to this one brings descriptors.
            Self::Sysv(op) => !matches!(op, sysv::Op::ShmAttach { .. }),
            _ => false,
        }
    }
}
