//! Start, loop and end of a daemon.

use crate::door::{Door, Visit};
use crate::driver::{About, Driver};
use crate::hands::Hands;
use crate::launch;
use crate::network::{Got, Network};
use crate::options::Options;
use crate::recorder::Recorder;
use crate::sealing::Sealing;
use crate::serve::Descriptors;
use crate::stash::Stash;
use crate::tally::Count;
use crate::waiter::Waiter;
use anyhow::{Context as _, Result, anyhow, bail};
use pagemesh_core::{Config, Node, Pace, Start};
use pagemesh_os::latency::LatencyHold;
use pagemesh_os::poll::{Poll, Ready};
use pagemesh_os::region::{Region, Shape};
use pagemesh_os::seqpacket::Listener;
use pagemesh_os::signals::{self, Signals};
use pagemesh_os::udp::Udp;
use pagemesh_os::{clock, cpu, uffd};
use pagemesh_wire::local::MAX_PACKET;
use pagemesh_wire::{ClientId, ClusterId, Incarnation, MappingId, PAGE_SIZE, PublicKey};
use rand::TryRng as _;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// A running daemon.
struct Daemon {
    driver: Driver,
    door: Door,
    signals: Signals,
    waiter: Waiter,
    ready: Vec<Ready>,
    /// The last one that came. Its page may be wanted by the next daemon.
    datagram: Region,
    packet: Box<[u8]>,
    /// Datagrams handled since everything else had its turn.
    streak: usize,
    /// Rounds of staying awake since then in which nothing came.
    idle: usize,
    /// Something came in the last round.
    busy: bool,
    /// Told to end; by then at the latest.
    ending: Option<u64>,
    admitted: bool,
    /// Said that the daemon to join does not answer.
    complained: bool,
    _latency: Option<LatencyHold>,
    _launch: Option<launch::Listening>,
}

/// What became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A datagram.
    Network,
    /// A process wants to connect.
    Listener,
    /// A signal.
    Signals,
    /// A connected process.
    Session(ClientId),
    /// Faults of a mapping.
    Mapping(MappingId),
}

/// Longest time to leave the cluster in order.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long a daemon to join may take to answer before that is said.
const PATIENCE: Duration = Duration::from_secs(5);

/// Datagrams handled before others get their turn.
const DATAGRAMS: usize = 64;

/// Looks for a datagram in a row while a thread waits for one: some 2 µs.
const GLANCES: usize = 6;

/// Looks for a datagram in a row otherwise, on a processor nobody else wants.
const ALONE: usize = 3;

/// Giving way takes longer than this if somebody took it.
const GIVEN_WAY: u64 = 700;

/// Rounds of staying awake after which everything is looked at, though no local
/// process ran on this processor.
const ROUNDS: usize = 4;

/// Packets of one process handled before others get their turn.
const PACKETS: usize = 16;

/// Room for any datagram.
const DATAGRAM: Shape = Shape {
    words: 0,
    bytes: 1 << 16,
};

/// Socket buffers smaller than this lose datagrams when all nodes talk at once.
const WANTED_BUFFER: usize = 2 << 20;

/// Runs a daemon until it is told to end.
///
/// # Errors
/// If it cannot start, or its cluster refuses it; the message names the cure.
pub fn run(options: Options) -> Result<()> {
    options.check()?;
    let socket = options.socket.clone();
    let mut daemon = Daemon::start(options)?;
    match catch_unwind(AssertUnwindSafe(|| daemon.serve())) {
        Ok(ended) => ended,
        Err(panic) => {
            daemon
                .driver
                .hands
                .recorder
                .save(&socket, "the daemon broke");
            resume_unwind(panic)
        }
    }
}

