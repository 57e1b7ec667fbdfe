//! The one line a daemon prints: that it is a member, and how others join it.

use crate::control::Control;
use crate::output;
use anyhow::{Context, Result};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often to look.
const INTERVAL: Duration = Duration::from_millis(20);

/// Asks this very daemon, as any process may, until it is a member; then says so
/// on standard output. In a thread of its own, while the daemon runs in ours.
pub(super) fn announce(socket: PathBuf) -> Result<()> {
    std::thread::Builder::new()
        .name("announce".to_owned())
        .spawn(move || {
            let line = loop {
                if let Some(line) = line(&socket) {
                    break line;
                }
                std::thread::sleep(INTERVAL);
            };
            // Without a listener the line is lost; the daemon works all the same.
            let _ = output::lines([line]);
        })
        .context("starting a thread")?;
    Ok(())
}

fn line(socket: &Path) -> Option<String> {
    let mut control = Control::connect(socket).ok()?;
    let status = control.status().ok()?;
    let alive = control.alive().ok()?;
    let me = alive.iter().find(|member| member.id == status.node)?;
    Some(format!(
        "ready: {} ({}) at {}, {} member(s), socket {}; join with: {}",
        me.id,
        me.name,
        me.address,
        alive.len(),
        socket.display(),
        how_to_join(me.address)
    ))
}

/// The command that starts one more daemon, on this host, else on another host.
fn how_to_join(address: SocketAddr) -> String {
    if address.ip().is_loopback() {
        format!(
            "pagemesh daemon --bind {}:0 --socket PATH --join {address}",
            bracketed(address)
        )
    } else {
        format!("pagemesh daemon --bind ITS-OWN-ADDRESS --join {address}")
    }
}

fn bracketed(address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_to_join_names_an_address_of_the_newcomer() {
        let join = |address: &str| how_to_join(address.parse().unwrap());
        assert_eq!(
            join("10.0.0.1:7450"),
            "pagemesh daemon --bind ITS-OWN-ADDRESS --join 10.0.0.1:7450"
        );
        assert_eq!(
            join("[::1]:7450"),
            "pagemesh daemon --bind [::1]:0 --socket PATH --join [::1]:7450"
        );
    }
}
