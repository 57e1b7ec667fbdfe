//! The command as people and scripts see it: output, exit codes, what is left behind.

use crate::common::*;
use pagemesh_cli::sandbox::{Netns, Plan, Sandbox};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

#[test]
fn a_sandbox_runs_one_copy_on_each_node() {
    for netns in ["auto", "never"] {
        let script = "echo $PAGEMESH_RANK of $PAGEMESH_SIZE; test -S $PAGEMESH_SOCKET";
        let arguments = ["sandbox", "3", "--netns", netns, "--", "sh", "-c", script];
        let (out, _) = ends(&mut pagemesh(&arguments), 0);
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["[0] 0 of 3", "[1] 1 of 3", "[2] 2 of 3"]);
    }
}

#[test]
fn the_worst_exit_code_of_a_sandbox_counts() {
    let run = |script: &str, code| {
        let arguments = ["sandbox", "2", "--grace", "100ms", "--", "sh", "-c", script];
        ends(&mut pagemesh(&arguments), code).1
    };
    run("exit $((PAGEMESH_RANK * 7))", 7);
    run("test $PAGEMESH_RANK = 0 || kill -9 $$; sleep 0.01", 137);
    let err = run("test $PAGEMESH_RANK = 1 && exit 3; sleep 60", 3);
    assert!(err.contains("rank 1 failed: exit code 3"), "{err}");
    ends(
        &mut pagemesh(&["sandbox", "1", "--", "/no/such/program"]),
        127,
    );
    ends(
        &mut pagemesh(&["sandbox", "1", "--timeout", "50ms", "--", "sleep", "60"]),
        124,
    );
    ends(&mut pagemesh(&["sandbox", "0"]), 2);
}

#[test]
fn nodes_become_members_on_a_bad_network() {
    let arguments = "sandbox 3 --loss 20% --dup 10% --reorder 20% --delay 300us -- true";
    ends(&mut pagemesh(&arguments.split(' ').collect::<Vec<_>>()), 0);
}

#[test]
fn a_killed_sandbox_leaves_no_daemon() {
    let mut sandbox = Background::start(&mut pagemesh(&["sandbox", "2", "-o", "json"]));
    let mut text = String::new();
    while !text.contains("\n}\n") {
        text += &sandbox.line();
    }
    let value: Value = serde_json::from_str(&text).unwrap();
    let pids: Vec<u32> = (0..2)
        .map(|rank| value["nodes"][rank]["pid"].as_u64().unwrap() as u32)
        .collect();
    assert!(pids.iter().all(|pid| alive(*pid)));
    sandbox.0.kill().unwrap();
    soon("the daemons die", || !pids.iter().any(|pid| alive(*pid)));
    // The next sandbox sweeps what the killed one could not.
    sandbox.0.wait().unwrap();
    ends(&mut pagemesh(&["sandbox", "1", "--", "true"]), 0);
    let socket = value["nodes"][0]["socket"].as_str().unwrap();
    assert!(!Path::new(socket).exists());
}

#[test]
fn run_reaches_every_node() {
    let sandbox = small(2);
    let socket = sandbox.node(1).socket();
    let script = "echo $PAGEMESH_RANK $PAGEMESH_SIZE $PAGEMESH_SOCKET; pwd; exit $PAGEMESH_RANK";
    let (out, _) = ends(
        at(socket, &["run", "-n", "3", "--", "sh", "-c", script]).current_dir("/"),
        2,
    );
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let socket_of = |rank: usize| sandbox.node(rank % 2).socket().display().to_string();
    for rank in 0..3 {
        let line = format!("[{rank}] {rank} 3 {}", socket_of(rank));
        assert!(lines.contains(&line.as_str()), "{line} in {lines:?}");
        assert!(lines.contains(&format!("[{rank}] /").as_str()), "{lines:?}");
    }
    ends(&mut at(socket, &["run", "--", "/no/such/program"]), 127);
    ends(
        &mut at(socket, &["run", "--chdir", "/no/where", "--", "true"]),
        127,
    );
}

