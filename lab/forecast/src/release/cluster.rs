//! Hosts under policy `release`: the costs of daemons, and the end of a replay.

use super::costs::ReleaseCosts;
use super::host::{Host, State};
use super::spent::Doing;
use super::trace::Trace;
use super::{Fit, Replayed};
use crate::engine::{Engine, Stuck, Turn, World};
use crate::site::Pending;
use core::time::Duration;
use pagemesh_core::{EffectExecutor as _, Effects, Input};
use pagemesh_wire::peer::{Policy, Spread};
use pagemesh_wire::{MappingId, SegmentId};
use std::collections::BTreeMap;

pub(super) const MAPPING: MappingId = MappingId(1);

/// A program that computed for so many nanoseconds has used the caches for itself.
const COLD_AFTER: u64 = 50_000;

pub(super) struct Cluster {
    warm: ReleaseCosts,
    cold: ReleaseCosts,
    pub(super) engine: Engine,
    pub(super) hosts: Vec<Host>,
    pub(super) segment: SegmentId,
    /// Signals of each lock so far.
    pub(super) signals: BTreeMap<u64, u64>,
    pub(super) counts: Replayed,
    ended: u64,
}

impl Cluster {
    /// A process on each host, which have opened the heap.
    pub(super) fn new(
        costs: ReleaseCosts,
        fit: Fit,
        spread: Spread,
        traces: &[Trace],
    ) -> Result<Self, Stuck> {
        let mut cluster = Self {
            warm: costs.times(fit.all),
            cold: costs.times(fit.all * fit.cold),
            engine: Engine::new(),
            hosts: Vec::new(),
            segment: SegmentId::default(),
            signals: BTreeMap::new(),
            counts: Replayed::default(),
            ended: 0,
        };
        for trace in traces {
            let steps = trace.steps.iter().copied().collect();
            cluster.hosts.push(Host::new(steps));
            cluster.join()?;
        }
        let pages = traces.iter().map(Trace::pages).max().unwrap_or(0).max(1);
        let policy = Policy::Release { spread };
        for host in 0..cluster.hosts.len() {
            cluster.segment = cluster.open(host, "heap", (pages, policy), MAPPING)?;
        }
        cluster.counts = Replayed {
            barrier_waits: vec![Vec::new(); traces.len()],
            ..Replayed::default()
        };
        Ok(cluster)
    }

    /// Runs until all processes have ended.
    pub(super) fn run(mut self) -> Result<Replayed, Stuck> {
        let begun = self.engine.now;
        for host in 0..self.hosts.len() {
            self.engine.resume_at(host, begun);
        }
        let over = |this: &Self| this.hosts.iter().all(|host| host.state == State::Ended);
        self.until("a process does not end", over)?;
        let part = match self.hosts[0].notes[..] {
            [first, second, ..] => second - first,
            _ => 0,
        };
        self.counts.part = Duration::from_nanos(part);
        for host in &self.hosts {
            self.counts.spent += host.spent;
        }
        self.counts.whole = Duration::from_nanos(self.ended.max(begun) - begun);
        Ok(self.counts)
    }

    pub(super) fn has_ended(&mut self, host: usize) {
        self.hosts[host].state = State::Ended;
        self.ended = self.ended.max(self.engine.now);
    }

    /// The costs on a host now: its program may have filled the caches since its daemon ran.
    pub(super) fn costs(&self, at: usize) -> &ReleaseCosts {
        if self.hosts[at].is_cold {
            &self.cold
        } else {
            &self.warm
        }
    }

    /// A process computes.
    pub(super) fn works(&mut self, at: usize, nanos: u64) {
        let host = &mut self.hosts[at];
        host.state = State::Works;
        host.begins(Doing::Computes(nanos), self.engine.now);
        host.computed += nanos;
        host.is_cold |= host.computed >= COLD_AFTER;
        self.engine.works(at, nanos);
    }
}

impl World for Cluster {
    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    fn rouse(&self, at: usize) -> Duration {
        let seat = &self.engine.seats[at];
        if seat.works() && seat.busy_until < self.engine.now {
            self.costs(at).preempt
        } else {
            Duration::ZERO
        }
    }

    fn hearing(&mut self, at: usize, pending: &Pending) -> Duration {
        let costs = self.costs(at);
        match pending {
            Pending::Datagram { bytes, .. } => costs.decide + costs.half(bytes.len()),
            // Pages that the daemon compared.
            Pending::Local(Input::Untouched { pages, .. }) => {
                costs.copy * u32::try_from(pages.len()).unwrap_or(u32::MAX)
            }
            Pending::Local(Input::Fault { .. }) => {
                let decide = costs.decide;
                self.hosts[at].fault_since = self.engine.now;
                decide
            }
            Pending::Local(_) => costs.decide,
        }
    }

    fn carry_out(mut turn: Turn<'_, Self>, effects: &mut Effects) -> Result<(), Stuck> {
        turn.execute_all(effects)
    }

    fn go_on(&mut self, at: usize) -> Result<(), Stuck> {
        self.take_steps(at)
    }

    /// Its next operation finds the caches filled by the operations of this turn.
    fn is_done(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        (host.computed, host.is_cold) = (0, false);
    }
}
