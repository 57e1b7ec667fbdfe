//! Replacing what a known descriptor number stands for.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Closes `old` and makes its number stand for the same as `new`, in one step, so that no thread
/// finds the number closed. It is closed on exec.
///
/// # Errors
/// As dup3(2); then `old` is unchanged.
pub fn supplant(old: impl AsFd, new: impl AsFd) -> io::Result<()> {
    let (old, new) = (old.as_fd().as_raw_fd(), new.as_fd().as_raw_fd());
    loop {
        // Not by the C library's function, because its replacement leaves `old` alone.
        // SAFETY: both numbers are open. The owner of `old` keeps its number; replacing what is
        // behind it is the purpose.
        if unsafe { libc::syscall(libc::SYS_dup3, new, old, libc::O_CLOEXEC) } >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn a_number_stands_for_something_else() {
        let (mut first, _) = std::io::pipe().unwrap();
        let (second, mut writer) = std::io::pipe().unwrap();
        supplant(&first, &second).unwrap();
        drop(second);
        writer.write_all(b"x").unwrap();
        let mut byte = [0];
        first.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
    }
}
