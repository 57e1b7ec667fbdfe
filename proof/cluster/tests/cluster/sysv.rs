//! System V programs on several nodes, unmodified: C programs of this directory,
//! with the library loaded before them.

use crate::replacement::{lasting, strike};
use crate::support::{A_WHILE, Cluster, Player, eventually};
use pagemesh_cli::sandbox::Plan;
use pagemesh_os::netns::die_with_parent;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// A cluster, the library, and programs compiled for the test.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    library: PathBuf,
}

impl Stage {
    pub(crate) fn set(nodes: usize) -> Option<Self> {
        Self::of(Plan::new(nodes))
    }

    pub(crate) fn of(plan: Plan) -> Option<Self> {
        Self::with_program(plan, env!("CARGO_BIN_EXE_pagemesh-under-test").into())
    }

    /// The daemons are this program.
    pub(crate) fn with_program(plan: Plan, program: PathBuf) -> Option<Self> {
        let cluster = Cluster::by(program, plan)?;
        let library = build_library("sysv");
        Some(Self { cluster, library })
    }

    /// A program of `cluster/c`.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        let program = self.cluster.directory().join(name);
        if !program.exists() {
            let mut compiler = Command::new("cc");
            compiler
                .args(["-std=gnu11", "-O1", "-Wall", "-Werror"])
                .arg(format!("{HERE}/tests/cluster/c/{name}.c"))
                .arg("-o")
                .arg(&program);
            run(&mut compiler);
        }
        program
    }

    /// A command on a node, its System V calls for the whole cluster.
    pub(crate) fn command(&self, node: usize, program: &Path) -> Command {
        let mut command = self.cluster.node(node).command(program);
        command.env("LD_PRELOAD", &self.library);
        command
    }

    pub(crate) fn scripted_node(&self, node: usize) -> Player {
        let program = self.program("sysv_scripted_node");
        let player = Player::run(self.command(node, &program), "sysv_scripted_node");
        player.expect("ready");
        player
    }

    /// Two scripted nodes on two nodes, and a set of one semaphore.
    pub(crate) fn pair(&self, value: i32) -> (Player, Player, String) {
        let (mut one, two) = (self.scripted_node(0), self.scripted_node(1));
        let set = one.ask("semget 77 1 01600");
        assert_eq!(one.ask(&format!("semctl {set} 0 16 {value}")), "0");
        (one, two, set)
    }
}

/// The library to be loaded before programs, of the crate of this name.
pub(crate) fn build_library(name: &str) -> PathBuf {
    let player = Path::new(env!("CARGO_BIN_EXE_pagemesh-player"));
    let directory = player.parent().unwrap();
    let library = directory.join(format!("libpagemesh_{name}.so"));
    if pagemesh_tests::libraries_are_built() {
        assert!(library.exists(), "PAGEMESH_BUILT, but no {library:?}");
        return library;
    }
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    let target = directory.parent().unwrap();
    build
        .args([
            "build",
            "--quiet",
            "--package",
            &format!("pagemesh-{name}"),
            "--target-dir",
        ])
        .arg(target)
        .current_dir(HERE);
    if directory.ends_with("release") {
        build.arg("--release");
    }
    run(&mut build);
    library
}

pub(crate) fn run(command: &mut Command) -> String {
    die_with_parent(command);
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{words}");
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until as many processes wait for the semaphore to rise.
fn waiting(player: &mut Player, set: &str, count: &str) {
    eventually("they wait", || {
        player.ask(&format!("semctl {set} 0 14")) == count
    });
}

/// The same random calls, made to the kernel and to PageMesh, end the same. On
/// the second node objects with keys are at home elsewhere.
#[test]
fn calls_end_as_the_kernel_ends_them() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let oracle = stage.program("sysv_oracle");
    let seeds = std::env::var("SYSV_SEEDS").map_or(6, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let arguments = [seed.to_string(), "400".to_owned()];
        let kernel = run(Command::new(&oracle).args(&arguments));
        for node in 0..2 {
            let ours = run(stage.command(node, &oracle).args(&arguments));
            let differ = kernel.lines().zip(ours.lines()).enumerate();
            let differ = differ.filter(|(_, (kernel, ours))| kernel != ours);
            let first = differ.map(|(line, texts)| (line + 1, texts)).next();
            assert_eq!(first, None, "seed {seed}, node {node}: line, kernel, ours");
            assert_eq!(kernel.lines().count(), ours.lines().count(), "seed {seed}");
        }
    }
}

