//! Starts programs on this node for people on other nodes (`pagemesh run`).
//!
//! Two listeners, each in a thread of its own, far from the hot loop:
//!
//! - a Unix socket beside the daemon's, where this node's people say what shall
//!   run on which member. The kernel says who they are; the daemon passes that
//!   on to the member's daemon and then only carries bytes to and fro ([`origin`]);
//! - TCP at the daemon's own address and port, where the other daemons come with
//!   what their people want ([`node`]). With a key they prove to be members, and
//!   all they say is sealed ([`line`]). Without, a stranger who reaches this port
//!   of a daemon that was told `--insecure` runs what he likes.
//!   On a loopback address any user of the host reaches it, so there the kernel's
//!   table of sockets must say that the other end belongs to a daemon's user
//!   ([`stranger`]).
//!
//! A program dies when the connection that started it does.

mod frame;
mod line;
mod node;
mod origin;
mod stranger;

pub use frame::{Frame, Order, Program, Said, read_frame, write_frame};

use crate::Options;
use anyhow::{Context, Result};
use pagemesh_seal::Identity;
use std::fs::Permissions;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Programs and orders under way at once; further ones are refused.
const BUSY: usize = 512;

/// How long a newcomer may take to say what he wants.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long nobody is let in after the kernel refused.
const SHUT: Duration = Duration::from_millis(100);

/// The socket for orders, beside the daemon's own.
#[must_use]
pub fn socket_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".run");
    path.into()
}

/// What both listeners know.
#[derive(Debug)]
struct Service {
    /// Where this daemon listens, as bound.
    address: SocketAddr,
    /// The daemon's own socket.
    socket: PathBuf,
    /// Who this daemon is to others, if it seals.
    identity: Option<Identity>,
    /// Connections being served.
    busy: AtomicUsize,
}

/// Takes the socket for orders away when the daemon ends.
#[derive(Debug)]
pub struct Listening(PathBuf);

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Serves in threads of its own, until the process ends. `address` is where the
/// daemon's datagrams arrive.
///
/// # Errors
/// If one of the sockets cannot be bound.
pub fn serve(
    options: &Options,
    address: SocketAddr,
    identity: Option<Identity>,
) -> Result<Listening> {
    let path = socket_path(&options.socket);
    // A dead daemon's; a living one still holds the daemon's own socket.
    let _ = std::fs::remove_file(&path);
    let orders =
        UnixListener::bind(&path).with_context(|| format!("binding {}", path.display()))?;
    let listening = Listening(path);
    let path = &listening.0;
    // Whoever connects is asked of the kernel, so anybody may.
    std::fs::set_permissions(path, Permissions::from_mode(options.socket_mode & 0o777))
        .with_context(|| format!("opening {} to its users", path.display()))?;
    let peers = TcpListener::bind(address).with_context(|| format!("binding TCP {address}"))?;
    let service = Arc::new(Service {
        address,
        socket: std::path::absolute(&options.socket)?,
        identity,
        busy: AtomicUsize::new(0),
    });
    let for_orders = Arc::clone(&service);
    spawn("launch-orders", move || {
        for stream in orders.incoming() {
            for_orders.admit(stream, |service, stream| service.take_order(stream));
        }
    })?;
    spawn("launch-peers", move || {
        for stream in peers.incoming() {
            service.admit(stream, |service, stream| service.run_program(stream));
        }
    })?;
    Ok(listening)
}

impl Service {
    /// Serves one connection in a thread of its own, unless there are too many.
    fn admit<S: Send + 'static>(
        self: &Arc<Self>,
        stream: std::io::Result<S>,
        serve: impl FnOnce(&Self, S) -> Result<()> + Send + 'static,
    ) {
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a program or order could not come in");
                // Out of descriptors it would be said again at once, for ever.
                return std::thread::sleep(SHUT);
            }
        };
        if self.busy.fetch_add(1, Ordering::Relaxed) >= BUSY {
            self.busy.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!("more than {BUSY} programs and orders at once; refusing one");
            return;
        }
        let service = Arc::clone(self);
        let spawned = spawn("launch", move || {
            if let Err(error) = serve(&service, stream) {
                tracing::debug!("launch: {error:#}");
            }
            service.busy.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(error) = spawned {
            self.busy.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!("launch: {error:#}");
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .with_context(|| format!("starting the thread {name}"))?;
    Ok(())
}
