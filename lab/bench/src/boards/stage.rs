//! Nodes on one bridge: a writer on the first, a reader on each of the next, a broker on the last.

use super::outcome::{Outcome, Played, Watched, Wrote};
use super::process::{self, Process};
use super::systems::{Broker, System};
use super::{Case, Load, Scenario, Waiting, companion, install};
use crate::loss;
use crate::peers::install::{need, need_import};
use anyhow::{Context, Result, ensure};
use pagemesh_cli::sandbox::{Plan, Sandbox};
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Every process may take so long to begin and to end; there are many, on few processors.
const PATIENCE: Duration = Duration::from_secs(60);

/// So long after the last state it may still be repaired.
const SETTLE: Duration = Duration::from_millis(500);

/// A broker takes so long to listen.
const BROKER: Duration = Duration::from_millis(500);

/// How a package comes to Python.
const INSTALL: &str = "--install installs packages of peers, PYTHONPATH finds PageMesh's";

/// Of Ethernet. The floor's datagrams fit it.
const MTU: u32 = 1500;

const BROKER_PORT: u16 = 7997;

/// Where daemons send what several nodes get at once.
const GROUP: &str = "239.77.0.1:7450";

/// Of a hundred packets that come in, lost under [`Scenario::Loss`].
const LOST_PERCENT: u32 = 5;

/// What the programs have in common.
const MAIN: &str = include_str!("../../../apps/boards/main.c");
const HEADER: &str = include_str!("../../../apps/boards/board.h");
const PAGEMESH_HEADER: &str = include_str!("../../../../crates/capi/include/pagemesh.h");

/// The program of the peers.
const PEERS: [(&str, &str); 3] = [
    ("main.py", include_str!("peers/main.py")),
    ("systems.py", include_str!("peers/systems.py")),
    ("redis_wire.py", include_str!("peers/redis_wire.py")),
];

/// The library's names: of the linker, and of the loader.
const LIBRARY: [&str; 2] = ["libpagemesh.so", "libpagemesh.so.0"];

pub(super) struct Stage {
    readers: usize,
    python: PathBuf,
    /// Measurements so far: each has a board of its own.
    turn: u32,
    sandbox: Sandbox,
}

/// A role of a process, and on which node.
#[derive(Clone, Copy)]
struct Part {
    role: &'static str,
    node: usize,
}

const WRITER: usize = 0;

impl Stage {
    pub(super) fn raise(readers: usize, waiting: Option<Waiting>, venv: &Path) -> Result<Self> {
        let mut plan = Plan::new(readers + 2);
        plan.mtu = MTU;
        plan.daemon_args.push(format!("--multicast={GROUP}"));
        plan.waiting = waiting.map(|waiting| waiting.name().to_owned());
        let sandbox = Sandbox::start(&plan).context("cannot set the stage")?;
        ensure!(
            sandbox.isolated(),
            "nodes have no namespaces of their own here, so that nothing would pass a network: run as root"
        );
        for (file, text) in PEERS {
            std::fs::write(sandbox.directory().join(file), text)?;
        }
        let python = install::python(venv);
        let python = if python.is_file() {
            python
        } else {
            "python3".into()
        };
        Ok(Self {
            readers,
            python,
            turn: 0,
            sandbox,
        })
    }

    /// Makes sure that a system can be started.
    pub(super) fn prepare(&self, system: System) -> Result<()> {
        if let Some(source) = system.source() {
            return self.compile(system, source);
        }
        need_import(&self.python, "import numpy", INSTALL)?;
        if let Some(import) = system.import() {
            need_import(&self.python, import, INSTALL)?;
        }
        if let Some(broker) = system.broker() {
            need(&[broker.program()], broker.program())?;
        }
        if system == System::Lcm {
            need(&["ip"], "iproute2")?;
            for node in self.sandbox.nodes() {
                let mut ip = node.command("ip");
                loss::succeed(ip.args(["route", "replace", "224.0.0.0/4", "dev", "mesh0"]))?;
            }
        }
        Ok(())
    }

