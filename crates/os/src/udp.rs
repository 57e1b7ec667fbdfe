//! Datagrams between daemons.

use rustix::io::Errno;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, ip_mtu, ipv6_mtu, set_ip_mtu_discover,
    set_ipv6_mtu_discover, set_socket_recv_buffer_size, set_socket_recv_buffer_size_force,
    set_socket_send_buffer_size, socket_recv_buffer_size,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, getsockname,
    recvfrom, sendto, socket_with,
};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

mod burst;
mod group;

pub use group::Group;

/// A UDP socket that never blocks.
#[derive(Debug)]
pub struct Udp {
    socket: OwnedFd,
    address: SocketAddr,
    /// Bytes that the kernel granted for datagrams that have arrived and were not read yet.
    receive_buffer: usize,
}

/// The result of an attempt to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A datagram of this many bytes, from this address.
    Datagram(usize, SocketAddr),
    /// No datagram has arrived.
    Nothing,
    /// Not a datagram but an error report, for example that an earlier datagram was not delivered.
    Noise,
}

/// The result of an attempt to receive several datagrams at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Burst {
    /// Datagrams of `each` bytes; the last one may be shorter.
    Datagrams {
        /// Bytes of all of them together.
        length: usize,
        /// Bytes of each of them.
        each: usize,
        /// The sender.
        from: SocketAddr,
    },
    /// No datagram has arrived.
    Nothing,
    /// As [`Received::Noise`].
    Noise,
}

/// Requested size of the buffer for datagrams that arrive, in bytes: several bursts of pages at full
/// rate.
const RECEIVE_BUFFER: usize = 16 << 20;

/// Requested size of the buffer for outgoing datagrams, in bytes, of which the kernel gives twice as
/// much to count its own structures in. The queue of a link drops what it cannot hold without a word,
/// and some hold a few hundred kilobytes.
const SEND_BUFFER: usize = 192 << 10;

/// Bytes on their way out, the kernel's structures counted, with which there is [room](Udp::has_room)
/// for more. The kernel says that a socket is writable when half of its buffer is free.
const OUTGOING: usize = SEND_BUFFER;

impl Udp {
    /// A socket bound to `address`.
    ///
    /// # Errors
    /// If the address is taken or not of this host.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
        let receive_buffer = size_buffers(&socket)?;
        may_be_cut(&socket, address, true)?;
        bind(&socket, &address)?;
        let address = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok(Self {
            socket,
            address,
            receive_buffer,
        })
    }

    /// Takes over a socket that another process bound, with the datagrams that arrived meanwhile.
    ///
    /// # Errors
    /// If it is not a bound UDP socket.
    pub fn adopt(socket: OwnedFd) -> io::Result<Self> {
        let address = SocketAddr::try_from(getsockname(&socket)?)?;
        set_socket_send_buffer_size(&socket, SEND_BUFFER)?;
        let receive_buffer = socket_recv_buffer_size(&socket)?;
        Ok(Self {
            socket,
            address,
            receive_buffer,
        })
    }

    /// Sends a datagram. It may get lost like any datagram, even on this host when buffers are
    /// full.
    ///
    /// # Errors
    /// If it certainly was not sent.
    pub fn send(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        sendto(&self.socket, datagram, SendFlags::DONTWAIT, &to)?;
        Ok(())
    }

    /// Sends a datagram without permitting IP fragmentation.
    ///
    /// # Errors
    /// If it certainly was not sent; [`too_long`] tells whether it exceeded the link's MTU.
    pub fn send_uncut(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        may_be_cut(&self.socket, self.address, false)?;
        let sent = self.send(to, datagram);
        may_be_cut(&self.socket, self.address, true)?;
        sent
    }

    /// The longest datagram that can leave this host towards an address in one packet, in bytes.
    ///
    /// # Errors
    /// If there is no route to the address.
    pub fn link(&self, to: SocketAddr) -> io::Result<usize> {
        let family = if to.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let probe = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let from = SocketAddr::new(self.address.ip(), 0);
        bind(&probe, &from)?;
        connect(&probe, &to)?;
        let mtu = if to.is_ipv4() {
            ip_mtu(&probe)?
        } else {
            ipv6_mtu(&probe)?
        };
        let packet = usize::try_from(mtu).unwrap_or(0);
        Ok(packet.saturating_sub(headers(to.ip())))
    }

    /// Receives the next datagram into `buffer`; truncates what does not fit.
    ///
    /// # Errors
    /// Only if the socket is broken for good.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        match recvfrom(&self.socket, buffer, RecvFlags::DONTWAIT) {
            Ok((length, _, Some(from))) => match SocketAddr::try_from(from) {
                Ok(from) => Ok(Received::Datagram(length, from)),
                Err(_) => Ok(Received::Noise),
            },
            Ok((_, _, None)) => Ok(Received::Noise),
            Err(Errno::AGAIN) => Ok(Received::Nothing),
            Err(errno @ (Errno::BADF | Errno::NOTSOCK | Errno::FAULT | Errno::INVAL)) => {
                Err(errno.into())
            }
            Err(_) => Ok(Received::Noise),
        }
    }

    /// Lets the kernel return several datagrams of one sender in one call. From now on use only
    /// [`Udp::receive_burst`], which can separate them.
    ///
    /// # Errors
    /// If this kernel cannot (before Linux 5.0).
    pub fn coalesce(&self) -> io::Result<()> {
        burst::coalesce(self.socket.as_fd())
    }

    /// Sends the datagrams that follow one another in `bytes`, with one call: each has `each`
    /// bytes, the last one perhaps fewer.
    ///
    /// # Errors
    /// If certainly none was sent; for example, because a datagram exceeds the link's MTU.
    pub fn send_burst(&self, to: SocketAddr, bytes: &[u8], each: usize) -> io::Result<()> {
        let each = u16::try_from(each).map_err(|_| io::ErrorKind::InvalidInput)?;
        burst::send(self.socket.as_fd(), to, bytes, each)
    }

    /// Receives the next datagrams into `buffer`.
    ///
    /// # Errors
    /// Only if the socket is broken for good.
    pub fn receive_burst(&self, buffer: &mut [u8]) -> io::Result<Burst> {
        burst::receive(self.socket.as_fd(), buffer)
    }

    /// The address the socket is bound to, with the port that the kernel chose.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes that the kernel granted for datagrams that have arrived and were not read yet.
    #[must_use]
    pub fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Whether so little is on its way out of this host that a burst more would not be dropped by a
    /// queue there. If not, the socket becomes writable when it is.
    #[must_use]
    pub fn has_room(&self) -> bool {
        burst::outgoing(self.socket.as_fd()).is_none_or(|bytes| bytes <= OUTGOING)
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Bytes of the IP and UDP headers in front of a datagram to an address.
#[must_use]
pub const fn headers(to: IpAddr) -> usize {
    if to.is_ipv4() { 28 } else { 48 }
}

/// True if an error says that a datagram is too long for the link.
#[must_use]
pub fn too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error())
}

