//! Executes the node's effects, in order and completely.

use crate::counters::{Count, Counters};
use crate::etcd::Elections;
use crate::keeper::{Kept, Tag};
use crate::ledger::Ledger;
use crate::lending::Lending;
use crate::network::Network;
use crate::pages::Pages;
use crate::payload::Payload;
use crate::priority::SchedulingPriority;
use crate::process::kill;
use crate::quota::{LogLines, Quota};
use crate::races::Races;
use crate::receipts::Receipts;
use crate::recorder::Recorder;
use crate::sessions::Sessions;
use crate::sharing::Sharing;
use crate::tickets::Tickets;
use pagemesh_core::{At, Input, PageRange, Reclaimed, Source};
use pagemesh_os::poll::Poll;
use pagemesh_os::residency::Residency;
use pagemesh_recorder::Note;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Message, Put, Refusal};
use pagemesh_wire::{ClientId, MappingId, SegmentId, SyncKey};
use std::net::SocketAddr;

mod batch;
mod carry_out;
mod diffs;
mod event_log;
mod fault_tracker;
mod shared_run;

use event_log::EventLog;
use fault_tracker::FaultTracker;

/// Everything that effects act upon.
#[derive(Debug)]
pub(crate) struct DaemonExecutor {
    /// The poll set.
    pub(crate) poll: Poll,
    /// The network to other daemons.
    pub(crate) network: Network,
    /// Frames, mappings and the stash.
    pub(crate) pages: Pages,
    /// Faults being served, and the threads that wait for them.
    pub(crate) faults: FaultTracker,
    /// Connected processes of this host.
    pub(crate) sessions: Sessions,
    /// Their requests that the node has not answered yet.
    pub(crate) tickets: Tickets,
    /// Counters.
    pub(crate) counters: Counters,
    /// Events on their way into counters, stamps and the log.
    pub(crate) events: EventLog,
    /// Writers of watched pages.
    pub(crate) sharing: Sharing,
    /// Races found.
    pub(crate) races: Races,
    /// Keeps memory and descriptors for the successor.
    pub(crate) keeper: Kept,
    /// Journal of the inputs, and how far their effects are carried out.
    pub(crate) recorder: Recorder,
    /// Start and end of this daemon among its predecessors and successors.
    pub(crate) life: Life,
    /// Scheduling of this daemon against the threads that it wakes.
    pub(crate) priority: SchedulingPriority,
    /// Receipts that are sent when there is time.
    pub(crate) receipts: Receipts,
    /// Pages lent to other nodes, and files of private segments.
    pub(crate) lending: Lending,
    /// When a process published a state, or was told that one has changed, since the daemon looked last.
    pub(crate) changed: Option<u64>,
    /// What this daemon has on its disk as the coordinator or the standby, if it has a directory.
    pub(crate) ledger: Option<Ledger>,
    /// Asks etcd who coordinates, if the cluster is there.
    pub(crate) elections: Option<Elections>,
    /// Whether this daemon's memory is kept out of swap space.
    pub(crate) residency: Residency,
    /// Limits of each user.
    pub(crate) quota: Quota,
    /// Log lines that each user has caused.
    pub(crate) log: LogLines,
}

/// Start and end of this daemon among its predecessors and successors.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// The node has left its cluster, or cannot: the daemon may end.
    pub(crate) left: bool,
    /// Number of daemons before this one that this node has had.
    pub(crate) takeovers: u32,
    /// A successor goes on in the place of this daemon, with the state in this schema.
    pub(crate) handed_over: Option<u64>,
}

impl DaemonExecutor {
    /// An executor without effects so far.
    pub(crate) fn new(
        poll: Poll,
        network: Network,
        pages: Pages,
        recorder: Recorder,
        lending: Lending,
    ) -> Self {
        Self {
            lending,
            changed: None,
            poll,
            network,
            pages,
            faults: FaultTracker::default(),
            sessions: Sessions::default(),
            tickets: Tickets::default(),
            counters: Counters::default(),
            events: EventLog::default(),
            sharing: Sharing::default(),
            races: Races::default(),
            keeper: Kept::default(),
            recorder,
            life: Life::default(),
            priority: SchedulingPriority::default(),
            receipts: Receipts::default(),
            ledger: None,
            elections: None,
            residency: Residency::default(),
            quota: Quota::default(),
            log: LogLines::default(),
        }
    }

    /// Queues an input for after the effects.
    pub(crate) fn follow(&mut self, input: Input<'static>) {
        self.recorder.follow(input);
    }

    /// Sends a page.
    fn send(
        &mut self,
        (address, header): (SocketAddr, Header),
        message: &Message,
        page: Option<(At, Source)>,
        payload: Payload<'_>,
    ) {
        if let (Message::Put(put), Some((at, source))) = (message, page) {
            return self.put((address, header), *put, (at, source), payload);
        }
        let tampers = self.lending.tampers && matches!(message, Message::Got(_));
        let (pages, sharing) = (&self.pages, &mut self.sharing);
        let append = |datagram: &mut Vec<u8>| match page {
            Some((at, source)) => {
                let there = pages.append(at, source, payload, datagram);
                if tampers && let Some(last) = datagram.last_mut() {
                    *last ^= 1;
                }
                if there && sharing.is_on() {
                    sharing.left(at, datagram, header.from);
                }
                there
            }
            None => !message.carries_page(),
        };
        let counters = &mut self.counters;
        if !self
            .network
            .send(address, header, message, append, counters)
        {
            tracing::error!(?page, "contents to send are not there");
        }
    }

