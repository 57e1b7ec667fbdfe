//! Calls made through `syscall(2)`: System V calls are handled like the named functions, all others
//! go to the kernel unchanged.

use crate::{Result, descriptors, futex, memory, msg, proc, sem, shm, system_call};
use libc::{c_int, c_long};

/// See syscall(2). The arguments of a variadic function are passed where those of a function with a
/// fixed number are.
#[unsafe(no_mangle)]
pub extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let int = |argument: usize| argument as c_int;
    match number {
        libc::SYS_shmget => system_call(|| shm::get(int(a), b, int(c))),
        libc::SYS_shmat => system_call(|| shm::at(int(a), b, int(c))),
        libc::SYS_shmdt => system_call(|| shm::detach(a)),
        libc::SYS_shmctl => system_call(|| shm::control(int(a), int(b), c)),
        libc::SYS_semget => system_call(|| sem::get(int(a), int(b), int(c))),
        libc::SYS_semop => system_call(|| sem::operate(int(a), b, c, 0)),
        libc::SYS_semtimedop => system_call(|| sem::operate(int(a), b, c, d)),
        libc::SYS_semctl => system_call(|| sem::control(int(a), int(b), int(c), d)),
        libc::SYS_msgget => system_call(|| msg::get(int(a), int(b))),
        libc::SYS_msgsnd => system_call(|| msg::send(int(a), b, c, int(d))),
        libc::SYS_msgrcv => system_call(|| msg::receive(int(a), b, c, d as c_long, int(e))),
        libc::SYS_msgctl => system_call(|| msg::control(int(a), int(b), c)),
        libc::SYS_close => told(descriptors::shut(int(a))),
        libc::SYS_close_range => told(descriptors::shut_range(a as u32, b as u32, int(c))),
        libc::SYS_openat => match proc::named(b) {
            Some(family) => proc::table(family).into(),
            None => told(pass(number, [a, b, c, d, e, f])),
        },
        libc::SYS_munmap => memory::unmap(a, b),
        libc::SYS_mmap => memory::map([a, b, c, d, e, f]),
        libc::SYS_mremap => memory::remap([a, b, c, d, e]),
        libc::SYS_remap_file_pages => memory::remap_pages([a, b, c, d, e]),
        _ => {
            if number == libc::SYS_futex {
                futex::look(a, int(b));
            }
            told(pass(number, [a, b, c, d, e, f]))
        }
    }
}

/// Passes a call of the program on to the kernel.
pub fn pass(number: c_long, arguments: [usize; 6]) -> Result<c_long> {
    // SAFETY: the program made this call itself and is responsible for its effects.
    outcome(unsafe { kernel(number, arguments) })
}

/// Makes a system call about descriptors.
pub fn ask(number: c_long, [a, b, c]: [usize; 3]) -> Result<c_long> {
    // SAFETY: no memory is passed; the program is responsible for its descriptors.
    outcome(unsafe { kernel(number, [a, b, c, 0, 0, 0]) })
}

/// The result as the C library returns it: -1 and errno, or the value.
pub fn told(outcome: Result<c_long>) -> c_long {
    outcome.unwrap_or_else(|error| {
        // SAFETY: every thread has its own errno.
        unsafe { *libc::__errno_location() = error };
        -1
    })
}

fn outcome(result: isize) -> Result<c_long> {
    if (-4095..0).contains(&result) {
        return Err(-result as c_int);
    }
    Ok(result as c_long)
}

/// A system call.
///
/// # Safety
/// As for the call.
#[cfg(target_arch = "x86_64")]
unsafe fn kernel(number: c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: the convention of this architecture; the caller guarantees the rest.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// A system call.
///
/// # Safety
/// As for the call.
#[cfg(target_arch = "aarch64")]
unsafe fn kernel(number: c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: the convention of this architecture; the caller guarantees the rest.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    result
}