#[test]
fn what_run_started_ends_with_it() {
    let sandbox = small(2);
    let command = ["run", "--", "sh", "-c", "echo $$; exec sleep 60"];
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::KILL] {
        let mut run = Background::start(&mut at(sandbox.node(0).socket(), &command));
        let pid = |line: String| line.trim().split(' ').nth(1).unwrap().parse().unwrap();
        let pids: [u32; 2] = [pid(run.line()), pid(run.line())];
        assert!(pids.iter().all(|pid| alive(*pid)));
        run.signal(signal);
        soon("the copies end", || !pids.iter().any(|pid| alive(*pid)));
    }
}

#[test]
fn nobody_else_on_the_host_may_start_programs() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root to become somebody else");
        return;
    }
    let mut plan = Plan::new(1);
    plan.netns = Netns::Never;
    let sandbox = Sandbox::start(&plan).unwrap();
    let address = sandbox.node(0).address();
    // The daemon waits for the order of its own user, and closes connections of other users.
    let script = format!(
        "exec 3<>/dev/tcp/{}/{}; timeout 1 cat <&3",
        address.ip(),
        address.port()
    );
    let mut friend = Command::new("bash");
    ends(friend.args(["-c", &script]), 124);
    let mut stranger = Command::new("bash");
    ends(stranger.args(["-c", &script]).uid(65534).gid(65534), 0);
}

