//! Messages of a process to the daemon of its node, over a Unix socket.
//!
//! The socket is of type `SOCK_SEQPACKET`: one message a packet, in postcard
//! encoding, at most [`MAX_PACKET`] bytes, with at most [`MAX_FDS`] descriptors.
//! Requests carry a number that the reply repeats, so the threads of a process
//! share one socket; replies come in any order. A process that asks often gets a *request slot*
//! (`pagemesh_os::request_slot`): brief requests and their replies then go through shared memory,
//! as the same packets. A request that was sent through the socket and answered was handled
//! earlier; one that is sent there afterwards is handled later.

mod file_frames;
mod report;
mod trouble;
mod view;

use crate::peer::{
    Credentials, FilePart, Member, MemoryReport, Reduction, SegmentInfo, SegmentSpec, version_4,
};
use crate::sysv;
use crate::{
    ByteLen, ByteOffset, ClientId, MappingId, NodeId, PageCount, PageIndex, SegmentId, SyncKey,
};
use serde::{Deserialize, Serialize};

pub use crate::peer::Refusal;
pub use file_frames::FileFrames;
pub use report::{
    ControlStatus, DiskState, Label, NodeStatus, PageLine, PageReport, PageState, PathInfo,
    RaceLine, RaceReport, SharingLine, SharingReport, Stamp, StampKind, WrittenRange,
};
pub use trouble::Trouble;
pub use view::View;

/// Largest packet in either direction.
pub const MAX_PACKET: usize = 64 * 1024;

/// Most descriptors one packet carries.
pub const MAX_FDS: usize = 4;

/// The newest version that is spoken on the Unix socket.
pub const LOCAL_VERSION: u32 = 8;

/// The oldest. A process says in its hello which one it speaks; where daemon and process are of
/// different releases, it is one of the older release. Variants are only ever appended: a reply that
/// changes becomes a new one, which processes of older versions do not get ([`Reply::in_version`]).
pub const OLDEST_LOCAL_VERSION: u32 = 6;

/// One packet from a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RequestPacket {
    /// Chosen by the client, unique among its open requests.
    pub number: u64,
    /// The request.
    pub request: Request,
}

/// One packet to a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplyPacket {
    /// The request this answers.
    pub number: u64,
    /// The answer.
    pub reply: Reply,
}

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
        /// Whatever the program likes.
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
}

impl Request {
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

/// How a process will use pages. Changes how soon loads return, not what they see; only
/// [`Advice::Renew`] changes what happens to lost pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Advice {
    /// Nothing special; walks are recognised. Holds for the whole segment.
    Normal,
    /// From front to back: more is asked for ahead, and sooner. Holds for the whole segment.
    Sequential,
    /// Here and there: nothing is asked for ahead. Holds for the whole segment.
    Random,
    /// These pages will be read soon: fetches them.
    WillNeed,
    /// These pages are not needed for a while: drops copies of what others own.
    DontNeed,
    /// This process knows from the contents what a page is: under policy `views`, pages that are
    /// lost begin anew with zeros instead of failing. Holds for the whole segment, on this node, as
    /// long as a process here maps it.
    Renew,
    /// The short pages of these are not needed for a while: under policy `views`, drops copies of
    /// prefixes. Whole copies stay on this node, and leave all views until they are touched.
    DontNeedShort,
}

impl Advice {
    /// All of them, in the order of their numbers in C.
    pub const ALL: [Self; 7] = [
        Self::Normal,
        Self::Sequential,
        Self::Random,
        Self::WillNeed,
        Self::DontNeed,
        Self::Renew,
        Self::DontNeedShort,
    ];
}

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

/// The process at the other end of a socket, as the kernel names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Process number.
    pub pid: i32,
    /// User and groups.
    pub credentials: Credentials,
}

/// A packet that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed packet on the daemon's socket; client and daemon are of different versions?")]
pub struct PacketError;

macro_rules! packet {
    ($name:ident) => {
        impl $name {
            /// The packet's bytes.
            ///
            /// # Panics
            /// Never: packets have no unencodable part.
            #[must_use]
            pub fn encode(&self) -> Vec<u8> {
                postcard::to_extend(self, Vec::new()).expect("packets have no unencodable part")
            }

            /// The packet in these bytes.
            ///
            /// # Errors
            /// If they are not exactly one packet.
            pub fn decode(bytes: &[u8]) -> Result<Self, PacketError> {
                match postcard::take_from_bytes(bytes) {
                    Ok((packet, [])) => Ok(packet),
                    _ => Err(PacketError),
                }
            }
        }
    };
}

packet!(RequestPacket);
packet!(ReplyPacket);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_round_trip_and_reject_leftovers() {
        let packet = RequestPacket {
            number: 7,
            request: Request::Probe { node: NodeId(2) },
        };
        let mut bytes = packet.encode();
        assert_eq!(RequestPacket::decode(&bytes), Ok(packet));
        bytes.push(0);
        assert_eq!(RequestPacket::decode(&bytes), Err(PacketError));
        assert_eq!(RequestPacket::decode(&[]), Err(PacketError));
        let reply = ReplyPacket {
            number: 7,
            reply: Reply::Woken(3),
        };
        assert_eq!(ReplyPacket::decode(&reply.encode()), Ok(reply));
    }
}
