//! What a daemon does: it carries out what its node decided.

use super::{Cluster, Event, Thread, address, address_host};
use crate::labelled::memory::{Check, Memory, Tail};
use crate::labelled::program::Step;
use crate::network::{Fate, kind, legible};
use pagemesh_core::{
    Afterwards, At, DiffBatch, DiffExecutor, DiffWork, Effect, EffectExecutor, Event as Seen,
    Input, Mappings, Next, PageRange, Reclaimed, Reply, Rights, Source, Time,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{DiffName, Diffs, Message, Policy, Refusal, Rule, Spread};
use pagemesh_wire::{ClientId, MappingId, PageIndex, SegmentId, SyncKey, Ticket, VectorTime};
use std::net::SocketAddr;

/// Carries out the effects of one input of a host.
pub(super) struct Executor<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) host: usize,
    pub(super) tail: Tail<'a>,
    /// Inputs that effects gave rise to.
    pub(super) follow: Vec<Input<'static>>,
}

impl Executor<'_> {
    fn memory(&mut self) -> &mut Memory {
        &mut self.cluster.hosts[self.host].memory
    }
}

impl EffectExecutor for Executor<'_> {
    type Error = String;

    fn send(
        &mut self,
        address: SocketAddr,
        header: Header,
        message: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Check {
        let behind = match page {
            Some(((_, page), source)) => self.memory().page_of(page, source)?.to_vec(),
            None => Vec::new(),
        };
        let to = (address, header);
        self.cluster.send(self.host, to, &message, &behind);
        Ok(())
    }

    /// Strangers, of whom there are none here, get them.
    fn send_notice(&mut self, _: SocketAddr, _: Notice) -> Check {
        Ok(())
    }

    fn fill(&mut self, pages: PageRange, source: Source) -> Check {
        // The effects are those of one input, which brings one page at most.
        let tail = if pages.count == 1 {
            self.tail
        } else {
            Tail::default()
        };
        for (_, page) in pages.iter() {
            self.memory().fill(page, source, tail)?;
        }
        Ok(())
    }

    fn map(&mut self, mappings: Mappings, pages: PageRange, rights: Rights) -> Check {
        let here = self.cluster.threads.iter();
        let here = here.filter(|thread| thread.host == self.host);
        let here = here.map(|thread| thread.mapping);
        for mapping in here.filter(|id| mappings.contains(*id)).collect::<Vec<_>>() {
            for (_, page) in pages.iter() {
                self.memory().map(mapping, page, rights)?;
            }
        }
        Ok(())
    }

    fn protect(&mut self, mappings: Mappings, pages: PageRange) -> Check {
        for (_, page) in pages.iter() {
            self.memory().protect(mappings, page);
        }
        Ok(())
    }

    fn evict(&mut self, pages: PageRange, keep: bool) -> Check {
        for (_, page) in pages.iter() {
            self.memory().evict(page, keep)?;
        }
        Ok(())
    }

    fn stow(&mut self, at: At) -> Check {
        let tail = self.tail;
        self.memory().stow(at.1, tail)
    }

    fn drop_stash(&mut self, at: At) -> Check {
        self.memory().drop_stash(at.1);
        Ok(())
    }

    fn fail(&mut self, mapping: MappingId, at: At, why: Refusal) -> Check {
        self.cluster.fails(self.host, mapping, at.1, &why)
    }

    fn has_run(&mut self, _: At) -> Check<bool> {
        Ok(true)
    }

    /// There is one segment, which stays.
    fn forget(&mut self, _: SegmentId) -> Check {
        Ok(())
    }

    fn lend_lock(&mut self, key: SyncKey, by: ClientId, wanted: bool) -> Check {
        let word = LockWord::Held { by, wanted };
        self.cluster.hosts[self.host].words.insert(key, word);
        Ok(())
    }

    fn reclaim_lock(&mut self, key: SyncKey) -> Check<Reclaimed> {
        match self.cluster.hosts[self.host].words.get_mut(&key) {
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

    fn reply(&mut self, ticket: Ticket, reply: Reply) -> Check {
        self.cluster.replied(ticket, reply)
    }

    fn store(&mut self, pages: PageRange) -> Check<bool> {
        Err(format!("no segment here is private: {pages:?}"))
    }

    fn diff_work(&mut self, work: DiffWork) -> Check {
        self.memory().count();
        self.execute_diff_work(work)
    }

    fn emit(&mut self, event: Seen) -> Check {
        if matches!(event, Seen::CameAhead { .. }) {
            self.cluster.sighted.ahead += 1;
        }
        Ok(())
    }

    fn follow(&mut self, input: Input<'static>) {
        self.follow.push(input);
    }

    fn before(&mut self, _: usize, rest: &[Effect]) -> Next {
        if let [effect, ..] = rest
            && !matches!(effect, Effect::Emit(_) | Effect::Send { .. })
        {
            self.cluster.note(self.host, || format!("{effect:?}"));
        }
        Next::Execute
    }

    fn after(&mut self, _: usize) {
        self.cluster.wake(self.host);
    }
}

impl DiffExecutor for Executor<'_> {
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
        let sighted = &mut self.cluster.sighted;
        sighted.made += 1;
        sighted.refreshed += u64::from(then == Afterwards::Refresh);
        Ok(changed)
    }

    fn drop_twin(&mut self, at: At) -> Check {
        self.memory().drop_twin(at.1)
    }

    fn keep_diffs(&mut self, _: SegmentId, names: &[DiffName]) -> Check {
        let tail = self.tail;
        self.memory().keep(names, tail)
    }

    fn merge(&mut self, at: At, source: Source, diffs: (&[DiffName], &[Rule])) -> Check {
        let tail = self.tail;
        self.memory().merge(at.1, (source, tail), diffs)?;
        self.cluster.sighted.merged += diffs.0.len() as u64;
        Ok(())
    }

    fn update(&mut self, at: At, diffs: (&[DiffName], &[Rule])) -> Check {
        self.memory().update(at.1, diffs)?;
        self.cluster.sighted.updated += 1;
        Ok(())
    }

    fn send_diffs(&mut self, batch: &DiffBatch) -> Check {
        let cluster = &mut *self.cluster;
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
        let memory = &cluster.hosts[self.host].memory;
        for (message, tail) in memory.pack(&batch.names, batch.at_most, &template)? {
            let to = (batch.address, batch.header);
            cluster.send(self.host, to, &Message::Diffs(message), &tail);
        }
        Ok(())
    }

    fn compare(&mut self, _: SegmentId, pairs: &[(DiffName, DiffName)]) -> Check {
        self.memory().compare(pairs)?;
        self.cluster.sighted.compared += pairs.len() as u64;
        Ok(())
    }

    fn forget_diffs(&mut self, _: SegmentId, upto: &VectorTime) -> Check {
        self.memory().forget(upto);
        self.cluster.sighted.collected += 1;
        Ok(())
    }
}

