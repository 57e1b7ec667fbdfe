//! Network namespaces, and children that run in one and die with their parent.
//!
//! A [`Switch`] is a bridge in a namespace of its own and one namespace per port. The kernel has
//! one neighbour table for all namespaces of a host, limited to a thousand entries (`gc_thresh3`),
//! which the ports would fill for the whole host; therefore they know each other by permanent
//! entries, which do not count. The namespaces have no names: the kernel removes a namespace, and
//! every device in it, when the last process and descriptor that refer to it are gone. So nothing
//! is left behind, however the program that made them ends.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A network namespace without a name.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
    /// A routing socket that belongs to the namespace, whichever thread uses it.
    route: Route,
}

impl Namespace {
    /// A new namespace that contains only a loopback device, which is up.
    ///
    /// # Errors
    /// Without `CAP_SYS_ADMIN`, or where the kernel has no network namespaces.
    pub fn new() -> io::Result<Self> {
        // A thread of its own enters the new namespace and ends there; the calling thread stays in
        // its own.
        let made = std::thread::Builder::new()
            .name("netns".to_owned())
            .spawn(|| -> io::Result<Self> {
                // SAFETY: only the network namespace of this thread changes; nothing else runs on
                // it.
                unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
                let fd = File::open("/proc/thread-self/ns/net")?.into();
                // Disable IPv6 for devices made later: otherwise the kernel would look for routers
                // and neighbours, and remember them. On a kernel without IPv6 the write fails.
                let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
                let route = Route::open()?;
                Ok(Self { fd, route })
            })?
            .join()
            .map_err(|_| io::Error::other("the thread that makes a namespace died"))??;
        made.route.set_up(LOOPBACK)?;
        Ok(made)
    }

    /// Makes the command's child start in this namespace.
    pub fn confine(&self, command: &mut Command) -> io::Result<()> {
        let fd = self.fd.try_clone()?;
        // SAFETY: between fork and exec only one system call is made.
        unsafe {
            command.pre_exec(move || {
                move_into_link_name_space(fd.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(())
            });
        }
        Ok(())
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Makes the command's child be killed when the thread that spawns it ends.
pub fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec only two system calls are made.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // The parent may have died before the request was made.
            if rustix::process::getppid() != Some(parent) {
                return Err(io::Error::from(Errno::SRCH));
            }
            Ok(())
        });
    }
}

/// Makes sure that any signal ends the command's child, whatever is blocked here, and that it is
/// killed when the thread that spawns it ends.
pub fn make_mortal(command: &mut Command) {
    unblock_signals(command);
    die_with_parent(command);
}

