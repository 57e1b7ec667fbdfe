//! The steps of programs.

use super::{Cluster, Event, Thread, place};
use crate::labelled::program::{NUMBERS, Step};
use crate::small::Check;
use pagemesh_core::{Input, Request, Time};
use pagemesh_wire::local::Advice;
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::peer::{Access, Call, Credentials, Kind, Merge, Reduction, SegmentSpec};
use pagemesh_wire::{ByteLen, PAGE_SIZE, PageCount, PageIndex, SegmentId, SyncKey, Ticket};

/// The number of the one barrier.
pub(super) const BARRIER: u64 = 1000;

/// Bytes that are stored where a page is filled: their diff is a large one.
const FILLED: usize = 3300;

impl Cluster {
    fn ask(&mut self, thread: usize, request: Request) -> Check {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let state = &mut self.threads[thread];
        state.waits = Some(ticket);
        let (host, client) = (state.host, state.client);
        if let Request::Call {
            call: Call::Barrier { key, .. },
            ..
        } = &request
        {
            self.look_at_kept_writable(host, key.segment)?;
        }
        self.input(
            host,
            Input::Request {
                ticket,
                client,
                request,
            },
        )
    }

    /// As the daemon does before a barrier is reached: mostly, since nothing rests on it.
    fn look_at_kept_writable(&mut self, host: usize, segment: SegmentId) -> Check {
        let kept_writable = self.hosts[host].node.kept_writable(segment);
        if self.tickets.is_multiple_of(8) || kept_writable.is_empty() {
            return Ok(());
        }
        let is_untouched = |cluster: &Self, page| cluster.hosts[host].memory.is_untouched(page);
        let report =
            |cluster: &mut Self, pages| cluster.input(host, Input::Untouched { segment, pages });
        let pages = kept_writable.look(self, is_untouched, report)?;
        self.sighted.rested += pages.len() as u64;
        self.input(host, Input::Untouched { segment, pages })
    }

    fn open(&mut self, thread: usize) -> Check {
        let spec = SegmentSpec {
            size: ByteLen((self.shape.pages * PAGE_SIZE) as u64),
            mode: 0o600,
            policy: self.policy,
            replicas: self.replicas,
        };
        let creates = self.threads[thread].host == self.home;
        let request = Request::Open {
            name: "memory".into(),
            create: creates.then_some(spec),
            exclusive: false,
            write: true,
            credentials: Credentials::root(),
        };
        self.ask(thread, request)
    }

    pub(super) fn fault(&mut self, thread: usize, page: PageIndex) -> Check {
        let state = &mut self.threads[thread];
        state.faulted = Some(page);
        let access = match state.steps.front() {
            Some(Step::Store(_) | Step::Put(..) | Step::Fill(_) | Step::Add(..)) => Access::Write,
            _ => Access::Read,
        };
        let (host, mapping) = (state.host, state.mapping);
        if self.dice.chance(100) {
            let at = Time(self.queue.now().0 + self.dice.between(100, 100_000));
            self.schedule(at, Event::FaultAgain(thread, page));
        }
        self.input(
            host,
            Input::Fault {
                mapping,
                page,
                access,
            },
        )
    }