#[test]
fn memory_is_shared_by_key_and_goes_with_its_last_attachment() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let (mut one, mut two) = (stage.scripted_node(0), stage.scripted_node(1));
    let id = two.ask("shmget 5 10000 01640");
    assert_eq!(one.ask("shmget 5 10000 0"), id);
    assert_eq!(one.ask("shmget 5 10001 0"), "EINVAL");
    assert_eq!(one.ask(&format!("shmat {id} 0 0")), "0");
    // Read-only, at an address of its own.
    assert_eq!(two.ask(&format!("shmat {id} 010000 7")), "0");
    assert_eq!(one.ask("poke 9999 42"), "42");
    assert_eq!(two.ask("peek 9999"), "42");
    assert_eq!(two.ask("poke 0 1"), "signal SEGV", "its own handler ran");
    assert_eq!(one.ask(&format!("nattch {id}")), "2");
    assert_eq!(two.ask(&format!("shmat {id} 0 7")), "EINVAL", "taken");
    assert_eq!(one.ask(&format!("rm 0 {id}")), "0");
    assert_eq!(one.ask("shmget 5 1 0"), "ENOENT");
    assert_eq!(two.ask("peek 9999"), "42");
    assert_eq!(one.ask("shmdt"), "0");
    assert_eq!(two.ask(&format!("nattch {id}")), "1");
    two.tell("crash 0");
    assert_eq!(two.hear_within(A_WHILE), None);
    eventually("it dies", || matches!(two.state(), Some('Z') | None));
    eventually("the segment is gone", || {
        one.ask(&format!("nattch {id}")) == "EINVAL"
    });
}

#[test]
fn attachments_are_inherited_by_fork_and_dropped_by_exec_and_exit() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let (mut one, mut two) = (stage.scripted_node(0), stage.scripted_node(1));
    let id = one.ask("shmget 6 4096 01600");
    assert_eq!(two.ask(&format!("shmat {id} 0 0")), "0");
    assert_eq!(two.ask("fork"), "0");
    assert_eq!(one.ask(&format!("nattch {id}")), "2");
    assert_eq!(two.ask("poke 3 33"), "33", "the child");
    assert_eq!(one.ask(&format!("shmat {id} 0 0")), "0");
    assert_eq!(one.ask("peek 3"), "33");
    assert_eq!(two.ask("exec"), "ready");
    eventually("exec drops it", || one.ask(&format!("nattch {id}")) == "2");
    assert_eq!(two.ask("exit 3"), "3", "the parent goes on");
    assert_eq!(two.ask(&format!("nattch {id}")), "2");
    assert_eq!(two.ask("peek 3"), "33");
    two.kill();
    eventually("death drops it", || one.ask(&format!("nattch {id}")) == "1");
}

#[test]
fn semaphores_exclude_across_nodes() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let (mut one, mut two, set) = stage.pair(1);
    let id = one.ask("shmget 8 4096 01600");
    for player in [&mut one, &mut two] {
        assert_eq!(player.ask(&format!("shmat {id} 0 0")), "0");
    }
    one.tell(&format!("loop {set} 200"));
    two.tell(&format!("loop {set} 200"));
    one.hear();
    two.hear();
    assert_eq!(one.ask("count"), "400");
}

#[test]
fn a_sleeper_wakes_when_it_may_and_hears_of_removal() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let (mut one, mut two, set) = stage.pair(0);
    two.tell(&format!("semop {set} -1 0:-1:0"));
    waiting(&mut one, &set, "1");
    assert_eq!(one.ask(&format!("semop {set} -1 0:1:0")), "0");
    two.expect("0");
    assert_eq!(two.ask(&format!("semop {set} 50 0:-1:0")), "EAGAIN");
    assert_eq!(one.ask(&format!("semctl {set} 0 14")), "0");
    two.tell(&format!("semop {set} -1 0:-1:0"));
    waiting(&mut one, &set, "1");
    assert_eq!(one.ask(&format!("rm 1 {set}")), "0");
    two.expect("EIDRM");
    assert_eq!(two.ask(&format!("semop {set} -1 0:-1:0")), "EINVAL");
    let queue = one.ask("msgget 9 01600");
    two.tell(&format!("msgrcv {queue} 100 0 0"));
    two.expect_silence();
    assert_eq!(one.ask(&format!("msgsnd {queue} 3 20 0")), "0");
    two.expect("30020");
    two.tell(&format!("msgrcv {queue} 100 5 0"));
    two.expect_silence();
    assert_eq!(one.ask(&format!("rm 2 {queue}")), "0");
    two.expect("EIDRM");
}

