//! Shared memory.

use crate::node::{ask, ask_number, ask_usage, attach, strange};
use crate::{Result, layout, node, system_call, user};
use libc::{c_int, c_long, c_void, size_t};
use pagemesh::{Error, Guarded, Mapping, PAGE_SIZE};
use pagemesh_wire::sysv::{Change, Family, Id, Op, Outcome, Pick};
use std::collections::BTreeMap;

/// Segments of this process by their addresses.
static ATTACHED: Guarded<BTreeMap<usize, Attached>> = Guarded::new(BTreeMap::new());

struct Attached {
    id: Id,
    mapping: Mapping,
}

impl Attached {
    /// Ends it, and waits until its home counts it no more, as whoever is told that
    /// it has ended may look.
    fn end(self) {
        let Self { id, mapping } = self;
        drop(mapping);
        // A node answers a call only when the home knows what came before it; what
        // the call itself brings, even that there is no such segment, does not matter.
        let (family, pick) = (Family::Shm, Pick::Id(id));
        let _ = ask(Op::Stat { family, pick }, None);
    }
}

/// See shmget(2).
#[unsafe(no_mangle)]
pub extern "C" fn shmget(key: c_int, size: size_t, flags: c_int) -> c_int {
    system_call(|| get(key, size, flags)) as c_int
}

/// See shmat(2).
#[unsafe(no_mangle)]
pub extern "C" fn shmat(id: c_int, address: *const c_void, flags: c_int) -> *mut c_void {
    system_call(|| at(id, address as usize, flags)) as *mut c_void
}

/// See shmdt(2).
#[unsafe(no_mangle)]
pub extern "C" fn shmdt(address: *const c_void) -> c_int {
    system_call(|| detach(address as usize)) as c_int
}

/// See shmctl(2).
#[unsafe(no_mangle)]
pub extern "C" fn shmctl(id: c_int, command: c_int, buffer: *mut libc::shmid_ds) -> c_int {
    system_call(|| control(id, command, buffer as usize)) as c_int
}

pub fn get(key: c_int, size: usize, flags: c_int) -> Result<c_long> {
    let size = size as u64;
    ask_number(Op::ShmGet { key, size, flags }).map(c_long::from)
}

pub fn at(id: c_int, address: usize, flags: c_int) -> Result<c_long> {
    let replace = flags & libc::SHM_REMAP != 0;
    let address = match address {
        0 if replace => return Err(libc::EINVAL),
        0 => None,
        address if address.is_multiple_of(PAGE_SIZE) => Some(address),
        address if flags & libc::SHM_RND != 0 => {
            let rounded = address - address % PAGE_SIZE;
            if rounded == 0 && replace {
                return Err(libc::EINVAL);
            }
            Some(rounded).filter(|rounded| *rounded != 0)
        }
        _ => return Err(libc::EINVAL),
    };
    if id < 0 {
        return Err(libc::EINVAL);
    }
    let write = flags & libc::SHM_RDONLY == 0;
    let exec = flags & libc::SHM_EXEC != 0;
    let id = Id(id);
    let segment = attach(&Op::ShmAttach { id, write, exec }, write)?;
    let length = segment.size().next_multiple_of(PAGE_SIZE as u64) as usize;
    if let Some(address) = address {
        let end = address.checked_add(length).ok_or(libc::EINVAL)?;
        if replace {
            make_room(address, end)?;
        }
    }
    let mapping = match segment.map_at(address, 0, segment.size(), write) {
        Ok(mapping) => mapping,
        Err(Error::AddressTaken(_)) => return Err(libc::EINVAL),
        Err(Error::Map(error)) => {
            // What the kernel never maps, such as the first pages, is refused so.
            let errno = error.raw_os_error().unwrap_or(libc::ENOMEM);
            return Err(if errno == libc::EPERM {
                libc::EPERM
            } else {
                libc::ENOMEM
            });
        }
        Err(error) => {
            node::complain(error);
            return Err(libc::ENOMEM);
        }
    };
    let base = mapping.as_ptr() as usize;
    if exec {
        let rights = libc::PROT_READ | libc::PROT_EXEC;
        let rights = rights | if write { libc::PROT_WRITE } else { 0 };
        // SAFETY: changes rights of the fresh mapping alone, which is ours.
        if unsafe { libc::mprotect(mapping.as_ptr().cast(), length, rights) } != 0 {
            return Err(libc::EACCES);
        }
    }
    ATTACHED.lock().insert(base, Attached { id, mapping });
    Ok(base as c_long)
}