impl Daemon {
    fn start(options: Options) -> Result<Self> {
        check_pages()?;
        raise_limits();
        signals::ignore_file_limit();
        let signals = Signals::catch(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
        let listener = listen(&options)?;
        let udp = Udp::bind(options.bind)
            .with_context(|| format!("cannot listen for daemons at {}", options.bind))?;
        let sealing = options.admission.as_ref().map(Sealing::new).transpose()?;
        let identity = sealing.as_ref().map(Sealing::identity);
        let launch = launch::serve(&options, udp.address(), identity)
            .inspect_err(|error| tracing::warn!("`pagemesh run` will not work here: {error:#}"))
            .ok();
        // Not before: programs started for others may run on any processor.
        if let Some(cpu) = options.cpu {
            cpu::pin(cpu).with_context(|| format!("cannot run on processor {cpu}"))?;
        }
        let poll = Poll::new()?;
        poll.add(&udp, Token::Network.encode())?;
        poll.add(&listener, Token::Listener.encode())?;
        poll.add(&signals, Token::Signals.encode())?;
        let mut about = about(&options, &udp);
        let network = Network::new(udp, options.impair, sealing);
        let node = Node::new(config(&options, &about, network.key())?);
        let recorder = recorder(&options, &node, &mut about.problems);
        for problem in &about.problems {
            tracing::warn!("{problem}");
        }
        tracing::info!(
            name = %options.name, address = %about.address, socket = %options.socket.display(),
            "listening",
        );
        let stash = Stash::create().context("no memory for the stash")?;
        let mut hands = Hands::new(poll, network, stash, recorder);
        hands.pages.unprotected = options.unprotected;
        Ok(Self {
            driver: Driver::new(node, hands, about),
            door: Door::new(listener),
            signals,
            waiter: Waiter::new(options.waiting),
            ready: Vec::new(),
            datagram: Region::create("pagemesh-datagram", DATAGRAM)
                .context("no memory for datagrams")?,
            packet: vec![0; MAX_PACKET].into_boxed_slice(),
            streak: 0,
            idle: 0,
            busy: false,
            ending: None,
            admitted: false,
            complained: false,
            _latency: options.latency.then(hold_latency).flatten(),
            _launch: launch,
        })
    }

    fn serve(&mut self) -> Result<()> {
        loop {
            let now = clock::monotonic();
            self.driver.due(now);
            self.driver.cut_off();
            self.open_door(now)?;
            if self.is_over(now)? {
                return Ok(());
            }
            let waited_for = self.driver.is_waited_for();
            if self.waiter.stays_awake(now, waited_for) {
                self.spin(now, waited_for)?;
            } else {
                self.sleep(now)?;
            }
        }
    }

    /// One round of staying awake. Whoever else wants this processor gets it
    /// first: a thread just woken, a client, another daemon of this host.
    fn spin(&mut self, now: u64, waited_for: bool) -> Result<()> {
        cpu::yield_now();
        let given_way = clock::monotonic().saturating_sub(now) > GIVEN_WAY;
        // Whoever was served may have run already.
        let busy = given_way || std::mem::take(&mut self.busy);
        // Who got the last page has probably come to the next.
        if busy && self.driver.next_fault() {
            self.came();
            return Ok(());
        }
        let glances = match (waited_for, busy) {
            (true, _) => GLANCES,
            (false, false) => ALONE,
            (false, true) => 1,
        };
        if self.streak < DATAGRAMS && self.glance(glances)? {
            self.streak += 1;
            return Ok(());
        }
        self.idle += 1;
        if !busy && self.streak < DATAGRAMS && self.idle < ROUNDS {
            return Ok(());
        }
        self.streak = 0;
        self.idle = 0;
        self.poll(Some(0))
    }

    /// Looks for a datagram so often, and handles it. In between there is time.
    fn glance(&mut self, times: usize) -> Result<bool> {
        for _ in 0..times {
            if self.receive()? {
                return Ok(true);
            }
            self.driver.hands.catch_up();
        }
        Ok(false)
    }

    fn sleep(&mut self, now: u64) -> Result<()> {
        self.driver.hands.catch_up();
        let due = [self.driver.next_due(), self.ending, self.door.shut_until()]
            .into_iter()
            .flatten()
            .min();
        self.driver.hands.count(Count::Sleeps, 1);
        self.poll(due.map(|due| due.saturating_sub(now)))
    }

    fn poll(&mut self, timeout: Option<u64>) -> Result<()> {
        let mut ready = std::mem::take(&mut self.ready);
        self.driver.hands.poll.wait(timeout, &mut ready)?;
        for event in ready.drain(..) {
            self.dispatch(event)?;
        }
        self.ready = ready;
        Ok(())
    }

    fn dispatch(&mut self, event: Ready) -> Result<()> {
        match Token::decode(event.token) {
            Some(Token::Network) => {
                for _ in 0..DATAGRAMS {
                    if !self.receive()? {
                        break;
                    }
                }
            }
            Some(Token::Mapping(mapping)) => {
                self.came();
                self.driver.faults(mapping, event.broken);
            }
            Some(Token::Session(client)) => {
                self.busy = true;
                self.session(client, event);
            }
            Some(Token::Listener) => self.accept(),
            Some(Token::Signals) => self.signal()?,
            None => {}
        }
        Ok(())
    }

    /// Handles one datagram; false if there was none.
    fn receive(&mut self) -> Result<bool> {
        let hands = &mut self.driver.hands;
        let into = self.datagram.bytes_mut();
        let got = hands.network.receive(into, &mut hands.tally);
        match got.context("the socket to other daemons is broken")? {
            Got::Datagram(length, from, key) => {
                let bytes = &self.datagram.bytes()[..length];
                self.driver.datagram(from, key, bytes);
                self.came();
                Ok(true)
            }
            Got::Nothing => Ok(false),
            Got::Handled => Ok(true),
        }
    }

    fn came(&mut self) {
        self.busy = true;
        self.waiter.active(clock::monotonic());
    }

    fn accept(&mut self) {
        match self.door.open(clock::monotonic()) {
            Visit::Nobody => {}
            Visit::Came(socket) => {
                if let Err(error) = self.driver.connected(socket) {
                    tracing::warn!(%error, "a process could not connect");
                }
            }
            Visit::TurnedAway => {
                self.driver.hands.count(Count::SessionsTurnedAway, 1);
                tracing::warn!("a process was turned away: no file descriptor is left");
            }
            Visit::Failed(error) => {
                tracing::warn!(%error, "a process could not connect");
                // It would be reported again at once, for ever.
                let _ = self.driver.hands.poll.remove(&self.door);
            }
        }
    }

    /// Lets processes in again that could not be let in for a while.
    fn open_door(&mut self, now: u64) -> Result<()> {
        if self.door.shut_until().is_some_and(|until| until <= now) {
            self.door.reopen();
            let poll = &self.driver.hands.poll;
            poll.add(&self.door, Token::Listener.encode())?;
        }
        Ok(())
    }

    fn session(&mut self, client: ClientId, event: Ready) {
        if event.writable {
            let hands = &mut self.driver.hands;
            hands.sessions.flush(client, &hands.poll);
        }
        if !event.readable && !event.broken {
            return;
        }
        for _ in 0..PACKETS {
            let Some(session) = self.driver.hands.sessions.get(client) else {
                return;
            };
            // It is taken out when it was handled, so that no request is lost
            // should we end in between.
            match session.socket.peek_now(&mut self.packet) {
                Ok(Some(packet)) => {
                    let bytes = &self.packet[..packet.len];
                    let fds = Descriptors {
                        fds: packet.fds,
                        lost: packet.fds_lost,
                    };
                    self.driver.packet(client, bytes, fds);
                    self.driver.hands.sessions.took_packet(client);
                    self.driver.cut_off();
                }
                Ok(None) => return self.driver.gone(client),
                // It went without reading all answers. What it had said before
                // comes next, then its end.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
                Err(error) => return self.trouble(client, &error),
            }
        }
    }

    fn trouble(&mut self, client: ClientId, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
            io::ErrorKind::InvalidData => self.driver.refuse_session(client, &error.to_string()),
            _ => self.driver.gone(client),
        }
    }

