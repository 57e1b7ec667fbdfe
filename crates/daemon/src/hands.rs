//! The hands of the node: carry out its effects, in order and completely.

use crate::faults::{Faults, Waiting};
use crate::fuse::Fuse;
use crate::keeper::{Kept, Tag};
use crate::locks::Reclaimed;
use crate::network::Network;
use crate::note::Note;
use crate::pages::{At, Pages};
use crate::payload::Payload;
use crate::quota::{LogLines, Quota};
use crate::races::Races;
use crate::rank::Rank;
use crate::receipts::Receipts;
use crate::recorder::Recorder;
use crate::sessions::Sessions;
use crate::sharing::Sharing;
use crate::stamps::Stamps;
use crate::tally::{Count, Tally};
use crate::threads::Threads;
use crate::tickets::Tickets;
use pagemesh_core::{Effect, Event, Input};
use pagemesh_os::clock;
use pagemesh_os::poll::Poll;
use pagemesh_wire::header::PROTOCOL_VERSION;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ClientId, MappingId, NodeId, SegmentId, SyncKey};
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

pub(crate) mod course;

/// Everything the effects of a node act upon.
#[derive(Debug)]
pub(crate) struct Hands {
    /// What is waited for.
    pub(crate) poll: Poll,
    /// Other daemons.
    pub(crate) network: Network,
    /// Frames, mappings and the stash.
    pub(crate) pages: Pages,
    /// Faults being served.
    pub(crate) faults: Faults,
    /// Threads that waited for pages.
    pub(crate) threads: Threads,
    /// The mapping that got the last page, and how often to look there for the
    /// next fault.
    latest: Option<(MappingId, u32)>,
    /// A thread got a page since this was last cleared.
    pub(crate) woken: bool,
    /// Faults that are over and were not written down yet, and how long they took.
    over: Vec<(At, Waiting, u64)>,
    /// Local processes.
    pub(crate) sessions: Sessions,
    /// Their requests that wait for the core.
    pub(crate) tickets: Tickets,
    /// Counters.
    pub(crate) tally: Tally,
    /// Time stamps.
    pub(crate) stamps: Stamps,
    /// Who writes what, where somebody wants to know.
    pub(crate) sharing: Sharing,
    pub(crate) races: Races,
    /// Keeps things for the next daemon.
    pub(crate) keeper: Kept,
    /// What the node is told, and how far its effects are carried out.
    pub(crate) recorder: Recorder,
    /// Inputs that effects gave rise to, for after the effects.
    pub(crate) next: VecDeque<Input<'static>>,
    /// This node has left its cluster, or cannot: the daemon may end.
    pub(crate) left: bool,
    /// Pages that wait for memory, as far as was noted.
    pub(crate) waiting: usize,
    /// How often a daemon has gone on in the place of another.
    pub(crate) takeovers: u32,
    /// Another daemon is to go on in the place of this one.
    pub(crate) handed_over: bool,
    /// Pages whose loss was logged.
    lost: HashSet<At>,
    /// Hosts that speak another version of the protocol.
    pub(crate) foreigners: BTreeSet<IpAddr>,
    /// Events of the effects being carried out, and whether each came after
    /// something that took time.
    events: Vec<(Event, bool)>,
    /// Whether this daemon or who it wakes goes first.
    pub(crate) rank: Rank,
    /// What others are told when there is time.
    pub(crate) receipts: Receipts,
    /// Ends this daemon between two effects, in tests.
    pub(crate) fuse: Option<Fuse>,
    /// Events that were not written down yet, and when they happened: a thread
    /// that was just woken may want this very processor.
    later: Vec<(Event, u64)>,
    /// What a user may have.
    pub(crate) quota: Quota,
    /// What users have had of the log.
    pub(crate) log: LogLines,
}

/// Lost pages logged one by one; a whole lost segment need not fill the disk.
const LOGGED: usize = 1000;

