//! What happens to accesses that nobody can serve: to lost pages, and to segments
//! that were closed while, say, a numpy array still pointed to them.
//!
//! The kernel sends SIGBUS or SIGSEGV to the thread. If that is a thread of the
//! interpreter, it gets other memory for the moment, all bytes 0xFF (so that
//! nothing looks plausible), and an exception, which the interpreter raises in
//! it as soon as it gets to. The exception takes the memory away again. Any other
//! thread ends the process, with a message naming page, segment and node.
//!
//! The handler runs in place of an access to segment memory: the thread is neither
//! in malloc nor in the interpreter's own locks, so both may be used.
#![allow(unsafe_code)]

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use pagemesh::{Guarded, Mapping, PAGE_SIZE};
use pyo3::ffi;
use pyo3::prelude::*;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Where segments are or were mapped.
static ROOMS: Guarded<Rooms> = Guarded::new(Rooms::new());

/// The exception classes, for lost pages and for closed segments; from then on
/// exceptions are raised.
static EXCEPTIONS: [AtomicPtr<ffi::PyObject>; 2] = [const { AtomicPtr::new(ptr::null_mut()) }; 2];

/// What the signals did before.
static BEFORE: OnceLock<[libc::sigaction; 2]> = OnceLock::new();

const SIGNALS: [c_int; 2] = [libc::SIGBUS, libc::SIGSEGV];

/// So many closed ranges are kept from being used for something else, in which
/// a forgotten pointer would read or, worse, write.
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

/// What is to be done about an access.
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
        // SAFETY: reserved above, and used by nobody who knows what they do.
        let _ = unsafe { munmap(address(oldest.range.start), oldest.range.len()) };
    }
}

/// Puts memory there that nobody can touch.
fn reserve(range: &Range<usize>, how: MapFlags) -> bool {
    let flags = how | MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: replaces nothing, or a substitute of ours.
    let made =
        unsafe { mmap_anonymous(address(range.start), range.len(), ProtFlags::empty(), flags) };
    made.is_ok_and(|at| {
        // Kernels before 4.17 take the address as a wish.
        let there = at as usize == range.start;
        if !there {
            // SAFETY: just mapped, by mistake.
            let _ = unsafe { munmap(at, range.len()) };
        }
        there
    })
}

/// From now on, accesses that nobody can serve raise these classes, made without
/// arguments, in the threads that make them.
#[pyfunction]
pub fn raise_in_threads(lost: Bound<'_, PyAny>, closed: Bound<'_, PyAny>) {
    for (place, class) in EXCEPTIONS.iter().zip([lost, closed]) {
        place.store(class.into_ptr(), Ordering::Release);
    }
    BEFORE.get_or_init(|| SIGNALS.map(install));
}

/// What this thread touched in vain since it last asked: segment, page, node,
/// and whether the segment was closed. The pages are out of reach again.
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

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gave it.
    let touched = unsafe { (*info).si_addr() } as usize;
    let mut rooms = ROOMS.lock();
    let Case::Ours { room, closed } = rooms.case(signal, touched) else {
        drop(rooms);
        return pass_on(signal, info, context);
    };
    let page = page_of(touched);
    let number = (room.offset + (page - room.range.start) as u64) / PAGE_SIZE as u64;
    if raises_here() && substitute(page) {
        if !closed {
            rooms.lost.insert(page);
            keep_from_children(page);
        }
        rooms.faults.push(Fault {
            thread: this_thread(),
            page,
            segment: room.name,
            number,
            node: room.node,
            closed,
        });
        drop(rooms);
        let class = EXCEPTIONS[usize::from(closed)].load(Ordering::Acquire);
        // SAFETY: the class is kept for ever. The thread is the interpreter's, and
        // waits for the interpreter's lock as in a callback, if it has let it go.
        unsafe {
            let state = ffi::PyGILState_Ensure();
            ffi::PyThreadState_SetAsyncExc(this_thread() as _, class);
            ffi::PyGILState_Release(state);
        }
        return;
    }
    drop(rooms);
    let why = if closed {
        "the segment is closed"
    } else {
        "the page is lost, or the daemon is gone"
    };
    end(
        signal,
        &format!(
            "pagemesh: a thread touched page {number} of segment '{}' on node {}: {why}\n",
            room.name, room.node
        ),
    );
}

/// Whether this thread can be told by an exception.
fn raises_here() -> bool {
    // SAFETY: may be asked in any thread, with or without the interpreter's lock.
    !EXCEPTIONS[1].load(Ordering::Acquire).is_null()
        && unsafe { !ffi::PyGILState_GetThisThreadState().is_null() }
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

/// Does what would have been done without us.
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

/// Ends the process by the signal, with these words.
fn end(signal: c_int, words: &str) {
    default(signal);
    // SAFETY: the words are so long; the signal comes when the handler returns.
    unsafe {
        libc::write(2, words.as_ptr().cast(), words.len());
        libc::raise(signal);
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