    fn signal(&mut self) -> Result<()> {
        while let Some(number) = self.signals.next()? {
            if number == libc::SIGHUP {
                self.driver.hands.network.reload_keys();
                continue;
            }
            if self.ending.is_some() {
                tracing::warn!(number, "ending at once");
                self.driver.hands.left = true;
                return Ok(());
            }
            tracing::info!(number, "leaving the cluster");
            let nanos = u64::try_from(FAREWELL.as_nanos()).unwrap_or(u64::MAX);
            self.ending = Some(clock::monotonic() + nanos);
            self.driver.leave();
        }
        Ok(())
    }

    fn is_over(&mut self, now: u64) -> Result<bool> {
        if self.driver.hands.left {
            tracing::info!("ended");
            return Ok(true);
        }
        if self.ending.is_some_and(|ending| ending <= now) {
            tracing::warn!("could not leave in order within {FAREWELL:?}; ending anyway");
            return Ok(true);
        }
        if !self.admitted {
            self.admitted = self.driver.node.id().is_some();
            if let Some(why) = self.driver.node.out() {
                bail!("the cluster refuses this node: {why}");
            }
            self.complain(now);
        }
        Ok(false)
    }
}

impl Daemon {
    /// Nobody answers who could admit this node: says so, once, and asks on.
    fn complain(&mut self, now: u64) {
        let about = &self.driver.about;
        let asked = Duration::from_nanos(now.saturating_sub(about.started));
        if !self.admitted && !self.complained && asked > PATIENCE {
            self.complained = true;
            tracing::warn!("{}", about.not_admitted());
        }
    }
}

