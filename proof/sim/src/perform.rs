//! Carries out each step of a program.

mod sync;

use crate::check::{Check, ensure};
use crate::kernel::{PageKey, ThreadId};
use crate::log::Mark;
use crate::process::{Opened, State, Watch};
use crate::step::{Place, Seg, Step};
use crate::upgrade::OLD;
use crate::world::{Happening, Host, Life, World};
use pagemesh_core::{Input, Request};
use pagemesh_wire::local::PageState;
use pagemesh_wire::peer::{Access, Call, Credentials};
use pagemesh_wire::{MappingId, PageCount, PageIndex};

/// Credentials of all simulated processes.
pub(crate) fn credentials() -> Credentials {
    Credentials {
        uid: 1000,
        gid: 1000,
        groups: Vec::new(),
    }
}

impl World {
    /// A thread performs a step that was taken from its program.
    pub(crate) fn perform(&mut self, id: ThreadId, step: Step) -> Check {
        match step {
            Step::Think(nanos) => self.done_after(id, nanos),
            Step::Begin => {
                self.begin(self.processes.threads[id.0].client);
                self.done(id);
            }
            Step::Open { .. } | Step::Map(_) | Step::Unmap(_) | Step::Close(_) => {
                self.perform_on_segment(id, step);
            }
            Step::Load(place) => {
                if self.load(id, place, &step)?.is_some() {
                    self.done(id);
                }
            }
            Step::Store(place, value) => {
                let value = value.unwrap_or_else(|| self.checkers.golden.fresh_value());
                // When a store that faulted is tried again, it stores the same value.
                self.store(id, place, value, Step::Store(place, Some(value)))?;
            }
            Step::Add(place, delta) => {
                if let Some(loaded) = self.load(id, place, &step)? {
                    self.go_on(
                        id,
                        Step::AddStore {
                            place,
                            loaded,
                            delta,
                        },
                    );
                }
            }
            Step::AddStore {
                place,
                loaded,
                delta,
            } => {
                self.add_store(id, place, loaded, delta, step)?;
            }
            Step::Locked { .. } | Step::Unlock(_) => self.perform_on_lock(id, step)?,
            Step::Barrier(number) => self.come_to_barrier(id, number, step),
            Step::TryConsume(queue) => self.try_consume(id, queue, step)?,
            Step::Signal { cond, all } => match self.processes.sync_key(id, cond) {
                Some(key) => {
                    self.call(id, Call::CondSignal { key, all }, step);
                }
                None => self.done(id),
            },
            Step::WatchFor(..)
            | Step::AskWatch(..)
            | Step::CheckWatch(..)
            | Step::AwaitWatch
            | Step::WatchBriefly(..) => self.perform_on_watch(id, step)?,
            Step::Pin { .. } | Step::Unpin { .. } => self.perform_on_pin(id, step),
            Step::Hold(seg) | Step::EndHold(seg) => self.perform_on_hold(id, seg, step),
            Step::Probe(_)
            | Step::Stat(_)
            | Step::List
            | Step::Remove(_)
            | Step::Leave
            | Step::Promote
            | Step::MakeRoom => {
                self.inquire(id, step);
            }
        }
        Ok(())
    }

    /// The operation goes on with another step.
    fn go_on(&mut self, id: ThreadId, next: Step) {
        let pause = 50 + self.dice.below(500);
        let thread = &mut self.processes.threads[id.0];
        thread.steps.push_front(next);
        thread.state = State::Ready;
        self.run_after(id, pause);
    }

    fn call(&mut self, id: ThreadId, call: Call, step: Step) {
        self.ask(id, Request::Call { to: None, call }, step);
    }

    /// Loads a word; `None` if the thread stopped at the page or has no such mapping.
    fn load(&mut self, id: ThreadId, place: Place, step: &Step) -> Check<Option<u64>> {
        let Some((mapping, key)) = self.processes.locate(id, place) else {
            self.done(id);
            return Ok(None);
        };
        let host = self.processes.host_of(id);
        self.access(host, mapping, key)?;
        let Some(value) = self.hosts[host].kernel.load(mapping, key, place.word) else {
            self.stop_at(id, step.clone(), mapping, key, Access::Read)?;
            return Ok(None);
        };
        self.log.note(
            self.now,
            host,
            Mark::Load,
            [id.0 as u64, key.segment.0, value],
            || format!("t{} {key}.{} is {value:#x}", id.0, place.word),
        );
        self.checkers.golden.load(host, key, place.word, value)?;
        let span = self.processes.span(id, self.now);
        self.checkers.witness((key, place.word), value, false, span);
        let thread = &mut self.processes.threads[id.0];
        thread.last = value;
        thread.failed = false;
        Ok(Some(value))
    }