    /// A thread takes its next step.
    pub(super) fn step(&mut self, thread: usize) -> Check {
        let state = &self.threads[thread];
        if state.waits.is_some() || state.faulted.is_some() {
            return Ok(());
        }
        if !state.opened {
            return self.open(thread);
        }
        self.threads[thread].woken = None;
        let state = &self.threads[thread];
        let (host, mapping) = (state.host, state.mapping);
        let Some(step) = state.steps.front().copied() else {
            return Ok(());
        };
        match step {
            Step::Load(byte) => {
                let (page, at) = place(byte);
                let Some(value) = self.hosts[host].memory.load(mapping, page, at) else {
                    return self.fault(thread, page);
                };
                self.sighted.loads += 1;
                self.loaded = value;
                if let Some(instants) = &mut self.instants {
                    let found = instants.load(host, byte, value.into());
                    found.map_err(|why| format!("h{} at {page}+{at}: {why}", host + 1))?;
                } else if let Err(wanted) = self.golden.load(byte, host, value) {
                    let client = self.threads[thread].client;
                    let h = host + 1;
                    return Err(format!(
                        "{client} on h{h} loads {value} at {page}+{at}, where {wanted} is"
                    ));
                }
            }
            Step::Store(_) | Step::Put(..) | Step::Fill(_) => {
                if let Some(page) = self.store(thread, step) {
                    return self.fault(thread, page);
                }
            }
            Step::Need(first, count) => return self.announce(thread, (first, count)),
            Step::Declare(at) => return self.declare(thread, at),
            Step::Add(at, with) => {
                let Some(()) = self.add(thread, at, with)? else {
                    return self.fault(thread, PageIndex((at / NUMBERS.len()) as u32));
                };
            }
            Step::Check(at) => {
                let (page, spot) = (at / NUMBERS.len(), &NUMBERS[at % NUMBERS.len()]);
                let page = PageIndex(page as u32);
                let Some(found) = self.number(thread, page, spot) else {
                    return self.fault(thread, page);
                };
                let wanted = self.numbers.get(&at).copied().unwrap_or_default();
                if found != wanted {
                    let h = host + 1;
                    return Err(format!(
                        "h{h} finds {found} at {page}, {spot:?}, where {wanted} is"
                    ));
                }
            }
            Step::Lock(number) => return self.lock(thread, number),
            Step::Unlock(number) => self.unlock(thread, number)?,
            Step::Barrier(parties) => {
                let passed = self.threads[thread].barriers;
                self.golden.arrive(passed, host);
                if let Some(instants) = &mut self.instants {
                    instants.arrive(host, passed);
                }
                let key = self.key(host, BARRIER);
                let call = Call::barrier(key, parties);
                return self.ask(thread, Request::Call { to: None, call });
            }
            Step::Leave => {
                let busy = |other: &Thread| other.host == host && !other.steps.is_empty();
                if self.threads.iter().filter(|other| busy(other)).count() > 1 {
                    self.run_at(Time(self.queue.now().0 + 1_000_000), thread);
                    return Ok(());
                }
                self.sighted.left += 1;
                return self.ask(thread, Request::Leave);
            }
            Step::Crash(nanos) => {
                self.schedule(Time(self.queue.now().0 + nanos), Event::Crash(host));
            }
            Step::Die(nanos) => {
                self.schedule(Time(self.queue.now().0 + nanos), Event::Die(thread));
            }
            Step::Think(nanos) => {
                self.threads[thread].steps.pop_front();
                self.run_at(Time(self.queue.now().0 + nanos), thread);
                return Ok(());
            }
        }
        self.threads[thread].steps.pop_front();
        self.run_soon(thread);
        Ok(())
    }

    /// Does a step that stores; returns its page if the thread must fault first.
    fn store(&mut self, thread: usize, step: Step) -> Option<PageIndex> {
        match step {
            Step::Store(byte) => {
                // Sometimes the value that is there already, or the one before that.
                // Where programs race, each value says which store it is.
                let fresh = self.dice.chance(800) || self.instants.is_some();
                let value = self.last_value.wrapping_add(fresh.into());
                let page = self.put(thread, byte, value);
                self.last_value = if page.is_none() {
                    value
                } else {
                    self.last_value
                };
                page
            }
            Step::Put(byte, value) => self.put(thread, byte, value),
            Step::Fill(byte) => (byte..byte + FILLED).find_map(|byte| {
                self.last_value = self.last_value.wrapping_add(1);
                self.put(thread, byte, self.last_value)
            }),
            _ => None,
        }
    }

    /// Stores a byte; returns its page if the thread must fault first.
    fn put(&mut self, thread: usize, byte: usize, value: u8) -> Option<PageIndex> {
        let (host, mapping) = (self.threads[thread].host, self.threads[thread].mapping);
        let (page, at) = place(byte);
        if !self.hosts[host].memory.store(mapping, page, at, value) {
            return Some(page);
        }
        self.note(host, || format!("stores {value} at {page}+{at}"));
        self.sighted.stores += 1;
        match &mut self.instants {
            Some(instants) => instants.store(host, byte, value.into()),
            None => self.golden.store(byte, host, value),
        }
        None
    }

    /// A thread says which pages it will need: all of these, or every second one.
    fn announce(&mut self, thread: usize, (first, count): (u32, u32)) -> Check {
        let host = self.threads[thread].host;
        let segment = self.hosts[host].segment.unwrap_or_default();
        let scattered = (first..first + count).step_by(2);
        let scattered = scattered.map(|page| (PageIndex(page), PageCount(1)));
        let request = match first % 2 {
            0 => Request::Advise {
                segment,
                first: PageIndex(first),
                count: PageCount(count),
                advice: Advice::WillNeed,
            },
            _ => Request::WillNeed {
                segment,
                ranges: scattered.collect(),
            },
        };
        self.ask(thread, request)
    }

