//! The connection of a process to the cluster.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use pagemesh_os::area::LockArea;
use pagemesh_os::kept::{Mark, kept};
use pagemesh_wire::local::{NodeStatus, PageReport, Refusal, Reply, Request, Stamp};
use pagemesh_wire::peer::{Member, SegmentInfo, SegmentSpec};
use pagemesh_wire::{ByteLen, ClientId, NodeId, PageIndex, SegmentId};

use crate::bell::after;
use crate::connection::{Answer, Connection, PATIENCE, unexpected};
use crate::fork::{Guarded, Handlers, complain, on_fork};
use crate::mapping::Region;
use crate::segment::{Access, Options, Segment, Shared};
use crate::{Error, Result, socket_paths};

/// A connection to the daemon of this host, and through it to the cluster. Clones share it; it is
/// closed when the last clone, segment, mapping and lock is dropped.
#[derive(Clone)]
pub struct Mesh(Arc<Inner>);

pub struct Inner {
    connection: Connection,
    /// The version of the local protocol that this process and its daemon speak.
    version: u32,
    /// The process's [`ClientId`]; a forked child gets another one.
    client: AtomicU32,
    node: NodeId,
    /// `/dev/userfaultfd`, if the daemon lent it.
    device: Option<(Mark, OwnedFd)>,
    /// State that all openings of one segment in this process share.
    segments: Guarded<HashMap<SegmentId, Weak<Shared>>>,
    /// All mappings: waits for changes search them, and a forked child attaches them again.
    regions: Guarded<Vec<Weak<Region>>>,
}

/// All connections of this process, for the fork handlers.
static ALL: Guarded<Vec<Weak<Inner>>> = Guarded::new(Vec::new());

/// Daemons that may die one after the other as they let a process in.
const DAEMONS_IN_A_ROW: usize = 4;

/// The fork handlers of all connections.
const AT_FORK: Handlers = Handlers {
    survey,
    expect_child: || each_while_forking(Inner::expect_child),
    forget_child: || each_while_forking(Inner::forget_child),
    inherit: || each_while_forking(Inner::inherit),
};

/// Runs before a fork, while other threads continue: notes which mappings the program has unmapped
/// directly.
fn survey() {
    let known: Vec<_> = ALL.lock().iter().filter_map(Weak::upgrade).collect();
    for inner in known.iter().filter(|inner| inner.connection.is_ours()) {
        inner.regions().iter().for_each(|region| region.survey());
    }
}

/// Calls `work` for each live connection; this thread has closed the shield.
fn each_while_forking(work: fn(&Inner)) {
    for inner in ALL.while_forking().iter().filter_map(Weak::upgrade) {
        work(&inner);
    }
}

/// All nodes that ever joined the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// Rises with every change.
    pub epoch: u64,
    /// Ordered by node number.
    pub members: Vec<Member>,
}

impl Mesh {
    /// Connects to the daemon of this host, at the first of
    /// [`socket_paths`](crate::socket_paths) where one answers.
    ///
    /// # Errors
    /// [`Error::NoDaemon`] if no daemon answers; [`Error::DaemonSilent`] if one accepts the
    /// connection but does not answer for 40 s; [`Error::Refused`] if it speaks another version.
    pub fn connect() -> Result<Self> {
        Self::connect_first(socket_paths())
    }

    /// Connects to the daemon whose socket is at `path`.
    ///
    /// # Errors
    /// As [`Mesh::connect`].
    pub fn connect_to(path: impl AsRef<Path>) -> Result<Self> {
        Self::connect_first(vec![path.as_ref().to_owned()])
    }

