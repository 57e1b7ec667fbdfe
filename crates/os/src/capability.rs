//! Descriptors that one process hands to another over a Unix socket, and what they permit.

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The byte that carries the descriptor: a stream has no messages without bytes.
const BYTE: [u8; 1] = [b'C'];

/// Descriptors that a packet may bring. One is expected; others are closed.
const ROOM: usize = 4;

/// Whether a descriptor of memory permits stores; none if it permits no loads.
///
/// # Errors
/// As fcntl(2).
pub fn permits_stores(fd: impl AsFd) -> io::Result<Option<bool>> {
    let flags = fcntl_getfl(fd)?;
    if flags.contains(OFlags::PATH) {
        return Ok(None);
    }
    Ok(match flags & OFlags::RWMODE {
        OFlags::RDONLY => Some(false),
        OFlags::RDWR => Some(true),
        _ => None,
    })
}

/// Sends a descriptor through a Unix socket.
///
/// # Errors
/// As sendmsg(2); `BrokenPipe` if the other end is closed (no SIGPIPE).
pub fn send(socket: impl AsFd, fd: BorrowedFd<'_>) -> io::Result<()> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(
        socket,
        &[IoSlice::new(&BYTE)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Receives what [`send`] sent.
///
/// # Errors
/// As recvmsg(2); `UnexpectedEof` if the other end is closed, `InvalidData` for anything but one byte
/// with one descriptor.
pub fn receive(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut byte = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ROOM))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let messages = control.drain();
    let mut fds = messages.filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let mut fds: Vec<_> = fds.by_ref().flatten().collect();
    match (fds.pop(), fds.is_empty(), byte) {
        (Some(fd), true, BYTE) => Ok(fd),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, Mode, memfd_create, open};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_descriptor_arrives_with_what_it_permits() {
        let (one, other) = UnixStream::pair().unwrap();
        let memory = memfd_create("m", MemfdFlags::CLOEXEC).unwrap();
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        for (how, permitted) in [
            (OFlags::RDWR, Some(true)),
            (OFlags::RDONLY, Some(false)),
            (OFlags::WRONLY, None),
            (OFlags::PATH, None),
        ] {
            let fd = open(&*path, how, Mode::empty()).unwrap();
            send(&one, fd.as_fd()).unwrap();
            let came = receive(&other).unwrap();
            assert_eq!(permits_stores(&came).unwrap(), permitted, "{how:?}");
        }
    }

    #[test]
    fn anything_else_is_no_descriptor() {
        use std::io::Write as _;
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(b"C").unwrap();
        let kind = |socket: &UnixStream| receive(socket).unwrap_err().kind();
        assert_eq!(kind(&other), io::ErrorKind::InvalidData);
        drop(one);
        assert_eq!(kind(&other), io::ErrorKind::UnexpectedEof);
    }
}
