//! Unix sockets of type `SOCK_SEQPACKET`: whole packets, with descriptors.
//!
//! A [`Socket`] is blocking after [`Socket::connect`] and [`Socket::pair`] and non-blocking after
//! [`Listener::accept`]: a process may wait for its daemon, but a daemon never waits for a process.
//! The `_now` calls never block, whatever the mode. Every descriptor made or received here is
//! closed on exec.

mod control;
mod listener;

use std::io::{self, IoSlice};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::descriptor::supplant;
use control::Control;
pub use listener::Listener;
use pagemesh_wire::local::{Caller, MAX_FDS};
use pagemesh_wire::peer::Credentials;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_passcred, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown,
    SocketAddrUnix, SocketFlags, SocketType, UCred, connect, recv, sendmsg, shutdown, socket_with,
    socketpair,
};
use rustix::process::{getegid, geteuid, getpid};

/// One end of a connection.
#[derive(Debug)]
pub struct Socket(OwnedFd);

/// A packet that was received.
#[derive(Debug)]
pub struct Received {
    /// The length of the packet at the start of the buffer, in bytes.
    pub len: usize,
    /// Its descriptors; those that the caller does not take out are closed.
    pub fds: Vec<OwnedFd>,
    /// True if descriptors were lost because this process had reached its limit.
    pub fds_lost: bool,
    /// The sender, if the receiver asked the kernel for senders.
    pub sender: Option<Sender>,
}

/// The process that sent a packet, with its identity at that moment, as the kernel tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Its process number; 0 for a process of another PID namespace.
    pub pid: i32,
    /// Its user: the effective one if it used [`Socket::send_as_me`], otherwise the real one.
    pub uid: u32,
    /// Its group, likewise.
    pub gid: u32,
}

