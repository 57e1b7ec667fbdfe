//! The user at the other end of a connection to a loopback address: any user of the host can
//! connect.

use anyhow::{Result, bail};
use rustix::process::geteuid;
use std::net::{IpAddr, SocketAddr};

/// Refuses a connection over loopback whose other end belongs neither to root nor to this daemon's
/// own user: it could claim to be any user.
pub(super) fn refuse(peer: SocketAddr, here: SocketAddr) -> Result<()> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let owner = tables.iter().find_map(|table| {
        let table = std::fs::read_to_string(table).ok()?;
        owner(&table, peer, here)
    });
    match owner {
        Some(uid) if uid == 0 || uid == geteuid().as_raw() => Ok(()),
        Some(uid) => bail!("a connection of uid {uid}, who is no daemon"),
        None => bail!("a connection of nobody known"),
    }
}

/// The user who owns the socket that is bound to `local` and connected to `remote`.
fn owner(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let same = parse(fields.get(1)?)? == local && parse(fields.get(2)?)? == remote;
        same.then(|| fields.get(7)?.parse().ok()).flatten()
    })
}

/// `0100007F:1D1A`: words in the host's order, in hexadecimal.
fn parse(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for start in (0..address.len()).step_by(8) {
        let word = u32::from_str_radix(address.get(start..start + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_kernel_tells_whose_socket_it_is() {
        for address in ["127.0.0.2:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue; // no IPv6 here
            };
            let here = listener.local_addr().unwrap();
            let client = TcpStream::connect(here).unwrap();
            let (_server, peer) = listener.accept().unwrap();
            refuse(peer, here).unwrap();
            drop(client);
            let nobody = SocketAddr::new(peer.ip(), 1);
            assert!(refuse(nobody, here).is_err());
        }
    }

    #[test]
    fn addresses_of_the_table_are_read() {
        let read = |text| parse(text).map(|address| address.to_string());
        assert_eq!(read("0200007F:1D1A").as_deref(), Some("127.0.0.2:7450"));
        assert_eq!(
            read("0000000000000000FFFF00000100007F:0050").as_deref(),
            Some("127.0.0.1:80")
        );
        assert_eq!(read("nonsense"), None);
        assert_eq!(read("ü0000000:1"), None);
    }
}
