//! Errors, each with its remedy.

use std::io;
use std::path::PathBuf;

use pagemesh_wire::local::{PacketError, Refusal};

use crate::HeapError;

/// The result of the library's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. Unless the variant says otherwise, nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No daemon could be reached.
    #[error("no PageMesh daemon answers at {}; {}", list(.paths), cure(.source))]
    NoDaemon {
        /// The paths that were tried, in this order.
        paths: Vec<PathBuf>,
        /// The system's error for the last one.
        source: io::Error,
    },
    /// The daemon closed the connection: it stopped, crashed, or rejected a request. Locks held by
    /// this process are given to others.
    #[error("the PageMesh daemon is gone; start it again, then connect anew")]
    DaemonGone,
    /// The daemon did not even answer a withdrawal in time. It is not known what became of the
    /// request.
    #[error("the PageMesh daemon does not answer; is it stopped, or its host overloaded?")]
    DaemonSilent,
    /// The daemon sent a message that this library does not understand.
    #[error(transparent)]
    Malformed(#[from] PacketError),
    /// The daemon refused the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The time limit of the call has passed.
    #[error("timed out")]
    TimedOut,
    /// A signal handler ran in the waiting thread.
    #[error("interrupted by a signal")]
    Interrupted,
    /// The connection belongs to the process that this one was forked from, and could not be
    /// inherited.
    #[error(
        "this connection belongs to the parent process, and the fork did not pass it on; connect anew"
    )]
    Forked,
    /// The kernel permits no userfaultfd for this process's page faults.
    #[error(
        "the kernel gives this process no userfaultfd ({0}); let the daemon lend its \
         /dev/userfaultfd, or allow the device to this user (`pagemesh doctor` says how), or set \
         vm.unprivileged_userfaultfd=1; in a container, also allow the system call"
    )]
    NoUserfaultfd(#[source] io::Error),
    /// The memory could not be mapped.
    #[error("cannot map the segment: {0}")]
    Map(#[source] io::Error),
    /// Another mapping is at the requested address already.
    #[error("cannot map the segment at {0:#x}: the address is taken; wish for another, or none")]
    AddressTaken(usize),
    /// An argument is invalid.
    #[error("{0}")]
    Invalid(&'static str),
    /// The other end of a pipe was closed.
    #[error(
        "the process at the other end of the pipe has closed it; open the pipe anew for the next one"
    )]
    PipeClosed,
    /// The process at the other end of a pipe died, or its node.
    #[error(
        "the process at the other end of the pipe died, or its node did; what it sent before has \
         been read; start it again, and open the pipe anew"
    )]
    PeerDied,
    /// The shared heap could not do it.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// A variable of the environment has no usable value.
    #[error("environment variable {name}={value:?} is not {wanted}")]
    Environment {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// The form of a correct value.
        wanted: &'static str,
    },
    /// A system call failed in an unforeseen way.
    #[error("unexpected failure of the system: {0}")]
    System(#[source] io::Error),
}

impl Error {
    /// True if the requested segment or name does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(Refusal::NotFound))
    }

    /// True if the wait may simply be tried again.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        matches!(self, Self::Interrupted)
    }
}

fn list(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|p| p.display().to_string()).collect();
    paths.join(" or ")
}

fn cure(source: &io::Error) -> &'static str {
    if source.kind() == io::ErrorKind::PermissionDenied {
        "this user may not use the socket: join its group, or set PAGEMESH_SOCKET to a daemon of \
         your own"
    } else {
        "start one with `pagemesh daemon`, or set PAGEMESH_SOCKET"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_cure() {
        let missing = Error::NoDaemon {
            paths: vec!["/run/a".into(), "/run/b".into()],
            source: io::ErrorKind::NotFound.into(),
        };
        assert_eq!(
            missing.to_string(),
            "no PageMesh daemon answers at /run/a or /run/b; start one with `pagemesh daemon`, or \
             set PAGEMESH_SOCKET"
        );
        let denied = Error::NoDaemon {
            paths: vec!["/run/a".into()],
            source: io::ErrorKind::PermissionDenied.into(),
        };
        assert!(denied.to_string().contains("join its group"));
    }
}