    /// A thread accesses a page; the kernel may serve the access by itself.
    fn access(&mut self, host: usize, mapping: MappingId, key: PageKey) -> Check {
        let Some(words) = self.hosts[host].kernel.access(mapping, key) else {
            return Ok(());
        };
        self.log.note(
            self.now,
            host,
            Mark::Map,
            [key.segment.0, key.page.0.into(), 0],
            || format!("{key} by the kernel for {mapping}"),
        );
        self.stats.untrapped += 1;
        if self.hosts[host].buried {
            return Ok(());
        }
        self.check_single_writer(host, key)?;
        self.checkers.golden.mapped(host, key, &words)
    }

    /// Stores a word, or stops the thread at the page.
    fn store(&mut self, id: ThreadId, place: Place, value: u64, again: Step) -> Check {
        let Some((mapping, key)) = self.processes.locate(id, place) else {
            self.done(id);
            return Ok(());
        };
        let host = self.processes.host_of(id);
        self.access(host, mapping, key)?;
        if !self.hosts[host]
            .kernel
            .store(mapping, key, place.word, value)
        {
            return self.stop_at(id, again, mapping, key, Access::Write);
        }
        self.log.note(
            self.now,
            host,
            Mark::Store,
            [id.0 as u64, key.segment.0, value],
            || format!("t{} {key}.{} becomes {value:#x}", id.0, place.word),
        );
        self.check_holds(host, key)?;
        self.checkers.golden.store(host, key, place.word, value)?;
        let span = self.processes.span(id, self.now);
        self.checkers.witness((key, place.word), value, true, span);
        self.processes.threads[id.0].failed = false;
        self.done(id);
        Ok(())
    }

    fn add_store(
        &mut self,
        id: ThreadId,
        place: Place,
        loaded: u64,
        delta: u64,
        step: Step,
    ) -> Check {
        if let Some((_, key)) = self.processes.locate(id, place) {
            let now = self.checkers.golden.words(key)[place.word];
            ensure!(
                now == loaded || self.losses.crashed,
                MutualExclusion,
                "t{} on h{} loaded {loaded} from {key}.{} under a lock, and now it is {now}",
                id.0,
                self.processes.host_of(id) + 1,
                place.word
            );
        }
        self.store(id, place, loaded.wrapping_add(delta), step)
    }
}

/// Segments.
impl World {
    fn perform_on_segment(&mut self, id: ThreadId, step: Step) {
        let host = self.processes.host_of(id);
        match step {
            Step::Open {
                name,
                create,
                exclusive,
                write,
                ..
            } => {
                let plan = &self.setting.segments[name];
                let request = Request::Open {
                    name: plan.name.clone(),
                    create: create.then(|| plan.spec()),
                    exclusive,
                    write,
                    credentials: credentials(),
                };
                self.ask(id, request, step);
                return;
            }
            Step::Map(seg) => self.map_segment(id, seg),
            Step::Unmap(seg) => {
                let opened = self.processes.opened_mut(id, seg).as_mut();
                let mappings = opened.map(|opened| std::mem::take(&mut opened.mappings));
                for mapping in mappings.unwrap_or_default() {
                    self.input(host, Input::Unmapped { mapping });
                }
            }
            Step::Close(seg) => {
                let client = self.processes.clients[self.processes.threads[id.0].client].id;
                if let Some(Opened { segment, .. }) = self.processes.opened_mut(id, seg).take() {
                    self.input(host, Input::Closed { segment, client });
                }
            }
            _ => unreachable!("only steps on segments come here"),
        }
        self.done(id);
    }

    fn map_segment(&mut self, id: ThreadId, seg: Seg) {
        let host = self.processes.host_of(id);
        let client = self.processes.clients[self.processes.threads[id.0].client].id;
        let Some(segment) = self.processes.opened(id, seg).map(|opened| opened.segment) else {
            return;
        };
        let mapping = self.processes.next_mapping();
        self.hosts[host].kernel.mapped(mapping, segment, client);
        if !self.hosts[host].node.is_trapped(segment) {
            self.hosts[host].kernel.leave_untrapped(segment);
        }
        self.input(
            host,
            Input::Mapped {
                mapping,
                segment,
                client,
            },
        );
        let opened = self
            .processes
            .opened_mut(id, seg)
            .as_mut()
            .expect("was open a line ago");
        opened.mappings.push(mapping);
    }

    fn inquire(&mut self, id: ThreadId, step: Step) {
        let name = |name: usize| self.setting.segments[name].name.clone();
        let request = match &step {
            Step::Probe(host) => {
                let host = &self.hosts[*host];
                let Some(node) = host.id.filter(|_| host.life == Life::Up) else {
                    return self.done(id);
                };
                Request::Call {
                    to: Some(node),
                    call: Call::Probe,
                }
            }
            Step::Stat(number) => Request::Call {
                to: None,
                call: Call::Stat {
                    name: name(*number),
                },
            },
            Step::List => Request::Call {
                to: None,
                call: Call::List {
                    after: String::new(),
                },
            },
            Step::Remove(number) => {
                self.etcd.removing(*number);
                let call = Call::Remove {
                    name: name(*number),
                    credentials: credentials(),
                };
                Request::Call { to: None, call }
            }
            Step::Leave => {
                let at = self.processes.host_of(id);
                self.hosts[at].leaves = true;
                self.hosts[at].kernel.unpin_all();
                Request::Leave
            }
            Step::Promote => Request::Promote,
            Step::MakeRoom => Request::MakeRoom { speaks: OLD.speaks },
            _ => unreachable!("only inquiries come here"),
        };
        self.ask(id, request, step);
    }
}

