//! The sockets of a daemon: of its programs, and of other daemons.

use crate::options::Options;
use anyhow::{Result, anyhow};
use pagemesh_os::seqpacket::Listener;
use pagemesh_os::udp::Udp;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

/// Ports of the kernel's choice that may be taken for connections.
const PORTS: usize = 16;

pub(super) fn listen(options: &Options) -> Result<Listener> {
    let path = &options.socket;
    if let Some(directory) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        std::fs::create_dir_all(directory).map_err(|error| no_directory(directory, error))?;
    }
    Listener::bind(path, options.socket_mode).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "another daemon listens at {} already, or the path is no socket; stop that daemon, \
             or give this one another --socket",
            path.display()
        ),
        _ => anyhow!(error).context(format!("cannot listen at {}", path.display())),
    })
}

fn no_directory(directory: &Path, error: io::Error) -> anyhow::Error {
    let cure = if error.kind() == io::ErrorKind::PermissionDenied {
        "; set XDG_RUNTIME_DIR to a directory of this user, for the daemon and its programs, or \
         name a socket in one by --socket (programs: PAGEMESH_SOCKET)"
    } else {
        ""
    };
    anyhow!(
        "cannot make the directory {}: {error}{cure}",
        directory.display()
    )
}

/// The socket for datagrams. Where the kernel chooses the port, that port is free for connections,
/// too, by which other nodes start programs here.
pub(super) fn bind(address: SocketAddr) -> io::Result<Udp> {
    // Kept, so that the kernel chooses others.
    let mut taken = Vec::new();
    while address.port() == 0 && taken.len() < PORTS {
        let udp = Udp::bind(address)?;
        if TcpListener::bind(udp.address()).is_ok() {
            return Ok(udp);
        }
        taken.push(udp);
    }
    Udp::bind(address)
}
