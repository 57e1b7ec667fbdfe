//! Accesses that cannot be served: to lost pages, and to segments that were closed while, say, a
//! numpy array still pointed to them.
//!
//! The kernel sends SIGBUS or SIGSEGV to the thread. If that is a thread of the
//! interpreter, it gets other memory for the moment, all bytes 0xFF (so that
//! nothing looks plausible), and an exception (see `pending`) right after the
//! instruction of Python that made the access. The exception takes the memory
//! away again. The memory is within reach of all threads meanwhile, so the others
//! must sleep for that time. Where an exception cannot be raised, or another thread
//! may have read the memory, the process ends with a message that names page,
//! segment and node.
//!
//! The handler runs in place of an access to segment memory: the thread is neither
//! in malloc nor in the interpreter's own locks, so both may be used.
#![allow(unsafe_code)]

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

use pagemesh::{Guarded, Mapping, PAGE_SIZE};
use pyo3::ffi;
use pyo3::prelude::*;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::pending;

/// Where segments are or were mapped.
static ROOMS: Guarded<Rooms> = Guarded::new(Rooms::new());

/// The handlers of the signals before.
static BEFORE: OnceLock<[libc::sigaction; 2]> = OnceLock::new();

const SIGNALS: [c_int; 2] = [libc::SIGBUS, libc::SIGSEGV];

/// Number of closed ranges that stay reserved, so that they are not used for other memory, which a
/// forgotten pointer would read or, worse, write.
const CLOSED_KEPT: usize = 256;

struct Rooms {
    open: Vec<Room>,
    closed: VecDeque<Room>,
    /// Pages found to be lost.
    lost: BTreeSet<usize>,
    /// Accesses whose exceptions were not made yet.
    faults: Vec<Fault>,
}

#[derive(Clone)]
struct Room {
    range: Range<usize>,
    name: String,
    node: u32,
    /// The byte of the segment at the start of the range.
    offset: u64,
}

struct Fault {
    thread: u64,
    page: usize,
    segment: String,
    number: u64,
    node: u32,
    closed: bool,
}

/// Kinds of accesses, each with its treatment.
enum Case {
    /// Not our memory, or our memory and an ordinary mistake.
    Foreign,
    Ours {
        room: Room,
        closed: bool,
    },
}

impl Rooms {
    const fn new() -> Self {
        Self {
            open: Vec::new(),
            closed: VecDeque::new(),
            lost: BTreeSet::new(),
            faults: Vec::new(),
        }
    }

    fn case(&self, signal: c_int, address: usize) -> Case {
        let has = |room: &&Room| room.range.contains(&address);
        let ours = |room: &Room, closed| Case::Ours {
            room: room.clone(),
            closed,
        };
        let unserved = signal == libc::SIGBUS || self.lost.contains(&page_of(address));
        match self.open.iter().find(has) {
            Some(room) if unserved => ours(room, false),
            Some(_) => Case::Foreign,
            None => {
                let closed = self.closed.iter().find(has);
                closed.map_or(Case::Foreign, |room| ours(room, true))
            }
        }
    }
}

/// A mapping begins.
pub fn enter(mapping: &Mapping, node: u32) {
    let start = mapping.as_ptr() as usize;
    let room = Room {
        range: start..start + mapping.len().next_multiple_of(PAGE_SIZE),
        name: mapping.segment().name().to_owned(),
        node,
        offset: mapping.offset(),
    };
    ROOMS.lock().open.push(room);
}