    /// A thread says how a number is accumulated.
    fn declare(&mut self, thread: usize, at: usize) -> Check {
        let host = self.threads[thread].host;
        let spot = NUMBERS[at % NUMBERS.len()];
        let page = (at / NUMBERS.len()) as u64;
        let call = Call::Declare {
            segment: self.hosts[host].segment.unwrap_or_default(),
            reduction: Reduction {
                offset: page * PAGE_SIZE as u64 + spot.offset,
                ..spot
            },
        };
        self.ask(thread, Request::Call { to: None, call })
    }

    /// The value of an element, as a number of its kind.
    pub(super) fn number(
        &mut self,
        thread: usize,
        page: PageIndex,
        spot: &Reduction,
    ) -> Option<u64> {
        let state = &self.threads[thread];
        let memory = &mut self.hosts[state.host].memory;
        let mut bytes = [0; 8];
        for (place, byte) in bytes.iter_mut().take(spot.kind.size()).enumerate() {
            *byte = memory.load(state.mapping, page, spot.offset as usize + place)?;
        }
        Some(u64::from_le_bytes(bytes))
    }

    /// Accumulates into a number, as a program does: loads it, and stores more.
    fn add(&mut self, thread: usize, at: usize, with: u64) -> Check<Option<()>> {
        let (page, spot) = (at / NUMBERS.len(), &NUMBERS[at % NUMBERS.len()]);
        let page = PageIndex(page as u32);
        let Some(old) = self.number(thread, page, spot) else {
            return Ok(None);
        };
        let made = accumulated(spot, old, with);
        let state = &self.threads[thread];
        let (host, mapping) = (state.host, state.mapping);
        for (place, byte) in made.to_le_bytes().iter().take(spot.kind.size()).enumerate() {
            let place = spot.offset as usize + place;
            let memory = &mut self.hosts[host].memory;
            if !memory.store(mapping, page, place, *byte) {
                return Ok(None);
            }
        }
        let whole = self.numbers.get(&at).copied().unwrap_or_default();
        self.numbers.insert(at, accumulated(spot, whole, with));
        self.sighted.added += 1;
        Ok(Some(()))
    }

    fn key(&self, host: usize, number: u64) -> SyncKey {
        let segment = self.hosts[host].segment.unwrap_or_default();
        SyncKey { segment, number }
    }

    fn lock(&mut self, thread: usize, number: u64) -> Check {
        let (host, by) = (self.threads[thread].host, self.threads[thread].client);
        let key = self.key(host, number);
        if let Some(word @ LockWord::Free) = self.hosts[host].words.get_mut(&key) {
            let wanted = false;
            *word = LockWord::Held { by, wanted };
            self.threads[thread].steps.pop_front();
            self.run_soon(thread);
            return Ok(());
        }
        self.ask(thread, Request::Lock { key })
    }

    fn unlock(&mut self, thread: usize, number: u64) -> Check {
        let (host, client) = (self.threads[thread].host, self.threads[thread].client);
        let key = self.key(host, number);
        let word = self.hosts[host].words.get(&key).copied();
        let Some(LockWord::Held { by, wanted }) = word else {
            return Err(format!("{key} is released, but {word:?}"));
        };
        if by != client {
            return Err(format!("{key} is held by {by} and {client}"));
        }
        self.releases(number, host);
        if !wanted {
            self.hosts[host].words.insert(key, LockWord::Free);
            return Ok(());
        }
        self.hosts[host].words.insert(key, LockWord::Absent);
        let recovered = false;
        self.input(host, Input::LockReturned { key, recovered })
    }
}

/// The new value of a number. Sums of fractions are exact here.
fn accumulated(spot: &Reduction, old: u64, with: u64) -> u64 {
    match (spot.merge, spot.kind) {
        (Merge::Sum, Kind::F32) => {
            let sum = f32::from_bits(old as u32) + with as f32;
            u64::from(sum.to_bits())
        }
        (Merge::Sum, _) => old.wrapping_add(with << 30),
        (Merge::Min, _) => u64::from((old as i32).min(500 - with as i32).cast_unsigned()),
        _ => old | 1 << (with % 16),
    }
}
