//! The programs of simulated threads, step by step.

use pagemesh_wire::peer::{Policy, SegmentSpec};
use pagemesh_wire::{ByteLen, PAGE_SIZE};

/// Which of the segments a thread can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seg {
    /// The segment of this number, which the whole process has open.
    Main(usize),
    /// The one this thread opened for itself.
    Own,
}

/// A word of a page of a segment, through one of the process's mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) seg: Seg,
    /// Which mapping, modulo how many there are.
    pub(crate) mapping: usize,
    pub(crate) page: u32,
    pub(crate) word: usize,
}

/// A lock, condition variable or barrier within a main segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sync {
    pub(crate) seg: usize,
    pub(crate) number: u64,
}

/// One step of a program. Steps that need several exchanges put the remaining ones back in front of
/// the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Do something else for so many nanoseconds.
    Think(u64),
    /// Open the segment of this name.
    Open {
        seg: Seg,
        name: usize,
        create: bool,
        exclusive: bool,
        write: bool,
    },
    /// Map it.
    Map(Seg),
    /// Unmap all of it.
    Unmap(Seg),
    /// Close it.
    Close(Seg),
    /// The process is set up: its other threads start.
    Begin,
    /// Load a word.
    Load(Place),
    /// Store a word: this value, or one never stored before.
    Store(Place, Option<u64>),
    /// Load a word, and store its value plus this; correct only under a lock.
    Add(Place, u64),
    /// Second half of `Add`: store the sum if the word is unchanged.
    AddStore {
        place: Place,
        loaded: u64,
        delta: u64,
    },
    /// Do these steps under a lock; give up after `patience` nanoseconds.
    Locked {
        lock: Sync,
        patience: Option<u64>,
        body: Vec<Step>,
    },
    /// Release, if held.
    Unlock(Sync),
    /// Wait at the barrier of this number.
    Barrier(usize),
    /// Under its lock: take one from the queue of this number, or wait for the signal.
    TryConsume(usize),
    /// Signal a condition variable.
    Signal { cond: Sync, all: bool },
    /// Wait until a word is at least this. First look, which brings a copy here ...
    WatchFor(Place, u64),
    /// ... then watch the page ...
    AskWatch(Place, u64),
    /// ... and look again, now that no store can be missed.
    CheckWatch(Place, u64),
    /// Last part: wait until the watch ends.
    AwaitWatch,
    /// Watch a page, and lose patience after so many nanoseconds.
    WatchBriefly(Place, u64),
    /// Pin pages.
    Pin { seg: usize, first: u32, count: u32 },
    /// Unpin them.
    Unpin { seg: usize, first: u32, count: u32 },
    /// Keep a segment from changing.
    Hold(usize),
    /// Let it change again.
    EndHold(usize),
    /// Round trip to a host.
    Probe(usize),
    /// Ask for the segment of this name.
    Stat(usize),
    /// List all segments.
    List,
    /// Remove a name.
    Remove(usize),
    /// This host leaves the cluster.
    Leave,
    /// This host is to coordinate.
    Promote,
    /// An older program is to take the place of this host's daemon.
    MakeRoom,
}

impl Step {
    /// True if the step waits for another thread, which may have died.
    pub(crate) fn needs_others(&self) -> bool {
        matches!(
            self,
            Self::Barrier(_)
                | Self::TryConsume(_)
                | Self::WatchFor(..)
                | Self::AskWatch(..)
                | Self::CheckWatch(..)
                | Self::AwaitWatch
        )
    }
}

/// A segment a run may use.
#[derive(Clone, Debug)]
pub(crate) struct SegmentPlan {
    pub(crate) name: String,
    pub(crate) pages: u32,
    pub(crate) policy: Policy,
    pub(crate) replicas: u8,
}

impl SegmentPlan {
    pub(crate) fn spec(&self) -> SegmentSpec {
        SegmentSpec {
            size: ByteLen(u64::from(self.pages) * PAGE_SIZE as u64),
            mode: 0o666,
            policy: self.policy,
            replicas: self.replicas,
        }
    }
}

/// Producers and consumers meet here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePlan {
    pub(crate) lock: Sync,
    pub(crate) cond: Sync,
    /// The word that counts items produced and not consumed.
    pub(crate) count: Place,
}

/// A barrier and how many threads make it open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BarrierPlan {
    pub(crate) sync: Sync,
    pub(crate) parties: u32,
}

/// A process.
#[derive(Clone, Debug)]
pub(crate) struct ClientPlan {
    pub(crate) host: usize,
    /// The programs of its threads; the first sets the process up and says `Begin`.
    pub(crate) programs: Vec<Vec<Step>>,
    /// Steps of the last thread to end.
    pub(crate) farewell: Vec<Step>,
}

/// A host.
#[derive(Clone, Debug)]
pub(crate) struct HostPlan {
    /// When its daemon starts.
    pub(crate) starts_at: u64,
    /// A new life at the address of this host, which is gone by then.
    pub(crate) successor_of: Option<usize>,
    /// Its daemon goes on as the coordinator from the disk of this host.
    pub(crate) resumes: Option<usize>,
    /// The time that its clock shows at the beginning.
    pub(crate) clock_offset: u64,
    /// Nanoseconds that handling one input takes.
    pub(crate) cost: u64,
    /// A woken thread runs at the latest after so many nanoseconds.
    pub(crate) wake: u64,
}

/// The faults of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing gets through from some hosts to others.
    Cut {
        pairs: Vec<(usize, usize)>,
        length: u64,
    },
    /// A daemon stops handling.
    Pause { host: usize, length: u64 },
    /// A daemon takes so many times as long for everything.
    Slow {
        host: usize,
        factor: u64,
        length: u64,
    },
    /// A process dies.
    ClientDies { client: usize },
    /// A host vanishes.
    Crash { host: usize },
    /// A host has memory for so many frames, from now on; the pages that are too many go to any
    /// other host, or only to those with idle memory.
    Press {
        host: usize,
        frames: u32,
        anywhere: bool,
    },
    /// A host is told to leave, whatever its processes are doing.
    Leave { host: usize },
    /// The first host vanishes, or its daemon stops handling for a long time, as soon as all hosts
    /// are members and there is a standby; perhaps another host vanishes with it.
    FirstFails { crash: bool, with: Option<usize> },
    /// A person promotes the standby, and tries again until that succeeds.
    Promote,
    /// The first host's daemon is started again, to go on from its disk, as soon as it was killed.
    Resume,
    /// The first host's daemon that has gone on from its disk is killed again, wherever it is.
    KillAgain,
    /// The node that etcd has elected vanishes, as soon as there is one.
    CoordinatorFails,
    /// A host cannot reach etcd, or none can.
    EtcdFails { host: Option<usize>, length: u64 },
    /// A daemon of the new or the old program takes the place of a host's.
    Upgrade { host: usize, old: bool },
    /// The place for the old program is free.
    PutBack { host: usize },
}
