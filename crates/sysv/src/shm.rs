//! Shared memory.

use crate::node::{ask, ask_number, ask_place, ask_usage, attach, strange};
use crate::{Result, layout, node, raw, system_call, user};
use libc::{c_int, c_long, c_void, size_t};
use pagemesh::{Error, Guarded, Mapping, PAGE_SIZE, Segment};
use pagemesh_wire::sysv::{Change, Family, Id, Op, Outcome, Pick};
use std::collections::BTreeMap;
use std::ops::Range;

/// Segments of this process by address: where their first byte is, or was before `SHM_REMAP` put
/// another segment there.
static ATTACHED: Guarded<BTreeMap<usize, Vec<Attached>>> = Guarded::new(BTreeMap::new());

struct Attached {
    id: Id,
    exec: bool,
    /// One piece, unless another segment has been mapped over a part of it; in order. Each piece
    /// counts as an attachment, as in the kernel.
    pieces: Vec<Piece>,
}

struct Piece {
    segment: Segment,
    mapping: Mapping,
}

impl Attached {
    /// Ends the attachment, and waits until its home no longer counts it, because a process that
    /// learns of the end may check the count.
    fn end(self) {
        let id = self.id;
        drop(self);
        settle(id);
    }

    fn first(&self) -> usize {
        let start = |piece: &Piece| span(&piece.mapping).start;
        self.pieces.first().map_or(usize::MAX, start)
    }

    fn touches(&self, room: &Range<usize>) -> bool {
        let touches = |piece: &Piece| {
            let there = span(&piece.mapping);
            there.start < room.end && room.start < there.end
        };
        self.pieces.iter().any(touches)
    }

    /// Keeps only the parts outside of `room`; `base` is the address of the first byte.
    fn cut(&mut self, base: usize, room: &Range<usize>) -> Result<()> {
        for piece in std::mem::take(&mut self.pieces) {
            let there = span(&piece.mapping);
            if room.end <= there.start || there.end <= room.start {
                self.pieces.push(piece);
                continue;
            }
            let Piece { segment, mapping } = piece;
            let write = mapping.is_writable();
            drop(mapping);
            let before = there.start..room.start.clamp(there.start, there.end);
            let behind = room.end.clamp(there.start, there.end)..there.end;
            let mut segments = vec![segment];
            if !before.is_empty() && !behind.is_empty() {
                let (id, exec) = (self.id, self.exec);
                let again = attach(&Op::ShmAttach { id, write, exec }, write);
                // A process that is no longer permitted to attach keeps what it has, and counts
                // once.
                let again = again.unwrap_or_else(|_| segments[0].clone());
                segments.push(again);
            }
            for left in [before, behind] {
                if left.is_empty() {
                    continue;
                }
                let Some(segment) = segments.pop() else {
                    continue;
                };
                let offset = left.start - base;
                let length = left.len().min(segment.size() as usize - offset);
                let range = (offset as u64, length as u64, write);
                let mapping = map(&segment, Some(left.start), range, self.exec)?;
                self.pieces.push(Piece { segment, mapping });
            }
        }
        settle(self.id);
        Ok(())
    }
}

/// Waits until the home of a segment has counted the present attachments.
fn settle(id: Id) {
    // The node answers a call only when the home knows what came before it; the result of this call
    // does not matter, not even the error that there is no such segment.
    let (family, pick) = (Family::Shm, Pick::Id(id));
    let _ = ask(Op::Stat { family, pick }, None);
}

/// The address range of a mapping.
fn span(mapping: &Mapping) -> Range<usize> {
    let start = mapping.as_ptr() as usize;
    start..start + mapping.len().next_multiple_of(PAGE_SIZE)
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
    let ask = |flags| ask_number(Op::ShmGet { key, size, flags }).map(c_long::from);
    let creates = key == libc::IPC_PRIVATE || flags & libc::IPC_CREAT != 0;
    if !creates || flags & SHM_NORESERVE != 0 || !exceeds_memory(size) {
        return ask(flags);
    }
    if key != libc::IPC_PRIVATE {
        match ask(flags & !libc::IPC_CREAT) {
            Err(libc::ENOENT) => {}
            _ if flags & libc::IPC_EXCL != 0 => return Err(libc::EEXIST),
            done => return done,
        }
    }
    let family = Family::Shm;
    let limits = ask_usage(Op::Info { family })?.limits;
    Err(if size > limits.shmmax {
        libc::EINVAL
    } else {
        libc::ENOMEM
    })
}

/// True if the segment would not fit even if each member had as much memory as this host; always
/// false if the kernel lets programs request any amount (`vm.overcommit_memory` is 1).
fn exceeds_memory(size: u64) -> bool {
    // SAFETY: the structure consists of integers, which the call fills.
    let mut host: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { libc::sysinfo(&raw mut host) } != 0 {
        return false;
    }
    let unit = u64::from(host.mem_unit);
    let here = host.totalram.saturating_add(host.totalswap);
    let here = here.saturating_mul(unit);
    size > here && size > here.saturating_mul(node::members()) && !overcommits()
}

