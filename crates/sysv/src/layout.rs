//! C structures that the libc crate lacks, and conversions to the C library's structures.

use libc::{c_int, c_ulong, c_ushort};
use pagemesh_wire::sysv::{
    Limits, MsgStat, OBJECTS, OPERATIONS, Perm, SEMVMX, SemStat, ShmStat, Usage,
};
use std::mem::zeroed;

/// `struct shminfo`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ShmLimits {
    shmmax: c_ulong,
    shmmin: c_ulong,
    shmmni: c_ulong,
    shmseg: c_ulong,
    shmall: c_ulong,
    unused: [c_ulong; 4],
}

/// `struct shm_info`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ShmInfo {
    used_ids: c_int,
    shm_tot: c_ulong,
    shm_rss: c_ulong,
    shm_swp: c_ulong,
    swap_attempts: c_ulong,
    swap_successes: c_ulong,
}

/// `struct seminfo`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SemInfo {
    semmap: c_int,
    semmni: c_int,
    semmns: c_int,
    semmnu: c_int,
    semmsl: c_int,
    semopm: c_int,
    semume: c_int,
    semusz: c_int,
    semvmx: c_int,
    semaem: c_int,
}

/// `struct msginfo`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MsgInfo {
    msgpool: c_int,
    msgmap: c_int,
    msgmax: c_int,
    msgmnb: c_int,
    msgmni: c_int,
    msgssz: c_int,
    msgtql: c_int,
    msgseg: c_ushort,
}

/// A limit as a C int, at most its maximum.
fn int(limit: u64) -> c_int {
    c_int::try_from(limit).unwrap_or(c_int::MAX)
}

pub fn shm_limits(limits: &Limits) -> ShmLimits {
    let most = c_ulong::from(limits.shmmni.min(OBJECTS));
    ShmLimits {
        shmmax: limits.shmmax,
        shmmin: 1,
        shmmni: most,
        shmseg: most,
        shmall: limits.shmall,
        unused: [0; 4],
    }
}

pub fn shm_info(usage: &Usage) -> ShmInfo {
    ShmInfo {
        used_ids: int(usage.objects.into()),
        shm_tot: usage.parts,
        shm_rss: 0,
        shm_swp: 0,
        swap_attempts: 0,
        swap_successes: 0,
    }
}

/// The reply to `IPC_INFO`, and to `SEM_INFO` with the usage.
pub fn sem_info(usage: &Usage, used: bool) -> SemInfo {
    const SEMUSZ: c_int = 20;
    let limits = &usage.limits;
    // The kernel reports these numbers, whatever the real limits are.
    let (most, per_call) = (32000 * 32000, 500);
    SemInfo {
        semmap: most,
        semmni: int(limits.semmni.into()),
        semmns: int(limits.semmns.into()),
        semmnu: most,
        semmsl: int(limits.semmsl.into()),
        semopm: int(limits.semopm.min(OPERATIONS).into()),
        semume: per_call,
        semusz: if used {
            int(usage.objects.into())
        } else {
            SEMUSZ
        },
        semvmx: SEMVMX,
        semaem: if used { int(usage.parts) } else { SEMVMX },
    }
}

/// The reply to `IPC_INFO`, and to `MSG_INFO` with the usage.
pub fn msg_info(usage: &Usage, used: bool) -> MsgInfo {
    let limits = &usage.limits;
    let (pool, map, total) = if used {
        (usage.objects.into(), usage.parts, usage.bytes)
    } else {
        (512_000, 16384, 16384)
    };
    MsgInfo {
        msgpool: int(pool),
        msgmap: int(map),
        msgmax: int(limits.msgmax.into()),
        msgmnb: int(limits.msgmnb.into()),
        msgmni: int(limits.msgmni.into()),
        msgssz: 16,
        msgtql: int(total),
        msgseg: c_ushort::MAX,
    }
}

fn perm(perm: &Perm, sequence: u16) -> libc::ipc_perm {
    // SAFETY: the structure consists of integers.
    let mut c: libc::ipc_perm = unsafe { zeroed() };
    c.__key = perm.key;
    c.uid = perm.uid;
    c.gid = perm.gid;
    c.cuid = perm.cuid;
    c.cgid = perm.cgid;
    c.mode = perm.mode as _;
    c.__seq = sequence as _;
    c
}

pub fn shm(stat: &ShmStat) -> libc::shmid_ds {
    // SAFETY: the structure consists of integers.
    let mut c: libc::shmid_ds = unsafe { zeroed() };
    c.shm_perm = perm(&stat.perm, stat.id.sequence());
    c.shm_segsz = stat.size as usize;
    c.shm_atime = stat.atime as _;
    c.shm_dtime = stat.dtime as _;
    c.shm_ctime = stat.ctime as _;
    c.shm_cpid = stat.cpid;
    c.shm_lpid = stat.lpid;
    c.shm_nattch = stat.nattch as _;
    c
}

pub fn sem(stat: &SemStat) -> libc::semid_ds {
    // SAFETY: the structure consists of integers.
    let mut c: libc::semid_ds = unsafe { zeroed() };
    c.sem_perm = perm(&stat.perm, stat.id.sequence());
    c.sem_otime = stat.otime as _;
    c.sem_ctime = stat.ctime as _;
    c.sem_nsems = stat.nsems as _;
    c
}

pub fn msg(stat: &MsgStat) -> libc::msqid_ds {
    // SAFETY: the structure consists of integers.
    let mut c: libc::msqid_ds = unsafe { zeroed() };
    c.msg_perm = perm(&stat.perm, stat.id.sequence());
    c.msg_stime = stat.stime as _;
    c.msg_rtime = stat.rtime as _;
    c.msg_ctime = stat.ctime as _;
    c.__msg_cbytes = stat.cbytes as _;
    c.msg_qnum = stat.qnum as _;
    c.msg_qbytes = stat.qbytes as _;
    c.msg_lspid = stat.lspid;
    c.msg_lrpid = stat.lrpid;
    c
}
