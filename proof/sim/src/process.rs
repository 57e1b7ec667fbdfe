//! Processes and their threads: which exist, which run, what each waits for.

mod lives;
mod running;

use crate::kernel::{PageKey, ThreadId};
use crate::step::{Place, Seg, Step, Sync};
use pagemesh_core::Time;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::Access;
use pagemesh_wire::{ClientId, MappingId, PageIndex, SegmentId, SyncKey, Ticket};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A segment some process has open, and where it is mapped.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) segment: SegmentId,
    pub(crate) mappings: Vec<MappingId>,
}

/// A process.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) host: usize,
    pub(crate) id: ClientId,
    pub(crate) alive: bool,
    /// Main segments, by number.
    pub(crate) open: Vec<Option<Opened>>,
    threads: Vec<ThreadId>,
    running: usize,
    farewell: Vec<Step>,
    started: bool,
}

/// The state of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its process is not set up yet.
    Unstarted,
    /// It will run soon.
    Ready,
    /// It is stopped at a page.
    Faulting {
        mapping: MappingId,
        key: PageKey,
        access: Access,
    },
    /// It awaits a reply, in this step.
    Waiting { ticket: Ticket, step: Step },
    /// It has ended, or died.
    Ended,
}

/// A watch a thread has open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    pub(crate) ticket: Ticket,
    /// The last reply came already.
    pub(crate) over: bool,
}

/// A thread.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) client: usize,
    pub(crate) steps: VecDeque<Step>,
    pub(crate) state: State,
    /// Void wake-ups carry an older one.
    generation: u64,
    /// The page it was stopped at last, until it runs again.
    stopped_at: Option<PageKey>,
    /// The segment it opened for itself.
    pub(crate) own: Option<Opened>,
    /// When the present operation began.
    pub(crate) since: Option<Time>,
    /// The value of its last load.
    pub(crate) last: u64,
    pub(crate) holds: Option<SyncKey>,
    pub(crate) watch: Option<Watch>,
    pub(crate) pins: Vec<PageKey>,
    /// Its last operation failed.
    pub(crate) failed: bool,
    /// How often it has stopped for the present operation.
    stops: u32,
}

/// A request that waits for its reply.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) thread: ThreadId,
    pub(crate) host: usize,
    /// A watch or wait: may be answered `Waiting` once, before its last reply.
    pub(crate) two_phased: bool,
    pub(crate) waiting: bool,
    /// The thread is gone and hears nothing.
    pub(crate) orphan: bool,
    /// Withdrawn: may be refused as cancelled.
    pub(crate) withdrawn: bool,
}

/// All processes, on all hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processes {
    pub(crate) clients: Vec<Client>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) tickets: SortedMap<Ticket, Asked>,
    pub(crate) holders: SortedMap<SyncKey, ThreadId>,
    /// Locks whose holders died holding them, until the next holder is told.
    pub(crate) orphaned: BTreeSet<SyncKey>,
    /// Locks that were taken from the dead, or made anew, until the next holder is told.
    pub(crate) bequeathed: BTreeSet<SyncKey>,
    /// How often each thread came to each barrier.
    pub(crate) arrivals: BTreeMap<(usize, ThreadId), u32>,
    /// How many exclusive creations of each name succeeded.
    pub(crate) created: SortedMap<usize, u32>,
    /// Hosts that leave when their clients have ended.
    pub(crate) leavers: Vec<usize>,
    last_mapping: MappingId,
    last_ticket: Ticket,
    /// Threads that have not ended.
    pub(crate) unfinished: usize,
}

/// The meaning of names for a thread.
impl Processes {
    /// The host a thread runs on.
    pub(crate) fn host_of(&self, id: ThreadId) -> usize {
        self.clients[self.threads[id.0].client].host
    }

    /// From when a thread began its present operation until now.
    pub(crate) fn span(&self, id: ThreadId, now: Time) -> (Time, Time) {
        (self.threads[id.0].since.unwrap_or(now), now)
    }

    /// A segment a thread has open.
    pub(crate) fn opened(&self, id: ThreadId, seg: Seg) -> Option<&Opened> {
        let thread = &self.threads[id.0];
        match seg {
            Seg::Main(number) => self.clients[thread.client].open[number].as_ref(),
            Seg::Own => thread.own.as_ref(),
        }
    }

    /// Where a thread keeps a segment it has open.
    pub(crate) fn opened_mut(&mut self, id: ThreadId, seg: Seg) -> &mut Option<Opened> {
        let thread = &mut self.threads[id.0];
        match seg {
            Seg::Main(number) => &mut self.clients[thread.client].open[number],
            Seg::Own => &mut thread.own,
        }
    }

    /// The mapping and page a thread means.
    pub(crate) fn locate(&self, id: ThreadId, place: Place) -> Option<(MappingId, PageKey)> {
        let opened = self.opened(id, place.seg)?;
        let mapping = *opened
            .mappings
            .get(place.mapping % opened.mappings.len().max(1))?;
        let page = PageIndex(place.page);
        Some((
            mapping,
            PageKey {
                segment: opened.segment,
                page,
            },
        ))
    }

    /// The lock, condition variable or barrier a thread means.
    pub(crate) fn sync_key(&self, id: ThreadId, sync: Sync) -> Option<SyncKey> {
        let segment = self.opened(id, Seg::Main(sync.seg))?.segment;
        Some(SyncKey {
            segment,
            number: sync.number,
        })
    }

    /// The state of a thread, for reports.
    pub(crate) fn describe_thread(&self, id: ThreadId) -> String {
        let thread = &self.threads[id.0];
        let client = &self.clients[thread.client];
        let since = thread
            .since
            .map_or(String::new(), |since| format!(" since {since}"));
        let next = thread.steps.front();
        format!(
            "t{} of {} on h{}: {:?}{since}, next {next:?}",
            id.0,
            client.id,
            client.host + 1,
            thread.state
        )
    }

    /// A number for a new mapping.
    pub(crate) fn next_mapping(&mut self) -> MappingId {
        self.last_mapping.0 += 1;
        self.last_mapping
    }

    /// Where threads have stopped in a mapping of a host.
    pub(crate) fn faults_in(&self, host: usize, of: MappingId) -> Vec<(PageIndex, Access)> {
        let threads = self.threads.iter().enumerate();
        let here = threads.filter(|(id, _)| self.host_of(ThreadId(*id)) == host);
        let faults = here.filter_map(|(_, thread)| match thread.state {
            State::Faulting {
                mapping,
                key,
                access,
            } if mapping == of => Some((key.page, access)),
            _ => None,
        });
        faults.collect()
    }
}