/// A mapping ends. Its addresses stay in use, with nothing there.
pub fn leave(mapping: Mapping) {
    let start = mapping.as_ptr() as usize;
    let mut rooms = ROOMS.lock();
    let place = rooms.open.iter().position(|r| r.range.start == start);
    let room = place.map(|place| rooms.open.swap_remove(place));
    if let Some(room) = &room {
        let gone: Vec<_> = rooms.lost.range(room.range.clone()).copied().collect();
        for page in gone {
            rooms.lost.remove(&page);
        }
    }
    drop(rooms);
    // Tells the daemon, so nothing may be locked.
    drop(mapping);
    let Some(room) = room else { return };
    if !reserve(&room.range, MapFlags::FIXED_NOREPLACE) {
        return;
    }
    let mut rooms = ROOMS.lock();
    rooms.closed.push_back(room);
    if rooms.closed.len() > CLOSED_KEPT
        && let Some(oldest) = rooms.closed.pop_front()
    {
        // SAFETY: reserved above; no code uses it but forgotten pointers.
        let _ = unsafe { munmap(address(oldest.range.start), oldest.range.len()) };
    }
}

/// Reserves memory there that cannot be accessed.
fn reserve(range: &Range<usize>, how: MapFlags) -> bool {
    let flags = how | MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: replaces nothing, or a substitute of ours.
    let made =
        unsafe { mmap_anonymous(address(range.start), range.len(), ProtFlags::empty(), flags) };
    made.is_ok_and(|at| {
        // Kernels before 4.17 take the address as a hint.
        let there = at as usize == range.start;
        if !there {
            // SAFETY: just mapped, by mistake.
            let _ = unsafe { munmap(at, range.len()) };
        }
        there
    })
}

/// From now on, accesses that cannot be served raise these classes, made without arguments, in the
/// threads that make them. `probe` is a Python function that does nothing.
#[pyfunction]
pub fn raise_in_threads(
    lost: Bound<'_, PyAny>,
    closed: Bound<'_, PyAny>,
    probe: Bound<'_, PyAny>,
) -> PyResult<()> {
    pending::prepare(lost, closed, probe)?;
    BEFORE.get_or_init(|| SIGNALS.map(install));
    Ok(())
}

/// The failed accesses of this thread since the last call: segment, page, node, and whether the
/// segment was closed. The pages are inaccessible again.
#[pyfunction]
pub fn take_faults() -> Vec<(String, u64, u32, bool)> {
    let me = this_thread();
    let mut rooms = ROOMS.lock();
    let (mine, others): (Vec<_>, Vec<_>) = std::mem::take(&mut rooms.faults)
        .into_iter()
        .partition(|fault| fault.thread == me);
    rooms.faults = others;
    for fault in &mine {
        reserve(&(fault.page..fault.page + PAGE_SIZE), MapFlags::FIXED);
        if !fault.closed {
            keep_from_children(fault.page);
        }
    }
    drop(rooms);
    mine.into_iter()
        .map(|fault| (fault.segment, fault.number, fault.node, fault.closed))
        .collect()
}

fn install(signal: c_int) -> libc::sigaction {
    // SAFETY: all zeros is a valid sigaction; both are filled in before use, and
    // the handler keeps to what the module says.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(signal, &raw const action, &raw mut before);
        before
    }
}

/// Whether this thread touched pages since it last took its faults.
pub fn has_faults() -> bool {
    let me = this_thread();
    ROOMS.lock().faults.iter().any(|fault| fault.thread == me)
}

/// The failed accesses of this thread, for a message.
pub fn touched() -> String {
    let me = this_thread();
    let rooms = ROOMS.lock();
    let mine = rooms.faults.iter().find(|fault| fault.thread == me);
    mine.map_or_else(String::new, |fault| {
        words(&fault.segment, fault.number, fault.node, fault.closed)
    })
}

