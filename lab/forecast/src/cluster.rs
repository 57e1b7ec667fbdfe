//! Sequential segments: pages, and the lines between hosts.

mod executor;

use crate::costs::Costs;
use crate::engine::{Engine, Stuck, Turn, World};
use crate::host::{Act, Host, Place, Program, State};
use crate::site::{Pending, nanos};
use core::time::Duration;
use pagemesh_core::{EffectExecutor as _, Effects, Input, Rights};
use pagemesh_wire::peer::{Access, Manager, Message, Policy, Window};
use pagemesh_wire::{MappingId, PageIndex, SegmentId};
use std::collections::BTreeMap;

/// Counts of a forecast, besides its time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) datagrams: u64,
    pub(crate) pages: u64,
    pub(crate) read_faults: u64,
    pub(crate) write_faults: u64,
    pub(crate) upgrades: u64,
}

pub(crate) struct Cluster {
    costs: Costs,
    engine: Engine,
    hosts: Vec<Host>,
    /// Sequential consistency: there is one memory, whichever nodes have copies of it.
    memory: BTreeMap<Place, u64>,
    pub(crate) counts: Counts,
}

impl Cluster {
    /// A program on each host, and segments of so many pages each, made by the first.
    pub(crate) fn new(
        costs: Costs,
        window: Window,
        segments: &[u32],
        programs: Vec<Box<dyn Program>>,
    ) -> Result<Self, Stuck> {
        let mut cluster = Self {
            costs,
            engine: Engine::new(),
            hosts: Vec::new(),
            memory: BTreeMap::new(),
            counts: Counts::default(),
        };
        for program in programs {
            cluster.hosts.push(Host::new(program));
            cluster.join()?;
        }
        for (which, pages) in segments.iter().enumerate() {
            cluster.share(which, *pages, window)?;
        }
        cluster.counts = Counts::default();
        for host in 0..cluster.hosts.len() {
            cluster.engine.resume_at(host, cluster.engine.now);
        }
        Ok(cluster)
    }

    /// Runs until all programs are over; the times that the first noted, from its
    /// first note on.
    pub(crate) fn run(&mut self) -> Result<Vec<Duration>, Stuck> {
        let over = |this: &Self| this.hosts.iter().all(|host| host.state == State::Ended);
        self.until("a program does not end", over)?;
        let notes = &self.hosts[0].notes;
        let since = |note: &u64| Duration::from_nanos(note - notes[0]);
        Ok(notes.iter().map(since).collect())
    }
}

impl World for Cluster {
    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// A daemon that still looks for more goes on at once. Where a program works, it is not
    /// left to look for long.
    fn rouse(&self, at: usize) -> Duration {
        let seat = &self.engine.seats[at];
        let idle = self.engine.now.saturating_sub(seat.busy_until);
        let sleeps = idle > nanos(self.costs.awake);
        match (seat.works(), sleeps) {
            (true, _) if idle > 0 => self.costs.preempt,
            (false, true) => self.costs.rouse,
            _ => Duration::ZERO,
        }
    }

    /// The time of a decision, with the receiver's half of a message.
    fn hearing(&mut self, _at: usize, pending: &Pending) -> Duration {
        let costs = &self.costs;
        match pending {
            Pending::Local(Input::Fault { .. }) => costs.fault,
            // Inputs from the daemon itself, and its own timers.
            Pending::Local(_) => Duration::ZERO,
            Pending::Datagram { bytes, .. } => match Message::decode(bytes) {
                Ok((_, Message::Ask(_) | Message::AskMany(_) | Message::Invalidate(_), _)) => {
                    costs.short / 2 + costs.serve
                }
                Ok((_, message, _)) if message.carries_page() => costs.page / 2 + costs.take,
                _ => costs.short / 2 + costs.take,
            },
        }
    }

