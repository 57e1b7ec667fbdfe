//! The frame of the small simulators (policies `release`, `views`, `private`, shared pages of files), of
//! their explorers, and of that of takeovers: real nodes on hosts with numbers, one queue of events, one
//! executor that hands effects to the world and refuses what its policy never does.
//!
//! A world of one of them has no journals, seals or scenarios: [`crate::world`] has.

mod driver;
mod packet;
mod queue;
pub(crate) mod search;
#[cfg(test)]
pub(crate) mod settings;

pub(crate) use driver::{Driver, Executor, Turn, input};
pub(crate) use packet::Packet;
pub(crate) use queue::{Log, Queue};

use core::net::SocketAddr;
use pagemesh_core::{Config, Pace, Start};
use pagemesh_wire::{ClusterId, Incarnation};

/// The law of drivers, or an invariant, was broken.
pub(crate) type Check<T = ()> = Result<T, String>;

/// The address of a host.
pub(crate) fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 7300))
}

/// The host with an address.
pub(crate) fn host_at(address: SocketAddr) -> usize {
    match address {
        SocketAddr::V4(address) => usize::from(address.ip().octets()[3] - 1),
        SocketAddr::V6(_) => unreachable!("hosts here have short addresses"),
    }
}

/// The configuration of a host's node. The first host founds the cluster, the others join it.
pub(crate) fn config(host: usize, cluster: ClusterId, incarnation: u64, pace: Pace) -> Config {
    Config {
        pace,
        ..Config::plain(
            format!("host{host}"),
            address(host),
            Incarnation(incarnation),
            match host {
                0 => Start::Found(cluster),
                _ => Start::Join(address(0)),
            },
        )
    }
}
