//! The hands of the node: carry out its effects, in order and completely.

use crate::keeper::{Kept, Tag};
use crate::network::Network;
use crate::note::Note;
use crate::pages::Pages;
use crate::payload::Payload;
use crate::process::kill;
use crate::quota::{LogLines, Quota};
use crate::races::Races;
use crate::rank::Rank;
use crate::receipts::Receipts;
use crate::recorder::Recorder;
use crate::sessions::Sessions;
use crate::sharing::Sharing;
use crate::tally::{Count, Tally};
use crate::tickets::Tickets;
use pagemesh_core::{At, Input, Reclaimed, Source};
use pagemesh_os::poll::Poll;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Message, Refusal};
use pagemesh_wire::{ClientId, MappingId, SegmentId, SyncKey};
use std::net::SocketAddr;

mod batch;
mod diffs;
mod event_log;
mod executor;
mod fault_tracker;

use event_log::EventLog;
use fault_tracker::FaultTracker;

/// Everything the effects of a node act upon.
#[derive(Debug)]
pub(crate) struct Hands {
    /// What is waited for.
    pub(crate) poll: Poll,
    /// Other daemons.
    pub(crate) network: Network,
    /// Frames, mappings and the stash.
    pub(crate) pages: Pages,
    /// Faults being served, and the threads that wait for them.
    pub(crate) faults: FaultTracker,
    /// Local processes.
    pub(crate) sessions: Sessions,
    /// Their requests that wait for the core.
    pub(crate) tickets: Tickets,
    /// Counters.
    pub(crate) tally: Tally,
    /// What is said about what happened.
    pub(crate) events: EventLog,
    /// Who writes what, where somebody wants to know.
    pub(crate) sharing: Sharing,
    /// Races found.
    pub(crate) races: Races,
    /// Keeps things for the next daemon.
    pub(crate) keeper: Kept,
    /// What the node is told, and how far its effects are carried out.
    pub(crate) recorder: Recorder,
    /// How this daemon follows others, and ends.
    pub(crate) life: Life,
    /// Whether this daemon or who it wakes goes first.
    pub(crate) rank: Rank,
    /// What others are told when there is time.
    pub(crate) receipts: Receipts,
    /// What a user may have.
    pub(crate) quota: Quota,
    /// What users have had of the log.
    pub(crate) log: LogLines,
}

/// How a daemon follows others, and ends.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// This node has left its cluster, or cannot: the daemon may end.
    pub(crate) left: bool,
    /// How often a daemon has gone on in the place of another.
    pub(crate) takeovers: u32,
    /// Another daemon is to go on in the place of this one.
    pub(crate) handed_over: bool,
}

impl Hands {
    /// Hands that have done nothing yet.
    pub(crate) fn new(poll: Poll, network: Network, pages: Pages, recorder: Recorder) -> Self {
        Self {
            poll,
            network,
            pages,
            faults: FaultTracker::default(),
            sessions: Sessions::default(),
            tickets: Tickets::default(),
            tally: Tally::default(),
            events: EventLog::default(),
            sharing: Sharing::default(),
            races: Races::default(),
            keeper: Kept::default(),
            recorder,
            life: Life::default(),
            rank: Rank::default(),
            receipts: Receipts::default(),
            quota: Quota::default(),
            log: LogLines::default(),
        }
    }

    /// An input for after the effects.
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
        let (pages, sharing) = (&self.pages, &mut self.sharing);
        let append = |datagram: &mut Vec<u8>| match page {
            Some((at, source)) => {
                let there = pages.append(at, source, payload, datagram);
                if there && sharing.is_on() {
                    sharing.left(at, datagram, header.from);
                }
                there
            }
            None => !message.carries_page(),
        };
        let tally = &mut self.tally;
        if !self.network.send(address, header, message, append, tally) {
            tracing::error!(?page, "contents to send are not there");
        }
    }

    /// Writes down what is over.
    pub(crate) fn write_down(&mut self) {
        self.events.write(&mut self.tally, self.life.left);
        self.faults.write_down(&mut self.tally);
    }

    fn evict(&mut self, at: At, keep: bool) {
        self.pages.evict(at, keep, &mut self.tally);
        self.write_down();
        self.taken_away(at);
    }

    /// A page is gone from here.
    fn taken_away(&mut self, at: At) {
        self.faults.taken_away(at, self.pages.ids_of(at.0));
    }

    fn fail(&mut self, mapping: MappingId, at: At, why: &Refusal) {
        self.faults.open.end((mapping, at.1));
        self.events.cannot_be_served(at, why);
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

    fn reclaim_lock(&mut self, key: SyncKey) -> Reclaimed {
        let segment = self.pages.segments.get(key.segment);
        let reclaimed = segment.map_or(Reclaimed::Broken, |segment| {
            segment.locks.reclaim(key.number)
        });
        // Back already, which the daemon before could not say any more.
        match reclaimed {
            Reclaimed::Broken if self.pages.again => Reclaimed::Back,
            other => other,
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
        self.faults.look();
    }

    /// While a page is on its way that a thread waits for: its frame gets its memory, so that it is
    /// placed sooner when it has come.
    pub(crate) fn prepare(&mut self) {
        if let Some((mapping, page)) = self.faults.open.wants_memory() {
            self.pages.prepare(mapping, page);
        }
    }

    /// A process or mapping is gone.
    pub(crate) fn unmap(&mut self, id: MappingId) -> bool {
        let Some(mapping) = self.pages.unmap(id) else {
            return false;
        };
        let _ = self.poll.remove(&mapping.uffd);
        self.faults.open.forget(id);
        true
    }

    /// Something else is to be done: receipts wait, if they have not for too long.
    pub(crate) fn acknowledge_if_due(&mut self) {
        if self.receipts.are_due() {
            self.acknowledge();
        }
    }

    /// Sends all receipts.
    pub(crate) fn acknowledge(&mut self) {
        self.receipts.leave(&mut self.network, &mut self.tally);
    }

    /// Counts.
    pub(crate) fn count(&mut self, count: Count, amount: u64) {
        self.tally.add(count, amount);
    }
}