    fn carry_out(mut turn: Turn<'_, Self>, effects: &mut Effects) -> Result<(), Stuck> {
        turn.execute_all(effects)
    }

    fn go_on(&mut self, at: usize) -> Result<(), Stuck> {
        loop {
            let host = &mut self.hosts[at];
            let again = host.again.take();
            let act = again.unwrap_or_else(|| host.program.next(host.loaded));
            match act {
                Act::Load(place) | Act::Store(place, _) => {
                    if !self.touch(at, act, place) {
                        return Ok(());
                    }
                }
                Act::Work(0) => {}
                Act::Work(nanos) => {
                    host.state = State::Works;
                    self.engine.works(at, nanos);
                    return Ok(());
                }
                Act::Sleep(nanos) => {
                    host.state = State::Sleeps;
                    self.engine.resume_at(at, self.engine.now + nanos);
                    return Ok(());
                }
                Act::Note => host.notes.push(self.engine.now),
                Act::Meet => {
                    self.meet(at);
                    return Ok(());
                }
                Act::End => {
                    host.state = State::Ended;
                    return Ok(());
                }
            }
        }
    }

    /// A thread may have been let go on before its daemon hears that it stopped.
    fn still_so(&self, host: usize, input: &Input<'static>) -> bool {
        let Input::Fault { page, .. } = input else {
            return true;
        };
        matches!(self.hosts[host].state, State::Stopped(_, at, _) if at == *page)
    }
}

/// Segments.
impl Cluster {
    fn share(&mut self, which: usize, pages: u32, window: Window) -> Result<(), Stuck> {
        let policy = Policy::Sequential {
            manager: Manager::Dynamic,
            window,
        };
        for host in 0..self.hosts.len() {
            let mapping = MappingId(self.hosts[host].segments.len() as u64 + 1);
            let name = format!("segment{which}");
            let segment = self.open(host, &name, (pages, policy), mapping)?;
            self.hosts[host].segments.push(segment);
        }
        Ok(())
    }

    fn mapping(&self, host: usize, segment: SegmentId) -> MappingId {
        let known = &self.hosts[host].segments;
        let number = known.iter().position(|one| *one == segment);
        MappingId(number.expect("only what is open is touched") as u64 + 1)
    }
}

/// Programs.
impl Cluster {
    /// Does an access, or stops the program there.
    fn touch(&mut self, at: usize, act: Act, place: Place) -> bool {
        let host = &mut self.hosts[at];
        let (segment, page) = (host.segments[place.segment], PageIndex(place.page));
        let rights = host.may(segment, page);
        match act {
            Act::Store(_, value) if rights == Rights::Write => {
                self.memory.insert(place, value);
                true
            }
            Act::Load(_) if rights >= Rights::Read => {
                host.loaded = self.memory.get(&place).copied().unwrap_or(0);
                true
            }
            _ => {
                let access = match act {
                    Act::Store(..) => Access::Write,
                    _ => Access::Read,
                };
                host.again = Some(act);
                host.state = State::Stopped(segment, page, access);
                self.stop(at, segment, page, access);
                false
            }
        }
    }

    fn stop(&mut self, at: usize, segment: SegmentId, page: PageIndex, access: Access) {
        let mapping = self.mapping(at, segment);
        let heard = self.engine.now + nanos(self.costs.trap);
        let fault = Input::Fault {
            mapping,
            page,
            access,
        };
        self.engine.hears_at(at, heard, fault);
    }

    /// Waits for the others; the last lets all go on.
    fn meet(&mut self, at: usize) {
        self.hosts[at].state = State::Meets;
        let waits = |host: &Host| matches!(host.state, State::Meets | State::Ended);
        if self.hosts.iter().all(waits) {
            for host in 0..self.hosts.len() {
                if self.hosts[host].state == State::Meets {
                    self.hosts[host].state = State::Sleeps;
                    self.engine.resume_at(host, self.engine.now);
                }
            }
        }
    }
}
