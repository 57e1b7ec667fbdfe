//! Why a forked child has no connection.

use std::fmt;

use pagemesh_os::seqpacket::Socket;
use rustix::io::Errno;

/// Why a forked child is without segments.
#[derive(Clone, Copy, Debug)]
pub enum Orphan {
    /// The daemon closed the child's connection.
    Closed,
    /// The daemon does not answer.
    Silent,
    /// The daemon sent an unexpected reply.
    Refused,
    /// Private memory belongs to one process.
    Private,
    /// The parent has unmapped a part of the memory, or mapped something else over it.
    Cut,
    /// This system call failed.
    System(&'static str, Errno),
}

/// The child's end of a connection, or why there is none.
pub type Successor = Result<Socket, Orphan>;

impl Orphan {
    /// The failed system call and its error.
    pub fn of(call: &'static str, error: &std::io::Error) -> Self {
        Self::System(call, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }
}

impl fmt::Display for Orphan {
    /// Written without allocating, therefore without the system's error texts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("its daemon is gone"),
            Self::Silent => f.write_str("its daemon does not answer"),
            Self::Refused => f.write_str("its daemon refuses"),
            Self::Private => f.write_str("private memory is not shared"),
            Self::Cut => f.write_str("its parent has unmapped a part of one"),
            Self::System(call, errno) => {
                write!(f, "{call} fails with error {}", errno.raw_os_error())
            }
        }
    }
}