/// Makes the command's child start with no signal blocked. A program that receives signals through
/// a descriptor blocks them, and children would inherit that.
fn unblock_signals(command: &mut Command) {
    // SAFETY: between fork and exec only two functions that are safe there are called.
    unsafe {
        command.pre_exec(|| {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            match libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
}

/// A bridge with one namespace at each of its ports.
#[derive(Debug)]
pub struct Switch {
    _bridge: Namespace,
    ports: Vec<(Namespace, Ipv4Addr)>,
}

impl Switch {
    /// A bridge with `count` ports of this MTU; port *i* has address 10.77.0.*i*+1.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`, or where the kernel has
    /// neither bridges nor veth pairs.
    pub fn new(count: u8, mtu: u32) -> io::Result<Self> {
        let bridge = Namespace::new()?;
        bridge.route.add_bridge(mtu)?;
        let mut ports = Vec::new();
        for number in 1..=count {
            let port = Namespace::new()?;
            bridge.route.add_port(number, &port, mtu)?;
            let address = address(number);
            port.route.add_address(address)?;
            port.route.set_up(PORT)?;
            ports.push((port, address));
        }
        for (port, own) in &ports {
            for (_, other) in ports.iter().filter(|(_, other)| other != own) {
                port.route.add_neighbour(*other)?;
            }
        }
        Ok(Self {
            _bridge: bridge,
            ports,
        })
    }

    /// The namespace and address at a port, counted from 0.
    #[must_use]
    pub fn port(&self, index: usize) -> (&Namespace, Ipv4Addr) {
        let (namespace, address) = &self.ports[index];
        (namespace, *address)
    }
}

/// The address of a port, counted from 1.
fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, number)
}

/// The hardware address of the port that has this one: locally administered, for one station.
fn hardware(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [2, 0, a, b, c, d]
}

// Device numbers are chosen, not queried. They are greater than those that a kernel gives to the
// tunnels it may put into every new namespace.
const LOOPBACK: u32 = 1;
const BRIDGE: u32 = 1000;
const PORT: u32 = 1000;
const BRIDGE_SIDE: u32 = 2000;

/// The kernel's table of devices and addresses in one namespace.
#[derive(Debug)]
struct Route(OwnedFd);

impl Route {
    fn open() -> io::Result<Self> {
        Ok(Self(rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None, // NETLINK_ROUTE is 0
        )?))
    }

    fn add_bridge(&self, mtu: u32) -> io::Result<()> {
        let mut request = Request::new(RTM_NEWLINK, CREATE);
        request.device(BRIDGE, IFF_UP);
        request.attribute(IFLA_IFNAME, b"bridge\0");
        request.attribute(IFLA_MTU, &mtu.to_ne_bytes());
        request.nested(IFLA_LINKINFO, |info| {
            info.attribute(IFLA_INFO_KIND, b"bridge\0");
        });
        self.carry_out(request, "making a bridge")
    }

    fn add_port(&self, number: u8, port: &Namespace, mtu: u32) -> io::Result<()> {
        let mut request = Request::new(RTM_NEWLINK, CREATE);
        request.device(BRIDGE_SIDE + u32::from(number), IFF_UP);
        request.attribute(IFLA_IFNAME, format!("port{number}\0").as_bytes());
        request.attribute(IFLA_MTU, &mtu.to_ne_bytes());
        request.attribute(IFLA_MASTER, &BRIDGE.to_ne_bytes());
        request.nested(IFLA_LINKINFO, |info| {
            info.attribute(IFLA_INFO_KIND, b"veth\0");
            info.nested(IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |peer| {
                    peer.device(PORT, 0);
                    peer.attribute(IFLA_IFNAME, b"mesh0\0");
                    peer.attribute(IFLA_MTU, &mtu.to_ne_bytes());
                    peer.attribute(IFLA_ADDRESS, &hardware(address(number)));
                    peer.attribute(IFLA_NET_NS_FD, &port.fd.as_raw_fd().to_ne_bytes());
                });
            });
        });
        self.carry_out(request, "making a veth pair")
    }

    fn add_address(&self, address: Ipv4Addr) -> io::Result<()> {
        let mut request = Request::new(RTM_NEWADDR, CREATE);
        let (family, prefix, flags, scope) = (AF_INET, 24, 0, 0);
        request.0.extend([family, prefix, flags, scope]);
        request.0.extend(PORT.to_ne_bytes());
        request.attribute(IFA_LOCAL, &address.octets());
        request.attribute(IFA_ADDRESS, &address.octets());
        self.carry_out(request, "adding an address")
    }

    /// Adds a permanent neighbour entry for another port.
    fn add_neighbour(&self, other: Ipv4Addr) -> io::Result<()> {
        let mut request = Request::new(RTM_NEWNEIGH, CREATE);
        request.0.extend([AF_INET, 0, 0, 0]);
        request.0.extend(PORT.to_ne_bytes());
        request.0.extend(NUD_PERMANENT.to_ne_bytes());
        let (flags, kind) = (0, 0);
        request.0.extend([flags, kind]);
        request.attribute(NDA_DST, &other.octets());
        request.attribute(NDA_LLADDR, &hardware(other));
        self.carry_out(request, "naming a neighbour")
    }

    fn set_up(&self, device: u32) -> io::Result<()> {
        let mut request = Request::new(RTM_NEWLINK, 0);
        request.device(device, IFF_UP);
        self.carry_out(request, "starting a network device")
    }

    /// Sends the request and waits for the kernel's acknowledgement.
    fn carry_out(&self, request: Request, doing: &str) -> io::Result<()> {
        rustix::net::send(&self.0, &request.finish(), SendFlags::empty())?;
        let mut answer = [0; 4096];
        let (got, _) = rustix::net::recv(&self.0, &mut answer, RecvFlags::empty())?;
        match verdict(&answer[..got]) {
            Some(0) => Ok(()),
            Some(code) => {
                let error = io::Error::from_raw_os_error(-code);
                Err(io::Error::new(error.kind(), format!("{doing}: {error}")))
            }
            None => Err(io::Error::other(format!(
                "{doing}: no answer from the kernel"
            ))),
        }
    }
}

/// The error number in a netlink acknowledgement; zero is success.
fn verdict(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let code = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then_some(code)
}

const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWNEIGH: u16 = 28;
const NLM_F_REQUEST_ACK: u16 = 0x1 | 0x4;
const CREATE: u16 = 0x200 | 0x400; // NLM_F_EXCL | NLM_F_CREATE
const AF_INET: u8 = 2;
const IFF_UP: u32 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;

/// A netlink message under construction.
struct Request(Vec<u8>);

