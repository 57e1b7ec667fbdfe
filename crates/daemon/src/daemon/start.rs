//! Start of a daemon: as a new node, or as the successor of another daemon.

use super::awake::Rounds;
use super::{Daemon, WANTED_BUFFER};
use crate::budget::Budget;
use crate::diff_store::Changes;
use crate::diff_store::DiffStore;
use crate::driver::{About, Driver};
use crate::edition::Edition;
use crate::etcd;
use crate::executor::DaemonExecutor;
use crate::experiment::Edge;
use crate::keeper::{Keeper, Keeping, Tag};
use crate::launch;
use crate::ledger::{Ledger, LedgerFile, Medium};
use crate::lending::Lending;
use crate::listener::ProgramListener;
use crate::multicast_batches::MulticastBatches;
use crate::network::Network;
use crate::options::Options;
use crate::pages::Pages;
use crate::priority::SchedulingPriority;
use crate::process::raise_limits;
use crate::receive_batch::ReceiveBatch;
use crate::recorder::Recorder;
use crate::sealing::Sealing;
use crate::serve::troubles::WallClock;
use crate::stash::Stash;
use crate::takeover::{self, Ground, TakeoverState};
use crate::token::Token;
use crate::waiter::Waiter;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use pagemesh_core::{Config, KeptEntry, Life, Node, Pace, Start, limits};
use pagemesh_os::latency::LatencyHold;
use pagemesh_os::poll::Poll;
use pagemesh_os::seqpacket::Listener;
use pagemesh_os::signals::{self, Signals};
use pagemesh_os::udp::{Group, Udp};
use pagemesh_os::{clock, cpu, uffd};
use pagemesh_recorder::Recovered;
use pagemesh_wire::local::{MAX_PACKET, Trouble};
use pagemesh_wire::{ClusterId, Incarnation, PAGE_SIZE, PublicKey};
use rand::TryRng as _;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Datagrams that came while no daemon ran, handled before anything else, at most.
const BACKLOG: usize = 1 << 20;

/// Ports of the kernel's choice that may be taken for connections.
const PORTS: usize = 16;