#[test]
fn what_a_process_took_is_given_back_however_it_ends() {
    let Some(stage) = Stage::set(3) else {
        return;
    };
    let (mut one, mut two, set) = stage.pair(3);
    const UNDO: i32 = 0x1000;
    let take = format!("semop {set} -1 0:-1:{UNDO}");
    let value = format!("semctl {set} 0 12");
    assert_eq!(two.ask(&take), "0");
    assert_eq!(two.ask("fork"), "0");
    assert_eq!(two.ask(&take), "0");
    assert_eq!(one.ask(&value), "1");
    assert_eq!(two.ask("exit 0"), "0");
    assert_eq!(
        two.ask(&value),
        "2",
        "its child's is undone before wait returns"
    );
    two.kill();
    eventually("a killed one's is undone", || one.ask(&value) == "3");
    let mut three = stage.scripted_node(2);
    assert_eq!(three.ask(&take), "0");
    three.tell(&format!("semop {set} -1 0:-5:0"));
    waiting(&mut one, &set, "1");
    three.kill();
    // As in a kernel, where it stops sleeping before it dies.
    waiting(&mut one, &set, "0");
    eventually("and what it had taken", || one.ask(&value) == "3");
}

#[test]
fn what_a_process_took_stays_taken_when_it_executes_another_program() {
    let Some(stage) = Stage::of(lasting(2)) else {
        return;
    };
    let (mut one, mut two, set) = stage.pair(3);
    let take = format!("semop {set} -1 0:-1:{}", 0x1000);
    let value = format!("semctl {set} 0 12");
    let id = two.ask("shmget 6 4096 01600");
    assert_eq!(two.ask(&format!("shmat {id} 0 0")), "0");
    assert_eq!(two.ask(&take), "0");
    assert_eq!(two.ask("exec"), "ready");
    eventually("exec drops it", || one.ask(&format!("nattch {id}")) == "0");
    assert_eq!(two.ask(&take), "0");
    assert_eq!(one.ask(&value), "1", "both are taken");
    strike(&stage.cluster, 1);
    assert_eq!(two.ask(&value), "1", "the next daemon knows");
    assert_eq!(two.ask("exec"), "ready");
    assert_eq!(one.ask(&value), "1");
    two.kill();
    eventually("all is undone", || one.ask(&value) == "3");
}

/// Daemons are killed and replaced: who sleeps in a call sleeps on, who goes round goes
/// round, and what was taken is given back in the end.
#[test]
fn calls_go_on_when_daemons_are_killed_and_replaced() {
    const UNDO: i32 = 0x1000;
    let Some(stage) = Stage::of(lasting(2)) else {
        return;
    };
    let (mut one, mut two, set) = stage.pair(1);
    let (mut sleeper, mut holder) = (stage.scripted_node(1), stage.scripted_node(1));
    let memory = one.ask("shmget 8 4096 01600");
    for player in [&mut one, &mut two] {
        assert_eq!(player.ask(&format!("shmat {memory} 0 0")), "0");
    }
    let queue = one.ask("msgget 9 01600");
    sleeper.tell(&format!("msgrcv {queue} 100 5 0"));
    sleeper.expect_silence();
    let lent = one.ask("semget 78 1 01600");
    assert_eq!(one.ask(&format!("semctl {lent} 0 16 3")), "0");
    let take = format!("semop {lent} -1 0:-1:{UNDO}");
    assert_eq!(holder.ask(&take), "0");
    one.tell(&format!("loop {set} 1000"));
    two.tell(&format!("loop {set} 1000"));
    for node in [1, 0, 1, 0, 1, 0] {
        strike(&stage.cluster, node);
    }
    one.hear();
    two.hear();
    assert_eq!(one.ask("count"), "2000");
    assert_eq!(one.ask(&format!("msgsnd {queue} 5 20 0")), "0");
    sleeper.expect("50020");
    let value = format!("semctl {lent} 0 12");
    assert_eq!(one.ask(&value), "2");
    holder.kill();
    eventually("it is given back", || one.ask(&value) == "3");
}

