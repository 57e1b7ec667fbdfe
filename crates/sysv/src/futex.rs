//! A warning, printed once, about what cannot work across hosts: a thread that sleeps at an address
//! of a segment is not woken by a thread on another host.

use crate::node::warn;
use libc::{c_int, c_uint, c_void};
use pagemesh::mapped_within;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Looks at the use of a futex.
pub fn look(address: usize, operation: c_int) {
    if operation & libc::FUTEX_PRIVATE_FLAG == 0 {
        check(address, "a futex");
    }
}

fn check(address: usize, what: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if mapped_within(&(address..address.saturating_add(1))).is_some()
        && !SAID.swap(true, Ordering::Relaxed)
    {
        warn(format_args!(
            "{what} lies in a System V segment: it works among the processes of one host, but \
             nobody on another host is woken by it; use System V semaphores (docs/sysv.md)"
        ));
    }
}

/// A function of the C library that this library replaces.
pub struct Next {
    name: &'static [u8],
    found: AtomicUsize,
}

impl Next {
    pub const fn new(name: &'static [u8]) -> Self {
        let found = AtomicUsize::new(0);
        Self { name, found }
    }

    pub fn get(&self) -> usize {
        let found = self.found.load(Ordering::Relaxed);
        if found != 0 {
            return found;
        }
        // SAFETY: the name ends with a zero byte.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast()) } as usize;
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// See pthread_mutex_init(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut libc::pthread_mutex_t,
    attributes: *const libc::pthread_mutexattr_t,
) -> c_int {
    static NEXT: Next = Next::new(b"pthread_mutex_init\0");
    type Init =
        unsafe extern "C" fn(*mut libc::pthread_mutex_t, *const libc::pthread_mutexattr_t) -> c_int;
    let mut shared = libc::PTHREAD_PROCESS_PRIVATE;
    if !attributes.is_null() {
        // SAFETY: attributes that the program has initialized.
        unsafe { libc::pthread_mutexattr_getpshared(attributes, &raw mut shared) };
    }
    if shared == libc::PTHREAD_PROCESS_SHARED {
        check(mutex as usize, "a pthread mutex");
    }
    let next = NEXT.get();
    if next == 0 {
        return libc::ENOSYS;
    }
    // SAFETY: the C library's function of this name and type, with the arguments it was called
    // with.
    unsafe { std::mem::transmute::<usize, Init>(next)(mutex, attributes) }
}

/// See sem_init(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_init(semaphore: *mut c_void, shared: c_int, value: c_uint) -> c_int {
    static NEXT: Next = Next::new(b"sem_init\0");
    type Init = unsafe extern "C" fn(*mut c_void, c_int, c_uint) -> c_int;
    if shared != 0 {
        check(semaphore as usize, "a POSIX semaphore");
    }
    let next = NEXT.get();
    if next == 0 {
        return -1;
    }
    // SAFETY: the C library's function of this name and type, with the arguments it was called
    // with.
    unsafe { std::mem::transmute::<usize, Init>(next)(semaphore, shared, value) }
}
