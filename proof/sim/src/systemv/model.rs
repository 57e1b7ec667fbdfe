//! One host's System V: the reference for every home.

use super::Mistake;
use super::program::SEMAPHORES;
use super::queue::Queue;
use super::set::{Set, done, failed};
use pagemesh_wire::ClientId;
use pagemesh_wire::sysv::{Errno, Family, Id, Op, Outcome, Pick, SemRead};
use std::collections::{BTreeMap, BTreeSet};

/// An answer to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The outcome of its call.
    Outcome(Outcome),
    /// It has the segment.
    Attached,
    /// Nothing yet.
    Waits,
    /// Its call was withdrawn, and nothing happened.
    Withdrawn,
}

/// An answer with its receiver.
pub(super) type Heard = (ClientId, Said);

/// A segment: it goes with its last attachment, once it is removed.
#[derive(Debug, Default)]
struct Segment {
    removed: bool,
    gone: bool,
}

/// All there is on one host.
#[derive(Debug, Default)]
pub(super) struct Model {
    sets: BTreeMap<Id, Set>,
    queues: BTreeMap<Id, Queue>,
    segments: BTreeMap<Id, Segment>,
    used: BTreeSet<(Family, Id)>,
    /// Bytes in one queue.
    limit: u64,
    mistake: Option<Mistake>,
    pub(super) orphaned: u64,
    pub(super) undone: u64,
}

impl Model {
    pub(super) fn new(limit: u64, mistake: Option<Mistake>) -> Self {
        Self {
            limit,
            mistake,
            ..Self::default()
        }
    }

    /// A process calls. `said` is the home's answer, where several are correct: when a removed
    /// segment is gone; `attached` is true if a process has a segment attached.
    pub(super) fn call(
        &mut self,
        client: ClientId,
        op: &Op,
        said: &Said,
        attached: impl Fn(Id) -> bool,
    ) -> Result<Vec<Heard>, String> {
        let no_such = vec![failed(client, Errno::EINVAL)];
        match op {
            Op::SemOp { id, .. }
            | Op::SemSetOne { id, .. }
            | Op::SemSetAll { id, .. }
            | Op::SemGetAll { id }
            | Op::SemGetOne { id, .. } => {
                let Some(set) = self.sets.get_mut(id) else {
                    return Ok(no_such);
                };
                Ok(of_set(set, client, op))
            }
            Op::MsgSend { id, .. } | Op::MsgReceive { id, .. } => {
                let Some(queue) = self.queues.get_mut(id) else {
                    return Ok(no_such);
                };
                Ok(of_queue(queue, client, op))
            }
            Op::Stat {
                family: Family::Msg,
                pick: Pick::Id(id),
            } => {
                // The rest is for `stat_agrees`.
                let known = self.queues.contains_key(id);
                Ok(if known {
                    vec![(client, said.clone())]
                } else {
                    no_such
                })
            }
            Op::ShmAttach { id, .. }
            | Op::Stat {
                family: Family::Shm,
                pick: Pick::Id(id),
            } => {
                let answer = if self.is_gone(*id, said, attached)? {
                    return Ok(no_such);
                } else if matches!(op, Op::ShmAttach { .. }) {
                    Said::Attached
                } else {
                    said.clone()
                };
                Ok(vec![(client, answer)])
            }
            Op::Remove { family, id } => self.remove(client, (*family, *id), said, attached),
            other => Err(format!("nobody calls {other:?}")),
        }
    }

    /// A new object, of which a process has heard for the first time: no operation can have changed
    /// it. Its key does not matter here.
    ///
    /// # Errors
    /// If it is not new.
    pub(super) fn make(&mut self, family: Family, id: Id) -> Result<(), String> {
        if !self.used.insert((family, id)) {
            return Err(format!("{id:?} is an object for the second time"));
        }
        match family {
            Family::Sem => {
                let set = Set::new(usize::from(SEMAPHORES), self.mistake);
                self.sets.insert(id, set);
            }
            Family::Msg => {
                let queue = Queue {
                    limit: self.limit,
                    mistake: self.mistake,
                    ..Queue::default()
                };
                self.queues.insert(id, queue);
            }
            Family::Shm => {
                self.segments.insert(id, Segment::default());
            }
        }
        Ok(())
    }

    /// Whether a segment is gone. If it is removed only its home knows when its last attachment
    /// went, which is not before all processes have detached it.
    fn is_gone(
        &mut self,
        id: Id,
        said: &Said,
        attached: impl Fn(Id) -> bool,
    ) -> Result<bool, String> {
        let Some(segment) = self.segments.get_mut(&id) else {
            return Ok(true);
        };
        let says_so = *said == Said::Outcome(Outcome::Failed(Errno::EINVAL));
        if says_so && segment.removed {
            if !segment.gone && attached(id) {
                return Err(format!("{id:?} is gone, and somebody has it attached"));
            }
            segment.gone = true;
        }
        Ok(segment.gone)
    }

