//! The actions of processes: the steps of their traces.

use super::cluster::{Cluster, MAPPING};
use super::host::{Asked, State};
use super::spent::Doing;
use super::trace::Step;
use crate::engine::{CLIENT, Stuck};
use crate::site::nanos;
use core::convert::Infallible;
use core::time::Duration;
use pagemesh_core::{Input, Request, Rights};
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::peer::{Access, Call};
use pagemesh_wire::{PageIndex, SyncKey};

/// Barriers have numbers of their own, beside locks.
const BARRIERS: u64 = 1 << 40;

/// A lock that is free here.
const AT_ONCE: u64 = 70;

impl Cluster {
    /// A process goes on until something takes time.
    pub(super) fn take_steps(&mut self, at: usize) -> Result<(), Stuck> {
        let now = self.engine.now;
        self.hosts[at].is_over(now);
        self.hosts[at].state = State::Runs;
        loop {
            let Some(step) = self.hosts[at].steps.pop_front() else {
                self.has_ended(at);
                return Ok(());
            };
            if !self.step(at, step)? {
                return Ok(());
            }
        }
    }

    /// Takes a step; false if it takes time.
    fn step(&mut self, at: usize, step: Step) -> Result<bool, Stuck> {
        match step {
            Step::Work(0) => {}
            Step::Work(nanos) => {
                self.works(at, nanos);
                return Ok(false);
            }
            Step::Load(page) if self.hosts[at].may(page) >= Rights::Read => {}
            Step::Store(page, bytes) if self.hosts[at].may(page) == Rights::Write => {
                *self.hosts[at].changed.entry(page).or_default() += u32::from(bytes);
            }
            Step::Load(page) => {
                self.stop(at, step, page, Access::Read);
                return Ok(false);
            }
            Step::Store(page, _) => {
                self.stop(at, step, page, Access::Write);
                return Ok(false);
            }
            Step::Barrier(number) => {
                let parties = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
                let key = self.key(BARRIERS + number);
                let call = Call::barrier(key, parties);
                self.look_at_kept_writable(at);
                self.ask(at, Asked::Barrier, Request::Call { to: None, call });
                return Ok(false);
            }
            Step::Lock(number) => {
                self.lock(at, Asked::Lock, number);
                return Ok(false);
            }
            Step::Relock(number) => {
                self.lock(at, Asked::Relock, number);
                return Ok(false);
            }
            Step::Unlock(number) => self.unlock(at, number)?,
            Step::Signalled(number, times) => {
                if self.signals.get(&number).copied().unwrap_or(0) < times {
                    self.hosts[at].steps.push_front(step);
                    self.sleep(at);
                    return Ok(false);
                }
            }
            Step::Signal(number) => self.signal(number),
            Step::Note => {
                let now = self.engine.now;
                self.hosts[at].notes.push(now);
            }
        }
        Ok(true)
    }

    fn sleep(&mut self, at: usize) {
        let now = self.engine.now;
        self.hosts[at].state = State::Sleeps;
        self.hosts[at].begins(Doing::Condition, now);
    }

    fn stop(&mut self, at: usize, step: Step, page: PageIndex, access: Access) {
        self.counts.faults += 1;
        let now = self.engine.now;
        self.hosts[at].steps.push_front(step);
        self.hosts[at].state = State::Stopped(page, access);
        self.hosts[at].begins(Doing::Page, now);
        let mapping = MAPPING;
        let input = Input::Fault {
            mapping,
            page,
            access,
        };
        self.hears_after(at, self.costs(at).trap, input);
    }

    /// As daemons do before a barrier is reached.
    fn look_at_kept_writable(&mut self, at: usize) {
        let (segment, host) = (self.segment, &self.hosts[at]);
        let kept_writable = self.engine.seats[at].node.kept_writable(segment);
        if kept_writable.is_empty() {
            return;
        }
        let changed = &host.changed;
        let is_untouched = |_: &(), page| changed.get(&page).is_none_or(|bytes| *bytes == 0);
        let mut inputs = Vec::new();
        let report = |(): &mut (), pages| {
            inputs.push(Input::Untouched { segment, pages });
            Ok::<_, Infallible>(())
        };
        let Ok(pages) = kept_writable.look(&mut (), is_untouched, report);
        inputs.push(Input::Untouched { segment, pages });
        for input in inputs {
            self.hears_after(at, self.costs(at).call, input);
        }
    }

    fn ask(&mut self, at: usize, what: Asked, request: Request) {
        let ticket = self.engine.ticket();
        let now = self.engine.now;
        self.hosts[at].asked = (what, now);
        let doing = match what {
            Asked::Lock => Doing::Lock,
            Asked::Relock => Doing::Condition,
            Asked::Barrier => Doing::Barrier,
        };
        self.hosts[at].begins(doing, now);
        self.hosts[at].state = State::Waits(ticket);
        let client = CLIENT;
        let input = Input::Request {
            ticket,
            client,
            request,
        };
        self.hears_after(at, self.costs(at).call, input);
    }

    fn hears_after(&mut self, at: usize, time: Duration, input: Input<'static>) {
        let then = self.engine.now + nanos(time);
        self.engine.hears_at(at, then, input);
    }

    fn key(&self, number: u64) -> SyncKey {
        let segment = self.segment;
        SyncKey { segment, number }
    }

    fn lock(&mut self, at: usize, what: Asked, number: u64) {
        let key = self.key(number);
        if let Some(word @ LockWord::Free) = self.hosts[at].words.get_mut(&key) {
            let (by, wanted) = (CLIENT, false);
            *word = LockWord::Held { by, wanted };
            return self.works(at, AT_ONCE);
        }
        self.ask(at, what, Request::Lock { key });
    }

    fn unlock(&mut self, at: usize, number: u64) -> Result<(), Stuck> {
        let key = self.key(number);
        let Some(LockWord::Held { wanted, .. }) = self.hosts[at].words.get(&key).copied() else {
            return Err(Stuck(format!("lock {number} is given back, but not held")));
        };
        if !wanted {
            self.hosts[at].words.insert(key, LockWord::Free);
            return Ok(());
        }
        self.hosts[at].words.insert(key, LockWord::Absent);
        let recovered = false;
        let input = Input::LockReturned { key, recovered };
        self.hears_after(at, self.costs(at).call, input);
        Ok(())
    }

    /// All waiting processes check again, once the news has reached them.
    fn signal(&mut self, number: u64) {
        *self.signals.entry(number).or_default() += 1;
        for host in 0..self.hosts.len() {
            if self.hosts[host].state == State::Sleeps {
                let costs = self.costs(host);
                let word = 2 * costs.call + 2 * costs.decide + costs.short + costs.wake;
                let at = self.engine.now + nanos(word);
                self.engine.resume_at(host, at);
            }
        }
    }
}
