//! A lost page ends the whole test run by SIGBUS. This says in which test, and shows what the daemons
//! of all clusters said last.

use super::watchdog;
use std::io::Read as _;
use std::os::fd::IntoRawFd as _;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

/// The pipe by which a thread that touched a lost page tells the thread that shows the logs.
static TOLD: AtomicI32 = AtomicI32::new(-1);

/// Seconds that showing the logs takes at most.
const SHOWN: libc::c_uint = 60;

/// From now on SIGBUS is told before it ends this process.
pub(super) fn announce() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (mut told, tell_it) = std::io::pipe().expect("a pipe");
        TOLD.store(tell_it.into_raw_fd(), Ordering::SeqCst);
        std::thread::spawn(move || {
            if told.read_exact(&mut [0]).is_ok() {
                watchdog::show_all();
                std::process::abort();
            }
        });
        // SAFETY: all zeros is a valid sigaction, filled in before use; the
        // handler makes system calls only.
        let failed = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = tell as *const () as usize;
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut())
        };
        assert_eq!(failed, 0);
    });
}

/// Stays until the process ends, and ends it if nothing else does: other threads may touch lost pages
/// meanwhile.
extern "C" fn tell(_: libc::c_int) {
    const TEXT: &[u8] = b"\nSIGBUS: a lost page was touched in the test ";
    // As much of the test's name as the kernel keeps for a thread.
    let mut name = [0_u8; 16];
    let told = TOLD.load(Ordering::SeqCst);
    // SAFETY: the kernel writes at most 16 bytes to `name`, and reads from both.
    unsafe {
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        libc::write(2, TEXT.as_ptr().cast(), TEXT.len());
        name[15] = b'\n';
        libc::write(2, name.as_ptr().cast(), name.len());
        libc::write(told, name.as_ptr().cast(), 1);
        libc::sleep(SHOWN);
        libc::abort();
    }
}
