//! The segment of this process, and the ranges in it.

use crate::ranges::Ranges;
use crate::settings::settings;
use pagemesh::{ByteLen, Error, Mapping, Mesh, Options, PAGE_SIZE, Policy, Segment};
use std::cell::Cell;
use std::fmt::Display;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A segment and its mapping.
pub struct Memory {
    pub segment: Segment,
    pub mapping: Mapping,
}

/// The memory for large allocations.
pub struct Pool {
    pub mesh: Mesh,
    /// None in a child that could not get a copy.
    pub memory: Option<Memory>,
    pub ranges: Ranges,
    /// The copy for the child, while this thread forks.
    pub copy: Option<Memory>,
}

static POOL: Mutex<Option<Pool>> = Mutex::new(None);

/// Where the segment is mapped, for the question whether a pointer points there. Set once: a
/// child's copy lies at the same place.
static BASE: AtomicUsize = AtomicUsize::new(0);
static SPAN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread is in here: what it allocates is not for the program.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The lock is given back, and this thread leaves, when it is dropped.
pub struct Held {
    pool: MutexGuard<'static, Option<Pool>>,
}

impl Held {
    /// None if this thread is in here already.
    pub fn take() -> Option<Self> {
        if INSIDE.replace(true) {
            return None;
        }
        let pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Self { pool })
    }

    /// The pool, if there is one.
    pub fn pool(&mut self) -> Option<&mut Pool> {
        self.pool.as_mut()
    }

    /// The pool; connects to the daemon if there is none.
    fn ready(&mut self) -> Option<&mut Pool> {
        if self.pool.is_none() {
            match Pool::open() {
                Ok(pool) => *self.pool = Some(pool),
                Err(error) => {
                    complain_once(error);
                    return None;
                }
            }
        }
        self.pool.as_mut()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

impl Pool {
    fn open() -> Result<Self, Error> {
        let mesh = Mesh::connect()?;
        let size = settings().size.next_multiple_of(PAGE_SIZE);
        let memory = Memory::private(&mesh, size)?;
        if !memory.mapping.serves_system_calls() {
            return Err(Error::Invalid(
                "the kernel gives this process no userfaultfd for system calls, so read and write \
                 would fail in borrowed memory; `pagemesh doctor` says how to allow it",
            ));
        }
        SPAN.store(memory.mapping.len(), Ordering::Relaxed);
        BASE.store(memory.mapping.as_ptr() as usize, Ordering::Release);
        // After the client library's own handlers: in children, those run first.
        crate::fork::watch();
        Ok(Self {
            mesh,
            memory: Some(memory),
            ranges: Ranges::new(size / PAGE_SIZE),
            copy: None,
        })
    }
}

impl Memory {
    /// A new private segment, which may be larger than this host's memory.
    fn private(mesh: &Mesh, size: usize) -> Result<Self, Error> {
        let invalid = |why| {
            complain_once(why);
            Error::Invalid("the settings of `pagemesh borrow` cannot be followed")
        };
        let private: Policy = "private".parse().map_err(invalid)?;
        let policy = match settings().local {
            Some(local) => private.with_local(ByteLen(local as u64)).map_err(invalid)?,
            None => private,
        };
        let memory = Self::new(mesh, size, policy)?;
        // A child has its copy in this place.
        memory.mapping.keep_from_children();
        Ok(memory)
    }

    /// A new segment for the copy that a child gets. It is kept in this host's memory: children do
    /// not inherit private segments.
    pub fn for_child(mesh: &Mesh, size: usize) -> Result<Self, Error> {
        Self::new(mesh, size, Policy::default())
    }

    /// A new segment without a name, which goes with this process.
    fn new(mesh: &Mesh, size: usize, policy: Policy) -> Result<Self, Error> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("borrow.{}.{number}.{:x}", std::process::id(), moment());
        let options = Options {
            policy,
            exclusive: true,
            ..Options::default()
        };
        let segment = mesh.create(&name, size as u64, options)?;
        mesh.remove(&name)?;
        let mapping = segment.map()?;
        Ok(Self { segment, mapping })
    }
}

/// Nanoseconds of the clock: process numbers come again.
fn moment() -> u128 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
    since.map_or(0, |since| since.as_nanos())
}

/// Whether this thread is in here.
pub fn is_inside() -> bool {
    INSIDE.get()
}

/// Whether a pointer points into the segment.
pub fn owns(pointer: *const libc::c_void) -> bool {
    let base = BASE.load(Ordering::Acquire);
    base != 0 && (pointer as usize).wrapping_sub(base) < SPAN.load(Ordering::Relaxed)
}

/// A range of at least so many bytes, and how many of its first bytes may not be zero. None, with a
/// message once, if there is none.
pub fn take(bytes: usize, align: usize) -> Option<(*mut libc::c_void, usize)> {
    let mut held = Held::take()?;
    let pool = held.ready()?;
    let pages = bytes.max(1).div_ceil(PAGE_SIZE);
    // A segment is mapped at a multiple of the page size, and aligned no better.
    let base = pool.memory.as_ref()?.mapping.as_ptr() as usize;
    let align = align.max(PAGE_SIZE);
    let spare = (align - PAGE_SIZE) / PAGE_SIZE;
    let dirty = pool.ranges.fresh();
    let Some(start) = pool.ranges.take(pages.checked_add(spare)?) else {
        complain_once(
            "the borrowed memory is used up; start the program with a larger `pagemesh borrow \
             --size`",
        );
        return None;
    };
    let address = base + start * PAGE_SIZE;
    let used = dirty.saturating_sub(start) * PAGE_SIZE;
    let aligned = address.next_multiple_of(align);
    if aligned > address {
        // The range begins where it is aligned.
        let skipped = (aligned - address) / PAGE_SIZE;
        pool.ranges.split(start, skipped);
    }
    Some((
        aligned as *mut libc::c_void,
        used.saturating_sub(aligned - address).min(bytes),
    ))
}

/// Gives a range back.
pub fn give(pointer: *mut libc::c_void) {
    let found = with(pointer, |ranges, start| ranges.give(start));
    if found != Some(true) {
        complain_once("the program frees memory that it has not allocated");
    }
}

/// The bytes of the range that begins here; 0 if none does.
pub fn length(pointer: *const libc::c_void) -> usize {
    let pages = with(pointer, |ranges, start| ranges.length(start));
    pages.flatten().unwrap_or(0) * PAGE_SIZE
}

/// Makes a range longer or shorter where it lies, if that can be.
pub fn resize(pointer: *mut libc::c_void, bytes: usize) -> bool {
    let pages = bytes.max(1).div_ceil(PAGE_SIZE);
    with(pointer, |ranges, start| ranges.resize(start, pages)) == Some(true)
}

fn with<T>(pointer: *const libc::c_void, work: impl FnOnce(&mut Ranges, usize) -> T) -> Option<T> {
    let place = (pointer as usize).wrapping_sub(BASE.load(Ordering::Acquire));
    if !place.is_multiple_of(PAGE_SIZE) {
        return None;
    }
    let mut held = Held::take()?;
    Some(work(&mut held.pool()?.ranges, place / PAGE_SIZE))
}

/// Tells the user, once: the program may go on for long.
pub fn complain_once(why: impl Display) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        complain(why);
    }
}

/// Tells the user on the program's error output.
pub fn complain(why: impl Display) {
    let _ = writeln!(std::io::stderr(), "pagemesh: {why}");
}
