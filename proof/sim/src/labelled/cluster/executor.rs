//! What a daemon does: it carries out what its node decided.

use super::{Cluster, Event, Thread};
use crate::labelled::memory::{Memory, Planted, Tail};
use crate::labelled::program::Step;
use crate::network::{kind, legible};
use crate::small::{Check, Driver, Executor, Turn, address, host_at};
use pagemesh_core::release::{Body, Kept};
use pagemesh_core::sequential;
use pagemesh_core::{
    Afterwards, At, DiffBatch, DiffExecutor, DiffWork, Effect, Event as Seen, Input, Mappings,
    Node, PageRange, Reclaimed, Reply, Rights, Source, Time,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::peer::{
    DiffName, Diffs, Message, Payload, Policy, PolicyMessage, Refusal, Rule, Spread,
};
use pagemesh_wire::{ClientId, MappingId, PageIndex, SegmentId, SyncKey, Ticket, VectorTime};

impl Cluster {
    fn memory(&mut self, host: usize) -> &mut Memory {
        &mut self.hosts[host].memory
    }
}

/// The page or the diffs behind a datagram.
fn tail(turn: Turn<'_>) -> Tail<'_> {
    Tail {
        bytes: turn.behind,
        diffs: match turn.message {
            Some(Message::Diffs(diffs)) => Some(diffs),
            _ => None,
        },
    }
}

impl Driver for Cluster {
    fn now(&self) -> Time {
        self.queue.now()
    }

    fn node(&mut self, host: usize) -> Option<&mut Node> {
        Some(&mut self.hosts[host].node)
    }

    fn send(
        &mut self,
        turn: Turn<'_>,
        to: (usize, Header),
        message: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Check {
        let behind = match page {
            Some(((_, page), source)) => self.memory(turn.host).page_of(page, source)?.to_vec(),
            None => Vec::new(),
        };
        self.transmit(turn.host, to, &message, &behind);
        Ok(())
    }

    fn fill(&mut self, turn: Turn<'_>, pages: PageRange, source: Source) -> Check {
        // The effects are those of one input, which brings one page at most.
        let tail = if pages.count == 1 {
            tail(turn)
        } else {
            Tail::default()
        };
        for (_, page) in pages.iter() {
            self.memory(turn.host).fill(page, source, tail)?;
        }
        Ok(())
    }

    fn map(&mut self, host: usize, who: Mappings, pages: PageRange, rights: Rights) -> Check {
        let here = self.threads.iter().filter(|thread| thread.host == host);
        let here = here.map(|thread| thread.mapping);
        for mapping in here.filter(|id| who.contains(*id)).collect::<Vec<_>>() {
            for (_, page) in pages.iter() {
                let twins = self.instants.is_none();
                self.memory(host).map(mapping, (page, rights), twins)?;
            }
        }
        Ok(())
    }

    fn protect(&mut self, host: usize, who: Mappings, pages: PageRange) -> Check {
        for (_, page) in pages.iter() {
            self.memory(host).protect(who, page);
        }
        Ok(())
    }

    fn evict(&mut self, host: usize, pages: PageRange, keep: bool) -> Check {
        for (_, page) in pages.iter() {
            self.memory(host).evict(page, keep)?;
        }
        Ok(())
    }

    fn stow(&mut self, turn: Turn<'_>, at: At) -> Check {
        self.memory(turn.host).stow(at.1, tail(turn))
    }

    fn drop_stash(&mut self, host: usize, at: At) -> Check {
        self.memory(host).drop_stash(at.1);
        Ok(())
    }

    fn fail(&mut self, host: usize, mapping: MappingId, at: At, why: Refusal) -> Check {
        self.fails(host, mapping, at.1, &why)
    }

    fn trap(&mut self, host: usize, segment: SegmentId) -> Check<Vec<PageRange>> {
        let pages = self.memory(host).trap().into_iter();
        self.sighted.trapped += 1;
        Ok(pages.map(|page| (segment, page).into()).collect())
    }

    fn lend_lock(&mut self, host: usize, key: SyncKey, (by, wanted): (ClientId, bool)) -> Check {
        let word = LockWord::Held { by, wanted };
        self.hosts[host].words.insert(key, word);
        Ok(())
    }

    fn reclaim_lock(&mut self, host: usize, key: SyncKey) -> Check<Reclaimed> {
        match self.hosts[host].words.get_mut(&key) {
            Some(word @ LockWord::Free) => {
                *word = LockWord::Absent;
                Ok(Reclaimed::Back)
            }
            Some(LockWord::Held { wanted, .. }) => {
                *wanted = true;
                Ok(Reclaimed::Marked)
            }
            Some(LockWord::Absent) | None => Err(format!("{key} is reclaimed, but not lent")),
        }
    }

    fn reply(&mut self, _: usize, ticket: Ticket, reply: Reply) -> Check {
        self.replied(ticket, reply)
    }

    fn diff_work(executor: &mut Executor<'_, Self>, work: DiffWork) -> Check {
        executor.memory().count();
        executor.execute_diff_work(work)
    }

    fn emit(&mut self, _: usize, event: Seen) -> Check {
        match event {
            Seen::CameAhead { .. } => self.sighted.ahead += 1,
            Seen::Resent {} => self.sighted.resent += 1,
            Seen::PressedOut { .. } => self.sighted.pressed_out += 1,
            _ => {}
        }
        Ok(())
    }

    fn has_run(&mut self, host: usize, at: At) -> bool {
        let mut threads = self.threads.iter();
        threads.all(|thread| thread.host != host || thread.woken != Some(at.1))
    }

    fn about_to(&mut self, host: usize, effect: &Effect) {
        self.note(host, || format!("{effect:?}"));
    }

    fn did(&mut self, host: usize) {
        self.wake(host);
    }

    fn arm(&mut self, host: usize, due: Time) {
        let now = self.queue.now();
        let deadline = &mut self.hosts[host].deadline;
        if deadline.is_none_or(|at| due < at) {
            let at = due.max(Time(now.0 + 1));
            *deadline = Some(at);
            self.schedule(at, Event::Deadline(host));
        }
    }
}

impl Executor<'_, Cluster> {
    fn memory(&mut self) -> &mut Memory {
        self.driver.memory(self.turn.host)
    }
}

impl DiffExecutor for Executor<'_, Cluster> {
    fn twin(&mut self, at: At, source: Source) -> Check {
        self.memory().twin(at.1, source)
    }

    fn diff(
        &mut self,
        _: SegmentId,
        name: DiffName,
        then: Afterwards,
        rules: &[Rule],
    ) -> Check<bool> {
        let changed = self.memory().diff(name, then, rules)?;
        let sighted = &mut self.driver.sighted;
        sighted.made += 1;
        sighted.refreshed += u64::from(then == Afterwards::Refresh);
        Ok(changed)
    }

    fn drop_twin(&mut self, at: At) -> Check {
        self.memory().drop_twin(at.1)
    }

    fn keep_diffs(&mut self, _: SegmentId, names: &[DiffName]) -> Check {
        let tail = tail(self.turn);
        self.memory().keep(names, tail)
    }

    fn merge(&mut self, at: At, source: Source, diffs: (&[DiffName], &[Rule])) -> Check {
        let tail = tail(self.turn);
        self.memory().merge(at.1, (source, tail), diffs)?;
        self.driver.sighted.merged += diffs.0.len() as u64;
        Ok(())
    }

    fn update(&mut self, at: At, diffs: (&[DiffName], &[Rule])) -> Check {
        self.memory().update(at.1, diffs)?;
        self.driver.sighted.updated += 1;
        Ok(())
    }

    fn send_diffs(&mut self, batch: &DiffBatch) -> Check {
        let host = self.turn.host;
        let cluster = &mut *self.driver;
        let unasked = u64::from(batch.request.0 == 0);
        cluster.sighted.pushed += unasked;
        let spread = Spread::Lazy;
        let lazy = cluster.policy == Policy::Release { spread };
        cluster.sighted.regular += unasked * u64::from(lazy);
        let template = Diffs {
            segment: batch.segment,
            request: batch.request,
            diffs: Vec::new(),
        };
        let memory = &mut cluster.hosts[host].memory;
        for (message, tail) in memory.pack(&batch.names, batch.at_most, &template)? {
            let to = (host_at(batch.address), batch.header);
            cluster.transmit(host, to, &Message::Diffs(message), &tail);
        }
        Ok(())
    }

    fn compare(&mut self, _: SegmentId, pairs: &[(DiffName, DiffName)]) -> Check {
        self.memory().compare(pairs)?;
        self.driver.sighted.compared += pairs.len() as u64;
        Ok(())
    }

    fn forget_diffs(&mut self, _: SegmentId, upto: &VectorTime) -> Check {
        self.memory().forget(upto);
        self.driver.sighted.collected += 1;
        Ok(())
    }
}

impl Cluster {
    fn transmit(
        &mut self,
        host: usize,
        (to, header): (usize, Header),
        message: &Message,
        behind: &[u8],
    ) {
        if let Some(answer) = self.named(message) {
            self.sighted.named += 1;
            if self.planted == Some(Planted::KeptTooSoon) {
                return self.keep_too_soon((host, to), header, answer);
            }
        }
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        bytes.extend_from_slice(behind);
        self.sighted.datagrams += 1;
        self.note(host, || format!("-> h{} {}", to + 1, legible(message)));
        let source = address(host);
        let now = self.queue.now();
        let fate = self.network.fate(now, host, to, kind(message));
        self.transcribe(host, to, message, fate);
        for at in fate.arrivals(now) {
            let bytes = bytes.clone();
            self.schedule(at, Event::Arrival { to, source, bytes });
        }
    }

    /// The answer to a message that names something to a backup, and its segment.
    fn named(&self, message: &Message) -> Option<(SegmentId, Payload)> {
        let Message::Policy(said) = message else {
            return None;
        };
        if self.replicas == 0 {
            return None;
        }
        let answer = match self.policy.sequential() {
            Some(_) => match sequential::Body::read(&said.body)? {
                sequential::Body::Keep(keep) => {
                    Payload::of(&sequential::Body::Kept(sequential::Kept {
                        commit: keep.commit,
                        part: keep.part,
                        lacks: 0,
                    }))
                }
                _ => return None,
            },
            None => match Body::read(&said.body)? {
                Body::Keep(keep) => Payload::of(&Body::Kept(Kept {
                    upto: keep.upto,
                    time: VectorTime::ZERO,
                })),
                _ => return None,
            },
        };
        Some((said.segment, answer))
    }

    /// It is planted that a backup says that it has everything, and has nothing.
    fn keep_too_soon(
        &mut self,
        (host, to): (usize, usize),
        header: Header,
        (segment, body): (SegmentId, Payload),
    ) {
        let header = Header {
            from: header.to,
            to: header.from,
            incarnation: self.hosts[to].incarnation,
            ..header
        };
        let mut bytes = Vec::new();
        Message::Policy(PolicyMessage { segment, body }).encode(header, &mut bytes);
        let at = Time(self.queue.now().0 + 1_000);
        let source = address(to);
        let to = host;
        self.schedule(at, Event::Arrival { to, source, bytes });
    }

    /// A host vanishes, with its threads; nobody is told.
    pub(super) fn crash(&mut self, host: usize) {
        self.note(host, || "vanishes".into());
        if self.is_on_two_hosts().is_err() {
            self.may_fail = true;
        } else {
            self.sighted.survived += u64::from(self.replicas > 0);
        }
        self.hosts[host].gone = true;
        self.golden.host_died(host);
        if let Some(instants) = &mut self.instants {
            instants.died(host);
        }
        self.sighted.crashed += 1;
        for thread in self.threads.iter_mut().filter(|thread| thread.host == host) {
            thread.steps.clear();
        }
    }

    /// A process dies; its daemon hears of it, and takes back what it held.
    pub(super) fn die(&mut self, thread: usize) -> Check {
        let state = &mut self.threads[thread];
        let (host, client, mapping) = (state.host, state.client, state.mapping);
        state.steps.clear();
        (state.waits, state.faulted) = (None, None);
        self.sighted.died += 1;
        self.note(host, || format!("{client} dies"));
        self.input(host, Input::Unmapped { mapping })?;
        self.input(host, Input::ClientGone { client })?;
        let words = self.hosts[host].words.iter();
        let holds = |word: &LockWord| matches!(word, LockWord::Held { by, .. } if *by == client);
        let held: Vec<_> = words
            .filter(|(_, word)| holds(word))
            .map(|(key, _)| *key)
            .collect();
        for key in held {
            self.releases(key.number, host);
            self.hosts[host].words.insert(key, LockWord::Absent);
            let recovered = true;
            self.input(host, Input::LockReturned { key, recovered })?;
        }
        Ok(())
    }

    /// An access can never be served. That may be if its page was lost with a host
    /// that vanished; the thread goes on without it.
    fn fails(&mut self, host: usize, mapping: MappingId, page: PageIndex, why: &Refusal) -> Check {
        if !self.golden.somebody_died() {
            return Err(format!("{page} fails: {why}"));
        }
        if !self.may_fail {
            return Err(format!(
                "INV-seen-survives: {page} fails on h{}: {why}",
                host + 1
            ));
        }
        self.sighted.failed += 1;
        for thread in 0..self.threads.len() {
            let state = &mut self.threads[thread];
            if (state.host, state.mapping, state.faulted) == (host, mapping, Some(page)) {
                state.faulted = None;
                state.steps.pop_front();
                self.run_soon(thread);
            }
        }
        Ok(())
    }

    /// A thread of a host releases a lock, or dies with it.
    pub(super) fn releases(&mut self, lock: u64, host: usize) {
        self.golden.release(lock, host);
        if let Some(instants) = &mut self.instants {
            instants.release(host, lock);
        }
    }

    fn wake(&mut self, host: usize) {
        for (mapping, page) in std::mem::take(&mut self.hosts[host].memory.woken) {
            for thread in 0..self.threads.len() {
                let state = &mut self.threads[thread];
                let here = state.host == host && state.faulted == Some(page);
                if here && mapping.is_none_or(|mapping| mapping == state.mapping) {
                    state.woken = state.faulted.take();
                    self.run_soon(thread);
                }
            }
        }
    }

    fn replied(&mut self, ticket: Ticket, reply: Reply) -> Check {
        let waits = |thread: &Thread| thread.waits == Some(ticket);
        let Some(thread) = self.threads.iter().position(waits) else {
            // Its process has died meanwhile.
            if self.sighted.died > 0 {
                return Ok(());
            }
            return Err(format!("nobody waits for {ticket}: {reply:?}"));
        };
        let state = &mut self.threads[thread];
        state.waits = None;
        match reply {
            Reply::Segment(info) => {
                state.opened = true;
                let (mapping, client, host) = (state.mapping, state.client, state.host);
                self.hosts[host].segment = Some(info.id);
                self.run_soon(thread);
                let (segment, of) = (info.id, &mut self.hosts[host]);
                if !of.node.is_trapped(segment) {
                    of.memory.untrapped = true;
                }
                return self.input(
                    host,
                    Input::Mapped {
                        mapping,
                        segment,
                        client,
                    },
                );
            }
            Reply::Locked { recovered } => {
                if let Some(Step::Lock(lock)) = state.steps.pop_front() {
                    self.golden.acquire(lock, state.host, recovered);
                    if let Some(instants) = &mut self.instants {
                        instants.acquire(state.host, lock, recovered)?;
                    }
                }
            }
            Reply::Done => {
                let done = state.steps.pop_front();
                if done == Some(Step::Leave) {
                    self.left.push(state.host);
                }
                if let Some(Step::Barrier(_)) = done {
                    self.golden.depart(state.barriers, state.host, self.home);
                    if let Some(instants) = &mut self.instants {
                        instants.depart(state.host, state.barriers)?;
                    }
                    state.barriers += 1;
                }
            }
            // Who keeps the barriers is gone, and nobody can say who has arrived: such a
            // program ends.
            Reply::Refused(Refusal::NodeGone(_))
                if matches!(state.steps.front(), Some(Step::Barrier(_)))
                    && self.golden.is_dead(self.home) =>
            {
                state.steps.clear();
                self.sighted.refused += 1;
                return Ok(());
            }
            // Not admitted yet, or the segment does not exist yet.
            Reply::Refused(_) if !state.opened => {
                self.run_at(Time(self.queue.now().0 + 500_000), thread);
                return Ok(());
            }
            other => return Err(format!("{} is told {other:?}", state.client)),
        }
        self.run_soon(thread);
        Ok(())
    }
}
