//! No command breaks if its output is not read.

use crate::common::*;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::pipe;
use std::path::Path;
use std::process::{Command, Stdio};

/// The ends of a walk through all commands: each with arguments by which it prints something.
/// `{f}` is a key file, `{n}` a new file.
const COMMANDS: [(&str, &str); 41] = [
    ("daemon", "daemon --no-config --bind 127.0.0.1:0"),
    ("members", "members"),
    ("members forget", "members forget 2"),
    ("status", "status"),
    ("key new", "key new {n}"),
    ("key show", "key show {f}"),
    ("key rotate", "key rotate {f}"),
    ("key token", "key token {f}"),
    ("key revoke", "key revoke 2"),
    ("board get", "board get board"),
    ("board set", "board set board news"),
    ("board watch", "board watch board --count 1 --timeout 1s"),
    ("borrow", "borrow -- true"),
    ("export", "export --segment nothing --listen {n}"),
    ("cache", "cache / {n}"),
    ("swap on", "swap on --help"),
    ("swap off", "swap off --state {n}"),
    ("swap status", "swap status --state {n}"),
    ("memory", "memory"),
    ("promote", "promote"),
    ("segment create", "segment create {n} 4096"),
    ("segment save", "segment save walked {n}"),
    ("segment load", "segment load loaded {f}"),
    ("segment ls", "segment ls"),
    ("segment inspect", "segment inspect walked"),
    ("segment rm", "segment rm walked nothing"),
    ("segment stat", "segment stat walked"),
    ("ipcs", "ipcs"),
    ("ipcrm", "ipcrm --shmem-id 77"),
    ("run", "run -n 2 -- sh -c 'echo out; echo err >&2; exit 3'"),
    (
        "sandbox",
        "sandbox 2 -- sh -c 'echo out; echo err >&2; exit 3'",
    ),
    ("doctor", "doctor"),
    ("bench", "bench --help"),
    ("demo", "demo --packages 50 -n 2"),
    ("probe", "probe 1 -c 3"),
    ("counters", "counters"),
    ("debug dump", "debug dump --force {n}"),
    ("completions", "completions bash"),
    ("version", "version"),
    ("help", "help"),
    ("leave", "leave"),
];

/// Outputs without a reader.
#[derive(Clone, Copy, Debug)]
enum Nowhere {
    Full,
    Closed,
}

impl Nowhere {
    fn stdio(self) -> Stdio {
        match self {
            Self::Full => OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap()
                .into(),
            Self::Closed => pipe().unwrap().1.into(),
        }
    }
}

/// All commands that `--help` lists, with their subcommands.
fn walk(prefix: &str, found: &mut Vec<String>) {
    let mut arguments: Vec<_> = prefix.split_whitespace().collect();
    arguments.push("--help");
    let (help, _) = ends(&mut pagemesh(&arguments), 0);
    let listed = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| line.starts_with("  "));
    let names: Vec<_> = listed
        .filter(|line| !line.starts_with("   "))
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    if names.is_empty() {
        found.push(prefix.trim().to_owned());
    }
    for name in names {
        // `help` inside a command says what `--help` does; `bench` is a program of its own.
        if name == "bench" {
            found.push(name.to_owned());
        } else if name != "help" {
            walk(&format!("{prefix} {name}"), found);
        } else if prefix.is_empty() {
            found.push("help".to_owned());
        }
    }
}

/// The words of a line, as a shell has them; quotes are single.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

fn command(line: &str, directory: &Path, number: usize) -> Command {
    let new = directory.join(format!("new-{number}"));
    let known = directory.join("known.key");
    let mut command = pagemesh(&[]);
    command
        .current_dir(directory)
        .args(words(line).iter().map(|word| {
            word.replace("{n}", new.to_str().unwrap())
                .replace("{f}", known.to_str().unwrap())
        }));
    command
}

/// Runs a command whose output goes nowhere. A daemon is ended once it is there.
fn code(mut command: Command, socket: Option<&Path>) -> i32 {
    let mut child = command.spawn().unwrap();
    if let Some(socket) = socket {
        soon("the daemon is there", || {
            pagemesh_cli::control::Control::connect(socket).is_ok()
        });
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
    let status = child.wait().unwrap();
    status
        .code()
        .unwrap_or_else(|| panic!("{command:?} ended by {status}"))
}

#[test]
fn no_command_breaks_on_its_output() {
    let mut found = Vec::new();
    walk("", &mut found);
    let lines = BTreeMap::from(COMMANDS);
    let unknown: Vec<_> = found
        .iter()
        .filter(|name| !lines.contains_key(name.as_str()))
        .collect();
    assert!(unknown.is_empty(), "say how to run {unknown:?}");
    let directory = scratch("output");
    let known = directory.join("known.key");
    ends(&mut pagemesh(&["key", "new", known.to_str().unwrap()]), 0);
    let mut number = 0;
    for nowhere in [Nowhere::Full, Nowhere::Closed] {
        let sandbox = small(2);
        let here = sandbox.node(1).socket();
        ends(&mut at(here, &["segment", "create", "walked", "4096"]), 0);
        for (name, line) in COMMANDS {
            for both in [false, true] {
                number += 1;
                let mut command = command(line, &directory, number);
                let own = directory.join(format!("{number}.sock"));
                let daemon = name == "daemon";
                command.env("PAGEMESH_SOCKET", if daemon { &own } else { here });
                command.stdout(nowhere.stdio()).stderr(if both {
                    nowhere.stdio()
                } else {
                    Stdio::null()
                });
                let code = code(command, daemon.then_some(own.as_path()));
                assert_ne!(code, 101, "{name}, {nowhere:?}, standard error too: {both}");
            }
        }
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    let sandbox = small(1);
    for line in ["ipcs", "members", "version", "completions zsh"] {
        let arguments: Vec<_> = line.split(' ').collect();
        let mut command = at(sandbox.node(0).socket(), &arguments);
        command.stdout(File::create("/dev/full").unwrap());
        let (_, err) = ends(command.stderr(Stdio::piped()), 1);
        assert!(err.contains("No space left on device"), "{line}: {err}");
    }
}
