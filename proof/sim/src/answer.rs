//! How threads handle the replies to their requests.

use crate::check::{Check, ensure};
use crate::kernel::{PageKey, ThreadId};
use crate::log::Mark;
use crate::process::{Asked, Opened, State};
use crate::step::{Fault, Seg, Step};
use crate::world::{Happening, Life, World};
use pagemesh_core::limits::PIN_LEASE;
use pagemesh_core::{Reply, Time};
use pagemesh_wire::peer::{Refusal, SegmentInfo};
use pagemesh_wire::{PageIndex, Ticket};

impl World {
    /// A node replies to a request.
    pub(crate) fn answer(&mut self, at: usize, ticket: Ticket, reply: Reply) -> Check {
        self.log
            .note(self.now, at, Mark::Answered, [ticket.0, 0, 0], || {
                format!("{ticket} {reply:?}")
            });
        let Some(asked) = self.processes.tickets.get_mut(&ticket) else {
            ensure!(
                false,
                OneReply,
                "h{} answers {ticket}, which was never asked or is answered: {reply:?}",
                at + 1
            );
            unreachable!()
        };
        ensure!(
            asked.host == at,
            OneReply,
            "h{} answers {ticket} of h{}",
            at + 1,
            asked.host + 1
        );
        if reply == Reply::Waiting {
            ensure!(
                asked.two_phased && !asked.waiting,
                OneReply,
                "h{} lets {ticket} wait, twice or although it is no wait",
                at + 1
            );
            asked.waiting = true;
            let asked = asked.clone();
            return if asked.orphan {
                Ok(())
            } else {
                self.waits(ticket, asked.thread)
            };
        }
        let asked = self
            .processes
            .tickets
            .remove(&ticket)
            .expect("was there three lines ago");
        self.checkers.golden.unwatch(ticket);
        if asked.orphan {
            Ok(())
        } else {
            self.answered(ticket, &asked, reply)
        }
    }

