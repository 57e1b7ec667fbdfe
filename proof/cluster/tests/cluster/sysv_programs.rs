//! Programs of Debian that use System V IPC, unmodified, their processes on
//! different nodes. `scripts/setup --sysv` installs them.

use crate::support::finish_all;
use crate::sysv::Stage;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether this succeeds: else the program is not installed here.
fn has(command: &str, arguments: &[&str]) -> bool {
    let mut probe = Command::new(command);
    let there = probe
        .args(arguments)
        .output()
        .is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("skipped: {command} {arguments:?} fails; scripts/setup --sysv installs it");
    }
    there
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cluster/sysv")
        .join(name)
}

/// One process on each of two nodes, each of which must say that it is done.
fn converse(interpreter: &str, name: &str) {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let start = |node: usize, role: &str| {
        let mut command = stage.command(node, Path::new(interpreter));
        command.arg(script(name)).arg(role);
        crate::support::Player::run(command, name)
    };
    let said = finish_all(vec![start(0, "server"), start(1, "client")]);
    assert_eq!(said, [["done"], ["done"]], "{name}");
}

#[test]
fn perl_talks_through_queue_semaphore_and_memory() {
    if has("perl", &["-MIPC::SharedMem", "-e1"]) {
        converse("perl", "perl_core.pl");
    }
}

#[test]
fn share_lite_keeps_one_value_for_two_nodes() {
    if has("perl", &["-MIPC::ShareLite", "-e1"]) {
        converse("perl", "sharelite.pl");
    }
}

#[test]
fn python_talks_through_queue_semaphore_and_memory() {
    if has("/usr/bin/python3", &["-c", "import sysv_ipc"]) {
        converse("/usr/bin/python3", "conversation.py");
    }
}

#[test]
fn stress_ng_finds_nothing_wrong() {
    if !has("stress-ng", &["--version"]) {
        return;
    }
    let Some(stage) = Stage::set(2) else {
        return;
    };
    for node in 0..2 {
        for stressor in [
            &["--sem-sysv", "2", "--sem-sysv-ops", "500"][..],
            &["--msg", "2", "--msg-ops", "500"],
            &[
                "--shm-sysv",
                "1",
                "--shm-sysv-ops",
                "2",
                "--shm-sysv-bytes",
                "1M",
            ],
        ] {
            let mut command = stage.command(node, Path::new("stress-ng"));
            command.args(stressor).args(["--verify", "--timeout", "60"]);
            let output = command.output().unwrap();
            let words = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "{stressor:?} on node {node}: {words}"
            );
            assert!(words.contains("successful run"), "{stressor:?}: {words}");
        }
    }
}

#[test]
fn what_ipcmk_makes_is_there_on_the_other_node_until_ipcrm() {
    if !has("ipcmk", &["--version"]) {
        return;
    }
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let mut make = stage.command(1, Path::new("ipcmk"));
    let made = make.args(["-M", "5000", "-S", "3", "-Q"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let list = || {
        let program = env!("CARGO_BIN_EXE_pagemesh-under-test");
        let output = stage
            .cluster
            .node(0)
            .command(program)
            .args(["ipcs", "-o", "json"])
            .output();
        let document: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        assert_eq!(document["schema_version"], 1);
        ["segments", "semaphores", "queues"]
            .map(|family| document[family].as_array().unwrap().clone())
    };
    let [segments, semaphores, queues] = list();
    assert_eq!((segments.len(), semaphores.len(), queues.len()), (1, 1, 1));
    assert_eq!(
        (&segments[0]["bytes"], &segments[0]["site"]),
        (&5000.into(), &2.into())
    );
    assert_eq!(semaphores[0]["semaphores"], 3);
    // util-linux's own removes one, ours the others.
    let mut remove = stage.command(0, Path::new("ipcrm"));
    let gone = remove
        .args(["-m", &segments[0]["id"].to_string()])
        .output()
        .unwrap();
    assert!(gone.status.success(), "{gone:?}");
    let program = env!("CARGO_BIN_EXE_pagemesh-under-test");
    let mut remove = stage.cluster.node(1).command(program);
    remove.args(["ipcrm", "-S", &semaphores[0]["key"].to_string()]);
    remove.args(["--queue-id", &queues[0]["id"].to_string()]);
    let gone = remove.output().unwrap();
    assert!(gone.status.success(), "{gone:?}");
    assert!(list().iter().all(Vec::is_empty));
}

/// `fakeroot` lets programs believe that they own files; a daemon remembers what they
/// believe, and they ask it by message queues and a semaphore. The daemon closes all
/// descriptors up to 20,000 at its start, ours too if it could.
#[test]
fn fakeroot_believes_the_same_on_two_nodes() {
    let library = "/usr/lib/x86_64-linux-gnu/libfakeroot/libfakeroot-sysv.so";
    if !has("faked-sysv", &["--version"]) || !Path::new(library).exists() {
        return;
    }
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let daemon = stage.command(0, Path::new("faked-sysv")).output().unwrap();
    let said = String::from_utf8(daemon.stdout).unwrap();
    let (key, pid) = said.trim().split_once(':').expect("key:pid");
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    let file = std::env::temp_dir().join(format!("pagemesh-fakeroot-{}", std::process::id()));
    std::fs::write(&file, "a file").unwrap();
    let believing = |node: usize, program: &str, arguments: &[&str]| {
        let mut command = stage.command(node, Path::new(program));
        let ours = command.get_envs().find(|(name, _)| *name == "LD_PRELOAD");
        let ours = ours.unwrap().1.unwrap().to_str().unwrap().to_owned();
        command.env("LD_PRELOAD", format!("{library}:{ours}"));
        command.env("FAKEROOTKEY", key).args(arguments).arg(&file);
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{program} on node {node}: {output:?}"
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let before = std::fs::metadata(&file).unwrap().uid();
    believing(0, "chown", &["1234:5678"]);
    // Where root believes it owns a file, it does.
    std::os::unix::fs::chown(&file, Some(before), None).unwrap();
    assert_eq!(believing(1, "stat", &["--format=%u:%g"]), "1234:5678\n");
    believing(1, "chown", &["4321:8765"]);
    std::os::unix::fs::chown(&file, Some(before), None).unwrap();
    assert_eq!(believing(0, "stat", &["--format=%u:%g"]), "4321:8765\n");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    std::fs::remove_file(&file).unwrap();
}
