//! The command, run as people and scripts run it.

#![allow(dead_code, missing_docs, reason = "not every test uses everything")]

use pagemesh_cli::sandbox::{Plan, Sandbox};
use pagemesh_os::netns::die_with_parent;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_pagemesh");

pub fn pagemesh(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .env_remove("PAGEMESH_SOCKET")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .stdin(Stdio::null());
    command
}

pub fn at(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = pagemesh(arguments);
    command.env("PAGEMESH_SOCKET", socket);
    command
}

/// The output of the command, which must end with this code.
#[track_caller]
pub fn ends(command: &mut Command, code: i32) -> (String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let out = String::from_utf8(stdout).unwrap();
    let err = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(code), "{command:?}\n{out}\n{err}");
    (out, err)
}

#[track_caller]
pub fn json(command: &mut Command) -> Value {
    let (out, _) = ends(command, 0);
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["schema_version"], 1);
    value
}

pub fn small(nodes: usize) -> Sandbox {
    Sandbox::start(&Plan::new(nodes)).unwrap()
}

/// Puts a program there. Another process does it: if this one had the file open for storing, a child
/// that another thread starts in that moment would have it open, too, and nobody could run it.
pub fn install(program: &Path, place: &Path) {
    let mut install = Command::new("install");
    let install = install.args(["-m", "755"]).arg(program).arg(place);
    assert!(install.status().unwrap().success());
}

pub fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pagemesh-cli-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Waits until something is so, for at most 15 seconds.
#[track_caller]
pub fn soon(what: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(15);
    while !so() {
        assert!(Instant::now() < deadline, "not soon: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// A background command that is killed in the end.
pub struct Background(pub Child);

impl Background {
    pub fn start(command: &mut Command) -> Self {
        die_with_parent(command.stdout(Stdio::piped()));
        Self(command.spawn().unwrap())
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let out = self.0.stdout.as_mut().unwrap();
        // Reads one byte at a time: what follows belongs to the next reader.
        let mut reader = BufReader::with_capacity(1, out);
        reader.read_line(&mut line).unwrap();
        line
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