/// Hosts of other protocol versions remembered; anybody can send datagrams.
const FOREIGNERS: usize = 16;

/// A thread that got a page has come to the next after so many turns, or has
/// something else to do.
const LOOKS: u32 = 3;

/// Faults that are over and wait to be written down.
const LATER: usize = 64;

impl Hands {
    /// Hands that have done nothing yet.
    pub(crate) fn new(poll: Poll, network: Network, pages: Pages, recorder: Recorder) -> Self {
        Self {
            poll,
            network,
            pages,
            faults: Faults::default(),
            threads: Threads::default(),
            latest: None,
            woken: false,
            over: Vec::new(),
            sessions: Sessions::default(),
            tickets: Tickets::default(),
            tally: Tally::default(),
            stamps: Stamps::default(),
            sharing: Sharing::default(),
            races: Races::default(),
            keeper: Kept::default(),
            recorder,
            next: VecDeque::new(),
            left: false,
            waiting: 0,
            takeovers: 0,
            handed_over: false,
            lost: HashSet::new(),
            foreigners: BTreeSet::new(),
            events: Vec::new(),
            rank: Rank::default(),
            receipts: Receipts::default(),
            fuse: None,
            later: Vec::new(),
            quota: Quota::default(),
            log: LogLines::default(),
        }
    }

    fn burn(&mut self, kind: &str) {
        if let Some(fuse) = &mut self.fuse {
            fuse.burn(kind);
        }
    }

    /// Writes the events down, or has it done later if a thread was woken.
    fn emit_all(&mut self, began: u64, woken: Option<u64>) {
        if self.events.is_empty() {
            return;
        }
        let now = woken.unwrap_or_else(clock::monotonic);
        let events = self.events.drain(..);
        let events = events.map(|(event, acted)| (event, if acted { now } else { began }));
        self.later.extend(events);
        if woken.is_none() {
            self.write_events();
        }
    }

    fn write_events(&mut self) {
        let mut events = std::mem::take(&mut self.later);
        for (event, nanos) in events.drain(..) {
            self.emit(&event, nanos);
        }
        self.later = events;
    }

    /// An input for after the effects.
    pub(crate) fn follow(&mut self, input: Input<'static>) {
        self.recorder.follow(&input);
        self.next.push_back(input);
    }

    fn one(&mut self, effect: Effect, payload: Payload<'_>) {
        match effect {
            Effect::Protect { segment, page } => {
                self.pages.protect((segment, page), &mut self.tally);
            }
            Effect::Evict {
                segment,
                page,
                keep,
            } => self.evict((segment, page), keep),
            Effect::Fail {
                mapping,
                segment,
                page,
                why,
            } => self.fail(mapping, (segment, page), &why),
            Effect::ConfirmUse { segment, page } => {
                self.write_down();
                let used = self.threads.have_run((segment, page));
                self.follow(Input::UseConfirmed {
                    segment,
                    page,
                    used,
                });
            }
            Effect::Forget { segment } => self.forget(segment),
            Effect::LendLock {
                key,
                client,
                wanted,
            } => self.lend_lock(key, client, wanted),
            Effect::ReclaimLock { key } => self.reclaim_lock(key),
            Effect::Reply { ticket, reply } => {
                // Whoever is woken may take this processor, and what is still to be
                // sent would wait until it stops.
                self.network.depart(&mut self.tally);
                self.rank.before_waking();
                self.answer(ticket, *reply);
            }
            Effect::SendNotice { address, notice } => {
                self.network
                    .send_bytes(address, &notice.encode(), &mut self.tally);
            }
            send @ Effect::Send { .. } => self.send(send, payload),
            Effect::Diffs(work) => self.diff_work(work, payload),
            Effect::Fill { .. }
            | Effect::Map { .. }
            | Effect::DropStash { .. }
            | Effect::Emit(_) => {
                unreachable!("carried out by the caller")
            }
        }
    }

