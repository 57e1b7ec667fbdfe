//! `pagemesh swap`: memory of the cluster as swap space of a host, for programs in a memory control
//! group that has too little for them. Runs as root, where there are FUSE and loop devices.

use crate::support::{Cluster, eventually};
use pagemesh_cli::sandbox::Plan;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const MIB: u64 = 1 << 20;

/// The memory of the group, and what the program in it needs.
const LIMIT: u64 = 24 * MIB;
const NEED: u64 = 64;

/// A program that fills its memory with what is different in each page, checks it in order and out
/// of order, and waits. If it is told where the kernel counts what its group has to write out, it goes
/// no faster than that is written: the kernel ends a program whose group is full of such pages.
const PROGRAM: &str = r#"
import random, sys, time
pages = int(sys.argv[1]) * 256
memory = bytearray(pages * 4096)
def word(page, salt): return (page * 7919 + salt).to_bytes(8, "little")
def written_out():
    if len(sys.argv) < 3: return True
    for line in open(sys.argv[2]):
        name, count = line.split()
        if name in ("total_writeback", "file_writeback"): return int(count) < 1 << 19
    return True
def mind(step):
    while step % 64 == 0 and not written_out(): time.sleep(0.002)
def fill(salt):
    for page in range(pages):
        memory[page * 4096:page * 4096 + 8] = word(page, salt)
        mind(page)
def check(salt, order):
    for step, page in enumerate(order):
        assert memory[page * 4096:page * 4096 + 8] == word(page, salt), page
        mind(step)
