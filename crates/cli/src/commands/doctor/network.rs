//! Socket buffers, packet sizes, and the port.

use super::{Check, read_number};
use crate::control::Control;
use crate::units::size;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};

/// The usual port.
const PORT: u16 = 7450;

/// A page, its message and the headers below it.
const PAGE_PACKET: u64 = 4300;

/// A page and its message, and the headers in front of each piece of them.
const PAGE_DATAGRAM: u64 = 4180;
const HEADERS: u64 = 28 + 16 + 32;

/// The buffers of a daemon that cannot set its own.
const BUFFER: u64 = 4 << 20;

pub(super) fn checks(sockets: &[PathBuf]) -> Vec<Check> {
    let mut checks: Vec<Check> = buffers().into_iter().collect();
    checks.extend(packets());
    checks.push(daemon(sockets));
    checks
}

fn buffers() -> Option<Check> {
    const NAME: &str = "UDP buffers";
    // Hidden in namespaces other than the first; the daemon logs the size that it got.
    let most = read_number("/proc/sys/net/core/rmem_max")?;
    let found = format!("net.core.rmem_max={most} ({})", size(most));
    // Privileged daemons are not bound by the limit.
    let enough = most >= BUFFER || rustix::process::geteuid().is_root();
    Some(if enough {
        Check::ok(NAME, found)
    } else {
        Check::warning(
            NAME,
            format!("{found}; bursts of pages get lost and are sent again"),
            format!(
                "echo net.core.rmem_max={} > /etc/sysctl.d/60-pagemesh.conf && sysctl --system",
                4 * BUFFER
            ),
        )
    })
}

/// A page in one packet, or in pieces.
fn packets() -> Option<Check> {
    const NAME: &str = "packet size";
    let mut small = Vec::new();
    let mut large = Vec::new();
    for entry in std::fs::read_dir("/sys/class/net").ok()?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let up = read_number_or_hex(&format!("/sys/class/net/{name}/flags")) & 1 == 1;
        let Some(mtu) = read_number(&format!("/sys/class/net/{name}/mtu")) else {
            continue;
        };
        match (name.as_str(), up) {
            ("lo", _) | (_, false) => {}
            _ if mtu < PAGE_PACKET => small.push((name, mtu)),
            _ => large.push(format!("{name} {mtu}")),
        }
    }
    let Some((first, _)) = small.first() else {
        let found = if large.is_empty() {
            "loopback only".to_owned()
        } else {
            large.join(", ")
        };
        return Some(Check::ok(
            NAME,
            format!("{found}: a page fits into one packet"),
        ));
    };
    let cure = format!(
        "on a link that carries jumbo frames, on all hosts: ip link set {first} mtu 9000; \
         it works without"
    );
    let names: Vec<String> = small
        .iter()
        .map(|(name, mtu)| format!("{name} has MTU {mtu}"))
        .collect();
    Some(Check::warning(
        NAME,
        format!(
            "{}: a page travels in {} pieces",
            names.join(", "),
            pieces(small[0].1)
        ),
        cure,
    ))
}

fn pieces(mtu: u64) -> u64 {
    PAGE_DATAGRAM.div_ceil(mtu.saturating_sub(HEADERS).max(1))
}

fn read_number_or_hex(path: &str) -> u64 {
    super::read(path)
        .and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok())
        .unwrap_or(0)
}

/// Either a daemon answers, or its port is free for one.
fn daemon(sockets: &[PathBuf]) -> Check {
    const NAME: &str = "daemon";
    if let Some(found) = sockets.iter().find_map(|path| running(path)) {
        return Check::ok(NAME, found);
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    let taken = [
        ("UDP", UdpSocket::bind(address).err()),
        ("TCP", TcpListener::bind(address).err()),
    ];
    let taken = taken
        .into_iter()
        .find_map(|(kind, error)| Some((kind, error?)));
    match taken {
        None => Check::ok(NAME, format!("none runs; port {PORT} is free for it")),
        Some((kind, error)) if error.kind() == ErrorKind::AddrInUse => Check::warning(
            NAME,
            format!("none answers here, yet {kind} port {PORT} is taken"),
            format!(
                "ss -lntup 'sport = {PORT}' shows by whom; or pagemesh daemon --bind 127.0.0.1:0"
            ),
        ),
        Some((kind, error)) => Check::blocker(
            NAME,
            format!("{kind} port {PORT} cannot be bound: {error}"),
            "ip link set lo up",
        ),
    }
}

fn running(path: &Path) -> Option<String> {
    let mut control = Control::connect(path).ok()?;
    let alive = control.alive().ok()?.len();
    Some(format!(
        "{} runs, {alive} member(s), socket {}",
        control.node,
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_counted() {
        assert_eq!(pieces(1500), 3);
        assert_eq!(pieces(9000), 1);
    }
}
