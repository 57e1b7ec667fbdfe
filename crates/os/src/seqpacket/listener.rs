//! The listening socket that processes connect to.

use super::{Socket, new_socket};
use rustix::net::{SocketAddrUnix, SocketFlags, accept_with, bind, listen};
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Number of connections that the kernel queues before they are accepted.
const BACKLOG: i32 = 128;

/// A listening socket. Its path is removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    path: PathBuf,
}

impl Listener {
    /// Listens at `path`; only users to whom the permission bits `mode` allow writing can connect.
    /// A socket left behind by a dead daemon is replaced, that of a live one never. Non-blocking.
    ///
    /// # Errors
    /// `AddrInUse` if a process listens at `path`, or something else than a socket is there; else
    /// as bind(2), chmod(2), listen(2).
    pub fn bind(path: &Path, mode: u32) -> io::Result<Self> {
        let fd = new_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        let address = SocketAddrUnix::new(path)?;
        if let Err(error) = bind(&fd, &address) {
            if error != rustix::io::Errno::ADDRINUSE || !is_abandoned(path) {
                return Err(error.into());
            }
            std::fs::remove_file(path)?;
            bind(&fd, &address)?;
        }
        // No process can connect before listen, so the mode is never too wide.
        let listener = Self {
            fd,
            path: path.to_owned(),
        };
        std::fs::set_permissions(path, Permissions::from_mode(mode))?;
        listen(&listener.fd, BACKLOG)?;
        Ok(listener)
    }

    /// Takes over a listener that another process bound at `path`.
    #[must_use]
    pub fn adopt(fd: OwnedFd, path: &Path) -> Self {
        Self {
            fd,
            path: path.to_owned(),
        }
    }

    /// Drops the listener without removing its path, for another process that takes it over.
    pub fn leave(mut self) {
        self.path = PathBuf::new();
    }

    /// The next connection, non-blocking.
    ///
    /// # Errors
    /// `WouldBlock` if no connection is waiting; else as accept(2).
    pub fn accept(&self) -> io::Result<Socket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = Socket(accept_with(&self.fd, flags)?);
        socket.want_senders()?;
        Ok(socket)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // It does not matter if the path is gone already or cannot be removed: the next daemon
            // replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// True if `path` is a socket on which no process listens.
fn is_abandoned(path: &Path) -> bool {
    let is_socket = path
        .symlink_metadata()
        .is_ok_and(|meta| meta.file_type().is_socket());
    is_socket && Socket::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
}