    fn compile(&self, system: System, source: &str) -> Result<()> {
        need(&["cc"], "gcc")?;
        let directory = self.sandbox.directory();
        let own = format!("{}.c", system.name());
        for (file, text) in [
            ("main.c", MAIN),
            ("board.h", HEADER),
            ("pagemesh.h", PAGEMESH_HEADER),
            (&own, source),
        ] {
            std::fs::write(directory.join(file), text).context("cannot write a program")?;
        }
        let mut compiler = Command::new("cc");
        compiler.current_dir(directory).args(["-O2", "-I."]);
        compiler.args(["main.c", &own, "-o", system.name()]);
        if system.is_ours() {
            let library = self.sandbox.program().with_file_name(LIBRARY[0]);
            ensure!(
                library.is_file(),
                "no {}: build the C library (cargo build -p pagemesh-capi)",
                library.display()
            );
            for name in LIBRARY {
                let link = directory.join(name);
                if !link.exists() {
                    std::os::unix::fs::symlink(&library, link)?;
                }
            }
            compiler.args(["-L.", "-Wl,-rpath,$ORIGIN", "-lpagemesh"]);
        }
        loss::succeed(&mut compiler)
    }

    /// One measurement.
    pub(super) fn run(&mut self, system: System, case: Case, seconds: f64) -> Result<Outcome> {
        self.turn += 1;
        let beside = case.load == Load::Companion;
        let _companion = beside.then(companion::Running::start).transpose()?;
        let broker = system.broker().map(|kind| self.serve(kind)).transpose()?;
        let loses = case.scenario == Scenario::Loss;
        let _losing = loses.then(|| Losing::start(&self.sandbox)).transpose()?;
        let before = broker.as_ref().map_or(0, Process::busy);
        let mut outcome = match case.scenario {
            Scenario::Ping => self.play(system, case, seconds)?,
            Scenario::Late => self.join(system, case)?,
            _ => self.watch(system, case, seconds)?,
        };
        outcome.cpu_broker = broker.as_ref().map_or(0, Process::busy) - before;
        Ok(outcome)
    }

    fn watch(&self, system: System, case: Case, seconds: f64) -> Result<Outcome> {
        let start = |part| self.start(system, case, seconds, part);
        let readers: Result<Vec<Process>> = (1..=self.readers)
            .map(|node| {
                start(Part {
                    role: "watch",
                    node,
                })
            })
            .collect();
        let readers = readers?;
        for reader in &readers {
            reader.wait_until_ready(PATIENCE)?;
        }
        let mut writer = start(Part {
            role: "write",
            node: WRITER,
        })?;
        writer.wait_until_ready(PATIENCE)?;
        let before = self.busy(system);
        let sent = self.sent()?;
        writer.go()?;
        let stops = case.scenario == Scenario::Stopped;
        if stops {
            let third = Duration::from_secs_f64(seconds / 3.0);
            sleep(third);
            readers[0].signal(Signal::STOP)?;
            sleep(third);
            readers[0].signal(Signal::CONT)?;
        }
        let patience = PATIENCE + Duration::from_secs_f64(seconds);
        let wrote: Wrote = read(&writer.hear(patience)?)?;
        sleep(SETTLE);
        let sent = self.sent()?.saturating_sub(sent);
        let after = self.busy(system);
        let mut watched: Vec<Watched> = Vec::new();
        for reader in &readers {
            reader.signal(Signal::TERM)?;
            watched.push(read(&reader.hear(PATIENCE)?)?);
        }
        writer.go()?;
        let mut outcome = Outcome::of(wrote, watched, stops.then_some(0));
        outcome.sent = sent;
        for (node, (after, before)) in after.into_iter().zip(before).enumerate() {
            let more = after.saturating_sub(before);
            if node == WRITER {
                outcome.cpu_writer += more;
            } else if node <= self.readers {
                outcome.cpu_readers += more;
            }
        }
        Ok(outcome)
    }

    fn join(&self, system: System, case: Case) -> Result<Outcome> {
        let start = |part| self.start(system, case, 1.0, part);
        let mut writer = start(Part {
            role: "hold",
            node: WRITER,
        })?;
        writer.wait_until_ready(PATIENCE)?;
        sleep(SETTLE);
        let reader = start(Part {
            role: "join",
            node: 1,
        })?;
        reader.wait_until_ready(PATIENCE)?;
        sleep(SETTLE);
        reader.signal(Signal::TERM)?;
        let watched: Watched = read(&reader.hear(PATIENCE)?)?;
        writer.go()?;
        Ok(Outcome::of_join(&watched))
    }

    fn play(&self, system: System, case: Case, seconds: f64) -> Result<Outcome> {
        let start = |part| self.start(system, case, seconds, part);
        let pong = start(Part {
            role: "pong",
            node: 1,
        })?;
        pong.wait_until_ready(PATIENCE)?;
        let mut ping = start(Part {
            role: "ping",
            node: WRITER,
        })?;
        ping.wait_until_ready(PATIENCE)?;
        ping.go()?;
        let played: Played = read(&ping.hear(PATIENCE + Duration::from_secs_f64(seconds))?)?;
        pong.signal(Signal::TERM)?;
        Ok(Outcome::of_play(played))
    }

