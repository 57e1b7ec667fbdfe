//! The interface of TreadMarks programs (T1, T2), over a shared heap: see
//! `include/Tmk.h`.
//!
//! As in the original, these functions return no errors: a failure is printed to standard error and
//! ends the process.

mod distribute;
mod image;
mod names;
mod options;
mod statistics;
mod sums;
mod times;

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fmt::Display;
use std::process::exit;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use pagemesh::{Error, Guarded, Heap, Job, LockGuard, Mesh, undisturbed};

use crate::error::call;
use distribute::Distribution;
use options::Options;
use statistics::Statistics;

/// `Tmk_proc_id`.
#[unsafe(no_mangle)]
pub static Tmk_proc_id: AtomicI32 = AtomicI32::new(0);

/// `Tmk_nprocs`.
#[unsafe(no_mangle)]
pub static Tmk_nprocs: AtomicI32 = AtomicI32::new(1);

/// The state of a process that called `Tmk_startup`.
static RUNTIME: OnceLock<Runtime> = OnceLock::new();

struct Runtime {
    mesh: Mesh,
    heap: Heap,
    job: Job,
    held: Guarded<HashMap<c_uint, LockGuard>>,
    distribution: Distribution,
    statistics: Statistics,
    tell_statistics: bool,
}

impl Runtime {
    fn start(options: &Options) -> Result<Self, String> {
        let mesh = Mesh::connect().map_err(|error| match error {
            Error::NoDaemon { .. } => format!("{error}{LAUNCH}"),
            error => error.to_string(),
        })?;
        let job = Job::from_env(&mesh).map_err(|error| format!("{error}{LAUNCH}"))?;
        if let Some(processes) = options.processes
            && processes != job.size()
        {
            return Err(format!(
                "-n {processes} is wanted, but there are {}: the number of processes is what \
                 `pagemesh run -n N` says",
                job.size()
            ));
        }
        let heap = Heap::open(&mesh, &job, options.heap).map_err(|error| error.to_string())?;
        Ok(Self {
            distribution: Distribution::new(&job),
            statistics: Statistics::start(),
            tell_statistics: options.statistics,
            held: Guarded::default(),
            mesh,
            heap,
            job,
        })
    }

    /// Labels the program's memory for reports of races, if this node checks for races.
    fn name_memory(&self) -> Result<(), Error> {
        if self.mesh.looks_for_races()? {
            self.heap.segment().label(&names::labels(&self.heap))?;
        }
        Ok(())
    }

    /// Must be called after everything that makes the stores of others visible.
    fn acquired(&self) {
        let caught_up = self.distribution.catch_up(&self.heap);
        caught_up.unwrap_or_else(|why| fail("Tmk_distribute", why));
    }

    fn acquire(&self, lock: c_uint) {
        let lock_it = || undisturbed(|| self.heap.lock(lock.into()).lock());
        let guard = self.statistics.lock(lock_it);
        let guard = guard.unwrap_or_else(|error| fail("Tmk_lock_acquire", error));
        self.keep(lock, guard);
    }

    fn meet(&self, what: &str, barrier: &pagemesh::Barrier) {
        let waited = self.statistics.barrier(|| undisturbed(|| barrier.wait()));
        waited.unwrap_or_else(|error| fail(what, error));
        self.acquired();
    }

    fn keep(&self, lock: c_uint, guard: LockGuard) {
        if guard.recovered() {
            fail(
                "Tmk_lock_acquire",
                format!("the process that held lock {lock} ended without releasing it"),
            );
        }
        self.held.lock().insert(lock, guard);
        self.acquired();
    }

    fn release(&self, what: &str, lock: c_uint) -> LockGuard {
        let guard = self.held.lock().remove(&lock);
        guard.unwrap_or_else(|| fail(what, format!("this process does not hold lock {lock}")))
    }

    fn wait(&self, lock: c_uint, condition: c_uint) {
        const WHAT: &str = "Tmk_lock_cond_wait";
        let mut guard = self.release(WHAT, lock);
        match self.condition(lock, condition).wait(&mut guard) {
            // Return as after a spurious wake-up, which programs must expect of conditions.
            Ok(()) | Err(Error::Interrupted) => self.keep(lock, guard),
            Err(error) => fail(WHAT, error),
        }
    }

    /// The condition variable of a lock; conditions are numbered per lock.
    fn condition(&self, lock: c_uint, condition: c_uint) -> pagemesh::Condition {
        let number = u64::from(lock) << 32 | u64::from(condition);
        self.heap.condition(number)
    }
}

/// How Tmk programs are started; printed after an error.
const LAUNCH: &str = "\nStart this program with `pagemesh run -n N -- PROGRAM` on a cluster, or with \
                      `pagemesh sandbox N -- PROGRAM` on this machine alone.";

/// Prints an error, and ends the process.
fn fail(what: &str, why: impl Display) -> ! {
    eprintln!("{what}: {why}");
    exit(1);
}