/// What is mapped there goes, `SHM_REMAP` wants it so.
fn make_room(start: usize, end: usize) -> Result<()> {
    let mut attached = ATTACHED.lock();
    let touched: Vec<_> = attached
        .iter()
        .map(|(base, there)| {
            (
                *base,
                base + there.mapping.len().next_multiple_of(PAGE_SIZE),
            )
        })
        .filter(|(base, last)| *base < end && start < *last)
        .collect();
    if touched
        .iter()
        .any(|(base, last)| *base < start || end < *last)
    {
        // Half a segment is not served.
        return Err(libc::EINVAL);
    }
    let gone: Vec<_> = touched
        .iter()
        .filter_map(|(base, _)| attached.remove(base))
        .collect();
    drop(attached);
    gone.into_iter().for_each(Attached::end);
    // SAFETY: the program asked for it.
    unsafe { libc::munmap(start as *mut c_void, end - start) };
    Ok(())
}

pub fn detach(address: usize) -> Result<c_long> {
    let there = ATTACHED.lock().remove(&address).ok_or(libc::EINVAL)?;
    there.end();
    Ok(0)
}

pub fn control(id: c_int, command: c_int, buffer: usize) -> Result<c_long> {
    let family = Family::Shm;
    let stat = |pick, buffer| match ask(Op::Stat { family, pick }, None)? {
        Outcome::Shm(stat) => {
            user::write(buffer, &layout::shm(&stat))?;
            Ok(stat.id)
        }
        other => Err(strange(&other)),
    };
    if id < 0 {
        return Err(libc::EINVAL);
    }
    match command & !IPC_64 {
        libc::IPC_INFO => {
            let usage = ask_usage(Op::Info { family })?;
            user::write(buffer, &layout::shm_limits(&usage.limits))?;
            Ok(usage.highest.max(0).into())
        }
        SHM_INFO => {
            let usage = ask_usage(Op::Info { family })?;
            user::write(buffer, &layout::shm_info(&usage))?;
            Ok(usage.highest.max(0).into())
        }
        libc::IPC_STAT => stat(Pick::Id(Id(id)), buffer).map(|_| 0),
        SHM_STAT => stat(Pick::Index(id), buffer).map(|id| id.0.into()),
        SHM_STAT_ANY => stat(Pick::IndexAny(id), buffer).map(|id| id.0.into()),
        libc::IPC_SET => {
            let wanted: libc::shmid_ds = user::read(buffer)?;
            let change = change(&wanted.shm_perm, 0);
            let id = Id(id);
            ask_number(Op::Set { family, id, change }).map(c_long::from)
        }
        libc::IPC_RMID => ask_number(Op::Remove { family, id: Id(id) }).map(c_long::from),
        libc::SHM_LOCK | libc::SHM_UNLOCK => {
            let lock = command & !IPC_64 == libc::SHM_LOCK;
            ask_number(Op::ShmLock { id: Id(id), lock }).map(c_long::from)
        }
        _ => Err(libc::EINVAL),
    }
}

/// What `IPC_SET` takes from a structure of permissions.
pub fn change(perm: &libc::ipc_perm, qbytes: u64) -> Change {
    Change {
        uid: perm.uid,
        gid: perm.gid,
        mode: (u32::from(perm.mode) & 0o777) as u16,
        qbytes,
    }
}

/// Says which layout the structures have; there is only one here.
pub const IPC_64: c_int = 0x100;
const SHM_STAT: c_int = 13;
const SHM_INFO: c_int = 14;
const SHM_STAT_ANY: c_int = 15;