/// Watches and pins.
impl World {
    fn perform_on_watch(&mut self, id: ThreadId, step: Step) -> Check {
        match step {
            Step::WatchFor(place, target) => {
                let Some(value) = self.load(id, place, &step)? else {
                    return Ok(());
                };
                if value < target {
                    self.go_on(id, Step::AskWatch(place, target));
                } else {
                    self.done(id);
                }
            }
            Step::AskWatch(place, _) | Step::WatchBriefly(place, _) => {
                let Some((_, PageKey { segment, page })) = self.processes.locate(id, place) else {
                    self.done(id);
                    return Ok(());
                };
                let patience = match step {
                    Step::WatchBriefly(_, patience) => Some(patience),
                    _ => None,
                };
                let ticket = self.ask(id, Request::Watch { segment, page }, step);
                self.processes.threads[id.0].watch = Some(Watch {
                    ticket,
                    over: false,
                });
                if let Some(patience) = patience {
                    self.after(patience, Happening::Impatience { thread: id, ticket });
                }
            }
            Step::CheckWatch(place, target) => {
                let Some(value) = self.load(id, place, &step)? else {
                    return Ok(());
                };
                let host = self.processes.host_of(id);
                let thread = &mut self.processes.threads[id.0];
                if value < target {
                    thread.steps.push_front(Step::WatchFor(place, target));
                } else if let Some(Watch {
                    ticket,
                    over: false,
                }) = thread.watch
                {
                    self.withdraw(host, ticket);
                }
                self.go_on(id, Step::AwaitWatch);
            }
            Step::AwaitWatch => match self.processes.threads[id.0].watch {
                Some(Watch {
                    ticket,
                    over: false,
                }) => {
                    self.processes.threads[id.0].state = State::Waiting { ticket, step };
                }
                _ => self.done(id),
            },
            _ => unreachable!("only steps on watches come here"),
        }
        Ok(())
    }

    fn perform_on_hold(&mut self, id: ThreadId, seg: usize, step: Step) {
        let opened = self.processes.opened(id, Seg::Main(seg));
        let Some(segment) = opened.map(|opened| opened.segment) else {
            return self.done(id);
        };
        let request = match step {
            Step::Hold(_) => Request::Hold { segment },
            _ => Request::EndHold { segment },
        };
        self.ask(id, request, step);
    }

    /// A store may not happen to a page that a process which saves relies on.
    fn check_holds(&self, host: usize, key: PageKey) -> Check {
        let counts = |host: &&Host| host.life == Life::Up && !host.buried;
        if !counts(&&self.hosts[host]) {
            return Ok(());
        }
        for (at, saver) in self.hosts.iter().enumerate() {
            // A killed daemon's effects may not all be done: the next one ends them, and with them
            // stores of its own processes, before the process that saves has an answer.
            let is_halfway = at == host && saver.remains.is_some();
            if !counts(&saver) || is_halfway {
                continue;
            }
            let node = &saver.node;
            if !node.is_held(key.segment, saver.clock(self.now)) {
                continue;
            }
            let states = node.states(key.segment, key.page).unwrap_or_default();
            let state = states.first().copied().unwrap_or(PageState::Unsure);
            ensure!(
                state == PageState::Unsure,
                HeldUnchanged,
                "h{} stores to {key}, which {:?} holds as {state:?}",
                host + 1,
                saver.id
            );
        }
        Ok(())
    }

    fn perform_on_pin(&mut self, id: ThreadId, step: Step) {
        let host = self.processes.host_of(id);
        let (pins, seg, first, count) = match step {
            Step::Pin { seg, first, count } => (true, seg, first, count),
            Step::Unpin { seg, first, count } => (false, seg, first, count),
            _ => unreachable!("only pins come here"),
        };
        let Some(segment) = self
            .processes
            .opened(id, Seg::Main(seg))
            .map(|opened| opened.segment)
        else {
            return self.done(id);
        };
        let pages = first..first + count;
        let (first, count) = (PageIndex(first), PageCount(count));
        let request = if pins {
            Request::Pin {
                segment,
                first,
                count,
            }
        } else {
            for page in pages {
                let key = PageKey {
                    segment,
                    page: PageIndex(page),
                };
                self.hosts[host].kernel.unpin(key);
                self.processes.threads[id.0]
                    .pins
                    .retain(|pinned| *pinned != key);
            }
            Request::Unpin {
                segment,
                first,
                count,
            }
        };
        self.ask(id, request, step);
    }
}
