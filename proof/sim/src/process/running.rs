//! Threads run, stop at pages and wait for replies.

use super::{Asked, State, Thread, Watch};
use crate::check::{Check, ensure};
use crate::kernel::{PageKey, ThreadId};
use crate::log::Mark;
use crate::step::Step;
use crate::world::{Happening, Life, World};
use pagemesh_core::{Input, Request};
use pagemesh_wire::peer::Access;
use pagemesh_wire::{MappingId, Ticket};

/// A thread that is robbed of its page this often in a row does not progress.
const MOST_STOPS: u32 = 100;

/// Of a thousand faults that the kernel repeats, so many are heard of the first time.
const HEARD: u32 = 500;

impl World {
    /// A thread takes its next step after so many nanoseconds.
    pub(crate) fn run_after(&mut self, id: ThreadId, nanos: u64) {
        let thread = &mut self.processes.threads[id.0];
        thread.generation += 1;
        let generation = thread.generation;
        self.after(
            nanos,
            Happening::Run {
                thread: id,
                generation,
            },
        );
    }

    /// A thread that was stopped or waited may run again, when the scheduler likes.
    pub(crate) fn wake(&mut self, id: ThreadId) {
        let host = self.processes.host_of(id);
        let thread = &mut self.processes.threads[id.0];
        if thread.state == State::Ended {
            return;
        }
        thread.state = State::Ready;
        let delay = 200 + self.dice.below(self.hosts[host].plan.wake);
        self.log
            .note(self.now, host, Mark::Woken, [id.0 as u64, delay, 0], || {
                format!("t{}", id.0)
            });
        self.run_after(id, delay);
    }

    /// A thread takes its next step, if this wake-up is meant for it.
    pub(crate) fn run_thread(&mut self, id: ThreadId, generation: u64) -> Check {
        let host = self.processes.host_of(id);
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
        let host = self.processes.host_of(id);
        let thread = &mut self.processes.threads[id.0];
        thread.failed = true;
        thread.since = None;
        thread.stops = 0;
        let step = thread.steps.pop_front();
        if matches!(step, Some(Step::CheckWatch(..)))
            && let Some(Watch {
                ticket,
                over: false,
            }) = thread.watch
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
        let host = self.processes.host_of(id);
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
        thread.state = State::Faulting {
            mapping,
            key,
            access,
        };
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
        // The daemon may hear of it later, together with others.
        if !self.maybe_repeat_fault(id, generation) || self.dice.chance(HEARD) {
            self.input(
                host,
                Input::Fault {
                    mapping,
                    page: key.page,
                    access,
                },
            );
        }
        Ok(())
    }

    fn maybe_repeat_fault(&mut self, thread: ThreadId, generation: u64) -> bool {
        let repeats = self.dice.chance(self.setting.repeats);
        if repeats {
            let pause = 1_000 + self.dice.below(40_000);
            self.after(pause, Happening::FaultAgain { thread, generation });
        }
        repeats
    }

    /// The kernel repeats a fault that is being served (docs/design/kernel.md, "Faults are repeated"). With it
    /// the daemon hears of all others that are not over in this mapping.
    pub(crate) fn fault_again(&mut self, id: ThreadId, generation: u64) {
        let host = self.processes.host_of(id);
        let thread = &self.processes.threads[id.0];
        if thread.generation == generation
            && let State::Faulting { mapping, .. } = thread.state
        {
            let faults = self.processes.faults_in(host, mapping);
            self.input(host, Input::Faults { mapping, faults });
            self.maybe_repeat_fault(id, generation);
        }
    }

    /// A thread asks its node for something and waits for the reply in `step`.
    pub(crate) fn ask(&mut self, id: ThreadId, request: Request, step: Step) -> Ticket {
        let host = self.processes.host_of(id);
        self.processes.last_ticket.0 += 1;
        let ticket = self.processes.last_ticket;
        let client = self.processes.clients[self.processes.threads[id.0].client].id;
        let facts = [id.0 as u64, ticket.0, 0];
        self.log.note(self.now, host, Mark::Asks, facts, || {
            format!("t{} {ticket} {request:?}", id.0)
        });
        let two_phased = matches!(
            request,
            Request::Watch { .. }
                | Request::Call {
                    call: pagemesh_wire::peer::Call::CondWait { .. },
                    ..
                }
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
        self.input(
            host,
            Input::Request {
                ticket,
                client,
                request,
            },
        );
        ticket
    }

    /// A thread has waited long enough.
    pub(crate) fn impatience(&mut self, id: ThreadId, ticket: Ticket) {
        let waits = |thread: &Thread| matches!(thread.state, State::Waiting { ticket: other, .. } if other == ticket);
        if waits(&self.processes.threads[id.0]) {
            self.withdraw(self.processes.host_of(id), ticket);
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
        self.log
            .note(self.now, host, Mark::Withdraws, [ticket.0, 0, 0], || {
                ticket.to_string()
            });
        self.input(host, Input::Cancel { ticket });
    }
}
