//! Common parts of the hosts of all forecasts: a name, an address, a daemon that joins the first
//! one's, and the inputs that wait for that daemon.

use core::time::Duration;
use pagemesh_core::{Config, Effects, Input, Node, Pace, Start, Time};
use pagemesh_wire::{ClusterId, Incarnation, PublicKey};
use std::net::{IpAddr, SocketAddr};

/// No forecast is of a run so long, in nanoseconds.
pub(crate) const PATIENCE: u64 = 3_600_000_000_000;

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn address(host: usize) -> SocketAddr {
    let number = u8::try_from(host).expect("a forecast is of few hosts");
    SocketAddr::from(([10, 0, 0, number + 1], 7300))
}

pub(crate) fn host_of(address: SocketAddr) -> usize {
    let IpAddr::V4(ip) = address.ip() else {
        unreachable!("addresses are made here");
    };
    usize::from(ip.octets()[3]) - 1
}

/// The node of a host: the first founds the cluster, all others join it.
pub(crate) fn node(host: usize) -> Node {
    let start = match host {
        0 => Start::Found(ClusterId(1)),
        _ => Start::Join(address(0)),
    };
    Node::new(Config {
        name: format!("host{host}"),
        address: address(host),
        incarnation: Incarnation(host as u64 + 1),
        key: PublicKey::NONE,
        start,
        pace: Pace::default(),
        check_races: false,
        quotas: pagemesh_core::Quotas::default(),
        standby: false,
        keeps: false,
    })
}

/// An input that waits for a daemon.
pub(crate) enum Pending {
    Datagram { source: SocketAddr, bytes: Vec<u8> },
    Local(Input<'static>),
}

impl Pending {
    /// The node hears of it. Returns the bytes of a datagram.
    pub(crate) fn reach(self, node: &mut Node, now: u64, effects: &mut Effects) -> Vec<u8> {
        match self {
            Self::Local(input) => {
                node.handle(Time(now), input, effects);
                Vec::new()
            }
            Self::Datagram { source, bytes } => {
                let input = Input::Datagram {
                    source,
                    key: PublicKey::NONE,
                    bytes: &bytes,
                };
                node.handle(Time(now), input, effects);
                bytes
            }
        }
    }
}