impl Request {
    fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; 4]; // the length, set at the end
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST_ACK | flags).to_ne_bytes());
        bytes.extend([0; 8]); // sequence number and sender: one request at a time
        Self(bytes)
    }

    /// `struct ifinfomsg`.
    fn device(&mut self, index: u32, flags: u32) {
        self.0.extend([0; 4]); // family and type
        self.0.extend(index.to_ne_bytes());
        self.0.extend(flags.to_ne_bytes());
        self.0.extend(flags.to_ne_bytes()); // which flags to change
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |inner| inner.0.extend(value));
    }

    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.0.extend([0; 2]);
        self.0.extend(kind.to_ne_bytes());
        fill(self);
        let length = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::process::Stdio;

    #[test]
    fn attributes_are_padded_and_carry_their_length() {
        let mut request = Request(Vec::new());
        request.nested(7, |inner| inner.attribute(9, b"abcde"));
        let expected = [
            16u16.to_ne_bytes(),
            7u16.to_ne_bytes(),
            9u16.to_ne_bytes(),
            9u16.to_ne_bytes(),
        ];
        assert_eq!(request.0[..8], expected.concat());
        assert_eq!(request.0[8..], *b"abcde\0\0\0");
    }

    #[test]
    fn ports_of_a_switch_reach_each_other_and_nobody_else() {
        let Ok(switch) = Switch::new(2, 9000) else {
            eprintln!("skipped: needs root");
            return;
        };
        let socket = |index: usize| {
            let (namespace, address) = switch.port(index);
            std::thread::scope(|scope| {
                scope
                    .spawn(|| {
                        move_into_link_name_space(namespace.as_fd(), None).unwrap();
                        UdpSocket::bind((address, 7450)).unwrap()
                    })
                    .join()
                    .unwrap()
            })
        };
        let (one, two) = (socket(0), socket(1));
        two.set_read_timeout(Some(std::time::Duration::from_millis(100)))
            .unwrap();
        let page = vec![7; 8000];
        let mut buffer = vec![0; 9000];
        // A link that has just come up may lose a datagram.
        let came = (0..100).find_map(|_| {
            one.send_to(&page, two.local_addr().unwrap()).unwrap();
            two.recv_from(&mut buffer).ok()
        });
        assert_eq!(came, Some((8000, one.local_addr().unwrap())));
        while two.recv_from(&mut buffer).is_ok() {}
        let outside = UdpSocket::bind("0.0.0.0:0").unwrap();
        let _ = outside.send_to(b"x", two.local_addr().unwrap());
        two.set_read_timeout(Some(std::time::Duration::from_millis(50)))
            .unwrap();
        assert!(two.recv_from(&mut buffer).is_err());
    }

    /// The neighbour entries of a namespace, and whether each is permanent.
    fn neighbours(namespace: &Namespace) -> Vec<(String, bool)> {
        let mut command = Command::new("cat");
        command.arg("/proc/net/arp").stdout(Stdio::piped());
        namespace.confine(&mut command).unwrap();
        let output = command.output().unwrap();
        let table = String::from_utf8(output.stdout).unwrap();
        let words = |line: &str| {
            line.split_whitespace()
                .map(String::from)
                .collect::<Vec<_>>()
        };
        let entries = table.lines().skip(1).map(words);
        // 4 is ATF_PERM of <linux/if_arp.h>.
        let permanent = |flags: &str| u32::from_str_radix(&flags[2..], 16).unwrap() & 4 != 0;
        entries
            .map(|entry| (entry[0].clone(), permanent(&entry[2])))
            .collect()
    }

    #[test]
    fn ports_that_speak_to_all_others_learn_no_neighbour() {
        const PORTS: usize = 6;
        let Ok(switch) = Switch::new(PORTS as u8, 1500) else {
            eprintln!("skipped: needs root");
            return;
        };
        let bound = |index: usize| {
            let (namespace, address) = switch.port(index);
            let bind = || {
                move_into_link_name_space(namespace.as_fd(), None).unwrap();
                UdpSocket::bind((address, 7450)).unwrap()
            };
            std::thread::scope(|scope| scope.spawn(bind).join().unwrap())
        };
        let sockets: Vec<_> = (0..PORTS).map(bound).collect();
        for (index, one) in sockets.iter().enumerate() {
            for other in sockets.iter().filter(|other| !std::ptr::eq(*other, one)) {
                let patience = std::time::Duration::from_millis(100);
                other.set_read_timeout(Some(patience)).unwrap();
                // A port that has just come up may lose a datagram.
                let heard = (0..100).any(|_| {
                    one.send_to(&[index as u8], other.local_addr().unwrap())
                        .unwrap();
                    let mut from = [PORTS as u8];
                    while other.recv(&mut from).is_ok() && from != [index as u8] {}
                    from == [index as u8]
                });
                assert!(heard, "{index} is never heard");
            }
        }
        for index in 0..PORTS {
            let known = neighbours(switch.port(index).0);
            assert_eq!(known.len(), PORTS - 1, "{known:?}");
            assert!(known.iter().all(|(_, permanent)| *permanent), "{known:?}");
        }
    }

    #[test]
    fn a_child_takes_signals_that_its_parent_blocks() {
        let signals = crate::signals::Signals::catch(&[libc::SIGUSR2]).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "kill -USR2 $$; exit 7"]);
        assert_eq!(command.status().unwrap().code(), Some(7));
        unblock_signals(&mut command);
        assert_eq!(command.status().unwrap().code(), None);
        drop(signals);
    }

    #[test]
    fn a_child_lives_in_the_namespace() {
        let Ok(namespace) = Namespace::new() else {
            eprintln!("skipped: needs root");
            return;
        };
        let mut command = Command::new("cat");
        command.arg("/proc/net/dev").stdout(Stdio::piped());
        namespace.confine(&mut command).unwrap();
        die_with_parent(&mut command);
        let output = command.output().unwrap();
        let devices = String::from_utf8(output.stdout).unwrap();
        assert!(
            devices.contains("lo:") && !devices.contains("eth0:"),
            "{devices}"
        );
    }
}