    fn send(&mut self, effect: Effect, payload: Payload<'_>) {
        let Effect::Send {
            address,
            header,
            message,
            page,
        } = effect
        else {
            return;
        };
        let (pages, sharing) = (&self.pages, &mut self.sharing);
        let append = |datagram: &mut Vec<u8>| match page {
            Some((segment, page, source)) => {
                let at = (segment, page);
                let there = pages.append(at, source, payload, datagram);
                if there && sharing.is_on() {
                    sharing.left(at, datagram, header.from);
                }
                there
            }
            None => !message.carries_page(),
        };
        let tally = &mut self.tally;
        if !self.network.send(address, header, &message, append, tally) {
            tracing::error!(?page, "contents to send are not there");
        }
    }

    /// The mapping where the next fault may be expected.
    pub(crate) fn expected(&mut self) -> Option<MappingId> {
        let (mapping, looks) = self.latest?;
        self.latest = looks.checked_sub(1).map(|looks| (mapping, looks));
        Some(mapping)
    }

    /// Writes down what is over.
    pub(crate) fn write_down(&mut self) {
        self.write_events();
        for (at, waiting, took) in self.over.drain(..) {
            self.tally.fault(took, waiting.remote);
            self.threads.serve(at, waiting.threads());
        }
    }

    fn evict(&mut self, at: At, keep: bool) {
        self.pages.evict(at, keep, &mut self.tally);
        self.write_down();
        self.taken_away(at);
    }

    /// A page is gone from here.
    fn taken_away(&mut self, at: At) {
        self.threads.forget(at);
        if !self.faults.is_empty() {
            for id in self.pages.ids_of(at.0) {
                self.faults.outdate((*id, at.1));
            }
        }
    }

    fn fail(&mut self, mapping: MappingId, at: At, why: &Refusal) {
        self.faults.end((mapping, at.1));
        if self.lost.len() < LOGGED && self.lost.insert(at) {
            let cure = match why {
                Refusal::NodeGone(NodeId::COORDINATOR) => {
                    "let the first node's daemon go on, or end all daemons and start anew"
                }
                Refusal::NodeGone(_) => "the page is lost: go on without it, or make a new segment",
                _ => "restart this node's daemon",
            };
            tracing::error!(
                segment = %at.0, home = %at.0.home(), page = %at.1, %why, cure,
                "an access cannot be served; the process gets SIGBUS",
            );
        }
        if self.pages.poison(mapping, at) {
            return;
        }
        // Kernels before 6.6 cannot make one page fail; a hang would be worse.
        let client = self
            .pages
            .mappings
            .get(mapping)
            .map(|mapping| mapping.client);
        if let Some(session) = client.and_then(|client| self.sessions.get(client)) {
            kill(session.caller.pid);
        }
    }

    fn forget(&mut self, segment: SegmentId) {
        self.pages.segments.forget(segment);
        self.pages.stash.forget(segment);
        self.pages.changes.forget(segment);
        self.pages.waiting.forget(segment);
        self.sharing.watch(segment, false);
        self.keeper.drop(Tag::Memory(segment));
        self.keeper.drop(Tag::Locks(segment));
    }

    /// The slot of a lock of a segment that is open here.
    pub(crate) fn slot(&mut self, key: SyncKey, uid: u32) -> Option<u32> {
        let segment = self.pages.segments.get_mut(key.segment)?;
        let known = segment.locks.known(key.number);
        if known.is_some() {
            return known;
        }
        let slot = segment.locks.slot(key.number, uid)?;
        self.note(&Note::Slot { key, slot, uid });
        Some(slot)
    }

    /// The token of a lock is not lent any more.
    pub(crate) fn take_back(&mut self, key: SyncKey) {
        if let Some(segment) = self.pages.segments.get(key.segment) {
            segment.locks.take_back(key.number);
        }
    }

