//! Starts programs on this node for people on other nodes (`pagemesh run`).
//!
//! Two listeners, each in a thread of its own, far from the hot loop:
//!
//! - a Unix socket beside the daemon's, where this node's users say what shall run on which member.
//!   The kernel names the user; the daemon passes that on to the member's daemon and then only
//!   carries bytes to and fro ([`origin`]);
//! - TCP at the daemon's own address and port, where other daemons pass on the orders of their
//!   users ([`node`]). With a key they prove to be members, and all they send is sealed ([`line`]).
//!   Without, any host that reaches this port of a daemon started with `--insecure` can run
//!   programs. On a loopback address any user of the host reaches it, so there the kernel's table
//!   of sockets must say that the other end belongs to a daemon's user ([`stranger`]).
//!
//! A program dies when the connection that started it does.

mod frame;
mod line;
mod lines;
mod newcomers;
mod node;
mod origin;
mod stranger;

pub use frame::{Frame, Order, Program, Said, read_frame, write_frame};

use crate::Options;
use anyhow::{Context, Result};
use lines::Lines;
use newcomers::{Newcomer, Newcomers};
use pagemesh_seal::Identity;
use pagemesh_wire::PublicKey;
use std::fs::Permissions;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Programs under way at once, and as many orders; further ones are refused.
const BUSY: usize = 512;

/// How long another daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time for which no connection is accepted after the kernel refused one.
const SHUT: Duration = Duration::from_millis(100);

/// The socket for orders, beside the daemon's own.
#[must_use]
pub fn socket_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".run");
    path.into()
}

/// State of both listeners.
#[derive(Debug)]
struct Service {
    /// Where this daemon listens, as bound.
    address: SocketAddr,
    /// The daemon's own socket.
    socket: PathBuf,
    /// The identity of this daemon, if it seals.
    identity: Option<Identity>,
    /// Connections to either socket that have not sent an order yet.
    ordering: Newcomers,
    calling: Newcomers,
    /// Orders and programs being served.
    orders: AtomicUsize,
    programs: AtomicUsize,
    /// Connections with members.
    lines: Lines,
}

/// Takes the socket for orders away when the daemon ends.
#[derive(Debug)]
pub struct Listening {
    path: PathBuf,
    lines: Lines,
}

impl Listening {
    /// Ends programs that run for, and on, the members with these keys.
    pub(crate) fn cut_off(&self, keys: &[PublicKey]) {
        self.lines.cut_off(keys);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
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
    let lines = Lines::default();
    let listening = Listening {
        path,
        lines: lines.clone(),
    };
    let path = &listening.path;
    // The kernel names the user of each connection, so all users may connect.
    std::fs::set_permissions(path, Permissions::from_mode(options.socket_mode & 0o777))
        .with_context(|| format!("opening {} to its users", path.display()))?;
    let peers = TcpListener::bind(address).with_context(|| format!("binding TCP {address}"))?;
    let service = Arc::new(Service {
        address,
        socket: std::path::absolute(&options.socket)?,
        identity,
        ordering: Newcomers::default(),
        calling: Newcomers::default(),
        orders: AtomicUsize::new(0),
        programs: AtomicUsize::new(0),
        lines,
    });
    let for_orders = Arc::clone(&service);
    spawn("launch-orders", move || {
        for stream in orders.incoming() {
            for_orders.admit(stream, |service| &service.ordering, Service::take_order);
        }
    })?;
    spawn("launch-peers", move || {
        for stream in peers.incoming() {
            service.admit(stream, |service| &service.calling, Service::run_program);
        }
    })?;
    Ok(listening)
}

impl Service {
    /// Serves one connection in a thread of its own, as a newcomer at first.
    fn admit<S: AsFd + Send + 'static>(
        self: &Arc<Self>,
        stream: std::io::Result<S>,
        newcomers: fn(&Self) -> &Newcomers,
        serve: fn(&Self, S, Newcomer<'_>) -> Result<()>,
    ) {
        let entered = stream.and_then(|stream| Ok((newcomers(self).enter(&stream)?, stream)));
        let (number, stream) = match entered {
            Ok(entered) => entered,
            Err(error) => {
                tracing::warn!(%error, "a program or order could not come in");
                // Out of descriptors it would be said again at once, for ever.
                return std::thread::sleep(SHUT);
            }
        };
        let service = Arc::clone(self);
        let spawned = spawn("launch", move || {
            let newcomer = newcomers(&service).get(number);
            if let Err(error) = serve(&service, stream, newcomer) {
                tracing::debug!("launch: {error:#}");
            }
        });
        if let Err(error) = spawned {
            drop(newcomers(self).get(number));
            tracing::warn!("launch: {error:#}");
        }
    }
}

/// One of those that are served at once.
#[derive(Debug)]
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    /// None if there are too many.
    fn take(busy: &'a AtomicUsize) -> Option<Self> {
        let place = Self(busy);
        if busy.fetch_add(1, Ordering::Relaxed) < BUSY {
            return Some(place);
        }
        tracing::warn!("more than {BUSY} programs or orders at once; refusing one");
        None
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The refusal when there is no place for one more.
fn no_place() -> Said {
    Said::Refused(format!(
        "more than {BUSY} programs are under way for `pagemesh run`; try again when some have ended"
    ))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .with_context(|| format!("starting the thread {name}"))?;
    Ok(())
}