impl Socket {
    /// Takes over a socket that another process made and sent; it becomes non-blocking.
    ///
    /// # Errors
    /// `InvalidInput` if it is anything but a Unix socket of this type.
    pub fn adopt(fd: OwnedFd) -> io::Result<Self> {
        let socket = Self(fd);
        let is = |option, value: i32| {
            let mut bytes = value.wrapping_add(1).to_ne_bytes();
            let read = socket.option(option, &mut bytes);
            read.is_ok() && i32::from_ne_bytes(bytes) == value
        };
        if !is(libc::SO_DOMAIN, libc::AF_UNIX) || !is(libc::SO_TYPE, libc::SOCK_SEQPACKET) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the descriptor is no socket of processes",
            ));
        }
        socket.set_nonblocking(true)?;
        socket.want_senders()?;
        Ok(socket)
    }

    /// Makes the kernel attach the sender to every received packet from now on.
    fn want_senders(&self) -> io::Result<()> {
        Ok(set_socket_passcred(self, true)?)
    }

    /// Replaces the connection behind this descriptor number by another one, and closes the old
    /// one.
    ///
    /// # Errors
    /// As dup3(2); then the connection is unchanged.
    pub fn supplant(&self, by: impl AsFd) -> io::Result<()> {
        supplant(self, by)
    }

    /// A blocking connection to the process that listens at `path`.
    ///
    /// # Errors
    /// As connect(2); `ENAMETOOLONG` for a path of more than 107 bytes.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let fd = new_socket(SocketFlags::CLOEXEC)?;
        connect(&fd, &SocketAddrUnix::new(path)?)?;
        Ok(Self(fd))
    }

    /// A blocking connection to the process that listens at `path`. Waits for at most `patience`,
    /// because the queue of a listener that does not accept may be full.
    ///
    /// # Errors
    /// As [`Socket::connect`]; `TimedOut` after `patience`.
    pub fn connect_within(path: &Path, patience: Duration) -> io::Result<Self> {
        let fd = new_socket(SocketFlags::CLOEXEC)?;
        let (address, until) = (SocketAddrUnix::new(path)?, Instant::now() + patience);
        let mut left = patience;
        while !left.is_zero() {
            set_socket_timeout(&fd, Timeout::Send, Some(left))?;
            match connect(&fd, &address) {
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => left = until.saturating_duration_since(Instant::now()),
                done => {
                    done?;
                    set_socket_timeout(&fd, Timeout::Send, None)?;
                    return Ok(Self(fd));
                }
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Two connected blocking ends.
    ///
    /// # Errors
    /// As socketpair(2).
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self(one), Self(other)))
    }

    /// Sends one packet, waiting for buffer space if the socket is blocking. The packet leaves as a
    /// whole or not at all.
    ///
    /// # Errors
    /// As sendmsg(2): `WouldBlock` without buffer space on a non-blocking socket, `Interrupted` by
    /// a signal while waiting, `BrokenPipe` if the other end is closed (no SIGPIPE).
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_with(bytes, fds, SendFlags::NOSIGNAL)
    }

    /// As [`Socket::send`], in spite of signals.
    ///
    /// # Errors
    /// As [`Socket::send`], except `Interrupted`.
    pub fn send_surely(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        undisturbed(|| self.send(bytes, fds))
    }

    /// Sends one packet with this process's present effective user and group, which the kernel
    /// verifies.
    ///
    /// # Errors
    /// As [`Socket::send`].
    pub fn send_as_me(&self, bytes: &[u8]) -> io::Result<()> {
        let me = UCred {
            pid: getpid(),
            uid: geteuid(),
            gid: getegid(),
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmCredentials(me)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        sendmsg(
            &self.0,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }

    /// Sends one packet without blocking.
    ///
    /// # Errors
    /// As [`Socket::send`]; `WouldBlock` without buffer space.
    pub fn send_now(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_with(bytes, fds, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    /// Receives one packet into `buffer`, waiting for it if the socket is blocking. `None` if the
    /// other end is closed.
    ///
    /// # Errors
    /// As recvmsg(2); `InvalidData` if the packet or its descriptors exceed what the protocol
    /// allows, in which case the packet is lost.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        self.recv_with(buffer, RecvFlags::CMSG_CLOEXEC)
    }

    /// As [`Socket::recv`], in spite of signals.
    ///
    /// # Errors
    /// As [`Socket::recv`], except `Interrupted`.
    pub fn recv_surely(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        undisturbed(|| self.recv(buffer))
    }

    /// Receives one packet without blocking.
    ///
    /// # Errors
    /// As [`Socket::recv`]; `WouldBlock` if there is none.
    pub fn recv_now(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        self.recv_with(buffer, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT)
    }

    /// Reads the next packet without removing it, and without blocking. The returned descriptors
    /// are duplicates; the packet keeps its own.
    ///
    /// # Errors
    /// As [`Socket::recv_now`].
    pub fn peek_now(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        let how = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT | RecvFlags::PEEK;
        self.recv_with(buffer, how)
    }

    /// Removes the next packet and drops it, with its descriptors. Does nothing if there is none.
    ///
    /// # Errors
    /// As recv(2).
    pub fn skip_now(&self) -> io::Result<()> {
        // The buffer has one byte: the kernel drops the rest of the packet, and the descriptors.
        match past_reset(|| recv(&self.0, &mut [0; 1], RecvFlags::DONTWAIT)) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Shuts the connection down, even if other processes hold this end: the other end sees that it
    /// is closed.
    pub fn hang_up(&self) {
        // It does not matter if the connection is broken already.
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// Switches between blocking and non-blocking.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.0, nonblocking)?)
    }

    /// Sets how long [`Socket::send`] waits for buffer space before it fails with `WouldBlock`.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_send_timeout(&self, time: Duration) -> io::Result<()> {
        Ok(set_socket_timeout(&self.0, Timeout::Send, Some(time))?)
    }

    /// Sets how long [`Socket::recv`] waits for a packet before it fails with `WouldBlock`.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_receive_timeout(&self, time: Duration) -> io::Result<()> {
        Ok(set_socket_timeout(&self.0, Timeout::Recv, Some(time))?)
    }

    /// The process that opened the other end, as the kernel recorded it at that moment. A process
    /// of another PID namespace has number 0.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn peer(&self) -> io::Result<Caller> {
        let mut user = libc::ucred {
            pid: 0,
            uid: u32::MAX,
            gid: u32::MAX,
        };
        let bytes = std::ptr::from_mut(&mut user).cast::<u8>();
        // SAFETY: ucred is plain integers, and the slice covers exactly it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(bytes, size_of::<libc::ucred>()) };
        self.option(libc::SO_PEERCRED, bytes)
            .map_err(|(error, _)| error)?;
        Ok(Caller {
            pid: user.pid,
            credentials: Credentials {
                uid: user.uid,
                gid: user.gid,
                groups: self.peer_groups()?,
            },
        })
    }

    /// The supplementary groups of the process that opened the other end.
    fn peer_groups(&self) -> io::Result<Vec<u32>> {
        let mut bytes = vec![0; 64 * size_of::<u32>()];
        let len = loop {
            match self.option(libc::SO_PEERGROUPS, &mut bytes) {
                // Linux allows 65536 groups; the kernel tells the length it needs.
                Err((error, needed)) if error.raw_os_error() == Some(libc::ERANGE) => {
                    bytes.resize(needed.max(bytes.len() * 2), 0);
                }
                Err((error, _)) => return Err(error),
                Ok(len) => break len,
            }
        };
        let groups = bytes[..len].chunks_exact(size_of::<u32>());
        Ok(groups
            .map(|group| u32::from_ne_bytes([group[0], group[1], group[2], group[3]]))
            .collect())
    }

    /// Reads a socket option of plain integers; on failure also the length that the kernel needs.
    fn option(&self, name: i32, bytes: &mut [u8]) -> Result<usize, OptionError> {
        let mut len = bytes.len() as libc::socklen_t;
        // SAFETY: `bytes` is writable for `len` bytes, which the kernel respects.
        let result = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                name,
                bytes.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        if result == 0 {
            Ok(len as usize)
        } else {
            Err((io::Error::last_os_error(), len as usize))
        }
    }

    fn send_with(&self, bytes: &[u8], fds: &[BorrowedFd<'_>], how: SendFlags) -> io::Result<()> {
        // Alignment padding may leave space for more descriptors, which the other end would reject.
        if fds.len() > MAX_FDS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, how)?;
        Ok(())
    }

    fn recv_with(&self, buffer: &mut [u8], how: RecvFlags) -> io::Result<Option<Received>> {
        let mut control = Control::default();
        let (len, flags) = past_reset(|| control.receive(self, buffer, how))?;
        let (fds, sender) = control.take();
        let control_cut = flags & libc::MSG_CTRUNC != 0;
        let too_many = fds.len() > MAX_FDS || (control_cut && fds.len() == MAX_FDS);
        if flags & libc::MSG_TRUNC != 0 || too_many {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a packet larger than the protocol allows",
            ));
        }
        // The protocol has no empty packets, so an empty one means that the other end is closed.
        Ok((len > 0).then_some(Received {
            len,
            fds,
            fds_lost: control_cut,
            sender,
        }))
    }
}

/// Repeats what a signal interrupted; a time limit begins anew. Where there is one, the kernel also
/// interrupts a process that was stopped, or frozen with its container or host, and goes on.
fn undisturbed<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Receives again after a connection reset. An end that closes with unread packets resets the
/// connection, which the kernel reports once. The packets it had sent follow, and then the end.
fn past_reset<T>(mut receive: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    match receive() {
        Err(Errno::CONNRESET) => receive(),
        received => received,
    }
}

/// The error, and the length that the option needs.
type OptionError = (io::Error, usize);

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.0
    }
}

impl From<OwnedFd> for Socket {
    /// For a descriptor that another program opened, such as systemd.
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

fn new_socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

#[cfg(test)]
mod tests;
