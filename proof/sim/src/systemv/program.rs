//! The calls of processes.

use crate::dice::Dice;
use pagemesh_wire::sysv::{
    Family, IPC_CREAT, IPC_EXCL, IPC_NOWAIT, Id, Kind, MSG_EXCEPT, MSG_NOERROR, Op, Pick, SEM_UNDO,
    SemBuf, SemRead,
};

/// Semaphores of a set.
pub(super) const SEMAPHORES: u16 = 3;

/// Bytes in a queue: few messages fill it.
pub(super) const ROOM: u32 = 12;

/// The objects that some processes share.
#[derive(Debug, Default)]
pub(super) struct Team {
    /// Which they use: zero if they are private.
    pub(super) keys: &'static [i32],
    /// Set, queue, segment: the newest of each.
    pub(super) ids: [Option<Id>; 3],
    /// Those before: other families use the same numbers.
    pub(super) old: [Vec<Id>; 3],
}

const FAMILIES: [Family; 3] = [Family::Sem, Family::Msg, Family::Shm];

impl Team {
    /// A process has got the number of an object.
    pub(super) fn learns(&mut self, op: &Op, number: i32) {
        let family = match op {
            Op::SemGet { .. } => 0,
            Op::MsgGet { .. } => 1,
            Op::ShmGet { .. } => 2,
            _ => return,
        };
        let before = self.ids[family].replace(Id(number));
        self.old[family].extend(before.filter(|id| *id != Id(number)));
    }

    /// A process has removed an object, or heard that it is gone.
    pub(super) fn lost(&mut self, op: &Op) {
        let (family, id) = match op {
            Op::Remove { family, id } => (*family, *id),
            Op::SemOp { id, .. } => (Family::Sem, *id),
            Op::MsgSend { id, .. } | Op::MsgReceive { id, .. } => (Family::Msg, *id),
            Op::ShmAttach { id, .. } => (Family::Shm, *id),
            _ => return,
        };
        for (at, of) in FAMILIES.into_iter().enumerate() {
            if of == family && self.ids[at] == Some(id) {
                self.ids[at] = None;
                self.old[at].push(id);
            }
        }
    }

    /// The next call of a process.
    pub(super) fn draws(&self, dice: &mut Dice) -> Op {
        let family = *dice.pick(&[0, 0, 0, 0, 1, 1, 1, 2]);
        let old = &self.old[family];
        let stale = !old.is_empty() && dice.chance(40);
        let id = if stale {
            Some(*dice.pick(old))
        } else {
            self.ids[family]
        };
        let Some(id) = id.filter(|_| !dice.chance(40)) else {
            return self.get(dice, family);
        };
        if dice.chance(25) {
            let family = FAMILIES[family];
            return Op::Remove { family, id };
        }
        match family {
            0 => of_set(dice, id),
            1 => of_queue(dice, id),
            _ => of_segment(dice, id),
        }
    }

    fn get(&self, dice: &mut Dice, family: usize) -> Op {
        let how = *dice.pick(&[0, IPC_CREAT, IPC_CREAT, IPC_CREAT, IPC_CREAT | IPC_EXCL]);
        let key = *dice.pick(self.keys);
        let flags = how | 0o600;
        match family {
            0 => Op::SemGet {
                key,
                count: i32::from(SEMAPHORES),
                flags,
            },
            1 => Op::MsgGet { key, flags },
            _ => Op::ShmGet {
                key,
                size: 1,
                flags,
            },
        }
    }
}

fn of_set(dice: &mut Dice, id: Id) -> Op {
    let number = dice.index(usize::from(SEMAPHORES)) as i32;
    match dice.below(20) {
        0 => Op::SemGetAll { id },
        1 | 2 => Op::SemGetOne {
            id,
            number,
            what: *dice.pick(&[SemRead::Value, SemRead::Rising, SemRead::Zero]),
        },
        3 => Op::SemSetOne {
            id,
            number,
            value: dice.below(3) as i32,
        },
        4 if dice.chance(300) => {
            let values = (0..SEMAPHORES).flat_map(|_| (dice.below(3) as u16).to_le_bytes());
            let values = values.collect();
            Op::SemSetAll { id, values }
        }
        _ => {
            let count = dice.between(1, 3);
            let ops = (0..count).map(|_| operation(dice)).collect();
            Op::SemOp { id, ops }
        }
    }
}

fn operation(dice: &mut Dice) -> SemBuf {
    let mut flags = 0;
    if dice.chance(500) {
        flags |= SEM_UNDO;
    }
    if dice.chance(100) {
        flags |= IPC_NOWAIT as i16;
    }
    SemBuf {
        // One too far, now and then.
        number: if dice.chance(5) {
            SEMAPHORES
        } else {
            dice.index(usize::from(SEMAPHORES)) as u16
        },
        op: *dice.pick(&[-2, -1, -1, 0, 1, 1, 2]),
        flags,
    }
}

fn of_queue(dice: &mut Dice, id: Id) -> Op {
    let wait = if dice.chance(300) { IPC_NOWAIT } else { 0 };
    match dice.below(12) {
        0..=5 => {
            let text = (0..dice.below(8)).map(|_| dice.below(256) as u8).collect();
            Op::MsgSend {
                id,
                kind: Kind(dice.between(1, 3) as i64),
                text,
                flags: wait,
            }
        }
        6..=10 => {
            let (kind, flags) = *dice.pick(&[(0, 0), (1, 0), (2, 0), (-2, 0), (1, MSG_EXCEPT)]);
            let cuts = if dice.chance(500) { MSG_NOERROR } else { 0 };
            Op::MsgReceive {
                id,
                room: *dice.pick(&[4, 100, 100]),
                kind: Kind(kind),
                flags: flags | cuts | wait,
            }
        }
        _ => Op::Stat {
            family: Family::Msg,
            pick: Pick::Id(id),
        },
    }
}

fn of_segment(dice: &mut Dice, id: Id) -> Op {
    if dice.chance(700) {
        return Op::ShmAttach {
            id,
            write: dice.chance(500),
            exec: false,
        };
    }
    Op::Stat {
        family: Family::Shm,
        pick: Pick::Id(id),
    }
}
