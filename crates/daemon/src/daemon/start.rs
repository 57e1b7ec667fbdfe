//! Start of a daemon: as a new node, or as the successor of another daemon.

mod about;
mod config;
mod life;
mod network;
mod socket;

use super::Daemon;
use super::awake::Rounds;
use super::keeping::keep;
use crate::budget::Budget;
use crate::diff_store::Changes;
use crate::diff_store::DiffStore;
use crate::driver::Driver;
use crate::etcd;
use crate::executor::DaemonExecutor;
use crate::launch;
use crate::lending::Lending;
use crate::listener::ProgramListener;
use crate::options::Options;
use crate::pages::Pages;
use crate::priority::SchedulingPriority;
use crate::process::raise_limits;
use crate::receive_batch::ReceiveBatch;
use crate::recorder::Recorder;
use crate::sealing::Sealing;
use crate::stash::Stash;
use crate::takeover::{self, Ground, TakeoverState};
use crate::token::Token;
use crate::waiter::Waiter;
use about::about;
use anyhow::{Context as _, Result, bail, ensure};
use config::{config, room_ahead, room_for_twins};
use life::{begin_or_go_on, ledger_of_another};
use network::network;
use pagemesh_core::{Node, Start};
use pagemesh_os::latency::LatencyHold;
use pagemesh_os::poll::Poll;
use pagemesh_os::seqpacket::Listener;
use pagemesh_os::signals::{self, Signals};
use pagemesh_os::{clock, cpu};
use pagemesh_recorder::Recovered;
use pagemesh_wire::local::{MAX_PACKET, Trouble};
use pagemesh_wire::{ClusterId, PAGE_SIZE, PublicKey};
use rand::TryRng as _;
use socket::{bind, listen};
use std::io;

/// Datagrams that came while no daemon ran, handled before anything else, at most.
const BACKLOG: usize = 1 << 20;

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
        let sealing = network.sealing.as_ref();
        let key = sealing.map_or(PublicKey::NONE, Sealing::public);
        let mut config = config(options, &about, key, start)?;
        config.pace.ahead = config.pace.ahead.min(room_ahead(network.udp()));
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
        set(&mut executor, options);
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
        set(&mut executor, options);
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
            driver.deadlines.tick(ticks);
        }
        let udp = driver.executor.network.udp();
        let sealing = driver.executor.network.sealing.as_ref();
        let who = sealing.map(Sealing::identity);
        let launch = launch::serve(options, udp.address(), who)
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
        watch(&driver, &listener, &signals)?;
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
}

/// What an executor is told by options, whether it is new or goes on.
fn set(executor: &mut DaemonExecutor, options: &Options) {
    executor.races.looked_for = options.check_races;
    executor.quota = options.quota;
    let crash_point = &mut executor.recorder.crash_point;
    crash_point.clone_from(&options.crash_point);
}

/// Polls everything by which a daemon is woken.
fn watch(driver: &Driver, listener: &Listener, signals: &Signals) -> Result<()> {
    let executor = &driver.executor;
    let poll = &executor.poll;
    let network = &executor.network;
    poll.add(network.udp(), Token::Network.encode())?;
    if let Some(bell) = network.bell() {
        poll.add(bell, Token::Network.encode())?;
    }
    if let Some(group) = network.group() {
        poll.add(group, Token::Network.encode())?;
    }
    if let Some(bell) = network.sealing.as_ref().and_then(Sealing::bell) {
        poll.add(bell, Token::Keys.encode())?;
    }
    if let Some(ledger) = &executor.ledger {
        poll.add(ledger.bell(), Token::Ledger.encode())?;
    }
    if let Some(elections) = &executor.elections {
        poll.add(elections.bell(), Token::Elections.encode())?;
    }
    poll.add(listener, Token::Listener.encode())?;
    poll.add(signals, Token::Signals.encode())?;
    Ok(())
}

fn no_pages() -> io::Result<Pages> {
    Ok(Pages::new(
        Stash::create()?,
        Changes::new(DiffStore::create()?),
    ))
}

/// A number drawn at random.
fn dice() -> Result<u64> {
    let mut source = rand::rngs::SysRng;
    source
        .try_next_u64()
        .context("the kernel has no randomness")
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
