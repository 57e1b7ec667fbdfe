//! Processes and their threads: who exists, who runs, who waits for what.

use crate::check::{Check, ensure};
use crate::kernel::{PageKey, ThreadId};
use crate::log::Mark;
use crate::step::{ClientPlan, Place, Seg, Step, Sync};
use crate::world::{Happening, Life, World};
use pagemesh_core::{Input, Request, Time};
use pagemesh_wire::peer::Access;
use pagemesh_wire::{ClientId, MappingId, SegmentId, SyncKey, Ticket};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A thread that is robbed of its page this often in a row does not progress.
const MOST_STOPS: u32 = 100;

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

/// What a thread is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its process is not set up yet.
    Unstarted,
    /// It will run soon.
    Ready,
    /// It is stopped at a page.
    Faulting { mapping: MappingId, key: PageKey, access: Access },
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
    /// What it loaded last.
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
    pub(crate) tickets: BTreeMap<Ticket, Asked>,
    pub(crate) holders: BTreeMap<SyncKey, ThreadId>,
    /// Locks whose holders died holding them, until somebody is told.
    pub(crate) orphaned: BTreeSet<SyncKey>,
    /// How often each thread came to each barrier.
    pub(crate) arrivals: BTreeMap<(usize, ThreadId), u32>,
    /// How many exclusive creations of each name succeeded.
    pub(crate) created: BTreeMap<usize, u32>,
    /// Hosts that leave when their clients have ended.
    pub(crate) leavers: Vec<usize>,
    last_mapping: MappingId,
    last_ticket: Ticket,
    /// Threads that have not ended.
    pub(crate) unfinished: usize,
}

/// Coming and going.
impl World {
    /// A process, which starts as soon as its host is a member.
    pub(crate) fn spawn_client(&mut self, plan: ClientPlan) -> usize {
        let index = self.processes.clients.len();
        let first = self.processes.threads.len();
        let count = plan.programs.len();
        for program in plan.programs {
            self.processes.threads.push(Thread {
                client: index,
                steps: program.into(),
                state: State::Unstarted,
                generation: 0,
                stopped_at: None,
                own: None,
                since: None,
                last: 0,
                holds: None,
                watch: None,
                pins: Vec::new(),
                failed: false,
                stops: 0,
            });
        }
        self.processes.clients.push(Client {
            host: plan.host,
            id: ClientId(index as u32 + 1),
            alive: true,
            open: vec![None; self.setting.segments.len()],
            threads: (first..first + count).map(ThreadId).collect(),
            running: count,
            farewell: plan.farewell,
            started: false,
        });
        self.processes.unfinished += count;
        if self.hosts.get(plan.host).is_some_and(|host| host.id.is_some()) {
            self.start_client(index);
        }
        index
    }

    /// One more thread of a process, which runs at once.
    pub(crate) fn spawn_thread(&mut self, client: usize, steps: Vec<Step>) -> ThreadId {
        let id = ThreadId(self.processes.threads.len());
        let mut thread = self.processes.threads[self.processes.clients[client].threads[0].0].clone();
        thread.steps = steps.into();
        thread.state = State::Ready;
        thread.since = None;
        thread.failed = false;
        self.processes.threads.push(thread);
        self.processes.clients[client].threads.push(id);
        self.processes.clients[client].running += 1;
        self.processes.unfinished += 1;
        self.run_after(id, 0);
        id
    }

    /// A host became a member: its processes start.
    pub(crate) fn admitted(&mut self, at: usize) {
        let here: Vec<usize> = (0..self.processes.clients.len())
            .filter(|client| self.processes.clients[*client].host == at)
            .collect();
        for client in here {
            self.start_client(client);
        }
    }

    fn start_client(&mut self, index: usize) {
        let client = &mut self.processes.clients[index];
        if !std::mem::replace(&mut client.started, true) && client.alive {
            let first = client.threads[0];
            self.start_thread(first);
        }
    }

    fn start_thread(&mut self, id: ThreadId) {
        let thread = &mut self.processes.threads[id.0];
        if thread.state == State::Unstarted {
            thread.state = State::Ready;
            let pause = self.dice.below(2_000);
            self.run_after(id, pause);
        }
    }

