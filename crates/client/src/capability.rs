//! The right to open a segment, which one process hands to another (E19).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use pagemesh_os::capability::{permits_stores, receive, send};
use pagemesh_wire::local::{Reply, Request};

use crate::connection::unexpected;
use crate::{Access, Error, Mesh, Result, Segment};

/// The right to open one segment on this node, for loads, or for loads and stores, without its name
/// and whatever its mode. It is a descriptor of the segment's memory: whoever has it may open the
/// segment ([`Mesh::redeem`]), as long as some process of this node has the segment open. It is
/// handed over as descriptors are: through a Unix socket, or to a child.
#[derive(Debug)]
pub struct Capability(OwnedFd);

impl Capability {
    /// What it permits. The descriptor itself says so to the daemon: no program can change it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is no descriptor for loads.
    pub fn access(&self) -> Result<Access> {
        match permits_stores(&self.0) {
            Ok(Some(true)) => Ok(Access::Writable),
            Ok(Some(false)) => Ok(Access::ReadOnly),
            _ => Err(Error::Invalid("this descriptor is no capability")),
        }
    }

    /// Hands it to the process at the other end of a socket, where [`Capability::receive`] takes it.
    /// This process keeps it, too.
    ///
    /// # Errors
    /// [`Error::System`] as sendmsg(2).
    pub fn send(&self, socket: &UnixStream) -> Result<()> {
        send(socket, self.0.as_fd()).map_err(Error::System)
    }

    /// Takes what [`Capability::send`] sent. Whether it is a capability, the daemon says.
    ///
    /// # Errors
    /// [`Error::System`] as recvmsg(2), also for anything but one descriptor.
    pub fn receive(socket: &UnixStream) -> Result<Self> {
        receive(socket).map(Self).map_err(Error::System)
    }
}

impl From<OwnedFd> for Capability {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<Capability> for OwnedFd {
    fn from(capability: Capability) -> Self {
        capability.0
    }
}

impl AsFd for Capability {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Segment {
    /// A capability for this segment. One for stores needs a segment opened for stores.
    ///
    /// # Errors
    /// [`Error::Refused`] if this opening permits no stores, or for a segment of System V.
    pub fn capability(&self, access: Access) -> Result<Capability> {
        let request = Request::Capability {
            segment: self.id(),
            write: access == Access::Writable,
        };
        let mut answer = self.mesh().ask(request, None)?;
        match (&answer.reply, answer.fds.pop()) {
            (Reply::Capability { .. }, Some(fd)) => Ok(Capability(fd)),
            (Reply::Capability { .. }, None) => Err(Error::Invalid(
                "the capability did not arrive: this process has no file descriptor left \
                 (`ulimit -n`)",
            )),
            (other, _) => Err(unexpected(other)),
        }
    }
}

impl Mesh {
    /// Opens the segment of a capability, for what the capability permits.
    ///
    /// # Errors
    /// [`Error::Refused`] if no process of this node has the segment open any more, or if the
    /// descriptor is none of a segment of this node; [`Error::Invalid`] if it permits no loads.
    pub fn redeem(&self, capability: &Capability) -> Result<Segment> {
        let access = capability.access()?;
        let fds = [capability.as_fd()];
        let call = self
            .connection()
            .start_surely(Request::Redeem, &fds, None)?;
        let answer = call.finish_surely(None)?;
        let Reply::Opened { info } = answer.reply else {
            return Err(unexpected(&answer.reply));
        };
        self.lent(info, answer.fds, access)
    }
}
