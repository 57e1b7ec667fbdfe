//! A lost page ends the whole test run by SIGBUS. This says in which test.

use std::sync::Once;

/// From now on SIGBUS is told before it ends this process.
pub(super) fn announce() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zeros is a valid sigaction, filled in before use; the
        // handler makes system calls only.
        let failed = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = tell as *const () as usize;
            action.sa_flags = libc::SA_RESETHAND;
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut())
        };
        assert_eq!(failed, 0);
    });
}

/// Returns to the access, which then ends the process.
extern "C" fn tell(_: libc::c_int) {
    const TEXT: &[u8] = b"\nSIGBUS: a lost page was touched in the test ";
    // As much of the test's name as the kernel keeps for a thread.
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes at most 16 bytes to `name`, and reads from both.
    unsafe {
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        libc::write(2, TEXT.as_ptr().cast(), TEXT.len());
        name[15] = b'\n';
        libc::write(2, name.as_ptr().cast(), name.len());
    }
}