fn runtime(what: &str) -> &'static Runtime {
    let runtime = RUNTIME.get();
    runtime.unwrap_or_else(|| fail(what, "Tmk_startup comes first"))
}

/// Joins the other processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Tmk_startup(argc: c_int, argv: *const *const c_char) {
    const WHAT: &str = "Tmk_startup";
    // SAFETY: the header asks for the arguments of main().
    let arguments = unsafe { options::arguments(argc, argv) };
    let options = options::read(&arguments, |name| std::env::var(name).ok());
    let options = options.unwrap_or_else(|why| fail(WHAT, why));
    let runtime = Runtime::start(&options).unwrap_or_else(|why| fail(WHAT, why));
    Tmk_proc_id.store(runtime.job.rank().cast_signed(), Ordering::Relaxed);
    Tmk_nprocs.store(runtime.job.size().cast_signed(), Ordering::Relaxed);
    if RUNTIME.set(runtime).is_err() {
        fail(WHAT, "called twice");
    }
}

/// Ends this process.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_exit(status: c_int) -> ! {
    if let Some(runtime) = RUNTIME.get() {
        if runtime.tell_statistics {
            eprintln!("{}", runtime.statistics.line(&runtime.job));
        }
        // Races can be reported without names.
        let _ = runtime.name_memory();
    }
    exit(status);
}

/// Waits for all processes.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_barrier(barrier: c_uint) {
    const WHAT: &str = "Tmk_barrier";
    let runtime = runtime(WHAT);
    runtime.meet(WHAT, &runtime.heap.barrier(barrier.into()));
}

/// Waits for some of the processes.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_barrier_some(barrier: c_uint, processes: c_uint) {
    const WHAT: &str = "Tmk_barrier_some";
    let runtime = runtime(WHAT);
    if processes == 0 || processes > runtime.job.size() {
        let size = runtime.job.size();
        fail(
            WHAT,
            format!("{processes} processes cannot meet; the job has {size}"),
        );
    }
    runtime.meet(WHAT, &runtime.heap.barrier_of(barrier.into(), processes));
}

/// Takes a lock.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_acquire(lock: c_uint) {
    let runtime = runtime("Tmk_lock_acquire");
    runtime.acquire(lock);
}

/// Releases a lock.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_release(lock: c_uint) {
    const WHAT: &str = "Tmk_lock_release";
    runtime(WHAT).release(WHAT, lock).unlock();
}

/// Waits for a signal.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_cond_wait(lock: c_uint, condition: c_uint) {
    let runtime = runtime("Tmk_lock_cond_wait");
    runtime.statistics.wait();
    runtime.wait(lock, condition);
}

/// Wakes one waiter.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_cond_signal(lock: c_uint, condition: c_uint) {
    const WHAT: &str = "Tmk_lock_cond_signal";
    let condition = runtime(WHAT).condition(lock, condition);
    undisturbed(|| condition.signal()).unwrap_or_else(|error| fail(WHAT, error));
}

/// Wakes all waiters.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_lock_cond_broadcast(lock: c_uint, condition: c_uint) {
    const WHAT: &str = "Tmk_lock_cond_broadcast";
    let condition = runtime(WHAT).condition(lock, condition);
    undisturbed(|| condition.broadcast()).unwrap_or_else(|error| fail(WHAT, error));
}

/// Allocates shared memory; NULL if there is none left, which programs check.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_malloc(size: usize) -> *mut c_void {
    let runtime = runtime("Tmk_malloc");
    call(null_mut(), || {
        Ok(runtime.heap.allocate(size as u64)?.as_ptr().cast())
    })
}

/// Allocates shared memory that is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_sbrk(increment: usize) -> *mut c_void {
    Tmk_malloc(increment)
}

/// Frees shared memory.
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_free(block: *mut c_void) {
    const WHAT: &str = "Tmk_free";
    if !block.is_null() {
        let freed = runtime(WHAT).heap.free(block.cast());
        freed.unwrap_or_else(|error| fail(WHAT, format!("{block:p}: {error}")));
    }
}

/// Declares numbers to which processes add without a lock (a reduction).
#[unsafe(no_mangle)]
pub extern "C" fn Tmk_sum_doubles(numbers: *mut f64, count: usize) -> c_int {
    const WHAT: &str = "Tmk_sum_doubles";
    let declared = sums::declare(&runtime(WHAT).heap, numbers, count);
    declared.unwrap_or_else(|why| fail(WHAT, why)).into()
}

/// Copies a variable to all processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn Tmk_distribute(variable: *const c_void, size: c_int) {
    const WHAT: &str = "Tmk_distribute";
    let runtime = runtime(WHAT);
    let Ok(size) = usize::try_from(size) else {
        fail(WHAT, "a variable has no negative size");
    };
    // SAFETY: the header asks for a variable of that size.
    let sent = unsafe {
        runtime
            .distribution
            .send(&runtime.heap, variable.cast(), size)
    };
    sent.unwrap_or_else(|why| fail(WHAT, why));
}
