//! Error messages that are written without allocating, for the child of a multi-threaded process.

use std::fmt::{self, Write as _};
use std::os::fd::AsFd as _;

use rustix::process::getpid;

/// Writes to standard error that this child is without segments of its parent, and why.
pub fn complain(what: fmt::Arguments<'_>, why: &impl fmt::Display) {
    let mut line = Line::default();
    let child = getpid().as_raw_nonzero();
    let _ = writeln!(
        line,
        "pagemesh: process {child} does not keep {what} of its parent: {why}; accesses there end \
         in SIGSEGV"
    );
    // If standard error is closed, the message is dropped.
    let _ = rustix::io::write(std::io::stderr().as_fd(), line.text());
}

/// One line in a fixed buffer; what does not fit is cut.
struct Line {
    bytes: [u8; 256],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            bytes: [0; 256],
            length: 0,
        }
    }
}

impl Line {
    fn text(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.length;
        let fits = text.len().min(room);
        self.bytes[self.length..][..fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.length += fits;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut() {
        let mut line = Line::default();
        write!(line, "{:>250}0123456789", "x").unwrap();
        assert_eq!(line.text().len(), 256);
        assert!(line.text().ends_with(b"x012345"));
    }
}