    fn start(&self, system: System, case: Case, seconds: f64, part: Part) -> Result<Process> {
        let node = self.sandbox.node(part.node);
        let directory = self.sandbox.directory();
        let mut command = if system.source().is_some() {
            node.command(directory.join(system.name()))
        } else {
            let mut command = node.command(&self.python);
            command.arg(directory.join(PEERS[0].0)).arg(system.name());
            command
        };
        command
            .arg(part.role)
            .arg(format!("bench.boards.{}", self.turn))
            .arg(node.address().ip().to_string())
            .arg(case.size.to_string())
            .arg(case.scenario.rate().to_string())
            .arg(seconds.to_string());
        if system.source().is_some() {
            // A packet that the kernel would split later is lost whole.
            let whole = case.scenario != Scenario::Loss;
            command.arg(if whole { "1" } else { "0" });
        } else {
            command.arg(self.broker_address());
        }
        let errors = directory.join(format!("{}-{}.err", part.role, part.node));
        Process::start(command, &errors)
    }

    fn broker_address(&self) -> String {
        let ip = self.sandbox.node(self.readers + 1).address().ip();
        format!("{ip}:{BROKER_PORT}")
    }

    /// Starts a broker on the last node.
    fn serve(&self, kind: Broker) -> Result<Process> {
        let directory = self.sandbox.directory();
        let node = self.sandbox.node(self.readers + 1);
        let (ip, port) = (node.address().ip().to_string(), BROKER_PORT.to_string());
        let mut command = node.command(kind.program());
        match kind {
            Broker::Redis => command
                .args(["--bind", &ip, "--port", &port])
                .args(["--save", "", "--appendonly", "no"])
                // Nobody else is on that network.
                .args(["--protected-mode", "no"])
                .arg("--dir")
                .arg(directory),
            Broker::Mosquitto => {
                let file = directory.join("mosquitto.conf");
                let text = format!(
                    "listener {port} {ip}\nallow_anonymous true\nset_tcp_nodelay true\nlog_type error\n"
                );
                std::fs::write(&file, text)?;
                command.arg("-c").arg(file)
            }
        };
        let process = Process::start(command, &directory.join("broker.err"))?;
        sleep(BROKER);
        Ok(process)
    }

    /// Processor time of every node's daemon, if they work for that system.
    fn busy(&self, system: System) -> Vec<u64> {
        let nodes = self.sandbox.nodes().iter();
        let ours = nodes.filter(|_| system.is_ours());
        ours.map(|node| process::busy(node.pid())).collect()
    }

    /// Bytes that have left the writer's node.
    fn sent(&self) -> Result<u64> {
        let path = format!("/proc/{}/net/dev", self.sandbox.node(WRITER).pid());
        let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        sent_by("mesh0:", &text).with_context(|| format!("no mesh0 in {path}"))
    }
}

/// The bytes that a device has sent, in the kernel's table: the ninth number.
fn sent_by(device: &str, table: &str) -> Option<u64> {
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix(device))?;
    line.split_whitespace().nth(8)?.parse().ok()
}

fn read<T: DeserializeOwned>(line: &str) -> Result<T> {
    serde_json::from_str(line).with_context(|| format!("not a result: {line:.80}"))
}

/// Every node loses packets, as long as this lives.
struct Losing<'s>(&'s Sandbox);

impl<'s> Losing<'s> {
    fn start(sandbox: &'s Sandbox) -> Result<Self> {
        let losing = Self(sandbox);
        for node in sandbox.nodes() {
            loss::drop_incoming(LOST_PERCENT * 10, || node.command("tc"))?;
        }
        Ok(losing)
    }
}

impl Drop for Losing<'_> {
    fn drop(&mut self) {
        for node in self.0.nodes() {
            let mut tc = node.command("tc");
            // A node that never got so far has nothing to take away.
            let _ = loss::succeed(tc.args(["qdisc", "del", "dev", "mesh0", "clsact"]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_sent_are_the_ninth_number() {
        let table = "Inter-| Receive\n  lo: 1 2 3 4 5 6 7 8 9\n mesh0: 10 1 0 0 0 0 0 0 77 2 0";
        assert_eq!(sent_by("mesh0:", table), Some(77));
        assert_eq!(sent_by("mesh1:", table), None);
    }
}
