//! Reports of a daemon about itself, its pages and its neighbours.

use crate::peer::SegmentInfo;
use crate::{NodeId, PageIndex, SegmentId, Version};
use serde::{Deserialize, Serialize};

/// One time stamp of a node (M22).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// Counts up from zero; a gap means the ring was too small.
    pub number: u64,
    /// Nanoseconds of this node's monotonic clock.
    pub nanos: u64,
    /// The event of the daemon, or `program` for one of a program.
    pub what: StampKind,
    /// The program's tag, or the page.
    pub tag: u64,
}

/// Where a time stamp was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StampKind {
    /// By the program itself.
    Program,
    /// A fault reached the daemon.
    Fault,
    /// A request for a page left.
    Asked,
    /// Page contents or ownership arrived.
    Arrived,
    /// The page was mapped and the thread woken.
    Mapped,
    /// A copy or ownership was given away.
    Given,
    /// A copy was invalidated.
    Invalidated,
}

/// How a node stands to one page.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageLine {
    /// Which.
    pub page: PageIndex,
    /// Rights of mappings: 0 none, 1 read, 2 write.
    pub rights: u8,
    /// This node owns the page.
    pub owner: bool,
    /// The probable owner.
    pub hint: NodeId,
    /// The newest version known here.
    pub version: u64,
    /// Copies elsewhere, if this node is the owner. Of a private page this node is one of them if its
    /// disk has the page.
    pub copies: crate::NodeSet,
    /// Requests waiting here.
    pub queued: u32,
}

/// What a node knows of a page's contents, for a process that saves a segment. While a hold lasts,
/// a page in any state but [`PageState::Unsure`] does not change anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PageState {
    /// The page is not here, or processes of this node store to it.
    Unsure,
    /// It is zero: it was never stored to.
    Zero,
    /// It is readable here. Equal versions mean equal contents.
    Version(Version),
}

/// How a node stands to a segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageReport {
    /// The segment.
    pub info: SegmentInfo,
    /// Pages this node has ever touched.
    pub known: u64,
    /// Pages readable here.
    pub readable: u64,
    /// Pages writable here.
    pub writable: u64,
    /// Pages owned here.
    pub owned: u64,
    /// Pages that this node must see on a second node, and that are not there yet: a segment with
    /// replicas.
    pub unreplicated: u64,
    /// The pages asked for.
    pub pages: Vec<PageLine>,
}

/// Bytes of a page, from `begin` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WrittenRange {
    /// The first.
    pub begin: u16,
    /// Behind the last.
    pub end: u16,
}

/// The writes of one node to one page, as another node or itself recorded them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SharingLine {
    /// Which page.
    pub page: PageIndex,
    /// The writer: this node itself, or the node that sent the page here; writes of earlier holders
    /// count as the sender's.
    pub node: NodeId,
    /// Between how many travels of the page.
    pub times: u32,
    /// How many bytes, each once.
    pub bytes: u16,
    /// Where they are; close ones are one range.
    pub ranges: Vec<WrittenRange>,
    /// How often the page's writer changed; the same for all its lines.
    pub turns: u32,
    /// How often a writer's bytes overlapped those of the writer before.
    pub met: u32,
}

/// The records of one node about a segment's sharing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SharingReport {
    /// Pages that travelled meanwhile.
    pub watched: u32,
    /// By page. There may be more behind the last page; an empty list says that there
    /// is not.
    pub lines: Vec<SharingLine>,
}

/// Bytes of a page that two nodes wrote without knowing of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RaceLine {
    /// Of which segment.
    pub segment: SegmentId,
    /// Which page.
    pub page: PageIndex,
    /// The first byte.
    pub begin: u16,
    /// Behind the last.
    pub end: u16,
    /// The first of the two writers.
    pub one: NodeId,
    /// And who else; always a higher number.
    pub other: NodeId,
}

/// A program's name for a part of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Label {
    /// Where the part begins, in bytes from the segment's beginning.
    pub offset: u64,
    /// How many bytes it has.
    pub length: u64,
    /// For example the variable that points there.
    pub name: String,
}

impl Label {
    /// As many labels surely fit a packet.
    pub const AT_ONCE: usize = 64;
}

/// The races that a node has noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RaceReport {
    /// In the order in which they were noticed; none behind the last.
    pub lines: Vec<RaceLine>,
    /// The programs' names for the bytes of each; empty where no program gave one.
    pub names: Vec<String>,
    /// Whether this node looks for races.
    pub looked_for: bool,
    /// How many are remembered.
    pub known: u32,
    /// How many were noticed that are not remembered.
    pub more: u64,
}

/// The packet length that the path to a member carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathInfo {
    /// Which member.
    pub node: NodeId,
    /// Bytes of an IP packet that arrives whole. No more than a daemon ever sends is
    /// tried, which is little more than 16 KiB.
    pub mtu: u32,
    /// True if that was measured; else it is the length that any link is assumed to carry.
    pub found: bool,
}

/// Who coordinates the cluster, and who could, as a node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControlStatus {
    /// The coordinator.
    pub coordinator: NodeId,
    /// How many coordinators the cluster has had, this one included.
    pub term: u16,
    /// The node that may take over; [`NodeId::NONE`] if there is none.
    pub standby: NodeId,
    /// At the coordinator: the node that is given a copy and will be the standby then.
    pub copying: NodeId,
    /// At the coordinator: entries of its log that the standby, or the node that is given a copy,
    /// has not acknowledged.
    pub behind: u64,
    /// On other nodes: seconds since the coordinator was heard.
    pub silent: f64,
    /// Whether the disk takes what this node decides as the coordinator, or knows as the standby.
    pub disk: DiskState,
}

/// The state of the directory in which a coordinator or standby keeps what it knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskState {
    /// The daemon has none (`--state`).
    #[default]
    None,
    /// Everything is written that other nodes were told.
    Good,
    /// The disk is full, or does not work: what needs it waits.
    Failing,
}

/// How a node is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its number.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Nodes alive, this one included. None if this node is no member of the cluster any more,
    /// or not yet: then the first problem says why.
    pub alive: u32,
    /// Nodes that died.
    pub dead: u32,
    /// Processes connected.
    pub clients: u32,
    /// Segments open here.
    pub segments: u32,
    /// Pages known here.
    pub pages: u64,
    /// Seconds since its start.
    pub uptime: f64,
    /// Median and 99th percentile of remote faults, in nanoseconds.
    pub fault_p50: u64,
    /// See `fault_p50`.
    pub fault_p99: u64,
    /// The problems, each with its cure; empty if there are none.
    pub problems: Vec<String>,
    /// The process that keeps everything should the daemon die; zero if none does.
    pub keeper: u32,
    /// How often a daemon has gone on in the place of another.
    pub takeovers: u32,
    /// Who coordinates.
    pub control: ControlStatus,
    /// Pages of segments with replicas that this node has, and no second node yet.
    pub unreplicated: u64,
}
