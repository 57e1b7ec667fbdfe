//! The configuration of a node.

use super::dice;
use crate::driver::About;
use crate::options::Options;
use anyhow::Result;
use pagemesh_core::{Config, Pace, Start, limits};
use pagemesh_os::udp::Udp;
use pagemesh_wire::{Incarnation, PAGE_SIZE, PublicKey};

pub(super) fn config(
    options: &Options,
    about: &About,
    key: PublicKey,
    start: Start,
) -> Result<Config> {
    Ok(Config {
        name: about.name.clone(),
        address: about.address,
        incarnation: Incarnation(dice()?),
        key,
        start,
        quotas: options.quota.cluster,
        pace: pace(options),
        check_races: options.check_races,
        traps_late: true,
        standby: options.standby && options.control.is_none(),
        rejoin: true,
        keeps: options.state.is_some() || options.control.is_some(),
        elected: options.control.is_some(),
        program: about.edition.program,
        far_numbers: false,
    })
}

/// A coordinator that etcd replaces has to be missed soon.
fn pace(options: &Options) -> Pace {
    let mut pace = Pace::default();
    if options.control.is_some() {
        pace.heartbeat = limits::HEARTBEAT_ELECTED;
    }
    if let Some(silence) = options.experiment.dead_after() {
        pace.dead_after = silence;
    }
    pace
}

/// Number of pages that fit in half of the socket's receive buffer: the kernel charges about twice
/// their size, and other nodes send, too.
pub(super) fn room_ahead(udp: &Udp) -> u32 {
    let pages = udp.receive_buffer() / (4 * PAGE_SIZE);
    u32::try_from(pages).unwrap_or(u32::MAX)
}

/// Number of pages that fit in an eighth of this host's memory.
pub(super) fn room_for_twins() -> u32 {
    let host = rustix::system::sysinfo();
    let bytes = u128::from(host.totalram) * u128::from(host.mem_unit);
    u32::try_from(bytes / 8 / PAGE_SIZE as u128).unwrap_or(u32::MAX)
}