fill(1)
check(1, range(pages))
order = random.Random(3).sample(range(pages), pages // 8)
check(1, order)
print("swapped", flush=True)
sys.stdin.readline()
check(1, order)
print("right", flush=True)
"#;

/// A memory control group with a limit, in whichever version this host has.
pub(crate) struct Group {
    path: PathBuf,
    limit: &'static str,
    tasks: &'static str,
}

impl Group {
    pub(crate) fn make(name: &str, bytes: u64) -> Option<Self> {
        let name = format!("pagemesh-{name}-{}", std::process::id());
        let [first, second] = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(PathBuf::from);
        let group = if first.join("memory.limit_in_bytes").exists() {
            Self {
                path: first.join(name),
                limit: "memory.limit_in_bytes",
                tasks: "tasks",
            }
        } else {
            let _ = std::fs::write(second.join("cgroup.subtree_control"), "+memory");
            Self {
                path: second.join(name),
                limit: "memory.max",
                tasks: "cgroup.procs",
            }
        };
        std::fs::create_dir(&group.path).ok()?;
        group.allow(bytes).then_some(group)
    }

    fn allow(&self, bytes: u64) -> bool {
        std::fs::write(self.path.join(self.limit), bytes.to_string()).is_ok()
    }

    /// Takes a process into the group: what it allocates from now on counts there.
    pub(crate) fn take(&self, pid: u32) {
        std::fs::write(self.path.join(self.tasks), pid.to_string()).unwrap();
    }

    /// A command that runs in the group from its first instruction on.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        let script = format!("echo $$ > \"$0\" && exec {program} \"$@\"");
        command
            .args(["-c", &script])
            .arg(self.path.join(self.tasks));
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// A swap device of a node, which goes with the test whatever happens.
struct Swap<'a> {
    cluster: &'a Cluster,
    state: PathBuf,
}

impl<'a> Swap<'a> {
    fn new(cluster: &'a Cluster, name: &str) -> Self {
        let name = format!("pagemesh-swap-{name}-{}", std::process::id());
        let state = std::env::temp_dir().join(name);
        Self { cluster, state }
    }

    fn order(&self, arguments: &[&str]) -> Command {
        let program = env!("CARGO_BIN_EXE_pagemesh-under-test");
        let mut command = self.cluster.node(0).command(program);
        command.args(["swap", "-o", "json"]).args(arguments);
        command.arg("--state").arg(&self.state);
        command
    }

    /// Runs it; what it printed, or why it failed.
    fn run(&self, arguments: &[&str]) -> Result<Value, String> {
        let output = self.order(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        match serde_json::from_str(&text) {
            // 4: it works, and the kernel does not allow all that would make it safer.
            Ok(document) if matches!(output.status.code(), Some(0 | 4)) => Ok(document),
            _ => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Swaps on; false where this host cannot, which is said.
    fn on(&self, size: &str) -> bool {
        match self.run(&["on", "--size", size, "--local", "8M"]) {
            Ok(_) => true,
            Err(why) => {
                let expected = [
                    "as root",
                    "modprobe",
                    "apt install",
                    "control group",
                    "may not",
                ];
                assert!(expected.iter().any(|cure| why.contains(cure)), "{why}");
                eprintln!("skipped: {}", why.trim());
                false
            }
        }
    }

    fn status(&self) -> Value {
        self.run(&["status"]).unwrap()
    }

    /// Bytes that are swapped out there.
    fn used(&self) -> u64 {
        self.status()["used"].as_u64().unwrap()
    }
}

impl Drop for Swap<'_> {
    fn drop(&mut self) {
        if self.state.exists() {
            let _ = self.order(&["off"]).status();
        }
    }
}

fn cluster() -> Option<Cluster> {
    let mut plan = Plan::new(3);
    let arguments = ["--memory", "1G", "--lend", "256M"];
    plan.daemon_args = arguments.map(str::to_owned).to_vec();
    Cluster::of(plan)
}

fn start(group: &Group, need: u64, minds: bool) -> Child {
    let mut command = group.command("python3");
    command.args(["-c", PROGRAM, &need.to_string()]);
    if minds {
        command.arg(group.path.join("memory.stat"));
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let out = child.stdout.take().unwrap();
    BufReader::new(out).lines().map_while(Result::ok)
}

/// Bytes of a process that are swapped out, its shared memory with them.
fn swapped(pid: u64) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Swap:"));
    let field = line.and_then(|line| line.split_whitespace().next());
    field.unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
#[ignore = "on a busy host the kernel ends the program: its group's memory is not written out in time"]
fn what_a_program_swaps_out_comes_back_and_swapping_ends_in_order() {
    let Some(group) = Group::make("swapping", LIMIT) else {
        eprintln!("skipped: no memory control group can be made here; run as root");
        return;
    };
    let Some(cluster) = cluster() else {
        return;
    };
    let swap = Swap::new(&cluster, "comes-back");
    if !swap.on("96M") {
        return;
    }
    let again = swap.run(&["on", "--size", "1M"]).unwrap_err();
    assert!(again.contains("pagemesh swap off"), "{again}");
    let mut program = start(&group, NEED, true);
    let mut said = lines(&mut program);
    assert_eq!(said.next().as_deref(), Some("swapped"));
    let status = swap.status();
    let used = status["used"].as_u64().unwrap();
    assert!(used >= (NEED * MIB - LIMIT) / 2, "{status}");
    // Those who serve the device lie in memory, by what the kernel says.
    for who in ["server", "daemon"] {
        let memory = &status[who]["memory"];
        assert!(memory["locked"].as_u64().unwrap() > 0, "{status}");
        assert_eq!(memory["swapped"], 0, "{status}");
        assert_eq!(swapped(status[who]["process"].as_u64().unwrap()), 0);
    }
    assert!(
        cluster.counter(0, "pages_evicted") > 0,
        "it is in the cluster"
    );
    // What does not fit is refused, and stays swapped out.
    let refused = swap.run(&["off"]).unwrap_err();
    assert!(refused.contains("control group"), "{refused}");
    assert!(swap.used() > 0);
    // With room it comes back, and the program goes on without the device.
    assert!(group.allow(512 * MIB));
    let document = swap.run(&["off"]).unwrap();
    assert!(document["brought_back"].as_u64().unwrap() > 0, "{document}");
    assert_eq!(swap.status()["on"], false);
    assert!(!swap.state.exists());
    program.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(said.next().as_deref(), Some("right"));
    assert!(program.wait().unwrap().success());
    let daemon = std::fs::read_to_string(format!("/proc/{}/status", cluster.node(0).pid()));
    let unlocked = |line: &str| line.starts_with("VmLck:") && line.contains(" 0 kB");
    assert!(
        daemon.unwrap().lines().any(unlocked),
        "the daemon is free again"
    );
}

/// The group needs more than its memory and the device together: the kernel ends the program, and
/// neither the daemon nor the device hangs.
#[test]
fn a_group_that_exhausts_its_memory_and_the_device_blocks_nothing() {
    let Some(group) = Group::make("exhausting", LIMIT) else {
        eprintln!("skipped: no memory control group can be made here; run as root");
        return;
    };
    let Some(cluster) = cluster() else {
        return;
    };
    let swap = Swap::new(&cluster, "exhausted");
    if !swap.on("24M") {
        return;
    }
    for _ in 0..2 {
        let mut program = start(&group, 2 * NEED, false);
        eventually("the kernel ends the program", || {
            program.try_wait().unwrap().is_some()
        });
        assert!(!program.wait().unwrap().success());
    }
    assert_eq!(cluster.mesh(0).members().unwrap().members.len(), 3);
    swap.run(&["off"]).unwrap();
    assert!(!swap.state.exists());
}

/// A daemon that would wait for its own device is not let serve one.
#[test]
fn a_server_in_a_group_with_a_limit_is_refused() {
    let Some(group) = Group::make("limited", 512 * MIB) else {
        eprintln!("skipped: no memory control group can be made here; run as root");
        return;
    };
    let Some(cluster) = cluster() else {
        return;
    };
    let swap = Swap::new(&cluster, "limited");
    let program = Path::new(env!("CARGO_BIN_EXE_pagemesh-under-test"));
    let mut command = group.command(program.to_str().unwrap());
    command.args(["swap", "on", "--size", "8M", "--state"]);
    command.arg(&swap.state);
    command.env("PAGEMESH_SOCKET", cluster.node(0).socket());
    let output = command.output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    if !why.contains("pagemesh-limited") {
        let expected = ["as root", "modprobe", "apt install"];
        assert!(expected.iter().any(|cure| why.contains(cure)), "{why}");
        eprintln!("skipped: {}", why.trim());
        return;
    }
    assert_eq!(output.status.code(), Some(1));
    assert!(!swap.state.exists(), "nothing is left of it");
}

#[test]
fn users_without_rights_are_told_what_to_do() {
    let Some(cluster) = cluster() else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let swap = Swap::new(&cluster, "nobody");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--clear-groups", "--"]);
    command.arg(env!("CARGO_BIN_EXE_pagemesh-under-test"));
    command.args(["swap", "on", "--size", "8M", "--state"]);
    command.arg(&swap.state);
    let output = command.output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(77), "{why}");
    assert!(why.contains("as root"), "{why}");
    let none = swap.run(&["off"]).unwrap_err();
    assert!(none.contains("pagemesh swap on"), "{none}");
}