    /// The first reply to a wait: from now on the thread misses no change.
    fn waits(&mut self, ticket: Ticket, id: ThreadId) -> Check {
        let State::Waiting { step, .. } = self.processes.threads[id.0].state.clone() else {
            return Ok(());
        };
        match step {
            Step::AskWatch(place, target) => {
                self.rely_on_watch(id, ticket, &step);
                let steps = &mut self.processes.threads[id.0].steps;
                steps.push_front(Step::CheckWatch(place, target));
                self.wake(id);
            }
            Step::WatchBriefly(..) => self.rely_on_watch(id, ticket, &step),
            Step::TryConsume(number) => {
                let lock = self.setting.queues[number].lock;
                if let Some(key) = self.processes.sync_key(id, lock) {
                    self.release(id, key)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn rely_on_watch(&mut self, id: ThreadId, ticket: Ticket, step: &Step) {
        let (Step::AskWatch(place, _) | Step::WatchBriefly(place, _)) = step else {
            return;
        };
        if let Some((_, key)) = self.processes.locate(id, *place) {
            self.checkers.golden.watch(key, ticket);
        }
    }

    /// A thread gets the last reply to its request.
    fn answered(&mut self, ticket: Ticket, asked: &Asked, reply: Reply) -> Check {
        let id = asked.thread;
        let thread = &mut self.processes.threads[id.0];
        if let Some(watch) = &mut thread.watch
            && watch.ticket == ticket
        {
            watch.over = true;
        }
        let State::Waiting {
            ticket: awaited,
            step,
        } = thread.state.clone()
        else {
            return Ok(());
        };
        if awaited != ticket {
            return Ok(());
        }
        thread.failed = matches!(reply, Reply::Refused(_));
        if let Reply::Refused(why) = &reply {
            return self.refused(id, asked, step, why);
        }
        match (step, reply) {
            (Step::Open { seg, name, .. }, Reply::Segment(info)) => {
                self.etcd.told(name, info.id);
                self.opened_now(id, seg, name, &info)?;
            }
            (Step::Locked { lock, body, .. }, Reply::Locked { recovered }) => {
                let key = self.processes.sync_key(id, lock);
                self.acquired(id, key.expect("a lock that was asked for"), recovered)?;
                self.enter(id, lock, body);
            }
            (Step::Barrier(number), Reply::Done) => self.passed_barrier(id, number)?,
            (Step::TryConsume(number), Reply::Done) => self.consume_again(id, number),
            (Step::Signal { all, .. }, Reply::Woken(count)) => {
                ensure!(
                    all || count <= 1,
                    SensibleReply,
                    "a signal to one woke {count} threads"
                );
            }
            (Step::AskWatch(place, target), Reply::Changed) => {
                let again = Step::WatchFor(place, target);
                self.processes.threads[id.0].steps.push_front(again);
            }
            (Step::AwaitWatch | Step::WatchBriefly(..), Reply::Changed)
            | (Step::Unpin { .. } | Step::Probe(_) | Step::Remove(_), Reply::Done) => {}
            (Step::Hold(_) | Step::EndHold(_), Reply::Done) => {}
            (Step::Pin { seg, first, count }, Reply::Done) => self.pinned(id, seg, first, count),
            (Step::Stat(name), Reply::Segment(info)) => self.check_info(name, &info)?,
            (Step::List, Reply::Segments(infos)) => {
                let sorted = infos.is_sorted_by(|one, other| one.name < other.name);
                ensure!(
                    sorted,
                    SensibleReply,
                    "a list of segments is not in order: {infos:?}"
                );
            }
            (Step::Promote, Reply::Done) => self.stats.promotions += 1,
            (Step::MakeRoom, Reply::Done) => {
                let host = self.processes.host_of(id);
                self.after(1, Happening::Misfortune(Fault::PutBack { host }));
            }
            (Step::Leave, Reply::Done) => {
                self.left(id);
                return Ok(());
            }
            (step, reply) => ensure!(
                false,
                SensibleReply,
                "t{} asked {step:?} and is answered {reply:?}",
                id.0
            ),
        }
        if !matches!(self.processes.threads[id.0].state, State::Ready) {
            self.done_by_reply(id);
        }
        Ok(())
    }

    /// The operation ends with this reply, which wakes the thread.
    fn done_by_reply(&mut self, id: ThreadId) {
        let wake = self.hosts[self.processes.host_of(id)].plan.wake;
        let pause = 200 + self.dice.below(wake);
        self.done_after(id, pause);
    }

    fn refused(&mut self, id: ThreadId, asked: &Asked, step: Step, why: &Refusal) -> Check {
        if step == Step::Leave {
            self.hosts[asked.host].leaves = false;
        }
        let leaves = self.hosts[asked.host].leaves;
        let expected = match (&step, why) {
            (_, Refusal::Cancelled) => asked.withdrawn,
            // Another process of the host holds the segment; or the hold has ended, or the host leaves:
            // what saves gives up.
            (Step::Hold(_) | Step::EndHold(_), Refusal::Limit(_) | Refusal::NotMember) => true,
            (Step::Open { create: false, .. }, Refusal::NotFound) | (_, Refusal::NotMember) => {
                let again = self.orphaned(&step, asked.host);
                let steps = &mut self.processes.threads[id.0].steps;
                steps.push_front(again);
                steps.push_front(Step::Think(500_000));
                true
            }
            (
                Step::Open {
                    exclusive: true, ..
                },
                Refusal::Exists,
            )
            | (Step::Stat(_) | Step::Remove(_), Refusal::NotFound) => true,
            // The coordinator was heard after all, or was silent for too long.
            (Step::Promote, Refusal::Invalid(_)) => {
                self.after(100_000_000, Happening::Misfortune(Fault::Promote));
                true
            }
            (Step::Open { .. }, Refusal::NodeGone(_))
                if self.setting.standby || self.setting.keeps =>
            {
                let steps = &mut self.processes.threads[id.0].steps;
                steps.push_front(step.clone());
                steps.push_front(Step::Think(100_000_000));
                true
            }
            // Another one takes the place, or the host has none any more.
            (Step::MakeRoom, _) => true,
            // The probed host may be a member that the asking node has not heard of yet.
            (Step::Probe(_), Refusal::NodeGone(_)) => true,
            (_, Refusal::NodeGone(_)) => {
                self.losses.crashed || leaves || self.losses.is_expected(asked.host)
            }
            _ => false,
        };
        ensure!(
            expected,
            SensibleReply,
            "t{} on h{} asked {step:?} and is refused: {why}",
            id.0,
            self.processes.host_of(id) + 1
        );
        self.done_by_reply(id);
        Ok(())
    }

    /// Returns the step as it is tried again. If a host died unexpectedly, the process that was
    /// to create the name may be dead; then any process on a host that is not expected to die
    /// creates it.
    fn orphaned(&self, step: &Step, host: usize) -> Step {
        let mut again = step.clone();
        if let Step::Open { create, .. } = &mut again {
            *create |= self.losses.casualties && !self.losses.is_expected(host);
        }
        again
    }

    fn opened_now(&mut self, id: ThreadId, seg: Seg, name: usize, info: &SegmentInfo) -> Check {
        self.check_info(name, info)?;
        let opened = Opened {
            segment: info.id,
            mappings: Vec::new(),
        };
        *self.processes.opened_mut(id, seg) = Some(opened);
        let thread = &self.processes.threads[id.0];
        if let State::Waiting {
            step: Step::Open {
                exclusive: true, ..
            },
            ..
        } = thread.state
        {
            *self.processes.created.entry(name).or_default() += 1;
        }
        Ok(())
    }

    fn check_info(&self, name: usize, info: &SegmentInfo) -> Check {
        let plan = &self.setting.segments[name];
        ensure!(
            info.name == plan.name && info.spec == plan.spec(),
            SensibleReply,
            "wanted segment {:?}, got {info:?}",
            plan.name
        );
        Ok(())
    }

    fn passed_barrier(&mut self, id: ThreadId, number: usize) -> Check {
        let mine = self.processes.arrivals[&(number, id)];
        let here = |((barrier, _), count): &(&(usize, ThreadId), &u32)| {
            *barrier == number && **count >= mine
        };
        let come = self.processes.arrivals.iter().filter(here).count();
        let parties = self.setting.barriers[number].parties as usize;
        ensure!(
            come == parties,
            Barrier,
            "t{} on h{} passes barrier {number} for the {mine}. time when {come} of {parties} have come",
            id.0,
            self.processes.host_of(id) + 1
        );
        Ok(())
    }

    /// A signal woke the thread: it takes the lock again and looks at the queue.
    fn consume_again(&mut self, id: ThreadId, number: usize) {
        let lock = self.setting.queues[number].lock;
        let again = vec![Step::TryConsume(number)];
        let key = self.processes.sync_key(id, lock);
        let thread = &mut self.processes.threads[id.0];
        if thread.holds.is_some() && thread.holds == key {
            thread.steps.push_front(Step::TryConsume(number));
        } else {
            thread.steps.push_front(Step::Locked {
                lock,
                patience: None,
                body: again,
            });
        }
    }

    fn pinned(&mut self, id: ThreadId, seg: usize, first: u32, count: u32) {
        let host = self.processes.host_of(id);
        let Some(segment) = self
            .processes
            .opened(id, Seg::Main(seg))
            .map(|opened| opened.segment)
        else {
            return;
        };
        if self.hosts[host].leaves {
            return;
        }
        // The node's lease of the pin began some time before this reply.
        let until = Time(self.now.0 + PIN_LEASE.as_nanos() as u64 / 2);
        for page in first..first + count {
            let key = PageKey {
                segment,
                page: PageIndex(page),
            };
            self.hosts[host].kernel.pin(key, until);
            self.processes.threads[id.0].pins.push(key);
        }
    }

    /// A host has left in order: its daemon ends.
    fn left(&mut self, id: ThreadId) {
        let host = self.processes.host_of(id);
        self.log
            .note(self.now, host, Mark::Hand, [5; 3], || "has left".into());
        self.reaction.departing.push((host, Life::Left));
    }
}