    fn lend_lock(&mut self, key: SyncKey, client: ClientId, wanted: bool) {
        let session = self.sessions.get(client);
        self.slot(
            key,
            session.map_or(0, |session| session.caller.credentials.uid),
        );
        let segment = self.pages.segments.get(key.segment);
        let lent = segment.is_some_and(|segment| segment.locks.lend(key.number, client, wanted));
        if !lent {
            tracing::error!(lock = %key, "no slot for a lock");
            self.follow(Input::LockReturned {
                key,
                recovered: true,
            });
        }
    }

    fn reclaim_lock(&mut self, key: SyncKey) {
        let segment = self.pages.segments.get(key.segment);
        let reclaimed = segment.map_or(Reclaimed::Broken, |segment| {
            segment.locks.reclaim(key.number)
        });
        // Back already, which the daemon before could not say any more.
        let reclaimed = match reclaimed {
            Reclaimed::Broken if self.pages.again => Reclaimed::Back,
            other => other,
        };
        if reclaimed != Reclaimed::Marked {
            self.follow(Input::LockReturned {
                key,
                recovered: reclaimed == Reclaimed::Broken,
            });
        }
    }

    /// Counts, stamps and logs an event.
    fn emit(&mut self, event: &Event, nanos: u64) {
        self.tally.event(event);
        self.stamps.event(event, nanos);
        match event {
            Event::ForeignVersion { source, version } => self.foreign(*source, *version),
            Event::Admitted { node } => tracing::info!(%node, "admitted to the cluster"),
            Event::Joined { node } => tracing::info!(%node, "joined"),
            Event::Left { node } => tracing::info!(%node, "left"),
            Event::Died { node } => tracing::warn!(%node, "does not answer; declared dead"),
            Event::Expelled {} if self.left => tracing::info!("not a member any more"),
            Event::Expelled {} => tracing::error!("not a member of the cluster (any more)"),
            other => tracing::trace!(?other),
        }
    }

    /// Somebody speaks another version: said once for each host.
    fn foreign(&mut self, source: SocketAddr, version: u8) {
        if self.foreigners.len() < FOREIGNERS && self.foreigners.insert(source.ip()) {
            tracing::warn!(
                %source, version, ours = PROTOCOL_VERSION,
                "a daemon speaks another version of the protocol: install the same release everywhere",
            );
        }
    }

    /// Now that nothing more urgent is to be done: writes down what is over, makes room for
    /// what comes if nothing is likely to come soon, and looks how often the threads that
    /// wait for other nodes have run.
    pub(crate) fn catch_up(&mut self, is_quiet: bool) {
        self.write_down();
        self.recorder.look_ahead();
        if is_quiet {
            self.pages.changes.slots_mut().look_ahead();
        }
        if self.faults.has_unseen() {
            let threads = &mut self.threads;
            self.faults.look(|thread| threads.look(thread));
        }
    }

    /// While a page is on its way that a thread waits for: its frame gets its memory, so that it is
    /// placed sooner when it has come.
    pub(crate) fn prepare(&mut self) {
        if let Some((mapping, page)) = self.faults.wants_memory() {
            self.pages.prepare(mapping, page);
        }
    }

    /// A process or mapping is gone.
    pub(crate) fn unmap(&mut self, id: MappingId) -> bool {
        let Some(mapping) = self.pages.unmap(id) else {
            return false;
        };
        let _ = self.poll.remove(&mapping.uffd);
        self.faults.forget(id);
        true
    }

    /// Counts.
    pub(crate) fn count(&mut self, count: Count, amount: u64) {
        self.tally.add(count, amount);
    }
}

/// Ends a process by SIGBUS.
pub(crate) fn kill(process: i32) {
    if let Some(process) = rustix::process::Pid::from_raw(process)
        && process.as_raw_nonzero().get() > 0
    {
        let _ = rustix::process::kill_process(process, rustix::process::Signal::BUS);
    }
}
