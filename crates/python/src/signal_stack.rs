//! The stack that signal handlers run on, where a thread has one.
#![allow(unsafe_code)]

use std::ptr;

/// A signal stack smaller than this has no room for calls of the interpreter.
const SIGNAL_STACK: usize = 64 << 10;

/// Gives this thread a signal stack on which the interpreter can be called, if
/// it has a small one: `faulthandler` makes such.
pub fn make_room() {
    let now = current();
    if now.ss_flags & libc::SS_DISABLE != 0 || now.ss_size >= SIGNAL_STACK {
        return;
    }
    let room = Box::leak(vec![0_u8; 2 * SIGNAL_STACK].into_boxed_slice());
    let stack = libc::stack_t {
        ss_sp: room.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: room.len(),
    };
    // SAFETY: memory that is never freed. In vain, `is_small` notices.
    unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) };
}

/// Whether a signal handler runs in this thread, on a stack that is too small.
pub fn is_small() -> bool {
    let now = current();
    now.ss_flags & libc::SS_ONSTACK != 0 && now.ss_size < SIGNAL_STACK
}

fn current() -> libc::stack_t {
    // SAFETY: all zeros is a valid value, and it is filled in.
    unsafe {
        let mut current: libc::stack_t = std::mem::zeroed();
        libc::sigaltstack(ptr::null(), &raw mut current);
        current
    }
}