impl Cluster {
    fn send(
        &mut self,
        host: usize,
        (address, header): (SocketAddr, Header),
        message: &Message,
        behind: &[u8],
    ) {
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        bytes.extend_from_slice(behind);
        self.sighted.datagrams += 1;
        let to = usize::from(address_host(address));
        self.note(host, || format!("-> h{} {}", to + 1, legible(message)));
        let source = self::address(host);
        let fate = self.network.fate(self.now, host, to, kind(message));
        self.transcribe(host, to, message, fate);
        if let Fate::Arrives(first, second) = fate {
            for delay in [Some(first), second].into_iter().flatten() {
                let bytes = bytes.clone();
                let at = Time(self.now.0 + delay.max(1));
                self.schedule(at, Event::Arrival { to, source, bytes });
            }
        }
    }

    /// A host vanishes, with its threads; nobody is told.
    pub(super) fn crash(&mut self, host: usize) {
        self.note(host, || "vanishes".into());
        self.hosts[host].gone = true;
        self.golden.host_died(host);
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
        self.input(host, Input::Unmapped { mapping }, &[])?;
        self.input(host, Input::ClientGone { client }, &[])?;
        let words = self.hosts[host].words.iter();
        let holds = |word: &LockWord| matches!(word, LockWord::Held { by, .. } if *by == client);
        let held: Vec<_> = words
            .filter(|(_, word)| holds(word))
            .map(|(key, _)| *key)
            .collect();
        for key in held {
            self.golden.release(key.number, host);
            self.hosts[host].words.insert(key, LockWord::Absent);
            let recovered = true;
            self.input(host, Input::LockReturned { key, recovered }, &[])?;
        }
        Ok(())
    }

    /// An access can never be served. That may be if its page was lost with a host
    /// that vanished; the thread goes on without it.
    fn fails(&mut self, host: usize, mapping: MappingId, page: PageIndex, why: &Refusal) -> Check {
        if !self.golden.somebody_died() {
            return Err(format!("{page} fails: {why}"));
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

    fn wake(&mut self, host: usize) {
        for (mapping, page) in std::mem::take(&mut self.hosts[host].memory.woken) {
            for thread in 0..self.threads.len() {
                let state = &mut self.threads[thread];
                let here = state.host == host && state.faulted == Some(page);
                if here && mapping.is_none_or(|mapping| mapping == state.mapping) {
                    state.faulted = None;
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
                let segment = info.id;
                return self.input(
                    host,
                    Input::Mapped {
                        mapping,
                        segment,
                        client,
                    },
                    &[],
                );
            }
            Reply::Locked { recovered } => {
                if let Some(Step::Lock(lock)) = state.steps.pop_front() {
                    self.golden.acquire(lock, state.host, recovered);
                }
            }
            Reply::Done => {
                let done = state.steps.pop_front();
                if done == Some(Step::Leave) {
                    self.left.push(state.host);
                }
                if let Some(Step::Barrier(_)) = done {
                    self.golden.depart(state.barriers, state.host, self.home);
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
                self.run_at(Time(self.now.0 + 500_000), thread);
                return Ok(());
            }
            other => return Err(format!("{} is told {other:?}", state.client)),
        }
        self.run_soon(thread);
        Ok(())
    }
}