    /// The process is set up: its other threads start.
    pub(crate) fn begin(&mut self, client: usize) {
        for thread in self.processes.clients[client].threads.clone() {
            self.start_thread(thread);
        }
    }

    /// A thread has no steps left.
    fn end_thread(&mut self, id: ThreadId) -> Check {
        let thread = &mut self.processes.threads[id.0];
        let client = &mut self.processes.clients[thread.client];
        if client.running == 1 && !client.farewell.is_empty() {
            thread.steps.extend(client.farewell.drain(..));
            self.run_after(id, 100);
            return Ok(());
        }
        ensure!(thread.holds.is_none(), MutualExclusion, "t{} ended with a lock", id.0);
        thread.state = State::Ended;
        self.processes.unfinished -= 1;
        client.running -= 1;
        if client.running == 0 {
            self.exit(id);
        }
        Ok(())
    }

    /// The last thread of a process has ended.
    fn exit(&mut self, last: ThreadId) {
        let client = &mut self.processes.clients[self.processes.threads[last.0].client];
        client.alive = false;
        let (host, id) = (client.host, client.id);
        self.input(host, Input::ClientGone { client: id });
        let leaves = self.processes.leavers.contains(&host);
        if leaves && self.clients_of(host).next().is_none() {
            self.processes.leavers.retain(|leaver| *leaver != host);
            let program = vec![Step::Begin, Step::Think(1_000), Step::Leave];
            let leaver = ClientPlan { host, programs: vec![program], farewell: Vec::new() };
            self.spawn_client(leaver);
        }
    }

    /// All threads of a process stop for ever, wherever they are.
    pub(crate) fn end_client(&mut self, index: usize) {
        let client = &mut self.processes.clients[index];
        client.alive = false;
        let host = client.host;
        for id in client.threads.clone() {
            let thread = &mut self.processes.threads[id.0];
            if thread.state == State::Ended {
                continue;
            }
            thread.state = State::Ended;
            self.processes.unfinished -= 1;
            if let Some(key) = thread.stopped_at.take() {
                self.hosts[host].kernel.thread_gone(id, key);
            }
            for key in thread.pins.drain(..) {
                self.hosts[host].kernel.unpin(key);
            }
            if let Some(lock) = thread.holds.take() {
                self.processes.holders.remove(&lock);
                self.processes.orphaned.insert(lock);
            }
        }
        for (ticket, asked) in &mut self.processes.tickets {
            if self.processes.threads[asked.thread.0].client == index {
                asked.orphan = true;
                self.golden.unwatch(*ticket);
            }
        }
    }

    /// Threads that have not ended although they should have.
    pub(crate) fn stuck(&self) -> Vec<ThreadId> {
        let excused = |thread: &Thread| {
            self.casualties
                && match &thread.state {
                    State::Waiting { step, .. } => step.needs_others(),
                    _ => thread.steps.iter().any(Step::needs_others),
                }
        };
        let threads = self.processes.threads.iter().enumerate();
        threads
            .filter(|(_, thread)| thread.state != State::Ended && !excused(thread))
            .map(|(index, _)| ThreadId(index))
            .collect()
    }

    /// What a thread is at, for reports.
    pub(crate) fn describe_thread(&self, id: ThreadId) -> String {
        let thread = &self.processes.threads[id.0];
        let client = &self.processes.clients[thread.client];
        let since = thread.since.map_or(String::new(), |since| format!(" since {since}"));
        let next = thread.steps.front();
        format!(
            "t{} of {} on h{}: {:?}{since}, next {next:?}",
            id.0,
            client.id,
            client.host + 1,
            thread.state
        )
    }
}

/// Running and waiting.
impl World {
    /// A thread takes its next step after so many nanoseconds.
    pub(crate) fn run_after(&mut self, id: ThreadId, nanos: u64) {
        let thread = &mut self.processes.threads[id.0];
        thread.generation += 1;
        let generation = thread.generation;
        self.after(nanos, Happening::Run { thread: id, generation });
    }

