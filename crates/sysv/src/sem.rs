//! Semaphores.

use crate::node::{ask, ask_number, ask_place, ask_usage, strange};
use crate::shm::{IPC_64, change};
use crate::{Result, layout, system_call, user};
use libc::{c_int, c_long, size_t};
use pagemesh_wire::sysv::{
    Family, IPC_NOWAIT, Id, OPERATIONS, Op, Outcome, Pick, SEMVMX, SemBuf, SemRead,
};
use std::time::{Duration, Instant};

/// See semget(2).
#[unsafe(no_mangle)]
pub extern "C" fn semget(key: c_int, count: c_int, flags: c_int) -> c_int {
    system_call(|| get(key, count, flags)) as c_int
}

/// See semop(2).
#[unsafe(no_mangle)]
pub extern "C" fn semop(id: c_int, ops: *mut libc::sembuf, count: size_t) -> c_int {
    system_call(|| operate(id, ops as usize, count, 0)) as c_int
}

/// See semtimedop(2).
#[unsafe(no_mangle)]
pub extern "C" fn semtimedop(
    id: c_int,
    ops: *mut libc::sembuf,
    count: size_t,
    timeout: *const libc::timespec,
) -> c_int {
    system_call(|| operate(id, ops as usize, count, timeout as usize)) as c_int
}

/// See semctl(2). Its optional fourth argument is as wide as a pointer and is passed where a fourth
/// argument is passed.
#[unsafe(no_mangle)]
pub extern "C" fn semctl(id: c_int, number: c_int, command: c_int, argument: usize) -> c_int {
    system_call(|| control(id, number, command, argument)) as c_int
}

pub fn get(key: c_int, count: c_int, flags: c_int) -> Result<c_long> {
    ask_number(Op::SemGet { key, count, flags }).map(c_long::from)
}

pub fn operate(id: c_int, ops: usize, count: usize, timeout: usize) -> Result<c_long> {
    // Checks are in the kernel's order.
    let limit: Option<libc::timespec> = match timeout {
        0 => None,
        address => Some(user::read(address)?),
    };
    if count > OPERATIONS as usize {
        return Err(libc::E2BIG);
    }
    let mut ops = read_ops(ops, count)?;
    if count == 0 || id < 0 {
        return Err(libc::EINVAL);
    }
    let until = match limit {
        None => None,
        Some(limit) => {
            let seconds = u64::try_from(limit.tv_sec).map_err(|_| libc::EINVAL)?;
            let nanos = u32::try_from(limit.tv_nsec).map_err(|_| libc::EINVAL)?;
            if nanos >= 1_000_000_000 {
                return Err(libc::EINVAL);
            }
            if (seconds, nanos) == (0, 0) {
                // To be tried once, however far the set is.
                for op in &mut ops {
                    op.flags |= IPC_NOWAIT as i16;
                }
            }
            let limit = Duration::new(seconds, nanos);
            Instant::now()
                .checked_add(limit)
                .filter(|_| !limit.is_zero())
        }
    };
    match ask(Op::SemOp { id: Id(id), ops }, until)? {
        Outcome::Number(_) => Ok(0),
        other => Err(strange(&other)),
    }
}

fn read_ops(address: usize, count: usize) -> Result<Vec<SemBuf>> {
    let bytes = user::read_bytes(address, count * size_of::<libc::sembuf>())?;
    let ops = bytes.chunks_exact(size_of::<libc::sembuf>()).map(|op| {
        let half = |at: usize| [op[2 * at], op[2 * at + 1]];
        SemBuf {
            number: u16::from_ne_bytes(half(0)),
            op: i16::from_ne_bytes(half(1)),
            flags: i16::from_ne_bytes(half(2)),
        }
    });
    Ok(ops.collect())
}

pub fn control(id: c_int, number: c_int, command: c_int, argument: usize) -> Result<c_long> {
    let family = Family::Sem;
    let stat = |outcome| match outcome {
        Outcome::Sem(stat) => {
            user::write(argument, &layout::sem(&stat))?;
            Ok(stat.id)
        }
        other => Err(strange(&other)),
    };
    let one = |what| {
        let id = Id(id);
        ask_number(Op::SemGetOne { id, number, what }).map(c_long::from)
    };
    if id < 0 {
        return Err(libc::EINVAL);
    }
    match command & !IPC_64 {
        libc::IPC_INFO => {
            let usage = ask_usage(Op::Info { family })?;
            user::write(argument, &layout::sem_info(&usage, false))?;
            Ok(usage.highest.max(0).into())
        }
        libc::SEM_INFO => {
            let usage = ask_usage(Op::Info { family })?;
            user::write(argument, &layout::sem_info(&usage, true))?;
            Ok(usage.highest.max(0).into())
        }
        libc::IPC_STAT => {
            let pick = Pick::Id(Id(id));
            stat(ask(Op::Stat { family, pick }, None)?).map(|_| 0)
        }
        libc::SEM_STAT | SEM_STAT_ANY => {
            let any = command & !IPC_64 == SEM_STAT_ANY;
            stat(ask_place(family, id, any)?).map(|id| id.0.into())
        }
        libc::GETVAL => one(SemRead::Value),
        libc::GETPID => one(SemRead::Pid),
        libc::GETNCNT => one(SemRead::Rising),
        libc::GETZCNT => one(SemRead::Zero),
        libc::GETALL => match ask(Op::SemGetAll { id: Id(id) }, None)? {
            Outcome::Values(values) => user::write_bytes(argument, &values).map(|()| 0),
            other => Err(strange(&other)),
        },
        libc::SETVAL => {
            // The lower half of the union is its integer.
            let (id, value) = (Id(id), argument as c_int);
            if !(0..=SEMVMX).contains(&value) {
                return Err(libc::ERANGE);
            }
            ask_number(Op::SemSetOne { id, number, value }).map(c_long::from)
        }
        libc::SETALL => {
            let count = one(SemRead::Count)? as usize;
            let values = user::read_bytes(argument, 2 * count)?;
            ask_number(Op::SemSetAll { id: Id(id), values }).map(c_long::from)
        }
        libc::IPC_SET => {
            let wanted: libc::semid_ds = user::read(argument)?;
            let change = change(&wanted.sem_perm, 0);
            let id = Id(id);
            ask_number(Op::Set { family, id, change }).map(c_long::from)
        }
        libc::IPC_RMID => ask_number(Op::Remove { family, id: Id(id) }).map(c_long::from),
        _ => Err(libc::EINVAL),
    }
}

const SEM_STAT_ANY: c_int = 20;
