//! Processes come and go.

use super::{Client, State, Thread};
use crate::check::{Check, ensure};
use crate::kernel::ThreadId;
use crate::step::{ClientPlan, Step};
use crate::world::World;
use pagemesh_core::Input;
use pagemesh_wire::ClientId;

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
        if self
            .hosts
            .get(plan.host)
            .is_some_and(|host| host.id.is_some())
        {
            self.start_client(index);
        }
        index
    }

    /// One more thread of a process, which runs at once.
    pub(crate) fn spawn_thread(&mut self, client: usize, steps: Vec<Step>) -> ThreadId {
        let id = ThreadId(self.processes.threads.len());
        let mut thread =
            self.processes.threads[self.processes.clients[client].threads[0].0].clone();
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
    pub(super) fn end_thread(&mut self, id: ThreadId) -> Check {
        let thread = &mut self.processes.threads[id.0];
        let client = &mut self.processes.clients[thread.client];
        if client.running == 1 && !client.farewell.is_empty() {
            thread.steps.extend(client.farewell.drain(..));
            self.run_after(id, 100);
            return Ok(());
        }
        ensure!(
            thread.holds.is_none(),
            MutualExclusion,
            "t{} ended with a lock",
            id.0
        );
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
            let leaver = ClientPlan {
                host,
                programs: vec![program],
                farewell: Vec::new(),
            };
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
                self.checkers.golden.unwatch(*ticket);
            }
        }
    }

    /// Threads that have not ended although they should have.
    pub(crate) fn stuck(&self) -> Vec<ThreadId> {
        let excused = |thread: &Thread| {
            self.losses.casualties
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
}
