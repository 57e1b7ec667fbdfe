//! A fault as the kernel reports it.

use linux_raw_sys::general::{
    UFFD_EVENT_PAGEFAULT, UFFD_PAGEFAULT_FLAG_MINOR, UFFD_PAGEFAULT_FLAG_WP,
    UFFD_PAGEFAULT_FLAG_WRITE, uffd_msg,
};

/// A thread stopped at a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address of the page.
    pub address: u64,
    /// The kind of fault.
    pub kind: FaultKind,
    /// True if the access is a store.
    pub write: bool,
    /// The thread's number in its own PID namespace.
    pub thread: u32,
}

/// The state of the page at which a thread stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// There is no page, neither mapped nor in the shared memory.
    Missing,
    /// There is a page in the shared memory, not mapped here. It need not be valid.
    Minor,
    /// The page is mapped and protected from stores.
    WriteProtect,
}

const MESSAGE: usize = size_of::<uffd_msg>();
const MESSAGES: usize = 32;

/// Buffer for faults read in one call.
#[derive(Debug)]
pub struct FaultBuffer {
    bytes: [u8; MESSAGE * MESSAGES],
    filled: usize,
}

impl Default for FaultBuffer {
    fn default() -> Self {
        Self {
            bytes: [0; MESSAGE * MESSAGES],
            filled: 0,
        }
    }
}

impl FaultBuffer {
    /// The number of kernel messages in the buffer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.filled / MESSAGE
    }

    /// True if nothing was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// True if the buffer is full, so that more faults may wait in the kernel. If false, none does.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() == MESSAGES
    }

    /// The fault at `index`; `None` if the message is not a fault.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Fault> {
        let message = self.bytes[..self.filled].chunks_exact(MESSAGE).nth(index)?;
        parse(message)
    }

    pub(super) fn clear(&mut self) {
        self.filled = 0;
    }

    pub(super) fn space(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(super) fn filled(&mut self, length: usize) {
        self.filled = length;
    }
}

/// Decodes struct uffd_msg: the event at byte 0; for a fault, flags at 8, address at 16 and thread
/// at 24.
fn parse(message: &[u8]) -> Option<Fault> {
    if u32::from(message[0]) != UFFD_EVENT_PAGEFAULT {
        return None;
    }
    let long = |at: usize| {
        Some(u64::from_ne_bytes(
            message.get(at..at + 8)?.try_into().ok()?,
        ))
    };
    let flags = long(8)? as u32;
    let kind = if flags & UFFD_PAGEFAULT_FLAG_WP != 0 {
        FaultKind::WriteProtect
    } else if flags & UFFD_PAGEFAULT_FLAG_MINOR != 0 {
        FaultKind::Minor
    } else {
        FaultKind::Missing
    };
    Some(Fault {
        address: long(16)? & !0xfff,
        kind,
        write: flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP) != 0,
        thread: long(24)? as u32,
    })
}