fn overcommits() -> bool {
    let always = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
    always.is_ok_and(|always| always.trim() == "1")
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
            make_room(address..end)?;
        }
    }
    let mapping = map(&segment, address, (0, segment.size(), write), exec)?;
    let base = mapping.as_ptr() as usize;
    let there = Attached {
        id,
        exec,
        pieces: vec![Piece { segment, mapping }],
    };
    ATTACHED.lock().entry(base).or_default().push(there);
    Ok(base as c_long)
}

fn map(
    segment: &Segment,
    address: Option<usize>,
    (offset, length, write): (u64, u64, bool),
    exec: bool,
) -> Result<Mapping> {
    let mapping = match segment.map_at(address, offset, length, write) {
        Ok(mapping) => mapping,
        Err(Error::AddressTaken(_)) => return Err(libc::EINVAL),
        Err(Error::Map(error)) => {
            // `EPERM`: an address that the kernel never maps, such as the first pages.
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
    if exec {
        let rights = libc::PROT_READ | libc::PROT_EXEC;
        let rights = rights | if write { libc::PROT_WRITE } else { 0 };
        let length = span(&mapping).len();
        // SAFETY: changes rights of the fresh mapping alone, which belongs to this call.
        if unsafe { libc::mprotect(mapping.as_ptr().cast(), length, rights) } != 0 {
            return Err(libc::EACCES);
        }
    }
    Ok(mapping)
}

/// Unmaps the range, as `SHM_REMAP` requires.
fn make_room(room: Range<usize>) -> Result<()> {
    take_out(&room)?;
    // The program asked for it.
    raw::pass(libc::SYS_munmap, [room.start, room.len(), 0, 0, 0, 0]).map(drop)
}

/// Forgets attachments in a range that the program has unmapped, or mapped something else over.
pub fn forget(room: &Range<usize>) {
    if let Err(errno) = take_out(room) {
        node::warn(format_args!(
            "what is left beside {room:x?} of a segment could not be attached again (error \
             {errno}): accesses to it end in SIGSEGV"
        ));
    }
}

/// Ends attachments in a range, whole ones and parts of them. The rest of a partly removed one is
/// mapped anew, so that the daemon knows where it is.
fn take_out(room: &Range<usize>) -> Result<()> {
    let mut touched = Vec::new();
    let mut attached = ATTACHED.lock();
    for (base, all) in attached.iter_mut() {
        let here = all.extract_if(.., |there| there.touches(room));
        touched.extend(here.map(|there| (*base, there)));
    }
    attached.retain(|_, all| !all.is_empty());
    drop(attached);
    let mut done = Ok(());
    for (base, mut there) in touched {
        done = done.and(there.cut(base, room));
        if there.pieces.is_empty() {
            there.end();
        } else {
            ATTACHED.lock().entry(base).or_default().push(there);
        }
    }
    done
}

/// Notices memory that the program has unmapped, or mapped something else over, by bare system
/// calls.
pub fn reconcile() {
    let attached = ATTACHED.lock();
    let mut lost = Vec::new();
    for piece in attached.values().flatten().flat_map(|there| &there.pieces) {
        let mut missing = span(&piece.mapping);
        for held in piece.mapping.held() {
            lost.push(missing.start..held.start);
            missing.start = held.end;
        }
        lost.push(missing);
    }
    drop(attached);
    for range in lost.iter().filter(|range| !range.is_empty()) {
        forget(range);
    }
}

/// Detaches the segment at an address. If several began there, the one whose remaining part comes
/// first, as the kernel does.
pub fn detach(address: usize) -> Result<c_long> {
    reconcile();
    let mut attached = ATTACHED.lock();
    let all = attached.get_mut(&address).ok_or(libc::EINVAL)?;
    let first = (0..all.len()).min_by_key(|at| all[*at].first());
    let there = all.remove(first.ok_or(libc::EINVAL)?);
    attached.retain(|_, all| !all.is_empty());
    drop(attached);
    there.end();
    Ok(0)
}

pub fn control(id: c_int, command: c_int, buffer: usize) -> Result<c_long> {
    let family = Family::Shm;
    let stat = |outcome, buffer| match outcome {
        Outcome::Shm(stat) => {
            user::write(buffer, &layout::shm(&stat))?;
            Ok(stat.id)
        }
        other => Err(strange(&other)),
    };
    if id < 0 {
        return Err(libc::EINVAL);
    }
    reconcile();
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
        libc::IPC_STAT => {
            let pick = Pick::Id(Id(id));
            stat(ask(Op::Stat { family, pick }, None)?, buffer).map(|_| 0)
        }
        SHM_STAT | SHM_STAT_ANY => {
            let any = command & !IPC_64 == SHM_STAT_ANY;
            stat(ask_place(family, id, any)?, buffer).map(|id| id.0.into())
        }
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

/// The fields that `IPC_SET` takes from a structure of permissions.
pub fn change(perm: &libc::ipc_perm, qbytes: u64) -> Change {
    Change {
        uid: perm.uid,
        gid: perm.gid,
        mode: (u32::from(perm.mode) & 0o777) as u16,
        qbytes,
    }
}

/// Flag for the layout of the structures; there is only one layout here.
pub const IPC_64: c_int = 0x100;
const SHM_NORESERVE: c_int = 0o10000;
const SHM_STAT: c_int = 13;
const SHM_INFO: c_int = 14;
const SHM_STAT_ANY: c_int = 15;