    /// Sends a page to its donor, sealed.
    fn put(
        &mut self,
        (address, header): (SocketAddr, Header),
        mut put: Put,
        (at, source): (At, Source),
        payload: Payload<'_>,
    ) {
        self.lending.sealed.clear();
        if !self
            .pages
            .append(at, source, payload, &mut self.lending.sealed)
        {
            return tracing::error!(page = ?at, "contents to lend are not there");
        }
        put.seal = self.lending.seal(put.lent);
        let (sealed, counters) = (&self.lending.sealed, &mut self.counters);
        let append = |datagram: &mut Vec<u8>| {
            datagram.extend_from_slice(sealed);
            true
        };
        let message = Message::Put(put);
        self.network
            .send(address, header, &message, append, counters);
    }

    /// Writes pages to the disk. False if it is full, or does not work.
    fn store(&mut self, range: PageRange) -> bool {
        let pages = &self.pages;
        let contents = range
            .iter()
            .map(|at| pages.contents(at, Source::Stash, Payload::NONE));
        let Some(contents) = contents.collect::<Option<Vec<_>>>() else {
            tracing::error!(?range, "contents to store are not there");
            return false;
        };
        if let Err(error) = self.lending.store(range, &contents) {
            tracing::warn!("private pages stay in memory: {error:#}");
            return false;
        }
        self.keep_files();
        true
    }

    /// Writes events and served faults into counters and the log.
    pub(crate) fn write_down(&mut self) {
        self.events.write(&mut self.counters, self.life.left);
        self.faults.write_down(&mut self.counters);
    }

    fn evict(&mut self, pages: PageRange, keep: bool) {
        self.pages.evict(pages, keep, &mut self.counters);
        self.write_down();
        let mappings = self.pages.ids_of(pages.segment);
        for at in pages.iter() {
            self.faults.taken_away(at, mappings);
        }
    }

    fn fail(&mut self, mapping: MappingId, at: At, why: &Refusal) {
        self.faults.open.end((mapping, at.1));
        self.events.cannot_be_served(at, why);
        if self.pages.poison(mapping, at) {
            return;
        }
        // Kernels before 6.6 cannot poison a page: kill the process, because a hang would be worse.
        let client = self
            .pages
            .mappings
            .get(mapping)
            .map(|mapping| mapping.client);
        if let Some(client) = client {
            self.kill(client);
        }
    }

    /// Reports the faults of a segment from now on. Returns the pages that have frames.
    fn trap(&mut self, segment: SegmentId) -> Vec<PageRange> {
        let (pages, failed) = self.pages.trap(segment);
        for client in failed {
            tracing::error!(%segment, process = %client, "the kernel does not report its accesses any more: it is killed");
            self.kill(client);
        }
        pages.unwrap_or_else(|error| {
            tracing::error!(%segment, "the pages that have memory are not known, and are lost: {error}");
            Vec::new()
        })
    }

    fn kill(&self, client: ClientId) {
        if let Some(session) = self.sessions.get(client) {
            kill(session.caller.pid);
        }
    }

    fn forget(&mut self, segment: SegmentId) {
        self.pages.segments.forget(segment);
        self.pages.stash.forget(segment);
        self.pages.changes.forget(segment);
        self.pages.waiting.forget(segment);
        if self.lending.forget(segment) {
            self.keeper.drop(Tag::Backing(segment));
        }
        self.sharing.watch(segment, false);
        self.keeper.drop(Tag::Memory(segment));
        self.keeper.drop(Tag::Locks(segment));
    }

    /// Slot of a lock of a segment that is open here.
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

    /// Ends the lending of a lock's token.
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

    fn reclaim_lock(&mut self, key: SyncKey) -> Reclaimed {
        let segment = self.pages.segments.get(key.segment);
        let reclaimed = segment.map_or(Reclaimed::Broken, |segment| {
            segment.locks.reclaim(key.number)
        });
        // The previous daemon took it back, but ended before it could tell the node.
        match reclaimed {
            Reclaimed::Broken if self.pages.again => Reclaimed::Back,
            other => other,
        }
    }

    /// Does deferred work: writes down events and faults, allocates memory ahead if nothing is
    /// likely to come soon, and samples how often the threads that wait for other nodes have run.
    pub(crate) fn catch_up(&mut self, is_quiet: bool) {
        self.write_down();
        self.recorder.look_ahead();
        if is_quiet {
            self.pages.changes.slots_mut().look_ahead();
        }
        self.faults.look();
    }

    /// Allocates the frame of a page that is under way and that a thread waits for: the page is
    /// placed sooner when it comes.
    pub(crate) fn prepare(&mut self) {
        if let Some((mapping, page)) = self.faults.open.wants_memory() {
            self.pages.prepare(mapping, page);
        }
    }

    /// Removes a mapping that ended, or whose process did.
    pub(crate) fn unmap(&mut self, id: MappingId) -> bool {
        let Some(mapping) = self.pages.unmap(id) else {
            return false;
        };
        let _ = self.poll.remove(&mapping.uffd);
        self.faults.open.forget(id);
        true
    }

    /// Sends the receipts if they have waited long enough.
    pub(crate) fn acknowledge_if_due(&mut self) {
        if self.receipts.are_due() {
            self.acknowledge();
        }
    }

    /// Sends all receipts.
    pub(crate) fn acknowledge(&mut self) {
        self.receipts.leave(&mut self.network, &mut self.counters);
    }

    /// Counts.
    pub(crate) fn count(&mut self, count: Count, amount: u64) {
        self.counters.add(count, amount);
    }
}