impl Token {
    const KIND: u32 = 56;

    /// As the kernel keeps it.
    pub(crate) fn encode(self) -> u64 {
        let (kind, number) = match self {
            Self::Network => (1, 0),
            Self::Listener => (2, 0),
            Self::Signals => (3, 0),
            Self::Session(client) => (4, u64::from(client.0)),
            Self::Mapping(mapping) => (5, mapping.0),
        };
        (kind << Self::KIND) | number
    }

    fn decode(token: u64) -> Option<Self> {
        let number = token & ((1 << Self::KIND) - 1);
        match token >> Self::KIND {
            1 => Some(Self::Network),
            2 => Some(Self::Listener),
            3 => Some(Self::Signals),
            4 => u32::try_from(number)
                .ok()
                .map(|n| Self::Session(ClientId(n))),
            5 => Some(Self::Mapping(MappingId(number))),
            _ => None,
        }
    }
}

fn listen(options: &Options) -> Result<Listener> {
    let path = &options.socket;
    if let Some(directory) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the directory {}", directory.display()))?;
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

fn about(options: &Options, udp: &Udp) -> About {
    let mut problems = Vec::new();
    let device = uffd::open_device();
    if let Err(error) = &device {
        problems.push(format!(
            "cannot open {} ({error}), so programs of other users cannot map segments unless \
             vm.unprivileged_userfaultfd is 1; run the daemon as root",
            uffd::DEVICE
        ));
    }
    match uffd::Features::offered() {
        Ok(features) if features.sufficient() => {}
        Ok(_) => problems.push("this kernel is too old: Linux 6.4 or later is needed".into()),
        Err(error) => problems.push(format!("userfaultfd is not available ({error})")),
    }
    let buffers = udp.buffers();
    if buffers.receive < WANTED_BUFFER {
        problems.push(format!(
            "the socket buffer has {} bytes, which may lose datagrams; \
             `sysctl net.core.rmem_max=16777216` helps",
            buffers.receive
        ));
    }
    About {
        name: options.name.clone(),
        address: options.advertise.unwrap_or_else(|| udp.address()),
        started: clock::monotonic(),
        join: options.join,
        device: device.ok(),
        problems,
    }
}

fn config(options: &Options, about: &About, key: PublicKey) -> Result<Config> {
    let dice = || {
        let mut source = rand::rngs::SysRng;
        source
            .try_next_u64()
            .context("the kernel has no randomness")
    };
    Ok(Config {
        name: about.name.clone(),
        address: about.address,
        incarnation: Incarnation(dice()?),
        key,
        start: match options.join {
            Some(address) => Start::Join(address),
            None => Start::Found(ClusterId(dice()?)),
        },
        pace: Pace::default(),
    })
}

/// Starts to record the node; without memory for that it runs all the same.
fn recorder(options: &Options, node: &Node, problems: &mut Vec<String>) -> Recorder {
    if !options.recorder {
        return Recorder::off();
    }
    Recorder::begin(node).unwrap_or_else(|error| {
        problems.push(format!(
            "the flight recorder is off ({error}); lift the limit on address space (ulimit -v), \
             or turn it off by --recorder off"
        ));
        Recorder::off()
    })
}

fn hold_latency() -> Option<LatencyHold> {
    LatencyHold::acquire()
        .inspect_err(|error| tracing::warn!(%error, "cannot keep processors awake"))
        .ok()
}

/// The kernel's pages must be those of the cluster.
fn check_pages() -> Result<()> {
    let size = rustix::param::page_size();
    if size != PAGE_SIZE {
        bail!(
            "this kernel's pages have {size} bytes, PageMesh needs {PAGE_SIZE}: boot a kernel \
             with 4 KiB pages (`pagemesh doctor` says more)"
        );
    }
    Ok(())
}

/// Every mapping takes a descriptor.
fn raise_limits() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of descriptors stays");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_as_they_were() {
        for token in [
            Token::Network,
            Token::Listener,
            Token::Signals,
            Token::Session(ClientId(u32::MAX)),
            Token::Mapping(MappingId(1 << 40)),
        ] {
            assert_eq!(Token::decode(token.encode()), Some(token));
        }
        assert_eq!(Token::decode(0), None);
    }
}