    fn remove(
        &mut self,
        client: ClientId,
        (family, id): (Family, Id),
        said: &Said,
        attached: impl Fn(Id) -> bool,
    ) -> Result<Vec<Heard>, String> {
        let orphans: Vec<ClientId> = match family {
            Family::Sem => match self.sets.remove(&id) {
                Some(set) => set.sleepers.iter().map(|(client, _)| *client).collect(),
                None => return Ok(vec![failed(client, Errno::EINVAL)]),
            },
            Family::Msg => match self.queues.remove(&id) {
                Some(queue) => queue.waiting().collect(),
                None => return Ok(vec![failed(client, Errno::EINVAL)]),
            },
            Family::Shm => {
                if self.is_gone(id, said, attached)? {
                    return Ok(vec![failed(client, Errno::EINVAL)]);
                }
                self.segments.entry(id).or_default().removed = true;
                Vec::new()
            }
        };
        let mut heard = vec![done(client)];
        if self.mistake != Some(Mistake::RemovalUnheard) {
            self.orphaned += orphans.len() as u64;
            heard.extend(orphans.iter().map(|one| failed(*one, Errno::EIDRM)));
        }
        Ok(heard)
    }

    /// A call is withdrawn; true if it waited.
    pub(super) fn withdraw(&mut self, client: ClientId) -> bool {
        let waits = self.waits(client);
        for set in self.sets.values_mut() {
            set.sleepers.retain(|(sleeper, _)| *sleeper != client);
        }
        self.queues
            .values_mut()
            .for_each(|queue| queue.forget(client));
        waits
    }

    pub(super) fn waits(&self, client: ClientId) -> bool {
        let sleeps = |set: &Set| set.sleepers.iter().any(|(of, _)| *of == client);
        let waits = |queue: &Queue| queue.waiting().any(|of| of == client);
        self.sets.values().any(sleeps) || self.queues.values().any(waits)
    }

    /// A process has ended.
    pub(super) fn exit(&mut self, client: ClientId) -> Vec<Heard> {
        self.withdraw(client);
        let mut heard = Vec::new();
        for set in self.sets.values_mut() {
            let (woken, changed) = set.exit(client);
            heard.extend(woken);
            self.undone += changed;
        }
        heard
    }

    /// A host has died, with these processes: all are gone before anybody is woken.
    pub(super) fn host_gone(&mut self, mut clients: Vec<ClientId>) -> Vec<Heard> {
        clients.sort();
        for client in &clients {
            self.withdraw(*client);
        }
        let ends = clients.into_iter();
        ends.flat_map(|client| self.exit(client)).collect()
    }

    /// Checks the status of a queue, beside its existence.
    pub(super) fn stat_agrees(&self, outcome: &Outcome) -> bool {
        let Outcome::Msg(stat) = outcome else {
            return true;
        };
        let found = self.queues.get(&stat.id);
        found.is_none_or(|queue| {
            (stat.qnum, stat.cbytes) == (queue.messages.len() as u64, queue.bytes())
        })
    }

    /// State left by a process that is dead.
    pub(super) fn left_behind(&self, living: impl Fn(ClientId) -> bool + Copy) -> Option<String> {
        for (id, set) in &self.sets {
            if set.remembers_but(living) {
                return Some(format!("{id:?} remembers the dead: {set:?}"));
            }
        }
        let waits = |queue: &&Queue| queue.waiting().any(|client| !living(client));
        let queue = self.queues.values().find(waits)?;
        Some(format!("the dead wait at {queue:?}"))
    }

    /// Segments that were removed, and all others.
    pub(super) fn segments(&self) -> impl Iterator<Item = (Id, bool)> {
        self.segments
            .iter()
            .map(|(id, segment)| (*id, segment.removed))
    }
}

fn of_set(set: &mut Set, client: ClientId, op: &Op) -> Vec<Heard> {
    let number = |value| vec![(client, Said::Outcome(Outcome::Number(value)))];
    let after = |woken: Vec<Heard>| [vec![done(client)], woken].concat();
    match op {
        Op::SemOp { ops, .. } => set.operate(client, ops),
        Op::SemSetOne { number, value, .. } => after(set.set(&[(*number as usize, *value)])),
        Op::SemSetAll { values, .. } => {
            let values = values.as_chunks::<2>().0.iter();
            let values = values.map(|two| i32::from(u16::from_le_bytes(*two)));
            let all: Vec<_> = values.enumerate().collect();
            after(set.set(&all))
        }
        Op::SemGetAll { .. } => {
            let values = set.values.iter();
            let bytes = values.flat_map(|value| (*value as u16).to_le_bytes());
            let values = Outcome::Values(bytes.collect());
            vec![(client, Said::Outcome(values))]
        }
        Op::SemGetOne {
            number: at, what, ..
        } => number(match what {
            SemRead::Rising => set.waiting(*at as u16, false),
            SemRead::Zero => set.waiting(*at as u16, true),
            _ => set.values[*at as usize],
        }),
        _ => Vec::new(),
    }
}

fn of_queue(queue: &mut Queue, client: ClientId, op: &Op) -> Vec<Heard> {
    match op {
        Op::MsgSend {
            kind, text, flags, ..
        } => queue.send(client, (*kind, text.clone()), *flags),
        Op::MsgReceive {
            room, kind, flags, ..
        } => queue.receive(client, (*room, *kind, *flags)),
        _ => Vec::new(),
    }
}