    /// A thread that was stopped or waited may run again, when the scheduler likes.
    pub(crate) fn wake(&mut self, id: ThreadId) {
        let host = self.host_of(id);
        let thread = &mut self.processes.threads[id.0];
        if thread.state == State::Ended {
            return;
        }
        thread.state = State::Ready;
        let delay = 200 + self.dice.below(self.hosts[host].plan.wake);
        self.log.note(self.now, host, Mark::Woken, [id.0 as u64, delay, 0], || format!("t{}", id.0));
        self.run_after(id, delay);
    }

    /// A thread takes its next step, if this wake-up is meant for it.
    pub(crate) fn run_thread(&mut self, id: ThreadId, generation: u64) -> Check {
        let host = self.host_of(id);
        let now = self.now;
        let thread = &mut self.processes.threads[id.0];
        if thread.generation != generation || thread.state != State::Ready {
            return Ok(());
        }
        let stopped_at = thread.stopped_at.take();
        let Some(step) = thread.steps.pop_front() else {
            return self.end_thread(id);
        };
        thread.since.get_or_insert(now);
        self.perform(id, step)?;
        if let Some(key) = stopped_at {
            // It has run, and if it stopped there again, it sleeps there now.
            self.hosts[host].kernel.ran(id, key);
        }
        Ok(())
    }

    /// The present operation is over; the thread goes on a little later.
    pub(crate) fn done(&mut self, id: ThreadId) {
        let pause = 50 + self.dice.below(1_500);
        self.done_after(id, pause);
    }

    /// As [`World::done`], after so many nanoseconds.
    pub(crate) fn done_after(&mut self, id: ThreadId, nanos: u64) {
        let now = self.now;
        let thread = &mut self.processes.threads[id.0];
        thread.state = State::Ready;
        thread.stops = 0;
        if let Some(since) = thread.since.take() {
            self.stats.operations += 1;
            let took = now.0 - since.0;
            self.stats.worst_wait = self.stats.worst_wait.max(took);
        }
        self.run_after(id, nanos);
    }

    /// A step of a thread failed and is not tried again.
    pub(crate) fn drop_step(&mut self, id: ThreadId) {
        let host = self.host_of(id);
        let thread = &mut self.processes.threads[id.0];
        thread.failed = true;
        thread.since = None;
        thread.stops = 0;
        let step = thread.steps.pop_front();
        if matches!(step, Some(Step::CheckWatch(..)))
            && let Some(Watch { ticket, over: false }) = thread.watch
        {
            thread.steps.push_front(Step::AwaitWatch);
            self.withdraw(host, ticket);
        }
    }

    /// A thread stops at a page; `step` is tried again when it is woken.
    pub(crate) fn stop_at(
        &mut self,
        id: ThreadId,
        step: Step,
        mapping: MappingId,
        key: PageKey,
        access: Access,
    ) -> Check {
        let host = self.host_of(id);
        let thread = &mut self.processes.threads[id.0];
        thread.stops += 1;
        self.stats.most_stops = self.stats.most_stops.max(thread.stops);
        ensure!(
            thread.stops < MOST_STOPS,
            UsedBeforeLeaving,
            "t{} on h{} was woken {MOST_STOPS} times and {key} had always gone: {step:?}",
            id.0,
            host + 1
        );
        thread.steps.push_front(step);
        thread.state = State::Faulting { mapping, key, access };
        thread.stopped_at = Some(key);
        let generation = thread.generation;
        self.log.note(
            self.now,
            host,
            Mark::Faults,
            [id.0 as u64, key.segment.0, u64::from(key.page.0)],
            || format!("t{} {access:?} {key} in {mapping}", id.0),
        );
        self.hosts[host].kernel.sleep(mapping, key, id);
        self.input(host, Input::Fault { mapping, page: key.page, access });
        self.maybe_repeat_fault(id, generation);
        Ok(())
    }

    fn maybe_repeat_fault(&mut self, thread: ThreadId, generation: u64) {
        if self.dice.chance(self.setting.repeats) {
            let pause = 1_000 + self.dice.below(40_000);
            self.after(pause, Happening::FaultAgain { thread, generation });
        }
    }

