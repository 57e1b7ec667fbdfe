//! What a daemon does: it carries out what its node decided.

use super::{Cluster, Event, Thread, address, address_host};
use crate::labelled::memory::{Check, Tail};
use crate::labelled::program::Step;
use crate::network::{Fate, kind, legible};
use pagemesh_core::{Afterwards, DiffWork, Effect, Event as Seen, Input, Reply, Time};
use pagemesh_wire::header::Header;
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::peer::{Diffs, Message, Policy, Refusal, Spread};
use pagemesh_wire::{MappingId, PageIndex, SyncKey, Ticket};
use std::collections::VecDeque;
use std::net::SocketAddr;

impl Cluster {
    pub(super) fn carry_out(
        &mut self,
        host: usize,
        effect: Effect,
        tail: Tail<'_>,
        follow: &mut VecDeque<Input<'static>>,
    ) -> Check {
        if !matches!(effect, Effect::Emit(_) | Effect::Send { .. }) {
            self.note(host, || format!("{effect:?}"));
        }
        self.hosts[host].memory.carry_out(&effect, tail)?;
        match effect {
            Effect::Send {
                address,
                header,
                message,
                page,
            } => {
                let behind = match page {
                    Some((_, page, source)) => {
                        self.hosts[host].memory.page_of(page, source)?.to_vec()
                    }
                    None => Vec::new(),
                };
                self.send(host, address, header, &message, &behind);
            }
            Effect::Diffs(work) => self.diff_work(host, work, follow)?,
            Effect::Emit(Seen::CameAhead { .. }) => self.sighted.ahead += 1,
            Effect::ConfirmUse { segment, page } => follow.push_back(Input::UseConfirmed {
                segment,
                page,
                used: true,
            }),
            Effect::LendLock {
                key,
                client,
                wanted,
            } => {
                let by = client;
                let word = LockWord::Held { by, wanted };
                self.hosts[host].words.insert(key, word);
            }
            Effect::ReclaimLock { key } => self.reclaim(host, key, follow)?,
            Effect::Reply { ticket, reply } => self.replied(ticket, *reply)?,
            Effect::Fail {
                page, why, mapping, ..
            } => self.fails(host, mapping, page, &why)?,
            _ => {}
        }
        self.wake(host);
        Ok(())
    }

    fn diff_work(
        &mut self,
        host: usize,
        work: DiffWork,
        follow: &mut VecDeque<Input<'static>>,
    ) -> Check {
        match work {
            DiffWork::Send {
                address,
                header,
                segment,
                request,
                names,
                at_most,
            } => {
                self.sighted.pushed += u64::from(request.0 == 0);
                let spread = Spread::Lazy;
                let lazy = self.policy == Policy::Release { spread };
                self.sighted.regular += u64::from(request.0 == 0 && lazy);
                let template = Diffs {
                    segment,
                    request,
                    diffs: Vec::new(),
                };
                for (message, tail) in self.hosts[host].memory.pack(&names, at_most, &template)? {
                    self.send(host, address, header, &Message::Diffs(message), &tail);
                }
            }
            DiffWork::Diff { segment, then, .. } => {
                self.sighted.made += 1;
                self.sighted.refreshed += u64::from(then == Afterwards::Refresh);
                let unchanged = std::mem::take(&mut self.hosts[host].memory.unchanged);
                follow.extend(
                    unchanged
                        .into_iter()
                        .map(|page| Input::Unchanged { segment, page }),
                );
            }
            DiffWork::Merge { names, .. } => self.sighted.merged += names.len() as u64,
            DiffWork::Compare { pairs, .. } => self.sighted.compared += pairs.len() as u64,
            DiffWork::Update { .. } => self.sighted.updated += 1,
            DiffWork::Forget { .. } => self.sighted.collected += 1,
            _ => {}
        }
        Ok(())
    }

    fn send(
        &mut self,
        host: usize,
        address: SocketAddr,
        header: Header,
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
        if let Fate::Arrives(first, second) = self.network.fate(self.now, host, to, kind(message)) {
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

    fn reclaim(
        &mut self,
        host: usize,
        key: SyncKey,
        follow: &mut VecDeque<Input<'static>>,
    ) -> Check {
        match self.hosts[host].words.get_mut(&key) {
            Some(word @ LockWord::Free) => {
                *word = LockWord::Absent;
                let recovered = false;
                follow.push_back(Input::LockReturned { key, recovered });
            }
            Some(LockWord::Held { wanted, .. }) => *wanted = true,
            Some(LockWord::Absent) | None => {
                return Err(format!("{key} is reclaimed, but not lent"));
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