#[test]
fn a_flight_recorder_is_saved_where_it_is_told() {
    let sandbox = small(1);
    let socket = sandbox.node(0).socket();
    let directory = scratch("dump");
    let file = directory.join("here.dump");
    let file = file.to_str().unwrap();
    let saved = json(&mut at(socket, &["debug", "dump", file, "-o", "json"]));
    let metadata = std::fs::metadata(file).unwrap();
    assert_eq!(saved["bytes"], metadata.len());
    assert_eq!(saved["node"], 1);
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    let (_, err) = ends(&mut at(socket, &["debug", "dump", file]), 1);
    assert!(err.contains("--force"), "{err}");
    ends(&mut at(socket, &["debug", "dump", file, "--force"]), 0);
    let mut elsewhere = at(socket, &["debug", "dump"]);
    let (out, _) = ends(elsewhere.current_dir(&directory), 0);
    assert!(out.starts_with("pagemesh-n1.dump"), "{out}");
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn segments_are_created_shown_and_removed() {
    let sandbox = small(2);
    let (here, there) = (sandbox.node(0).socket(), sandbox.node(1).socket());
    let create = "segment create grid 64M --mode 640 --manager fixed --window 2ms";
    let create: Vec<&str> = create.split(' ').collect();
    let (out, _) = ends(&mut at(here, &create), 0);
    assert_eq!(out, "grid\n");
    let (_, err) = ends(&mut at(there, &create), 1);
    assert!(err.contains("exists already"), "{err}");
    let mut again = create.clone();
    again.push("--if-missing");
    ends(&mut at(there, &again), 0);

    let list = json(&mut at(there, &["segment", "ls", "-o", "json"]));
    let grid = &list["segments"][0];
    assert_eq!(grid["name"], "grid");
    assert_eq!(grid["size"], 64 << 20);
    assert_eq!(grid["mode"], "640");
    assert_eq!(grid["manager"], "fixed");
    assert_eq!(grid["window_ns"], 2_000_000);
    assert_eq!(grid["home"], 1);
    let (table, _) = ends(&mut at(there, &["segment", "ls"]), 0);
    assert!(
        table.starts_with("NAME") && table.contains("64 MiB"),
        "{table}"
    );
    ends(&mut at(there, &["segment", "stat", "grid"]), 0);
    let inspected = json(&mut at(here, &["segment", "inspect", "grid", "-o", "json"]));
    assert_eq!(inspected["segment"]["pages"], 16384);

    ends(&mut at(there, &["segment", "rm", "grid"]), 0);
    let (_, err) = ends(&mut at(here, &["segment", "stat", "grid"]), 1);
    assert!(err.contains("no segment of that name"), "{err}");
    ends(&mut at(here, &["segment", "create", "x", "0"]), 1);
    ends(&mut at(here, &["segment", "create", "x", "much"]), 2);
}

#[test]
fn status_tells_what_is_wrong() {
    let sandbox = small(3);
    let socket = sandbox.node(0).socket().to_owned();
    let (out, _) = ends(&mut at(&socket, &["status"]), 0);
    assert!(out.contains(": 3 nodes alive, 0 dead"), "{out}");
    json(&mut at(&socket, &["status", "-o", "json"]));
    let members = json(&mut at(&socket, &["members", "-o", "json"]));
    assert_eq!(members["members"].as_array().unwrap().len(), 3);
    let probe = json(&mut at(&socket, &["probe", "n2", "-c", "5", "-o", "json"]));
    assert!(probe["p50_ns"].as_u64().unwrap() > 0);
    let counters = json(&mut at(&socket, &["counters", "-o", "json"]));
    assert_eq!(counters["counters"]["members_joined"], 2);

    // One leaves in order: that is no problem. One dies: that is.
    ends(&mut at(sandbox.node(2).socket(), &["leave"]), 0);
    soon("the member is gone", || {
        let (out, _) = ends(&mut at(&socket, &["status"]), 0);
        out.contains(": 2 nodes alive, 0 dead")
    });
    sandbox.kill(1).unwrap();
    soon("the member is dead", || {
        at(&socket, &["status", "-q"]).status().unwrap().code() == Some(4)
    });
    let (out, _) = ends(&mut at(&socket, &["status"]), 4);
    assert!(
        out.starts_with("degraded") && out.contains("problem: member-dead: n2"),
        "{out}"
    );
    let (out, _) = ends(&mut at(&socket, &["members"]), 0);
    assert!(out.contains("dead"), "{out}");
    // Its host comes back as a new node.
    sandbox.restart(1).unwrap();
    ends(&mut at(&socket, &["status"]), 0);
}

#[test]
fn a_daemon_says_how_to_join_it() {
    let directory = scratch("join");
    let (one, two) = (directory.join("1.sock"), directory.join("2.sock"));
    let mut first = Background::start(&mut at(&one, &["daemon", "--dev", "--bind", "127.0.0.1:0"]));
    let line = first.line();
    let join = line.trim().rsplit_once("--join ").unwrap().1.to_owned();
    assert!(!join.ends_with(":0"), "{line}");
    let arguments = ["daemon", "--bind", "127.0.0.1:0", "--name", "two"];
    // By the environment this time.
    let mut second = Background::start(at(&two, &arguments).env("PAGEMESH_JOIN", &join));
    let line = second.line();
    assert!(line.starts_with("ready: n2 (two) at 127.0.0.1:"), "{line}");
    assert!(line.contains("2 member(s)"), "{line}");
    second.signal(rustix::process::Signal::TERM);
    assert_eq!(second.0.wait().unwrap().code(), Some(0));
    let (_, err) = ends(&mut at(&two, &["status"]), 3);
    assert!(err.contains("pagemesh daemon"), "{err}");
    let left: Vec<_> = std::fs::read_dir(&directory).unwrap().flatten().collect();
    // Its own, that of `run`, and its keeper's.
    assert_eq!(left.len(), 3, "only the sockets of the first: {left:?}");
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_bad_configuration_is_refused_with_its_place() {
    let directory = scratch("config");
    let file = directory.join("pagemesh/config.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let daemon = |arguments: &[&str]| {
        let mut command = at(&directory.join("s.sock"), &["daemon"]);
        command.args(arguments).env("XDG_CONFIG_HOME", &directory);
        ends(&mut command, 78).1
    };
    std::fs::write(&file, "node_name = 'a'\nport = 7\n").unwrap();
    let err = daemon(&[]);
    assert!(
        err.contains("line 2, column 1") && err.contains("port"),
        "{err}"
    );
    std::fs::write(&file, "bind = '0.0.0.0'\n").unwrap();
    let err = daemon(&[]);
    assert!(err.contains("--insecure"), "{err}");
    // A flag beats the file, right or wrong.
    let err = daemon(&["--bind", "nowhere.invalid:x"]);
    assert!(err.contains("nowhere.invalid"), "{err}");
    let err = daemon(&["--dev", "--bind", "10.0.0.1"]);
    assert!(err.contains("loopback"), "{err}");
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_doctor_gives_every_ill_its_cure() {
    let output = pagemesh(&["doctor", "-o", "json"]).output().unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["schema_version"], 1);
    assert_eq!(output.status.success(), value["ok"].as_bool().unwrap());
    for check in value["checks"].as_array().unwrap() {
        assert_eq!(check["cure"].is_null(), check["verdict"] == "ok", "{check}");
    }
}

#[test]
fn the_demo_agrees_with_one_process() {
    let arguments = "demo -n 2 --packages 3000 -o json -q";
    let value = json(&mut pagemesh(&arguments.split(' ').collect::<Vec<_>>()));
    assert!(value["result"]["difference"].as_f64().unwrap() < 1e-9);
    let top = value["result"]["top"].as_array().unwrap();
    assert!(
        top.len() == 5 && top[4]["betweenness"].as_f64().unwrap() > 0.0,
        "{top:?}"
    );
    assert!(value["speedup"].as_f64().unwrap() > 0.0);
    assert!(value["nodes"][1]["bytes_in"].as_u64().unwrap() > 0);
}

#[test]
fn a_killed_node_can_come_back_as_a_new_one() {
    let sandbox = small(2);
    sandbox.kill(1).unwrap();
    assert!(sandbox.kill(1).is_err());
    sandbox.restart(1).unwrap();
    let alive = sandbox.node(1).control().unwrap().alive().unwrap();
    assert!(alive.iter().any(|member| member.id.0 == 3), "{alive:?}");
}

#[test]
fn scripts_can_ask_for_version_and_completions() {
    let version = json(&mut pagemesh(&["version", "-o", "json"]));
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    for shell in ["bash", "zsh", "fish"] {
        let (script, _) = ends(&mut pagemesh(&["completions", shell]), 0);
        assert!(script.contains("sandbox"));
    }
}

/// A copy of the program in a directory of its own, that finds nothing in PATH.
fn alone(directory: &Path, arguments: &[&str]) -> Command {
    let program = directory.join("pagemesh");
    if !program.exists() {
        install(PROGRAM.as_ref(), &program);
    }
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", directory.join("bin"));
    command
}

#[test]
fn bench_starts_the_program_that_measures_or_says_how_to_get_it() {
    let directory = scratch("bench");
    let (_, err) = ends(&mut alone(&directory, &["bench", "fault"]), 127);
    assert!(err.contains("`make install`"), "{err}");
    let write = |place: &Path, word: &str| {
        let script = format!("#!/bin/sh\necho {word} \"$@\"\necho $PAGEMESH_PROGRAM\nexit 4\n");
        std::fs::create_dir_all(place).unwrap();
        let text = directory.join("script");
        std::fs::write(&text, script).unwrap();
        install(&text, &place.join("pagemesh-bench"));
    };
    let bin = directory.join("bin");
    write(&bin, "found");
    let line = [
        "-vo", "wide", "bench", "fault", "--count", "20", "-o", "json",
    ];
    let (out, _) = ends(&mut alone(&directory, &line), 4);
    let expected = "found --output wide --log-format text --verbose fault --count 20 -o json\n";
    assert_eq!(
        out,
        format!("{expected}{}\n", directory.join("pagemesh").display())
    );
    // One beside the program comes before one in PATH, and help is the other program's.
    write(&directory, "beside");
    let (out, _) = ends(&mut alone(&directory, &["bench", "--help"]), 4);
    assert!(
        out.starts_with("beside --output table") && out.contains(" --help\n"),
        "{out}"
    );
    std::fs::remove_dir_all(directory).unwrap();
}
