//! Locks, barriers, condition variables.

use crate::canary::Canary;
use crate::check::{Check, ensure};
use crate::kernel::ThreadId;
use crate::log::Mark;
use crate::step::{Step, Sync};
use crate::world::{Happening, World};
use pagemesh_core::{Input, Request};
use pagemesh_wire::SyncKey;
use pagemesh_wire::peer::Call;

impl World {
    pub(super) fn perform_on_lock(&mut self, id: ThreadId, step: Step) -> Check {
        match step {
            Step::Locked {
                lock,
                patience,
                body,
            } => {
                let Some(key) = self.processes.sync_key(id, lock) else {
                    self.done(id);
                    return Ok(());
                };
                let host = self.processes.host_of(id);
                let client = self.processes.clients[self.processes.threads[id.0].client].id;
                if self.hosts[host].kernel.try_lock(key, client) {
                    self.acquired(id, key, false)?;
                    self.enter(id, lock, body);
                } else {
                    let step = Step::Locked {
                        lock,
                        patience,
                        body,
                    };
                    let ticket = self.ask(id, Request::Lock { key }, step);
                    if let Some(patience) = patience {
                        self.after(patience, Happening::Impatience { thread: id, ticket });
                    }
                }
            }
            Step::Unlock(lock) => {
                if let Some(key) = self.processes.sync_key(id, lock) {
                    self.release(id, key)?;
                }
                self.done(id);
            }
            _ => unreachable!("only steps on locks come here"),
        }
        Ok(())
    }

    /// A thread goes on inside a lock it holds.
    pub(crate) fn enter(&mut self, id: ThreadId, lock: Sync, body: Vec<Step>) {
        let steps = &mut self.processes.threads[id.0].steps;
        steps.push_front(Step::Unlock(lock));
        for step in body.into_iter().rev() {
            steps.push_front(step);
        }
        self.done(id);
    }

    /// A thread holds a lock now.
    pub(crate) fn acquired(&mut self, id: ThreadId, key: SyncKey, recovered: bool) -> Check {
        let host = self.processes.host_of(id);
        self.log.note(
            self.now,
            host,
            Mark::Lock,
            [key.number, id.0 as u64, 4],
            || format!("{key} taken by t{}", id.0),
        );
        if let Some(other) = self.processes.holders.get(&key) {
            ensure!(
                false,
                MutualExclusion,
                "t{} on h{} takes lock {key}, which t{} on h{} holds",
                id.0,
                host + 1,
                other.0,
                self.processes.host_of(*other) + 1
            );
        }
        let orphaned = self.processes.orphaned.remove(&key);
        ensure!(
            recovered || !orphaned || self.losses.crashed,
            LockRecovered,
            "t{} on h{} takes lock {key} and is not told that its last holder died",
            id.0,
            host + 1
        );
        ensure!(
            !recovered || self.processes.bequeathed.remove(&key) || self.losses.crashed,
            NobodyDied,
            "t{} on h{} is told that lock {key} was recovered, though nobody died",
            id.0,
            host + 1
        );
        self.processes.holders.insert(key, id);
        self.processes.threads[id.0].holds = Some(key);
        Ok(())
    }

    /// A thread releases a lock, if it holds it.
    pub(crate) fn release(&mut self, id: ThreadId, key: SyncKey) -> Check {
        let host = self.processes.host_of(id);
        let thread = &mut self.processes.threads[id.0];
        if thread.holds != Some(key) {
            return Ok(());
        }
        thread.holds = None;
        let client = self.processes.clients[thread.client].id;
        self.processes.holders.remove(&key);
        let tell = self.hosts[host].kernel.release(key, client)?;
        self.log.note(
            self.now,
            host,
            Mark::Lock,
            [key.number, id.0 as u64, 5],
            || {
                format!(
                    "{key} released by t{}{}",
                    id.0,
                    if tell { ", wanted" } else { "" }
                )
            },
        );
        if tell {
            self.input(
                host,
                Input::LockReturned {
                    key,
                    recovered: false,
                },
            );
        }
        Ok(())
    }

    pub(super) fn come_to_barrier(&mut self, id: ThreadId, number: usize, step: Step) {
        let barrier = self.setting.barriers[number];
        let Some(key) = self.processes.sync_key(id, barrier.sync) else {
            return self.done(id);
        };
        *self.processes.arrivals.entry((number, id)).or_default() += 1;
        let leak = u32::from(self.setting.canary == Some(Canary::BarrierLeaks));
        let parties = (barrier.parties - leak).max(1);
        self.call(id, Call::barrier(key, parties), step);
    }

    pub(super) fn try_consume(&mut self, id: ThreadId, number: usize, step: Step) -> Check {
        let queue = self.setting.queues[number];
        let Some(loaded) = self.load(id, queue.count, &step)? else {
            return Ok(());
        };
        if loaded > 0 {
            let delta = u64::MAX;
            self.go_on(
                id,
                Step::AddStore {
                    place: queue.count,
                    loaded,
                    delta,
                },
            );
        } else if let Some(key) = self.processes.sync_key(id, queue.cond) {
            self.call(id, Call::CondWait { key }, step);
        }
        Ok(())
    }
}