    /// The kernel repeats a fault that is being served (`KERNEL.md` item 1).
    pub(crate) fn fault_again(&mut self, id: ThreadId, generation: u64) {
        let host = self.host_of(id);
        let thread = &self.processes.threads[id.0];
        if thread.generation == generation
            && let State::Faulting { mapping, key, access } = thread.state
        {
            self.input(host, Input::Fault { mapping, page: key.page, access });
            self.maybe_repeat_fault(id, generation);
        }
    }

    /// A thread asks its node for something and waits for the reply in `step`.
    pub(crate) fn ask(&mut self, id: ThreadId, request: Request, step: Step) -> Ticket {
        let host = self.host_of(id);
        self.processes.last_ticket.0 += 1;
        let ticket = self.processes.last_ticket;
        let client = self.processes.clients[self.processes.threads[id.0].client].id;
        let facts = [id.0 as u64, ticket.0, 0];
        self.log.note(self.now, host, Mark::Asks, facts, || format!("t{} {ticket} {request:?}", id.0));
        let two_phased = matches!(
            request,
            Request::Watch { .. }
                | Request::Call { call: pagemesh_wire::peer::Call::CondWait { .. }, .. }
        );
        let asked = Asked {
            thread: id,
            host,
            two_phased,
            waiting: false,
            orphan: false,
            withdrawn: false,
        };
        self.processes.tickets.insert(ticket, asked);
        self.processes.threads[id.0].state = State::Waiting { ticket, step };
        self.input(host, Input::Request { ticket, client, request });
        ticket
    }

    /// A thread has waited long enough.
    pub(crate) fn impatience(&mut self, id: ThreadId, ticket: Ticket) {
        let waits = |thread: &Thread| {
            matches!(thread.state, State::Waiting { ticket: other, .. } if other == ticket)
        };
        if waits(&self.processes.threads[id.0]) {
            self.withdraw(self.host_of(id), ticket);
        }
    }

    /// A request is withdrawn; it is answered all the same.
    pub(crate) fn withdraw(&mut self, host: usize, ticket: Ticket) {
        if self.hosts[host].life != Life::Up {
            return;
        }
        if let Some(asked) = self.processes.tickets.get_mut(&ticket) {
            asked.withdrawn = true;
        }
        self.log.note(self.now, host, Mark::Withdraws, [ticket.0, 0, 0], || ticket.to_string());
        self.input(host, Input::Cancel { ticket });
    }

    /// A number for a new mapping.
    pub(crate) fn next_mapping(&mut self) -> MappingId {
        self.processes.last_mapping.0 += 1;
        self.processes.last_mapping
    }
}

/// What names mean to a thread.
impl World {
    /// The host a thread runs on.
    pub(crate) fn host_of(&self, id: ThreadId) -> usize {
        self.processes.clients[self.processes.threads[id.0].client].host
    }

    /// A segment a thread has open.
    pub(crate) fn opened(&self, id: ThreadId, seg: Seg) -> Option<&Opened> {
        let thread = &self.processes.threads[id.0];
        match seg {
            Seg::Main(number) => self.processes.clients[thread.client].open[number].as_ref(),
            Seg::Own => thread.own.as_ref(),
        }
    }

    /// Where a thread keeps a segment it has open.
    pub(crate) fn opened_mut(&mut self, id: ThreadId, seg: Seg) -> &mut Option<Opened> {
        let thread = &mut self.processes.threads[id.0];
        match seg {
            Seg::Main(number) => &mut self.processes.clients[thread.client].open[number],
            Seg::Own => &mut thread.own,
        }
    }

    /// The mapping and page a thread means.
    pub(crate) fn locate(&self, id: ThreadId, place: Place) -> Option<(MappingId, PageKey)> {
        let opened = self.opened(id, place.seg)?;
        let mapping = *opened.mappings.get(place.mapping % opened.mappings.len().max(1))?;
        let page = pagemesh_wire::PageIndex(place.page);
        Some((mapping, PageKey { segment: opened.segment, page }))
    }

    /// The lock, condition variable or barrier a thread means.
    pub(crate) fn sync_key(&self, id: ThreadId, sync: Sync) -> Option<SyncKey> {
        let segment = self.opened(id, Seg::Main(sync.seg))?.segment;
        Some(SyncKey { segment, number: sync.number })
    }
}