/// Ends the process by a signal: the access cannot become an exception.
pub fn end(touched: &str, why: &str) -> ! {
    let words = format!("pagemesh: {touched}. There is no exception: {why}\n");
    // SAFETY: the words are so long; the set is filled in before use.
    unsafe {
        libc::write(2, words.as_ptr().cast(), words.len());
        // Only now: an access of another thread ends the process from here on.
        default(libc::SIGBUS);
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut signals, libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signals, ptr::null_mut());
        libc::raise(libc::SIGBUS);
    }
    std::process::abort()
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gave it.
    let touched = unsafe { (*info).si_addr() } as usize;
    let case = ROOMS.lock().case(signal, touched);
    let Case::Ours { room, closed } = case else {
        return pass_on(signal, info, context);
    };
    // SAFETY: may be asked in any thread, with or without the interpreter's lock.
    if unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
        end_in(&room, touched, closed, "the thread is none of Python's");
    }
    // SAFETY: the thread is the interpreter's, and waits for the interpreter's lock
    // as in a callback, if it has let it go.
    let state = unsafe { ffi::PyGILState_Ensure() };
    // Waiting for the lock, others may have unmapped it, and mapped something else.
    let case = ROOMS.lock().case(signal, touched);
    if let Case::Ours { room, closed } = case
        && let Err(why) = put_off(&room, touched, closed)
    {
        end_in(&room, touched, closed, why);
    }
    // SAFETY: as taken above.
    unsafe { ffi::PyGILState_Release(state) };
}

/// Lets this thread, which has the interpreter's lock, go on until its exception.
fn put_off(room: &Room, touched: usize, closed: bool) -> Result<(), &'static str> {
    let page = page_of(touched);
    if !pending::prepared() {
        return Err("this Python cannot trace instructions");
    }
    let fault = Fault {
        thread: this_thread(),
        page,
        segment: room.name.clone(),
        number: room.number(touched),
        node: room.node,
        closed,
    };
    pending::arm(closed)?;
    let mut rooms = ROOMS.lock();
    rooms.faults.push(fault);
    if !substitute(page) {
        return Err("no memory is left");
    }
    if !closed {
        rooms.lost.insert(page);
        keep_from_children(page);
    }
    Ok(())
}

impl Room {
    /// The page of the segment at an address.
    fn number(&self, address: usize) -> u64 {
        (self.offset + (page_of(address) - self.range.start) as u64) / PAGE_SIZE as u64
    }
}

fn words(segment: &str, page: u64, node: u32, closed: bool) -> String {
    let why = if closed {
        "the segment is closed"
    } else {
        "the page is lost, or the daemon is gone"
    };
    format!("a thread touched page {page} of segment '{segment}' on node {node}: {why}")
}

fn end_in(room: &Room, touched: usize, closed: bool, why: &str) -> ! {
    end(
        &words(&room.name, room.number(touched), room.node, closed),
        why,
    )
}

/// Puts a page there that can be touched.
fn substitute(page: usize) -> bool {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: nothing is there that anybody can use.
    match unsafe { mmap_anonymous(address(page), PAGE_SIZE, rights, flags) } {
        Ok(place) => {
            // SAFETY: just mapped, so long.
            unsafe { ptr::write_bytes(place.cast::<u8>(), 0xFF, PAGE_SIZE) };
            true
        }
        Err(_) => false,
    }
}

/// A child maps its parent's segments anew, where nothing may be.
fn keep_from_children(page: usize) {
    // SAFETY: advice about memory of ours.
    let _ = unsafe { madvise(address(page), PAGE_SIZE, Advice::LinuxDontFork) };
}

/// Calls the handler that was there before.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let place = SIGNALS.iter().position(|known| *known == signal);
    let before = BEFORE.get().zip(place).map(|(before, place)| before[place]);
    let Some(before) = before else {
        return default(signal);
    };
    match before.sa_sigaction {
        // SAFETY: the handler that was there, called as the kernel would.
        handler if handler > libc::SIG_IGN && before.sa_flags & libc::SA_SIGINFO != 0 => unsafe {
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                std::mem::transmute(handler);
            handler(signal, info, context);
        },
        // SAFETY: as above.
        handler if handler > libc::SIG_IGN => unsafe {
            let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
            handler(signal);
        },
        // The access is repeated, and ends the process.
        _ => default(signal),
    }
}

fn default(signal: c_int) {
    // SAFETY: the default action is always allowed.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

fn this_thread() -> u64 {
    // SAFETY: always succeeds.
    unsafe { libc::pthread_self() as u64 }
}

fn page_of(address: usize) -> usize {
    address - address % PAGE_SIZE
}

fn address(place: usize) -> *mut c_void {
    ptr::without_provenance_mut(place)
}
