//! A cluster for a test, and processes on its nodes.

mod bus;
mod evidence;
pub(crate) mod guarded_etcd;
mod joiner;
mod permit;
mod player;
mod stranger;
pub(crate) mod views;
mod watchdog;

pub(crate) use joiner::Joiner;
pub(crate) use player::{Player, finish_all, sleeps_in, state};
pub(crate) use stranger::Stranger;

use pagemesh::{Access, Mapping, Mesh, Options, PAGE_SIZE, Segment};
use pagemesh_cli::sandbox::{Plan, Sandbox};
use pagemesh_os::uffd::Uffd;
use permit::Permit;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use watchdog::Watchdog;

/// For what must come, but not soon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// For what must not come: long enough to be seen if it does.
pub(crate) const A_WHILE: Duration = Duration::from_millis(200);

/// One page, as sizes are given.
pub(crate) const PAGE: u64 = PAGE_SIZE as u64;

/// A cluster that is taken down at the end of the test.
pub(crate) struct Cluster {
    sandbox: Sandbox,
    watchdog: Watchdog,
    _permit: Permit,
}

impl Cluster {
    /// A cluster of as many nodes; `None`, with the reason on the error output, if this machine
    /// does not allow such tests.
    pub(crate) fn start(nodes: usize) -> Option<Self> {
        Self::of(Plan::new(nodes))
    }

    /// The cluster of a plan, of the program under test if the plan names no other.
    pub(crate) fn of(plan: Plan) -> Option<Self> {
        let under_test = || env!("CARGO_BIN_EXE_pagemesh-under-test").into();
        Self::by(plan.program.clone().unwrap_or_else(under_test), plan)
    }

    /// The same, its daemons started by this program.
    pub(crate) fn by(program: PathBuf, mut plan: Plan) -> Option<Self> {
        if let Err(error) = Uffd::create(None) {
            eprintln!("skipped: userfaultfd is not permitted here ({error}); run as root");
            return None;
        }
        bus::announce();
        plan.program = Some(program);
        let permit = Permit::for_plan(&plan);
        let sandbox = match Sandbox::start(&plan) {
            Ok(sandbox) => sandbox,
            Err(error) => panic!("no cluster of {} nodes: {error:#}", plan.nodes),
        };
        let watchdog = Watchdog::over(&sandbox);
        Some(Self {
            sandbox,
            watchdog,
            _permit: permit,
        })
    }

    /// This process, as a process of that node.
    pub(crate) fn mesh(&self, node: usize) -> Mesh {
        Mesh::connect_to(self.node(node).socket()).expect("the daemon is there")
    }

    /// A mapping of an existing segment on that node, to store to.
    pub(crate) fn map(&self, node: usize, name: &str) -> Mapping {
        let segment = self.mesh(node).open(name, Access::Writable);
        segment.expect("the segment is there").map().unwrap()
    }

    /// A new segment of so many pages, made on node 0, mapped on every node.
    pub(crate) fn share(&self, name: &str, pages: u64) -> Vec<Mapping> {
        self.share_with(name, pages, Options::default())
    }

    /// As [`Cluster::share`], with options.
    pub(crate) fn share_with(&self, name: &str, pages: u64, options: Options) -> Vec<Mapping> {
        self.make_on(0, name, pages, options);
        (0..self.nodes().len())
            .map(|node| self.map(node, name))
            .collect()
    }

    /// A new segment, made on that node.
    pub(crate) fn make_on(&self, node: usize, name: &str, pages: u64, options: Options) -> Segment {
        let options = Options {
            exclusive: true,
            ..options
        };
        let made = self.mesh(node).create(name, pages * PAGE, options);
        made.expect("the segment is new")
    }

    /// A player on that node. Arguments are separated by blanks.
    pub(crate) fn player(&self, node: usize, arguments: &str) -> Player {
        Player::start(self.node(node), arguments)
    }

    /// A scripted node on that node that has mapped the segment.
    pub(crate) fn scripted_node(&self, node: usize, arguments: &str) -> Player {
        let scripted_node = self.player(node, &format!("scripted-node {arguments}"));
        scripted_node.expect("ready");
        scripted_node
    }

    /// Counters of a node by name.
    pub(crate) fn counter(&self, node: usize, name: &str) -> u64 {
        let counters = self.mesh(node).counters().unwrap();
        let found = counters.into_iter().find(|(of, _)| of == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.watchdog.show("fails");
        }
    }
}

impl Deref for Cluster {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.sandbox
    }
}

impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut Sandbox {
        &mut self.sandbox
    }
}

/// The word at an offset.
pub(crate) fn load(memory: &Mapping, at: usize) -> u64 {
    memory.load_u64(at).unwrap()
}

/// Stores a word at an offset.
pub(crate) fn store(memory: &Mapping, at: usize, value: u64) {
    let word = memory.atomic_u64(at).unwrap();
    word.store(value, Ordering::SeqCst);
}

/// Tells what works beside a test that it is over, also if the test has failed.
pub(crate) struct OnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How long a stress test goes on: `PAGEMESH_STRESS_SECONDS`, or a few seconds.
pub(crate) fn stress_time() -> Duration {
    let seconds = std::env::var("PAGEMESH_STRESS_SECONDS").ok();
    let seconds = seconds.map_or(3.0, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs_f64(seconds)
}

/// Waits until a condition holds, by polling.
pub(crate) fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "never so: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A slice of processor time that others take makes counts and waits larger, by resends and signs
/// of life, and never smaller. So what is too much is tried again; a fault makes it too
/// much every time.
pub(crate) fn at_best(mut attempt: impl FnMut() -> Result<(), String>) {
    const ATTEMPTS: usize = 20;
    let mut said = Vec::new();
    while said.len() < ATTEMPTS {
        match attempt() {
            Ok(()) => return,
            Err(what) => said.push(what),
        }
        // Measurements of the network (multicast reach, times of answers) begin anew.
        std::thread::sleep(A_WHILE * said.len() as u32);
    }
    panic!("never as it should be: {said:#?}");
}

/// For [`at_best`].
pub(crate) fn expect(so: bool, what: impl Into<String>) -> Result<(), String> {
    so.then_some(()).ok_or_else(|| what.into())
}