    fn connect_first(paths: Vec<PathBuf>) -> Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for path in &paths {
            match Self::connect_at(path) {
                Ok(Ok(mesh)) => return Ok(mesh),
                Ok(Err(error)) => return Err(error),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Err(Error::DaemonSilent);
                }
                Err(error) => last = error,
            }
        }
        Err(Error::NoDaemon {
            paths,
            source: last,
        })
    }

    /// Connects to the daemon at this socket, again if it ends before it says anything: one that
    /// dies just as it accepts a connection cannot leave it to its successor.
    fn connect_at(path: &Path) -> io::Result<Result<Self>> {
        let mut met = Self::over(Connection::connect(path)?);
        for _ in 1..DAEMONS_IN_A_ROW {
            if !matches!(met, Err(Error::DaemonGone)) {
                break;
            }
            met = Self::over(Connection::connect(path)?);
        }
        Ok(met)
    }

    /// Introduces this process on a fresh connection.
    pub(crate) fn over(connection: Connection) -> Result<Self> {
        Self::over_within(connection, PATIENCE)
    }

    /// As [`Mesh::over`], with `patience` as the limit for the daemon's answer.
    pub(crate) fn over_within(connection: Connection, patience: Duration) -> Result<Self> {
        let (version, mut answer) = greet(&connection, patience)?;
        let Reply::Welcome { client, node, .. } = answer.reply else {
            return Err(unexpected(&answer.reply));
        };
        let inner = Arc::new(Inner {
            connection,
            version,
            client: AtomicU32::new(client.0),
            node,
            device: answer.fds.pop().map(kept),
            segments: Guarded::default(),
            regions: Guarded::default(),
        });
        on_fork(AT_FORK);
        let mut all = ALL.lock();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&inner));
        drop(all);
        Ok(Self(inner))
    }

    /// Creates a segment of `size` bytes, or opens it if it exists and
    /// `options.exclusive` is not set, for writing (M1, F3). The pages are zero
    /// and cost nothing until they are touched.
    ///
    /// A name has 1 to 255 bytes, neither '/' nor NUL. An existing segment keeps
    /// its size and options: see [`Segment::info`].
    ///
    /// # Errors
    /// [`Error::Refused`] if the name or size is invalid, or if the name is taken and
    /// `options.exclusive` is set or the segment's mode does not permit access.
    pub fn create(&self, name: &str, size: u64, options: Options) -> Result<Segment> {
        let spec = SegmentSpec {
            size: ByteLen(size),
            mode: options.mode,
            policy: options.policy,
            replicas: options.replicas,
        };
        self.open_with(name, Some(spec), options.exclusive, Access::Writable)
    }

    /// Opens an existing segment (M1, F4).
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none of that name, or its owner, group and
    /// mode do not permit it.
    pub fn open(&self, name: &str, access: Access) -> Result<Segment> {
        self.open_with(name, None, false, access)
    }

    fn open_with(
        &self,
        name: &str,
        create: Option<SegmentSpec>,
        exclusive: bool,
        access: Access,
    ) -> Result<Segment> {
        let answer = self.0.connection.ask_surely(
            Request::Open {
                name: name.to_owned(),
                create,
                exclusive,
                write: access == Access::Writable,
            },
            None,
        )?;
        let Reply::Opened { info } = answer.reply else {
            return Err(unexpected(&answer.reply));
        };
        self.lent(info, answer.fds, access)
    }

    /// The segment whose descriptors the daemon has just lent to this process.
    pub(crate) fn lent(
        &self,
        info: SegmentInfo,
        fds: Vec<OwnedFd>,
        access: Access,
    ) -> Result<Segment> {
        let id = info.id;
        let opened = self.opened(info, fds, access);
        if opened.is_err() {
            self.0.connection.tell(Request::Close { segment: id });
        }
        opened
    }

    /// Builds a [`Segment`] from the descriptors that the daemon lent.
    fn opened(&self, info: SegmentInfo, fds: Vec<OwnedFd>, access: Access) -> Result<Segment> {
        let [memory, area] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| {
            Error::Invalid(
                "the segment's memory did not arrive: this process has no file descriptor left \
                 (`ulimit -n`), or its daemon is of another version",
            )
        })?;
        let mut segments = self.0.segments.lock();
        let known = segments.get(&info.id).and_then(Weak::upgrade);
        let shared = if let Some(shared) = known {
            shared
        } else {
            let area = LockArea::map(area).map_err(Error::Map)?;
            let shared = Arc::new(Shared::new(area));
            segments.retain(|_, shared| shared.strong_count() > 0);
            segments.insert(info.id, Arc::downgrade(&shared));
            shared
        };
        drop(segments);
        Ok(Segment::new(self.clone(), info, memory, access, shared))
    }

    /// Removes a segment's name at once. Processes that have it open keep it; it is deleted when
    /// the last one closes it. Its locks and barriers are deleted with it.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none of that name, or it is not the caller's.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.done(Request::Remove {
            name: name.to_owned(),
        })
    }

    /// The description of a segment, without opening it.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none of that name.
    pub fn stat(&self, name: &str) -> Result<SegmentInfo> {
        let name = name.to_owned();
        match self.ask(Request::Stat { name }, None)?.reply {
            Reply::Segment(info) => Ok(info),
            other => Err(unexpected(&other)),
        }
    }

    /// All segments of the cluster that have a name, in order of their names.
    ///
    /// # Errors
    /// If the daemon cannot ask the node that keeps the names.
    pub fn list(&self) -> Result<Vec<SegmentInfo>> {
        let mut all: Vec<SegmentInfo> = Vec::new();
        loop {
            let after = all.last().map_or(String::new(), |info| info.name.clone());
            match self.ask(Request::List { after }, None)?.reply {
                Reply::Segments(some) if some.is_empty() => return Ok(all),
                Reply::Segments(some) => all.extend(some),
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// All nodes that ever joined the cluster.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn members(&self) -> Result<Members> {
        let reply = self.ask(Request::Members, None)?.reply;
        let members = reply.into_members();
        let (epoch, _, members) = members.map_err(|other| unexpected(&other))?;
        Ok(Members { epoch, members })
    }

    /// The status of this node, with its problems and their remedies.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn status(&self) -> Result<NodeStatus> {
        match self.ask(Request::Status, None)?.reply {
            Reply::Status(status) => Ok(status),
            other => Err(unexpected(&other)),
        }
    }

    /// This node's state of at most `limit` pages of a segment, from page number `first` on.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none of that name, or it is not permitted.
    pub fn inspect(&self, name: &str, first: u32, limit: u32) -> Result<PageReport> {
        let request = Request::Inspect {
            name: name.to_owned(),
            first: PageIndex(first),
            limit,
        };
        match self.ask(request, None)?.reply {
            Reply::Pages(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// Measures the round trip of a call to a node, through every layer (M24).
    ///
    /// # Errors
    /// [`Error::Refused`] if the node is dead or unknown.
    pub fn probe(&self, node: NodeId) -> Result<Duration> {
        let start = Instant::now();
        self.done(Request::Probe { node })?;
        Ok(start.elapsed())
    }

    /// All counters of this node since its daemon started, by name (M23). Read
    /// them at the start and end of a program, and subtract.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn counters(&self) -> Result<Vec<(String, u64)>> {
        match self.ask(Request::Counters, None)?.reply {
            Reply::Counters(counters) => Ok(counters),
            other => Err(unexpected(&other)),
        }
    }

    /// True if this node checks for races (`--check-races`).
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn looks_for_races(&self) -> Result<bool> {
        match self.ask(Request::Races { first: u32::MAX }, None)?.reply {
            Reply::Races(report) => Ok(report.looked_for),
            other => Err(unexpected(&other)),
        }
    }

    /// Adds a mark of the program to this node's time stamps (M22).
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn stamp(&self, tag: u64) -> Result<()> {
        self.done(Request::Stamp { tag })
    }

    /// This node's time stamps from number `from` on, as many as fit one reply (M22). Continue with
    /// one more than the last number; a gap in the numbers means that stamps were overwritten
    /// before they were read.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn stamps(&self, from: u64) -> Result<Vec<Stamp>> {
        match self.ask(Request::Stamps { from }, None)?.reply {
            Reply::Stamps(stamps) => Ok(stamps),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes this node hand over its pages and leave the cluster. Returns when it has left.
    ///
    /// # Errors
    /// [`Error::Refused`] if the caller is not permitted to ask for it, or the node cannot leave.
    pub fn leave(&self) -> Result<()> {
        self.done(Request::Leave)
    }

    /// This node's number.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.0.node
    }

    /// The number of this process in lock words.
    pub(crate) fn client(&self) -> ClientId {
        ClientId(self.0.client.load(Ordering::Relaxed))
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.0.connection
    }

    /// `/dev/userfaultfd`, if the daemon lent it.
    pub(crate) fn device(&self) -> Option<BorrowedFd<'_>> {
        self.0.device.as_ref().map(|(_, device)| device.as_fd())
    }

    pub(crate) fn ask(&self, request: Request, until: Option<Instant>) -> Result<Answer> {
        if request.since() > self.0.version {
            return Err(Error::Refused(Refusal::Invalid(
                "the daemon is of an older release that cannot do this: replace it by this one, \
                 then start the program again"
                    .into(),
            )));
        }
        self.0.connection.ask_surely(request, until)
    }

    /// Sends a request whose only successful reply is `Done`.
    pub(crate) fn done(&self, request: Request) -> Result<()> {
        match self.ask(request, None)?.reply {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Notes a mapping that the daemon serves.
    pub(crate) fn add(&self, region: &Arc<Region>) {
        let mut regions = self.0.regions.lock();
        regions.retain(|known| known.strong_count() > 0);
        regions.push(Arc::downgrade(region));
    }

    /// The first mapping in the process for which `fits` is true.
    pub(crate) fn find(&self, fits: impl FnMut(&Arc<Region>) -> bool) -> Option<Arc<Region>> {
        self.0.regions().into_iter().find(fits)
    }
}

impl Inner {
    /// All live mappings. Dropping one of them may drop the last reference, which sends a message
    /// to the daemon; therefore the list is not locked while the result is used.
    fn regions(&self) -> Vec<Arc<Region>> {
        let regions = self.regions.lock();
        regions.iter().filter_map(Weak::upgrade).collect()
    }
}

/// The fork handlers of one connection; see [`crate::fork`].
impl Inner {
    /// Before the fork.
    pub fn expect_child(&self) {
        self.connection.expect_child();
    }

    /// In the parent.
    pub fn forget_child(&self) {
        self.connection.forget_child();
    }

    /// In the child.
    pub fn inherit(&self) {
        let Some(inherited) = self.connection.inherit() else {
            return;
        };
        match &inherited {
            Ok(client) => self.client.store(client.0, Ordering::Relaxed),
            Err(orphan) => complain(format_args!("the segments"), orphan),
        }
        for region in self
            .regions
            .while_forking()
            .iter()
            .filter_map(Weak::upgrade)
        {
            if inherited.is_err() {
                region.renounce();
            } else if let Err(orphan) = region.inherit() {
                region.renounce();
                let name = region.name();
                complain(format_args!("the segment '{name:.60}'"), &orphan);
            }
        }
    }
}

impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mesh")
            .field("node", &self.0.node)
            .field("client", &self.0.client)
            .finish_non_exhaustive()
    }
}

/// Says hello in the newest version that the daemon speaks, too, and returns that.
fn greet(connection: &Connection, patience: Duration) -> Result<(u32, Answer)> {
    let mut first = None;
    for (version, hello) in Request::hellos(&program()) {
        match connection.ask_surely(hello, after(patience)) {
            Err(Error::Refused(why @ Refusal::Invalid(_))) => {
                first.get_or_insert(why);
            }
            answered => return answered.map(|answer| (version, answer)),
        }
    }
    Err(first.expect("there is a version to speak").into())
}

/// The name of this program, for people who look at reports.
fn program() -> String {
    let first = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&first).file_name().unwrap_or_default();
    name.to_string_lossy().chars().take(64).collect()
}
