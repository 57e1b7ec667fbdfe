//! The functions that this library replaces, all of those of an allocator.

use crate::pool;
use crate::settings::{SMALLEST, settings};
use libc::{c_int, c_void, size_t};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

// The C library's allocator, by the names that stay its own.
unsafe extern "C" {
    fn __libc_malloc(size: size_t) -> *mut c_void;
    fn __libc_calloc(count: size_t, size: size_t) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: size_t) -> *mut c_void;
    fn __libc_memalign(align: size_t, size: size_t) -> *mut c_void;
    fn __libc_free(old: *mut c_void);
}

/// Alignment of what `malloc` returns.
const ALIGN: usize = 16;
const PAGE: usize = pagemesh::PAGE_SIZE;

fn is_large(size: usize) -> bool {
    size >= SMALLEST && size >= settings().threshold && !pool::is_inside()
}

fn fail(error: c_int) -> *mut c_void {
    // SAFETY: every thread has an errno.
    unsafe { *libc::__errno_location() = error };
    null_mut()
}

fn large(size: usize, align: usize) -> *mut c_void {
    match pool::take(size, align) {
        Some((place, _)) => place,
        None => fail(libc::ENOMEM),
    }
}

/// # Safety
/// As malloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: size_t) -> *mut c_void {
    if is_large(size) {
        return large(size, ALIGN);
    }
    // SAFETY: as the program's own call.
    unsafe { __libc_malloc(size) }
}

/// # Safety
/// As malloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        return fail(libc::ENOMEM);
    };
    if !is_large(bytes) {
        // SAFETY: as the program's own call.
        return unsafe { __libc_calloc(count, size) };
    }
    let Some((place, used)) = pool::take(bytes, ALIGN) else {
        return fail(libc::ENOMEM);
    };
    // Pages that were never in use are zero, and stay untouched.
    // SAFETY: the first bytes of a fresh allocation.
    unsafe { place.cast::<u8>().write_bytes(0, used) };
    place
}

/// # Safety
/// As malloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(old: *mut c_void) {
    if pool::owns(old) {
        pool::give(old);
    } else {
        // SAFETY: as the program's own call.
        unsafe { __libc_free(old) }
    }
}

/// # Safety
/// As malloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(old: *mut c_void, size: size_t) -> *mut c_void {
    let ours = pool::owns(old);
    if !ours && (old.is_null() || !is_large(size)) {
        if old.is_null() {
            // SAFETY: as the program's own call.
            return unsafe { malloc(size) };
        }
        // SAFETY: as the program's own call.
        return unsafe { __libc_realloc(old, size) };
    }
    if ours && size == 0 {
        // SAFETY: as the program's own call.
        unsafe { free(old) };
        return null_mut();
    }
    if ours && is_large(size) && pool::resize(old, size) {
        return old;
    }
    // SAFETY: `old` is an allocation, as the caller promises; the new one is another.
    unsafe {
        let new = malloc(size);
        if !new.is_null() {
            let length = malloc_usable_size(old).min(size);
            new.copy_from_nonoverlapping(old, length);
            free(old);
        }
        new
    }
}

/// # Safety
/// As malloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(
    old: *mut c_void,
    count: size_t,
    size: size_t,
) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: as the program's own call.
        Some(bytes) => unsafe { realloc(old, bytes) },
        None => fail(libc::ENOMEM),
    }
}

/// # Safety
/// As memalign(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: size_t, size: size_t) -> *mut c_void {
    if is_large(size) {
        // As the C library: what is no power of two is rounded up to one.
        return match align.checked_next_power_of_two() {
            Some(align) => large(size, align),
            None => fail(libc::EINVAL),
        };
    }
    // SAFETY: as the program's own call.
    unsafe { __libc_memalign(align, size) }
}

/// # Safety
/// As aligned_alloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: size_t, size: size_t) -> *mut c_void {
    // SAFETY: as the program's own call.
    unsafe { memalign(align, size) }
}

/// # Safety
/// As posix_memalign(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    align: size_t,
    size: size_t,
) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    // SAFETY: every thread has an errno, which this function leaves alone; `place` is as the
    // caller promises.
    unsafe {
        let errno = *libc::__errno_location();
        let new = memalign(align, size);
        *libc::__errno_location() = errno;
        if new.is_null() {
            return libc::ENOMEM;
        }
        *place = new;
    }
    0
}

/// # Safety
/// As valloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: size_t) -> *mut c_void {
    // SAFETY: as the program's own call.
    unsafe { memalign(PAGE, size) }
}

/// # Safety
/// As pvalloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: size_t) -> *mut c_void {
    match size.checked_next_multiple_of(PAGE) {
        // SAFETY: as the program's own call.
        Some(size) => unsafe { memalign(PAGE, size.max(PAGE)) },
        None => fail(libc::ENOMEM),
    }
}

/// # Safety
/// As malloc_usable_size(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(place: *mut c_void) -> size_t {
    static THEIRS: AtomicUsize = AtomicUsize::new(0);
    if pool::owns(place) {
        return pool::length(place);
    }
    let mut theirs = THEIRS.load(Ordering::Relaxed);
    if theirs == 0 {
        theirs = usable_size_of_libc();
        THEIRS.store(theirs, Ordering::Relaxed);
    }
    if theirs == 0 {
        return 0;
    }
    // SAFETY: the C library's function of this name, which has this type.
    let theirs: unsafe extern "C" fn(*mut c_void) -> size_t =
        unsafe { std::mem::transmute(theirs) };
    // SAFETY: as the program's own call.
    unsafe { theirs(place) }
}

/// The C library's `malloc_usable_size`, for which it exports no second name. The next one in the
/// order of loading may be that of another allocator, which the program is linked with.
fn usable_size_of_libc() -> usize {
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: both names end with a zero byte; the library is loaded, and stays. What is allocated
    // meanwhile is small.
    unsafe {
        let library = libc::dlopen(c"libc.so.6".as_ptr(), flags);
        if library.is_null() {
            return 0;
        }
        libc::dlsym(library, c"malloc_usable_size".as_ptr()) as usize
    }
}

/// # Safety
/// As fork(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> libc::pid_t {
    crate::fork::fork()
}
