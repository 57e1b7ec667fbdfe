//! Calls that no library would make, for nodes and real daemons to refuse.

use pagemesh_wire::sysv::{Family, Id, Kind, Op, Pick, SemBuf, SemRead};

/// Numbers, for generators that are used here and by tests of others.
pub trait Chance {
    /// A number from 0 to `limit`, which is not among them.
    fn below(&mut self, limit: usize) -> usize;
}

impl Chance for crate::dice::Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.index(limit)
    }
}

/// Numbers at the edges of everything.
fn odd(chance: &mut impl Chance) -> i32 {
    const ODD: [i32; 11] = [
        0,
        1,
        -1,
        i32::MAX,
        i32::MIN,
        0x7fff,
        0x8000,
        1 << 24,
        3 << 24,
        (3 << 24) | 1,
        32_770,
    ];
    ODD[chance.below(ODD.len())]
}

/// A call that no library would make, and that names none of `spared`; `flags` are set in all calls
/// that have flags.
pub fn nonsense(chance: &mut impl Chance, spared: &[Id], flags: i32) -> Op {
    let id = Some(Id(odd(chance))).filter(|id| !spared.contains(id));
    let id = id.unwrap_or(Id(-1));
    let (key, number) = (odd(chance), odd(chance));
    let flags = odd(chance) | flags;
    let many = chance.below(3) * 6000;
    let pick = [Pick::Id(id), Pick::Index(number), Pick::IndexAny(number)][chance.below(3)];
    let family = [Family::Shm, Family::Sem, Family::Msg][chance.below(3)];
    let kinds = [Kind(i64::MIN), Kind(i64::from(number) << 32)];
    let kind = kinds[chance.below(2)];
    match chance.below(13) {
        0 => Op::ShmGet {
            key,
            size: number as u64,
            flags,
        },
        1 => Op::ShmAttach {
            id,
            write: true,
            exec: true,
        },
        2 => Op::ShmLock { id, lock: true },
        3 => Op::SemGet {
            key,
            count: number,
            flags,
        },
        4 => {
            let flags = flags as i16;
            let number = number as u16;
            let op = i16::MIN;
            // More would not fit a packet, and ends the session.
            let ops = vec![SemBuf { number, op, flags }; many.min(6000)];
            Op::SemOp { id, ops }
        }
        5 => Op::SemSetAll {
            id,
            values: vec![0xff; many + 1],
        },
        6 => Op::SemSetOne {
            id,
            number,
            value: flags,
        },
        7 => Op::MsgSend {
            id,
            kind,
            text: vec![1; many],
            flags,
        },
        8 => Op::MsgReceive {
            id,
            room: u64::MAX,
            kind,
            flags,
        },
        9 => Op::MsgGet { key, flags },
        10 => Op::Stat { family, pick },
        11 => Op::Remove { family, id },
        _ => Op::SemGetOne {
            id,
            number,
            what: SemRead::Count,
        },
    }
}
