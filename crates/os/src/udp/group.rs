//! Datagrams to all hosts that listen to a multicast group.

use super::{Burst, Received, Udp, size_buffers};
use rustix::net::sockopt::{
    ip_mtu, set_ip_add_membership, set_ip_multicast_if, set_ip_multicast_ttl, set_socket_reuseaddr,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A multicast group that a socket of this host sends to, and another listens to.
#[derive(Debug)]
pub struct Group {
    socket: Udp,
    longest: usize,
}

/// Packet size limit in bytes; longer packets are not tried, even if the nearest link carries them.
const ETHERNET: usize = 1500;

/// Bytes of the IPv4 and UDP headers in front of a datagram.
const HEADERS: usize = 28;

/// Every internet host accepts packets of this many bytes without fragmentation.
const SMALLEST: usize = 576;

impl Group {
    /// Listens to a group on the link of the address to which `sender` is bound, and restricts
    /// `sender`'s multicast to that link.
    ///
    /// # Errors
    /// If `sender` is not bound to one IPv4 address of this host, or the kernel refuses.
    pub fn join(group: SocketAddrV4, sender: &Udp) -> io::Result<Self> {
        let link = match sender.address().ip() {
            IpAddr::V4(link) if !link.is_unspecified() => link,
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        let socket = plain()?;
        // Other daemons of this host listen to the group, too.
        set_socket_reuseaddr(&socket, true)?;
        let receive_buffer = size_buffers(&socket)?;
        bind(&socket, &SocketAddr::V4(group))?;
        set_ip_add_membership(&socket, group.ip(), &link)?;
        set_ip_multicast_if(sender, &link)?;
        set_ip_multicast_ttl(sender, 1)?;
        Ok(Self {
            socket: Udp {
                socket,
                address: group.into(),
                receive_buffer,
            },
            longest: longest(group, link)?,
        })
    }

    /// Receives the next datagram of the group into `buffer`, including those of `sender`.
    ///
    /// # Errors
    /// Only if the socket is broken for good.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.socket.receive(buffer)
    }

    /// Lets the kernel return several datagrams of one sender in one call. From now on use only
    /// [`Group::receive_burst`].
    ///
    /// # Errors
    /// If this kernel cannot (before Linux 5.0).
    pub fn coalesce(&self) -> io::Result<()> {
        self.socket.coalesce()
    }

    /// Receives the next datagrams of the group into `buffer`, including those of `sender`.
    ///
    /// # Errors
    /// Only if the socket is broken for good.
    pub fn receive_burst(&self, buffer: &mut [u8]) -> io::Result<Burst> {
        self.socket.receive_burst(buffer)
    }

    /// The group's address, to send datagrams for all listeners to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    /// The longest datagram that the link carries in one packet, in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.longest
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn plain() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        flags,
        None,
    )?)
}

/// The longest datagram that the path to the group carries in one packet, as the kernel knows it.
fn longest(group: SocketAddrV4, link: Ipv4Addr) -> io::Result<usize> {
    let socket = plain()?;
    set_ip_multicast_if(&socket, &link)?;
    connect(&socket, &SocketAddr::V4(group))?;
    let mtu = usize::try_from(ip_mtu(&socket)?).unwrap_or(SMALLEST);
    Ok(mtu.clamp(SMALLEST, ETHERNET) - HEADERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(address: &str) -> Udp {
        Udp::bind(address.parse().unwrap()).unwrap()
    }

    #[test]
    fn everybody_who_listens_hears_it() {
        let senders = ["127.0.0.1:0", "127.0.0.2:0"].map(sender);
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 77, 1, 1), senders[0].address().port());
        let groups = [0, 1].map(|at| Group::join(group, &senders[at]).unwrap());
        let elsewhere = SocketAddrV4::new(Ipv4Addr::new(239, 77, 1, 2), group.port());
        let elsewhere = Group::join(elsewhere, &senders[1]).unwrap();
        let sent = vec![7; groups[0].longest()];
        senders[0].send(groups[0].address(), &sent).unwrap();
        let mut buffer = vec![0; 2000];
        for group in &groups {
            let received = group.receive(&mut buffer).unwrap();
            assert_eq!(
                received,
                Received::Datagram(sent.len(), senders[0].address())
            );
            assert_eq!(group.receive(&mut buffer).unwrap(), Received::Nothing);
        }
        assert_eq!(elsewhere.receive(&mut buffer).unwrap(), Received::Nothing);
    }

    #[test]
    fn a_multicast_batch_is_no_longer_than_the_link_allows() {
        let sender = sender("127.0.0.1:0");
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 77, 1, 3), sender.address().port());
        // Loopback would carry 64 KiB, but an Ethernet behind it would not.
        assert_eq!(Group::join(group, &sender).unwrap().longest(), 1472);
    }

    #[test]
    fn who_is_bound_to_no_address_cannot_say_on_which_link() {
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 77, 1, 4), 7450);
        for address in ["0.0.0.0:0", "[::1]:0"] {
            let Ok(sender) = Udp::bind(address.parse().unwrap()) else {
                continue;
            };
            let refused = Group::join(group, &sender).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        }
    }
}
