//! The network of a daemon.

use crate::experiment::Edge;
use crate::multicast_batches::MulticastBatches;
use crate::network::Network;
use crate::options::Options;
use crate::sealing::Sealing;
use anyhow::{Context as _, Result};
use pagemesh_os::udp::{Group, Udp};
use std::os::fd::OwnedFd;

pub(super) fn network(options: &Options, udp: Udp, before: Option<OwnedFd>) -> Result<Network> {
    let admission = options.admission.as_ref();
    let sealing = admission.map(|admission| Sealing::new(admission, before));
    let multicast_batches = multicast_batches(options, &udp)?;
    let me = options.advertise.unwrap_or_else(|| udp.address());
    let mut network = Network::new(
        udp,
        options.impair,
        sealing.transpose()?,
        options.compress,
        Edge::new(options.experiment)?,
        me,
    );
    if let Some(multicast_batches) = multicast_batches {
        network.join(multicast_batches);
    }
    Ok(network)
}

fn multicast_batches(options: &Options, udp: &Udp) -> Result<Option<MulticastBatches>> {
    let Some(address) = options.multicast else {
        return Ok(None);
    };
    let group = Group::join(address, udp).with_context(|| {
        format!("cannot listen to the multicast group {address}: name another, or leave --multicast away")
    })?;
    Ok(Some(MulticastBatches::new(group, udp.address())))
}