/// Permits or forbids IP fragmentation of outgoing datagrams.
fn may_be_cut(socket: &OwnedFd, address: SocketAddr, may: bool) -> io::Result<()> {
    if address.is_ipv4() {
        let how = if may {
            Ipv4PathMtuDiscovery::DONT
        } else {
            Ipv4PathMtuDiscovery::PROBE
        };
        set_ip_mtu_discover(socket, how)?;
    } else {
        let how = if may {
            Ipv6PathMtuDiscovery::DONT
        } else {
            Ipv6PathMtuDiscovery::PROBE
        };
        set_ipv6_mtu_discover(socket, how)?;
    }
    Ok(())
}

/// Makes the buffer for datagrams that arrive as large as this user is permitted to, and the other one
/// small. Returns the size of the first.
fn size_buffers(socket: &OwnedFd) -> io::Result<usize> {
    if set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER).is_err() {
        set_socket_recv_buffer_size(socket, RECEIVE_BUFFER)?;
    }
    set_socket_send_buffer_size(socket, SEND_BUFFER)?;
    Ok(socket_recv_buffer_size(socket)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local() -> Udp {
        Udp::bind("127.0.0.1:0".parse().unwrap()).unwrap()
    }

    #[test]
    fn delivers_whole_datagrams() {
        let (one, other) = (local(), local());
        let sent = vec![5; 4100];
        one.send(other.address(), &sent).unwrap();
        let mut buffer = vec![0; 65536];
        let received = other.receive(&mut buffer).unwrap();
        assert_eq!(received, Received::Datagram(4100, one.address()));
        assert_eq!(buffer[..4100], sent);
        assert_eq!(other.receive(&mut buffer).unwrap(), Received::Nothing);
    }

    #[test]
    fn what_must_not_be_cut_does_not_leave_if_it_is_too_long() {
        let (one, other) = (local(), local());
        let link = one.link(other.address()).unwrap();
        assert!(link >= 1200, "{link}");
        let mut buffer = vec![0; 1 << 16];
        let fits = vec![1; link.min(65_507)];
        one.send_uncut(other.address(), &fits).unwrap();
        let received = other.receive(&mut buffer).unwrap();
        assert_eq!(received, Received::Datagram(fits.len(), one.address()));
        if link < 65_507 {
            let error = one.send_uncut(other.address(), &vec![1; link + 1]);
            assert!(too_long(&error.unwrap_err()));
        }
        assert!(one.link("[2001:db8::1]:1".parse().unwrap()).is_err());
    }

    #[test]
    fn a_burst_is_many_datagrams() {
        let (one, other, third) = (local(), local(), local());
        other.coalesce().unwrap();
        let bytes: Vec<u8> = (0..4 * 4200 + 17).map(|at| (at / 4200) as u8).collect();
        for to in [&other, &third] {
            one.send_burst(to.address(), &bytes, 4200).unwrap();
        }
        let (mut got, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        while let Burst::Datagrams { length, each, from } =
            other.receive_burst(&mut buffer).unwrap()
        {
            assert_eq!(from, one.address());
            got.extend(buffer[..length].chunks(each).map(<[u8]>::to_vec));
        }
        let sent: Vec<_> = bytes.chunks(4200).map(<[u8]>::to_vec).collect();
        assert_eq!(got, sent);
        // `receive` without `coalesce` returns one datagram at a time.
        for sent in sent {
            let received = third.receive(&mut buffer).unwrap();
            assert_eq!(received, Received::Datagram(sent.len(), one.address()));
        }
    }

    #[test]
    fn another_process_goes_on_with_what_arrived() {
        let (one, other) = (local(), local());
        one.send(other.address(), b"early").unwrap();
        let fd = other.as_fd().try_clone_to_owned().unwrap();
        let (address, room) = (other.address(), other.receive_buffer());
        drop(other);
        let next = Udp::adopt(fd).unwrap();
        assert_eq!((next.address(), next.receive_buffer()), (address, room));
        let mut buffer = [0; 64];
        let received = next.receive(&mut buffer).unwrap();
        assert_eq!(received, Received::Datagram(5, one.address()));
    }

    #[test]
    fn a_port_without_a_daemon_breaks_nothing() {
        let one = local();
        let nobody = local().address();
        let mut buffer = [0; 64];
        for _ in 0..3 {
            let _ = one.send(nobody, b"x");
            assert!(!matches!(
                one.receive(&mut buffer),
                Ok(Received::Datagram(..)) | Err(_)
            ));
        }
    }
}
