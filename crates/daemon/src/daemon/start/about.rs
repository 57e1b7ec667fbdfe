//! What a daemon says of itself, and what is wrong with its host.

use crate::driver::About;
use crate::edition::Edition;
use crate::options::Options;
use crate::status::WallClock;
use pagemesh_os::udp::Udp;
use pagemesh_os::{clock, uffd};
use pagemesh_wire::local::Trouble;

/// Socket buffers smaller than this lose datagrams when all nodes talk at once.
const WANTED_BUFFER: usize = 2 << 20;

pub(super) fn about(options: &Options, udp: &Udp) -> About {
    let mut problems = Vec::new();
    let device = uffd::open_device();
    if let Err(error) = &device {
        problems.push(Trouble::Userfaultfd.line(format_args!(
            "cannot open {} ({error}), so programs of other users cannot map segments unless \
             vm.unprivileged_userfaultfd is 1; run the daemon as root",
            uffd::DEVICE
        )));
    }
    match uffd::Features::offered() {
        Ok(features) if features.sufficient() => {}
        Ok(_) => problems.push(
            Trouble::Userfaultfd.line("this kernel is too old: Linux 6.4 or later is needed"),
        ),
        Err(error) => problems.push(Trouble::Userfaultfd.line(format_args!(
            "userfaultfd is not available ({error}): `pagemesh doctor` says more"
        ))),
    }
    let room = udp.receive_buffer();
    if room < WANTED_BUFFER {
        problems.push(Trouble::SocketBuffer.line(format_args!(
            "the socket buffer has {room} bytes, which may lose datagrams; \
             `sysctl net.core.rmem_max=16777216` helps",
        )));
    }
    About {
        name: options.name.clone(),
        address: options.advertise.unwrap_or_else(|| udp.address()),
        started: clock::monotonic(),
        join: options.join,
        device: device.ok(),
        problems,
        wall_clock: WallClock::new(),
        edition: Edition::of(options.experiment),
    }
}
