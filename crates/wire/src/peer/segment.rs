//! Segments and their policies.

use crate::header::OLDEST_VERSION;
use crate::{ByteLen, NodeSet, PageCount, SegmentId};
use serde::{Deserialize, Serialize};

/// The caller: the process's credentials as its node's kernel gave them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Credentials {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// The superuser's.
    #[must_use]
    pub const fn root() -> Self {
        Self {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        }
    }
}

/// The node that keeps the order of requests for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Manager {
    /// Owner hints lead to the owner, who keeps the queue (FreeBSD DSM, F18).
    #[default]
    Dynamic,
    /// The library site, where the segment was created, keeps the queue (MIRAGE+, M7).
    Fixed,
}

/// The time window Δ: how long a node keeps a page it was granted (M10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Window {
    /// As long as it took to get the page, within bounds.
    #[default]
    Auto,
    /// This long, in nanoseconds. Zero still lets every page be used once (M12).
    Nanos(u64),
}

/// When modifications travel in a segment of policy `release`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Spread {
    /// When a thread that must see them touches the page (T6, T8).
    #[default]
    Lazy,
    /// At every release, to the nodes that hold the page (T20).
    Eager,
    /// Small ones together with the notice that there are any (TB4).
    Hybrid,
    /// When a thread touches the page, and never before a node asks: TreadMarks' own protocol (TR8).
    Invalidate,
}

impl Spread {
    /// As people write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lazy => "lazy",
            Self::Eager => "eager",
            Self::Hybrid => "hybrid",
            Self::Invalidate => "invalidate",
        }
    }
}

/// Where the pages of a segment of policy `private` are, beside the memory of donors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Backing {
    /// Every page that is not in a frame is in a file on the disk of the segment's home (G12).
    #[default]
    File,
    /// A page that is not in a frame is in the memory of two donors; it is in the file only while
    /// there are no two (GB1).
    Copies,
}

/// The policy of a segment, with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// Every load sees the latest store made anywhere; write-invalidate.
    Sequential {
        /// The node that keeps the order.
        manager: Manager,
        /// How long a page stays.
        window: Window,
    },
    /// Every load sees the stores that happened before it by the segment's own locks and barriers;
    /// many writers, whose changes are merged.
    Release {
        /// When changes travel.
        spread: Spread,
    },
    /// A policy without a name and without settings, which daemons have under a number. The
    /// product has none: it is how examples and experiments are told apart.
    Numbered(u8),
    /// One consistent copy that moves; copies for reading may be old, and change when newer ones
    /// pass by.
    Views {
        /// Bytes of a short page.
        prefix: u16,
    },
    /// The memory of one node, the segment's home: in its frames, then in idle memory of other
    /// nodes, then on its disk.
    Private {
        /// Pages in frames at most; zero: as many as the daemon's memory allows.
        local: PageCount,
        /// Where the other pages are.
        backing: Backing,
    },
    /// Frames for pages of files that a `pagemesh cache` process reads. No process maps them.
    Files,
}

impl Policy {
    /// Why a byte of a segment of policy `release` is not waited for.
    pub const NO_WATCH: &str = "pages of policy release change when their node takes a lock or \
        leaves a barrier; wait for those, or for a condition variable";

    /// Replicas of a segment at most.
    pub const REPLICAS: u8 = 1;

    /// Bytes of a short page, unless the creator of the segment says otherwise: those of Mether.
    pub const SHORT: u16 = 32;
    /// The smallest local memory of a private segment: an instruction of a program may touch
    /// several pages, and each of its threads executes one.
    pub const LOCAL_LEAST: ByteLen = ByteLen(64 << 10);

    /// The same policy with this much local memory.
    ///
    /// # Errors
    /// If it is not `private`, or the memory is too small.
    pub fn with_local(self, local: ByteLen) -> Result<Self, String> {
        let Self::Private { backing, .. } = self else {
            return Err("only segments of policy private have a local limit".into());
        };
        if local < Self::LOCAL_LEAST {
            let least = Self::LOCAL_LEAST.0;
            return Err(format!(
                "a private segment has at least {least} bytes of local memory"
            ));
        }
        let local = local.pages().unwrap_or(PageCount(u32::MAX));
        Ok(Self::Private { local, backing })
    }

    /// Manager and window of a sequential segment.
    #[must_use]
    pub fn sequential(self) -> Option<(Manager, Window)> {
        match self {
            Self::Sequential { manager, window } => Some((manager, window)),
            Self::Release { .. }
            | Self::Numbered(_)
            | Self::Views { .. }
            | Self::Private { .. }
            | Self::Files => None,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::Sequential {
            manager: Manager::default(),
            window: Window::default(),
        }
    }
}

/// The choices of a segment's creator.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SegmentSpec {
    /// Size in bytes; rounded up to pages in memory, reported as given.
    pub size: ByteLen,
    /// Permission bits, as of a file: 0o600 and so on.
    pub mode: u16,
    /// The policy.
    pub policy: Policy,
    /// Other nodes that have the newest contents, so that they outlive the node that has the pages;
    /// [`Policy::REPLICAS`] at most.
    #[serde(default)]
    pub replicas: u8,
}

impl SegmentSpec {
    /// The version of the protocol since which daemons have such segments: all members must speak it.
    #[must_use]
    pub fn since_version(&self) -> u8 {
        match self.policy {
            Policy::Sequential { .. } | Policy::Release { .. } if self.replicas > 0 => {
                REPLICAS_VERSION
            }
            _ => OLDEST_VERSION,
        }
    }
}

/// The version of the protocol since which daemons keep replicas under `release` and `sequential`.
pub const REPLICAS_VERSION: u8 = 5;

/// The facts about a segment that all members may know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SegmentInfo {
    /// Its identity; the upper bits are its home.
    pub id: SegmentId,
    /// Its name, 1 to 255 bytes, unique in the cluster until removed.
    pub name: String,
    /// As chosen at creation.
    pub spec: SegmentSpec,
    /// Owner and group, from the creator's credentials.
    pub owner: (u32, u32),
    /// Removed by name; gone when the last node detaches.
    pub removed: bool,
    /// Nodes on which some process has it open.
    pub attached: NodeSet,
}
