//! The ground of a sandbox: where its nodes are, and how they reach each other.

use super::Plan;
use crate::exit::{Exit, Trouble};
use anyhow::{Context, Result};
use clap::ValueEnum;
use pagemesh_os::netns::Switch;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::Command;

/// The usual port; a namespace has all ports to itself.
const PORT: u16 = 7450;

/// Whether nodes get network namespaces of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Netns {
    /// Where the kernel allows it.
    #[default]
    Auto,
    /// Or fail.
    Always,
    /// Loopback addresses.
    Never,
}

/// A network for so many nodes.
pub(super) struct Network {
    switch: Option<Switch>,
    port: u16,
    notice: Option<String>,
}

impl Network {
    pub(super) fn new(plan: &Plan) -> Result<Self> {
        let count = plan.nodes as u8;
        let failure = match plan.netns {
            Netns::Never => None,
            Netns::Auto | Netns::Always => match Switch::new(count, plan.mtu) {
                Ok(switch) => return Ok(Self::of(Some(switch), PORT, None)),
                Err(error) => Some(error.to_string()),
            },
        };
        if let (Netns::Always, Some(why)) = (plan.netns, &failure) {
            let message = format!(
                "no network namespaces: {why}; run as root (in a container: with \
                 CAP_SYS_ADMIN and CAP_NET_ADMIN), or use --netns never"
            );
            return Err(Trouble::new(Exit::NO_PERMISSION, message).into());
        }
        let notice = failure
            .map(|why| format!("nodes share 127.0.0.x, without namespaces of their own ({why})"));
        Ok(Self::of(None, free_port(plan.nodes)?, notice))
    }

    fn of(switch: Option<Switch>, port: u16, notice: Option<String>) -> Self {
        Self {
            switch,
            port,
            notice,
        }
    }

    pub(super) fn isolated(&self) -> bool {
        self.switch.is_some()
    }

    pub(super) fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    pub(super) fn address(&self, index: usize) -> SocketAddr {
        let address = match &self.switch {
            Some(switch) => switch.port(index).1,
            None => loopback(index),
        };
        SocketAddr::new(IpAddr::V4(address), self.port)
    }

    /// Makes the command run where the node is.
    pub(super) fn confine(&self, index: usize, command: &mut Command) -> Result<()> {
        if let Some(switch) = &self.switch {
            switch
                .port(index)
                .0
                .confine(command)
                .context("preparing a namespace")?;
        }
        Ok(())
    }
}

/// 127.0.0.1 is left to a daemon of the machine itself.
fn loopback(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, index as u8 + 2)
}

/// A port that is free at the addresses of all nodes.
fn free_port(nodes: usize) -> Result<u16> {
    const TRIES: usize = 100;
    (0..TRIES)
        // Below the range from which the kernel takes ports for connections.
        .map(|_| rand::random_range(10_000..32_000))
        .find(|port| {
            (0..nodes).all(|index| {
                let address = (loopback(index), *port);
                UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok()
            })
        })
        .with_context(|| format!("{TRIES} random ports were taken at 127.0.0.2 and following"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_nodes_have_distinct_addresses_and_one_port() {
        let mut plan = Plan::new(4);
        plan.netns = Netns::Never;
        let network = Network::new(&plan).unwrap();
        assert_eq!(
            network.address(0).to_string(),
            format!("127.0.0.2:{}", network.port)
        );
        assert_eq!(network.address(3).ip().to_string(), "127.0.0.5");
        assert!(!network.isolated() && network.notice().is_none());
    }
}
