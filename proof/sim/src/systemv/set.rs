//! A set of semaphores on one host.

use super::Mistake;
use super::model::{Heard, Said};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::ClientId;
use pagemesh_wire::sysv::{Errno, IPC_NOWAIT, Outcome, SEM_UNDO, SEMVMX, SemBuf};

#[derive(Debug, Default)]
pub(super) struct Set {
    pub(super) values: Vec<i32>,
    /// In the order in which they came.
    pub(super) sleepers: Vec<(ClientId, Vec<SemBuf>)>,
    undo: SortedMap<ClientId, Vec<i32>>,
    mistake: Option<Mistake>,
}

/// The result that operations have now.
enum Fate {
    Done,
    Waits,
    Fails(Errno),
}

impl Set {
    pub(super) fn new(count: usize, mistake: Option<Mistake>) -> Self {
        Self {
            values: vec![0; count],
            mistake,
            ..Self::default()
        }
    }

    pub(super) fn operate(&mut self, client: ClientId, ops: &[SemBuf]) -> Vec<Heard> {
        if ops.is_empty() {
            return vec![failed(client, Errno::EINVAL)];
        }
        if ops
            .iter()
            .any(|op| usize::from(op.number) >= self.values.len())
        {
            return vec![failed(client, Errno::EFBIG)];
        }
        match self.attempt(client, ops) {
            Fate::Fails(errno) => vec![failed(client, errno)],
            Fate::Waits => {
                self.sleepers.push((client, ops.to_vec()));
                vec![(client, Said::Waits)]
            }
            Fate::Done => {
                let mut heard = vec![done(client)];
                heard.extend(self.wake());
                heard
            }
        }
    }

    /// All of them or none.
    fn attempt(&mut self, client: ClientId, ops: &[SemBuf]) -> Fate {
        let before = self.values.clone();
        for op in ops {
            let value = &mut self.values[usize::from(op.number)];
            let after = *value + i32::from(op.op);
            let waits = if op.op == 0 { *value != 0 } else { after < 0 };
            if waits || after > SEMVMX {
                if self.mistake != Some(Mistake::PartlyDone) {
                    self.values = before;
                }
                return match waits {
                    true if i32::from(op.flags) & IPC_NOWAIT != 0 => Fate::Fails(Errno::EAGAIN),
                    true => Fate::Waits,
                    false => Fate::Fails(Errno::ERANGE),
                };
            }
            *value = after;
        }
        let size = self.values.len();
        for op in ops.iter().filter(|op| op.flags & SEM_UNDO != 0) {
            let undo = self.undo.entry(client).or_insert_with(|| vec![0; size]);
            undo[usize::from(op.number)] -= i32::from(op.op);
        }
        Fate::Done
    }

    /// Wakes all sleepers that can go on, the first to come before all others.
    pub(super) fn wake(&mut self) -> Vec<Heard> {
        let mut heard = Vec::new();
        loop {
            let mut order: Vec<usize> = (0..self.sleepers.len()).collect();
            if self.mistake == Some(Mistake::LastComeFirst) {
                order.reverse();
            }
            let next = order.into_iter().find_map(|at| {
                let (client, ops) = self.sleepers[at].clone();
                match self.attempt(client, &ops) {
                    Fate::Waits => None,
                    Fate::Done => Some((at, done(client))),
                    Fate::Fails(errno) => Some((at, failed(client, errno))),
                }
            });
            let Some((at, answer)) = next else {
                return heard;
            };
            self.sleepers.remove(at);
            heard.push(answer);
        }
    }

    pub(super) fn set(&mut self, values: &[(usize, i32)]) -> Vec<Heard> {
        for (number, value) in values {
            self.values[*number] = *value;
            for undo in self.undo.values_mut() {
                undo[*number] = 0;
            }
        }
        self.wake()
    }

    /// How many wait for this semaphore to rise, or to be zero.
    pub(super) fn waiting(&self, number: u16, zero: bool) -> i32 {
        let stops_there = |(_, ops): &&(ClientId, Vec<SemBuf>)| {
            let mut values = self.values.clone();
            let stop = ops.iter().find(|op| {
                let value = &mut values[usize::from(op.number)];
                let waits = if op.op == 0 {
                    *value != 0
                } else {
                    *value + i32::from(op.op) < 0
                };
                *value += i32::from(op.op);
                waits
            });
            stop.is_some_and(|op| op.number == number && (op.op == 0) == zero)
        };
        self.sleepers.iter().filter(stops_there).count() as i32
    }

    /// A process has ended. Also says how many semaphores that changed.
    pub(super) fn exit(&mut self, client: ClientId) -> (Vec<Heard>, u64) {
        self.sleepers.retain(|(sleeper, _)| *sleeper != client);
        let undo = self.undo.remove(&client).unwrap_or_default();
        if self.mistake == Some(Mistake::UndoForgotten) {
            return (Vec::new(), 0);
        }
        for (value, adjust) in self.values.iter_mut().zip(&undo) {
            *value = (*value + adjust).clamp(0, SEMVMX);
        }
        let changed = undo.iter().filter(|adjust| **adjust != 0).count();
        (self.wake(), changed as u64)
    }

    /// Whether a process that is not among these left any state.
    pub(super) fn remembers_but(&self, living: impl Fn(ClientId) -> bool) -> bool {
        let sleeps = self.sleepers.iter().any(|(client, _)| !living(*client));
        let owes = |(client, undo): (&ClientId, &Vec<i32>)| {
            !living(*client) && undo.iter().any(|adjust| *adjust != 0)
        };
        sleeps || self.undo.iter().any(owes)
    }
}

pub(super) fn done(client: ClientId) -> Heard {
    (client, Said::Outcome(Outcome::Number(0)))
}

pub(super) fn failed(client: ClientId, errno: Errno) -> Heard {
    (client, Said::Outcome(Outcome::Failed(errno)))
}