impl Daemon {
    pub(super) fn start(options: &Options) -> Result<Self> {
        check_pages()?;
        raise_limits();
        signals::ignore_file_limit();
        let signals = Signals::catch(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
        let Some(mut takeover_state) = takeover::find(options)? else {
            return Self::begin(options, signals);
        };
        match takeover_state.recover() {
            Ok((recorder, recovered)) => {
                Self::go_on(options, signals, takeover_state, recorder, recovered)
            }
            Err(why) => {
                tracing::error!(
                    "what the daemon before did cannot be gone on with ({why:#}): its programs \
                     get errors, and this is a new node"
                );
                takeover_state.give_up();
                Self::begin(options, signals)
            }
        }
    }

    /// Starts a new node.
    fn begin(options: &Options, signals: Signals) -> Result<Self> {
        let listener = listen(options)?;
        let udp = bind(options.bind)
            .with_context(|| format!("cannot listen for daemons at {}", options.bind))?;
        let pages = no_pages()
            .context("no addresses for the stash, or for twins: `ulimit -v unlimited`")?;
        let receive_batch = ReceiveBatch::create()?;
        let mut about = about(options, &udp);
        let network = network(options, udp, None)?;
        let (ledger, elections, start) = match &options.control {
            Some(hello) => {
                let ((ledger, elections), start) =
                    etcd::begin(hello, dice()? as u32, ClusterId(dice()?))?;
                (Some(ledger), Some(elections), start)
            }
            None => {
                let (ledger, start) = begin_or_go_on(options)?;
                (ledger, None, start)
            }
        };
        if let Start::Join(address) = start {
            about.join = Some(address);
        }
        let mut config = config(options, &about, network.key(), start)?;
        config.pace.ahead = config.pace.ahead.min(room_ahead(&network.udp));
        config.pace.twins = config.pace.twins.max(room_for_twins());
        let node = Node::new(config);
        let recorder = recorder(options, &node, &mut about.problems);
        let lending = Lending::create(&options.memory.directory)
            .context("no memory for the secret of lent pages")?;
        let mut executor = DaemonExecutor::new(Poll::new()?, network, pages, recorder, lending);
        executor.ledger = ledger;
        executor.elections = elections;
        executor.pages.unprotected = options.unprotected;
        executor.lending.tampers = options.tamper;
        executor.lending.disk = options.experiment.slow_disk();
        executor.races.looked_for = options.check_races;
        executor.quota = options.quota;
        executor
            .recorder
            .crash_point
            .clone_from(&options.crash_point);
        if let Some(keeping) = &options.keeping {
            keep(
                keeping,
                &options.socket,
                &mut executor,
                &listener,
                &receive_batch,
            );
        }
        let mut driver = Driver::new(node, executor, about);
        driver.budget = Budget::new(options.memory.clone());
        Self::assemble(options, signals, listener, receive_batch, driver)
    }

    /// Goes on with the node of the previous daemon.
    fn go_on(
        options: &Options,
        signals: Signals,
        mut takeover_state: TakeoverState,
        recorder: Recorder,
        mut recovered: Recovered,
    ) -> Result<Self> {
        let Ground {
            listener,
            udp,
            pages,
            receive_batch,
            identity,
            lending,
        } = takeover_state.ground(options)?;
        let about = about(options, &udp);
        ensure!(
            options.admission.is_some() == identity.is_some(),
            "the daemon before {} its datagrams: start this one with the same --key or --join-token",
            if identity.is_some() {
                "sealed"
            } else {
                "did not seal"
            }
        );
        let network = network(options, udp, identity)?;
        let mut executor = takeover_state.executor(
            Poll::new()?,
            network,
            pages,
            recorder,
            (lending, &mut recovered),
        )?;
        executor.races.looked_for = options.check_races;
        executor.quota = options.quota;
        executor
            .recorder
            .crash_point
            .clone_from(&options.crash_point);
        ensure!(
            options.control.is_some() == recovered.node.is_elected(),
            "the daemon before and this one have to be started with the same --control"
        );
        ensure!(
            options.state.is_some() || options.control.is_some() || !recovered.node.keeps(),
            "the daemon before had a state directory: start this one with the same --state"
        );
        let ledger = match &options.control {
            Some(hello) => {
                let (ledger, elections) = etcd::go_on(hello, dice()? as u32)?;
                executor.elections = Some(elections);
                Some(ledger)
            }
            None => ledger_of_another(options)?,
        };
        let mut driver = Driver::go_on(recovered, executor, about, &receive_batch)?;
        driver.runs();
        driver.keep_anew(ledger);
        driver.budget = Budget::new(options.memory.clone());
        let mut daemon = Self::assemble(options, signals, listener, receive_batch, driver)?;
        // First handle the waiting datagrams: else all others would seem to have been silent.
        for _ in 0..BACKLOG {
            if !daemon.receive()? {
                break;
            }
        }
        daemon.driver.executor.keeper.settled();
        tracing::info!("going on in the place of the daemon before");
        Ok(daemon)
    }

    fn assemble(
        options: &Options,
        signals: Signals,
        listener: Listener,
        receive_batch: ReceiveBatch,
        mut driver: Driver,
    ) -> Result<Self> {
        if let Some(ticks) = options.experiment.ticks(clock::monotonic()) {
            driver.tick(ticks);
        }
        let udp = &driver.executor.network.udp;
        let launch = launch::serve(options, udp.address(), driver.executor.network.who())
            .inspect_err(|error| tracing::warn!("`pagemesh run` will not work here: {error:#}"))
            .ok();
        // Pin only now: programs started for others may run on any processor.
        if let Some(cpu) = options.cpu {
            cpu::pin(cpu).with_context(|| format!("cannot run on processor {cpu}"))?;
        }
        let standing = cpu::Standing::ask()
            .inspect_err(|error| {
                tracing::debug!(%error, "threads that compute may keep this daemon waiting");
            })
            .ok();
        driver.executor.priority = SchedulingPriority::new(standing);
        let poll = &driver.executor.poll;
        poll.add(udp, Token::Network.encode())?;
        if let Some(bell) = driver.executor.network.bell() {
            poll.add(bell, Token::Network.encode())?;
        }
        if let Some(group) = driver.executor.network.group() {
            poll.add(group, Token::Network.encode())?;
        }
        if let Some(bell) = driver.executor.network.keys_bell() {
            poll.add(bell, Token::Keys.encode())?;
        }
        if let Some(ledger) = &driver.executor.ledger {
            poll.add(ledger.bell(), Token::Ledger.encode())?;
        }
        if let Some(elections) = &driver.executor.elections {
            poll.add(elections.bell(), Token::Elections.encode())?;
        }
        poll.add(&listener, Token::Listener.encode())?;
        poll.add(&signals, Token::Signals.encode())?;
        tracing::info!(
            name = %options.name, address = %driver.about.address,
            socket = %options.socket.display(), "listening",
        );
        let daemon = Self {
            admitted: driver.node.id().is_some(),
            driver,
            listener: ProgramListener::new(listener),
            signals,
            waiter: Waiter::new(options.waiting),
            ready: Vec::new(),
            receive_batch,
            packet: vec![0; MAX_PACKET].into_boxed_slice(),
            rounds: Rounds::default(),
            ending: None,
            complained: false,
            join_timeout: options.join_timeout,
            _latency: options.latency.then(hold_latency).flatten(),
            launch,
            epoch: 0,
            keeping: options.keeping.clone(),
            socket: options.socket.clone(),
        };
        daemon.poll_keeper();
        Ok(daemon)
    }

    fn poll_keeper(&self) {
        let executor = &self.driver.executor;
        if let Err(error) = executor.keeper.poll(&executor.poll, Token::Keeper.encode()) {
            tracing::warn!(%error, "the end of the keeper will not be noticed");
        }
    }

    /// The keeper died: starts another and gives it everything.
    pub(super) fn replace_keeper(&mut self) {
        let executor = &mut self.driver.executor;
        let Some(gone) = executor.keeper.take_gone() else {
            return;
        };
        let _ = executor.poll.remove(&gone);
        tracing::warn!(
            process = gone.process(),
            "the keeper is gone; starting another"
        );
        if let Some(keeping) = &self.keeping {
            keep(
                keeping,
                &self.socket,
                executor,
                &self.listener,
                &self.receive_batch,
            );
        }
        self.poll_keeper();
    }
}

fn no_pages() -> io::Result<Pages> {
    Ok(Pages::new(
        Stash::create()?,
        Changes::new(DiffStore::create()?),
    ))
}

/// Starts a keeper and gives it everything. A daemon works without one, but then has no successor
/// if it dies.
fn keep(
    keeping: &Keeping,
    socket: &Path,
    executor: &mut DaemonExecutor,
    listener: impl AsFd,
    receive_batch: &ReceiveBatch,
) {
    match Keeper::start(keeping, socket) {
        Ok(keeper) => {
            keeper.put(Tag::Listener, Vec::new(), listener.as_fd());
            keeper.put(Tag::Datagram, Vec::new(), receive_batch.as_fd());
            executor.keeper.by(keeper);
            executor.keep_everything();
        }
        Err(error) => tracing::error!("no keeper, so this daemon cannot be replaced: {error:#}"),
    }
}

fn listen(options: &Options) -> Result<Listener> {
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

/// The socket for datagrams. Where the kernel chooses the port, that port is free for connections,
/// too, by which other nodes start programs here.
fn bind(address: SocketAddr) -> io::Result<Udp> {
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

fn about(options: &Options, udp: &Udp) -> About {
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
    let buffers = udp.buffers();
    if buffers.receive < WANTED_BUFFER {
        problems.push(Trouble::SocketBuffer.line(format_args!(
            "the socket buffer has {} bytes, which may lose datagrams; \
             `sysctl net.core.rmem_max=16777216` helps",
            buffers.receive
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

/// A number drawn at random.
fn dice() -> Result<u64> {
    let mut source = rand::rngs::SysRng;
    source
        .try_next_u64()
        .context("the kernel has no randomness")
}

/// The directory for this node's state, if it has one, and how the node begins: it joins a cluster,
/// goes on with the one in the directory, or founds one.
fn begin_or_go_on(options: &Options) -> Result<(Option<Ledger>, Start)> {
    let found = || -> Result<Start> { Ok(Start::Found(ClusterId(dice()?))) };
    let Some(directory) = &options.state else {
        let start = options.join.map_or_else(found, |to| Ok(Start::Join(to)))?;
        return Ok((None, start));
    };
    let mut file = LedgerFile::open(directory)?;
    let start = match options.join {
        Some(address) => Start::Join(address),
        None if file.kept.is_whole() => {
            let life = next_life(&mut file, options.promote)?;
            Start::Resume(Box::new(life))
        }
        None if options.promote => bail!(
            "{}: nothing is known here of a cluster: this node was not its standby",
            file.path().display()
        ),
        None => found()?,
    };
    Ok((Some(Ledger::start(Medium::File(Box::new(file)))?), start))
}

/// A coordinator begins its next life, and its disk knows that before any other node hears of it.
fn next_life(file: &mut LedgerFile, promote: bool) -> Result<Life> {
    let path = file.path();
    let path = path.display();
    ensure!(
        promote || file.kept.has_coordinated(),
        "{path}: this node was the standby: let it join (--join); or, if the coordinator's host is \
         gone for good and no member can be promoted, go on with the standby's copy (--promote)"
    );
    let next = file.kept.next_life();
    let (node, term) = next.with_context(|| {
        format!(
            "{path}: all numbers of nodes are used up; move the file away to found a new cluster"
        )
    })?;
    let entry = KeptEntry::Life {
        cluster: file.kept.cluster(),
        node,
        term,
    };
    file.append(&[entry])
        .with_context(|| format!("cannot write to {path}"))?;
    tracing::info!(
        file = %path, %node, term = term.count(), names = file.kept.names(),
        "going on from the disk: the members are asked, for 5 s at most",
    );
    let kept = file.kept.clone();
    Ok(Life { kept, node, term })
}

/// The directory of a node that goes on from its journal. What its last daemon was writing may be
/// missing there.
fn ledger_of_another(options: &Options) -> Result<Option<Ledger>> {
    let directory = options.state.as_ref();
    let ledger = directory.map(|directory| {
        let file = LedgerFile::open(directory)?;
        Ledger::start(Medium::File(Box::new(file)))
    });
    ledger.transpose()
}

fn config(options: &Options, about: &About, key: PublicKey, start: Start) -> Result<Config> {
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
fn room_ahead(udp: &Udp) -> u32 {
    let pages = udp.buffers().receive / (4 * PAGE_SIZE);
    u32::try_from(pages).unwrap_or(u32::MAX)
}

/// Number of pages that fit in an eighth of this host's memory.
fn room_for_twins() -> u32 {
    let host = rustix::system::sysinfo();
    let bytes = u128::from(host.totalram) * u128::from(host.mem_unit);
    u32::try_from(bytes / 8 / PAGE_SIZE as u128).unwrap_or(u32::MAX)
}

fn network(options: &Options, udp: Udp, before: Option<OwnedFd>) -> Result<Network> {
    let admission = options.admission.as_ref();
    let sealing = admission.map(|admission| Sealing::new(admission, before));
    let multicast_batches = multicast_batches(options, &udp)?;
    let me = options.advertise.unwrap_or_else(|| udp.address());
    let mut network = Network::new(
        udp,
        options.impair,
        sealing.transpose()?,
        options.compress,
        Edge::new(options.experiment)?,
        me,
    );
    if let Some(multicast_batches) = multicast_batches {
        network.join(multicast_batches);
    }
    Ok(network)
}

fn multicast_batches(options: &Options, udp: &Udp) -> Result<Option<MulticastBatches>> {
    let Some(address) = options.multicast else {
        return Ok(None);
    };
    let group = Group::join(address, udp).with_context(|| {
        format!("cannot listen to the multicast group {address}: name another, or leave --multicast away")
    })?;
    Ok(Some(MulticastBatches::new(group, udp.address())))
}

/// Starts to record the node; if there is no memory for that, the daemon runs without.
fn recorder(options: &Options, node: &Node, problems: &mut Vec<String>) -> Recorder {
    if !options.recorder {
        return Recorder::off();
    }
    Recorder::begin(node).unwrap_or_else(|error| {
        problems.push(Trouble::RecorderOff.line(format_args!(
            "the flight recorder is off ({error}); lift the limit on address space (ulimit -v), \
             or turn it off by --recorder off"
        )));
        Recorder::off()
    })
}

fn hold_latency() -> Option<LatencyHold> {
    LatencyHold::acquire()
        .inspect_err(|error| tracing::warn!(%error, "cannot keep processors awake"))
        .ok()
}

/// Fails if the kernel's page size is not that of the cluster.
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
