//! The socket of an export, and a thread for each client.

use super::memory::Memory;
use anyhow::{Context as _, Result, bail};
use pagemesh_nbd::{Agreed, Export, Fault, negotiate, transmit};
use rustix::fs::Mode;
use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// So many clients at once: each has a thread and a buffer of 256 KiB.
const MOST_CLIENTS: usize = 64;

/// How long a client may take for each step of the negotiation.
const NEGOTIATION: Duration = Duration::from_secs(10);

/// How long the end waits for requests that are being served.
const LAST_REQUESTS: Duration = Duration::from_secs(5);

/// A running server.
pub(super) struct Server {
    path: PathBuf,
    shared: Arc<Shared>,
}

struct Shared {
    device: Export,
    memory: Memory,
    clients: Mutex<Clients>,
    /// A client is gone.
    left: Condvar,
}

/// The clients that are connected.
#[derive(Default)]
struct Clients {
    next: u64,
    streams: BTreeMap<u64, UnixStream>,
    /// The server is stopping and accepts no client.
    over: bool,
}

impl Server {
    /// Listens, and serves in threads of its own.
    pub(super) fn start(path: &Path, device: Export, memory: Memory) -> Result<Self> {
        let listener = listen(path)?;
        let shared = Arc::new(Shared {
            device,
            memory,
            clients: Mutex::default(),
            left: Condvar::new(),
        });
        let server = Self {
            path: path.to_owned(),
            shared: Arc::clone(&shared),
        };
        std::thread::Builder::new()
            .name("export".to_owned())
            .spawn(move || accept(&listener, &shared))
            .context("starting a thread")?;
        Ok(server)
    }

    pub(super) fn name(&self) -> &str {
        &self.shared.device.name
    }

    /// Takes the socket away, lets requests that are being served come to their end, and returns
    /// how many clients were connected.
    pub(super) fn stop(self) -> usize {
        let _ = std::fs::remove_file(&self.path);
        let mut clients = self.shared.clients();
        clients.over = true;
        let cut = clients.streams.len();
        for stream in clients.streams.values() {
            // The server reads no further request; replies may still be sent.
            let _ = stream.shutdown(Shutdown::Read);
        }
        let busy = |clients: &mut Clients| !clients.streams.is_empty();
        let waited = self
            .shared
            .left
            .wait_timeout_while(clients, LAST_REQUESTS, busy);
        let (clients, _) = waited.unwrap_or_else(PoisonError::into_inner);
        for stream in clients.streams.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        cut
    }
}

impl Shared {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a client; none if there are too many.
    fn enter(&self, stream: &UnixStream) -> io::Result<Option<u64>> {
        let stream = stream.try_clone()?;
        let mut clients = self.clients();
        if clients.over || clients.streams.len() >= MOST_CLIENTS {
            return Ok(None);
        }
        let number = clients.next;
        clients.next += 1;
        clients.streams.insert(number, stream);
        Ok(Some(number))
    }

    fn leave(&self, number: u64) {
        self.clients().streams.remove(&number);
        self.left.notify_all();
    }
}

/// The socket, for this user alone. That of an export which is gone is replaced.
fn listen(path: &Path) -> Result<UnixListener> {
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let mut bound = UnixListener::bind(path);
    if let Err(error) = &bound
        && error.kind() == io::ErrorKind::AddrInUse
        && is_abandoned(path)
    {
        let _ = std::fs::remove_file(path);
        bound = UnixListener::bind(path);
    }
    rustix::process::umask(before);
    match bound {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => bail!(
            "{} is in use; choose another --listen, or end what listens there",
            path.display()
        ),
        bound => bound.with_context(|| format!("listening at {}", path.display())),
    }
}

/// Whether it is a socket at which nobody listens.
fn is_abandoned(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refused = UnixStream::connect(path).err().map(|error| error.kind());
    is_socket && refused == Some(io::ErrorKind::ConnectionRefused)
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        match stream.and_then(|stream| welcome(stream, shared)) {
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(%error, "a client could not be served");
                // Descriptors may be used up: that takes a moment to change.
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn welcome(stream: UnixStream, shared: &Arc<Shared>) -> io::Result<()> {
    let Some(number) = shared.enter(&stream)? else {
        tracing::warn!("a client was turned away: there are {MOST_CLIENTS} already");
        return Ok(());
    };
    let theirs = Arc::clone(shared);
    let thread = std::thread::Builder::new().name(format!("client {number}"));
    let started = thread.spawn(move || {
        match serve(&stream, &theirs) {
            Ok(()) => tracing::debug!(number, "a client is done"),
            Err(fault) => tracing::warn!(number, %fault, "a client was cut off"),
        }
        let _ = stream.shutdown(Shutdown::Both);
        theirs.leave(number);
    });
    if let Err(error) = started {
        shared.leave(number);
        return Err(error);
    }
    Ok(())
}

fn serve(stream: &UnixStream, shared: &Shared) -> std::result::Result<(), Fault> {
    stream.set_read_timeout(Some(NEGOTIATION))?;
    stream.set_write_timeout(Some(NEGOTIATION))?;
    let agreed = negotiate(stream, &shared.device)?;
    let Agreed::Transmission { structured } = agreed else {
        return Ok(());
    };
    // A kernel may be silent for days.
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    transmit(stream, &shared.device, structured, &shared.memory)
}