#[test]
fn signals_interrupt_who_waits_and_nobody_else() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let (mut one, mut two, set) = stage.pair(0);
    for restart in [0, 1] {
        assert_eq!(two.ask(&format!("alarm 0 {restart}")), "0");
        let wait = format!("semop {set} -1 0:-1:0");
        assert_eq!(interrupted(&mut two, &wait), "EINTR", "{restart}");
    }
    let queue = one.ask("msgget 9 01600");
    let wait = format!("msgrcv {queue} 10 0 0");
    assert_eq!(interrupted(&mut two, &wait), "EINTR");
    assert_eq!(
        one.ask(&format!("semctl {set} 0 14")),
        "0",
        "nobody waits any more"
    );
    // One every millisecond, in the middle of whatever it does, each with a System V
    // call of its own in the handler.
    let other = one.ask("semget 78 1 01600");
    assert_eq!(one.ask(&format!("semctl {set} 0 16 1")), "0");
    let id = one.ask("shmget 8 4096 01600");
    assert_eq!(two.ask(&format!("shmat {id} 0 0")), "0");
    let signals = |two: &mut Player| two.ask("signals").parse::<i32>().unwrap();
    let before = signals(&mut two);
    assert_eq!(two.ask(&format!("alarm 1 0 {other}")), "0");
    let mut loops = 0;
    while loops < 500 || signals(&mut two) < before + 10 {
        loops += 500;
        assert_eq!(two.ask(&format!("loop {set} 500")), loops.to_string());
    }
    assert_eq!(two.ask("alarm 0 0"), "0");
    let counted: i32 = one.ask(&format!("semctl {other} 0 12")).parse().unwrap();
    let came = signals(&mut two) - before;
    assert_eq!(counted, came, "each call in a handler counted once");
}

/// What a call says that waits, and is interrupted by a signal. The first signals may come before it
/// waits; none comes after this.
pub(crate) fn interrupted(player: &mut Player, call: &str) -> String {
    let mut said = None;
    player.tell(call);
    eventually("it is interrupted", || {
        player.signal(Signal::ALARM);
        said = player.hear_within(A_WHILE);
        said.is_some()
    });
    player.ask("signals");
    said.expect("it says so")
}

#[test]
fn calls_through_syscall_are_caught() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let (mut one, mut two) = (stage.scripted_node(0), stage.scripted_node(1));
    for (family, get) in [
        (0, "shmget 11 4096 0"),
        (1, "semget 11 1 0"),
        (2, "msgget 11 0"),
    ] {
        let middle = ["4096 01600", "1 01600", "01600 0"][family];
        let id = one.ask(&format!("raw {family} 11 {middle}"));
        assert_eq!(two.ask(get), id);
    }
}

#[test]
fn who_changes_its_user_is_judged_by_what_it_is_now() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    let (mut one, mut two) = (stage.scripted_node(0), stage.scripted_node(1));
    let id = one.ask("shmget 12 4096 01600");
    assert_eq!(two.ask(&format!("shmat {id} 0 0")), "0");
    assert_eq!(two.ask("shmdt"), "0");
    assert_eq!(two.ask("setuid 1234"), "0");
    assert_eq!(two.ask(&format!("shmat {id} 0 0")), "EACCES");
    assert_eq!(two.ask(&format!("rm 0 {id}")), "EPERM");
    assert_eq!(one.ask(&format!("chown {id} 1234 0400")), "0");
    assert_eq!(two.ask(&format!("shmat {id} 010000 0")), "0");
    assert_eq!(two.ask(&format!("shmat {id} 0 0")), "EACCES");
    assert_eq!(two.ask(&format!("rm 0 {id}")), "0");
}

/// Private objects never leave their node, and neither do those with keys on the
/// node that keeps them (M4).
/// On the loss of a node, its processes' semaphores are given back, their waits
/// end, and what it kept for itself is gone.
#[test]
fn the_death_of_a_node_undoes_what_its_processes_did() {
    let Some(stage) = Stage::set(3) else {
        return;
    };
    let (mut one, mut two, set) = stage.pair(1);
    let mut three = stage.scripted_node(2);
    let private = three.ask("shmget 0 4096 01600");
    assert_eq!(two.ask(&format!("shmat {private} 0 0")), "0");
    assert_eq!(three.ask(&format!("shmat {private} 0 0")), "0");
    assert_eq!(three.ask("poke 0 7"), "7");
    assert_eq!(two.ask("peek 0"), "7");
    assert_eq!(three.ask("poke 0 8"), "8");
    assert_eq!(three.ask(&format!("semop {set} -1 0:-1:{}", 0x1000)), "0");
    let shared = three.ask("shmget 31 4096 01600");
    assert_eq!(three.ask(&format!("shmat {shared} 0 0")), "0");
    assert_eq!(one.ask(&format!("rm 0 {shared}")), "0");
    two.tell(&format!("semop {set} -1 0:-1:0"));
    waiting(&mut one, &set, "1");
    stage.cluster.kill(2).unwrap();
    two.expect("0");
    assert_eq!(
        one.ask(&format!("nattch {shared}")),
        "EINVAL",
        "its last attachment went"
    );
    assert_eq!(two.ask(&format!("nattch {private}")), "EINVAL");
    assert_eq!(two.ask("peek 0"), "signal BUS", "lost, and said so");
}
