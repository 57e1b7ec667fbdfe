//! The control data of a packet: descriptors and the sender.
//!
//! Decoded by hand, because a sender of another PID namespace has the number 0, which safe wrappers
//! consider impossible.

use super::{Sender, Socket};
use pagemesh_wire::local::MAX_FDS;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

// SAFETY: arithmetic on lengths.
const FDS: usize = unsafe { libc::CMSG_SPACE((MAX_FDS * size_of::<RawFd>()) as u32) } as usize;
// SAFETY: as above.
const SENDER: usize = unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) } as usize;

/// A buffer for control data, and the data received. Descriptors that are not taken are closed.
#[repr(C, align(8))]
pub(super) struct Control {
    bytes: [u8; FDS + SENDER],
    fds: Vec<OwnedFd>,
    sender: Option<Sender>,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            bytes: [0; FDS + SENDER],
            fds: Vec::new(),
            sender: None,
        }
    }
}

impl Control {
    /// Receives one packet: its length, and the flags of recvmsg(2).
    pub(super) fn receive(
        &mut self,
        socket: &Socket,
        buffer: &mut [u8],
        how: RecvFlags,
    ) -> Result<(usize, i32), Errno> {
        let mut part = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        // SAFETY: all zeros is a message header without anything.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = self.bytes.as_mut_ptr().cast();
        message.msg_controllen = self.bytes.len() as _;
        // SAFETY: the buffer and the control buffer are writable for the lengths given, and both
        // outlive the call.
        let length =
            unsafe { libc::recvmsg(socket.0.as_raw_fd(), &raw mut message, how.bits() as i32) };
        let Ok(length) = usize::try_from(length) else {
            let error = std::io::Error::last_os_error();
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        };
        self.read(&message);
        Ok((length, message.msg_flags))
    }

    /// The received descriptors and the sender.
    pub(super) fn take(self) -> (Vec<OwnedFd>, Option<Sender>) {
        (self.fds, self.sender)
    }

    fn read(&mut self, message: &libc::msghdr) {
        // SAFETY: the kernel has written whole control messages into the buffer that `message`
        // names, which belongs to `self`; the macros walk from one to the next.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
        while !next.is_null() {
            // SAFETY: as above; a header is aligned there.
            let header = unsafe { *next };
            // SAFETY: as above.
            let data = unsafe { libc::CMSG_DATA(next) };
            // SAFETY: arithmetic on lengths.
            let above = unsafe { libc::CMSG_LEN(0) } as usize;
            let length = (header.cmsg_len as usize).saturating_sub(above);
            match (header.cmsg_level, header.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    for at in 0..length / size_of::<RawFd>() {
                        // SAFETY: the message has this many descriptors, which belong to this
                        // process from now on and have no other owner.
                        let fd = unsafe { data.cast::<RawFd>().add(at).read_unaligned() };
                        // SAFETY: as above.
                        self.fds.push(unsafe { OwnedFd::from_raw_fd(fd) });
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if length >= size_of::<libc::ucred>() => {
                    // SAFETY: plain integers, and the message is long enough.
                    let user = unsafe { data.cast::<libc::ucred>().read_unaligned() };
                    self.sender = Some(Sender {
                        pid: user.pid,
                        uid: user.uid,
                        gid: user.gid,
                    });
                }
                _ => {}
            }
            // SAFETY: as above.
            next = unsafe { libc::CMSG_NXTHDR(message, next) };
        }
    }
}
