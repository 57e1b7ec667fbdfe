//! Several datagrams with one call: `UDP_SEGMENT` for sending, `UDP_GRO` for receiving.
#![allow(unsafe_code)]

use super::Burst;
use rustix::net::SocketAddrAny;
use rustix::net::addr::SocketAddrArg as _;
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{from_mut, from_ref, null_mut};

/// Buffer for one control message that holds a number, aligned as the kernel requires.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// The kernel's form of an IPv6 address with port; IPv4 needs fewer bytes.
type Address = libc::sockaddr_storage;

pub(super) fn coalesce(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option is a number, and a number of the given length is passed.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_GRO,
            from_ref(&on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Bytes of this socket that have not left the host, the kernel's structures counted; `None` if the
/// kernel does not tell.
pub(super) fn outgoing(socket: BorrowedFd<'_>) -> Option<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes a number there.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, from_mut(&mut bytes)) };
    usize::try_from(bytes).ok().filter(|_| done == 0)
}

pub(super) fn send(
    socket: BorrowedFd<'_>,
    to: SocketAddr,
    bytes: &[u8],
    each: u16,
) -> io::Result<()> {
    let mut piece = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control([0; 64]);
    // SAFETY: all fields of a msghdr may be zero.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: arithmetic only.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<u16>() as u32) } as usize;
    // SAFETY: the control buffer is larger than one header and a number, and aligned.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_UDP;
        (*header).cmsg_type = libc::UDP_SEGMENT;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as usize;
        libc::CMSG_DATA(header).cast::<u16>().write_unaligned(each);
    }
    // SAFETY: the address is valid during the call; sendmsg only reads from the rest.
    let sent = unsafe {
        to.with_sockaddr(|address, length| {
            message.msg_name = address.cast_mut().cast();
            message.msg_namelen = length;
            libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT)
        })
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

pub(super) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Burst> {
    let mut piece = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control = Control([0; 64]);
    let mut address = MaybeUninit::<Address>::zeroed();
    // SAFETY: all fields of a msghdr may be zero.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    message.msg_name = address.as_mut_ptr().cast();
    message.msg_namelen = size_of::<Address>() as libc::socklen_t;
    // SAFETY: every buffer named in the message is valid and as long as it says.
    let got = unsafe {
        libc::recvmsg(
            socket.as_raw_fd(),
            from_mut(&mut message),
            libc::MSG_DONTWAIT,
        )
    };
    let Ok(length) = usize::try_from(got) else {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EAGAIN) => Ok(Burst::Nothing),
            Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EINVAL) => Err(error),
            _ => Ok(Burst::Noise),
        };
    };
    if (message.msg_namelen as usize) < size_of::<libc::sa_family_t>() {
        return Ok(Burst::Noise);
    }
    // SAFETY: the kernel wrote an address of this length.
    let from = unsafe { SocketAddrAny::read(address.as_ptr().cast(), message.msg_namelen) };
    let Ok(from) = SocketAddr::try_from(from) else {
        return Ok(Burst::Noise);
    };
    let each = segment(&message).unwrap_or(length).max(1);
    Ok(Burst::Datagrams { length, each, from })
}

/// The length of each datagram, if the kernel returned several.
fn segment(message: &libc::msghdr) -> Option<usize> {
    let mut header = match message.msg_controllen {
        0 => null_mut(),
        // SAFETY: the kernel filled in the control buffer.
        _ => unsafe { libc::CMSG_FIRSTHDR(message) },
    };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return headers inside the buffer.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        if (level, kind) == (libc::SOL_UDP, libc::UDP_GRO) {
            // SAFETY: the kernel puts a number behind this header.
            let each = unsafe {
                libc::CMSG_DATA(header)
                    .cast::<libc::c_int>()
                    .read_unaligned()
            };
            return usize::try_from(each).ok().filter(|each| *each > 0);
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}
