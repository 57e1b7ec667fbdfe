//! Errors name the cause and the cure.

use crate::common::*;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;

#[test]
fn a_second_daemon_does_not_speak_for_the_first() {
    let sandbox = small(1);
    let flags = ["daemon", "--no-config", "--bind", "127.0.0.1:0"];
    let (out, err) = ends(&mut at(sandbox.node(0).socket(), &flags), 1);
    assert_eq!(out, "", "only a daemon that listens says ready");
    assert!(err.contains("another daemon listens at"), "{err}");
}

#[test]
fn configuration_errors_name_file_and_line() {
    let directory = scratch("blame");
    let file = directory.join("daemon.toml");
    let path = file.to_str().unwrap();
    for (line, why) in [
        ("wait = \"sometimes\"", "none of spin, block, auto"),
        ("compress = \"much\"", "none of off, runs, lz4, auto"),
        ("impair = \"loss=much\"", "impair"),
        ("grace = \"long\"", "grace"),
        ("join_timeout = \"long\"", "join_timeout"),
        ("bind = \"127.0.0.1:seven\"", "no address"),
        ("join = [\"127.0.0.1:seven\"]", "no address"),
        ("multicast = \"[ff15::1]:9\"", "IPv6"),
        ("cpu = \"two\"", "cpu"),
        ("waiting = \"spin\"", "unknown field"),
    ] {
        fs::write(&file, format!("# mine\n\n{line}\n")).unwrap();
        let (_, err) = ends(&mut pagemesh(&["daemon", "--config", path]), 78);
        assert!(
            err.contains(path) && err.contains("line 3"),
            "{line}: {err}"
        );
        assert!(err.contains(why), "{line}: {err}");
    }
    let (_, err) = ends(&mut pagemesh(&["daemon", "--config", "/no/such/file"]), 78);
    assert!(err.contains("/no/such/file"), "{err}");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_daemon_goes_by_the_file_it_is_given() {
    let directory = scratch("given");
    let (file, socket) = (directory.join("daemon.toml"), directory.join("d.sock"));
    let text = format!(
        "bind = '127.0.0.1:0'\nnode_name = 'given'\nsocket = '{}'\n",
        socket.display()
    );
    fs::write(&file, text).unwrap();
    let arguments = ["daemon", "--config", file.to_str().unwrap()];
    let mut daemon = Background::start(&mut pagemesh(&arguments));
    let ready = daemon.line();
    assert!(ready.contains("(given)"), "{ready}");
    assert!(
        ready.contains("--bind 127.0.0.1:0 --socket PATH --join"),
        "{ready}"
    );
    drop(daemon);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_segment_that_is_open_elsewhere_is_not_said_to_be_missing() {
    let sandbox = small(2);
    let (one, two) = (sandbox.node(0).socket(), sandbox.node(1).socket());
    ends(&mut at(one, &["segment", "create", "there", "8192"]), 0);
    let (out, _) = ends(&mut at(two, &["segment", "inspect", "there"]), 0);
    assert!(out.contains("of 2 pages this node knows 0"), "{out}");
    assert!(out.contains("has there open"), "{out}");
    let inspected = json(&mut at(two, &["segment", "inspect", "there", "-o", "json"]));
    assert_eq!(inspected["known"], 0);
    let (_, err) = ends(&mut at(two, &["segment", "inspect", "nowhere"]), 1);
    assert!(
        err.contains("no such segment") || err.contains("no segment"),
        "{err}"
    );
}

#[test]
fn a_newcomer_that_nobody_can_answer_is_told_at_once() {
    let arguments = ["daemon", "--no-config", "--join", "192.0.2.1:7450"];
    let (_, err) = ends(&mut pagemesh(&arguments), 78);
    assert!(err.contains("loopback") && err.contains("--bind"), "{err}");
}

#[test]
fn an_ordinary_user_is_told_where_a_socket_may_be() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root to become somebody else");
        return;
    }
    let directory = scratch("ordinary");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    let program = directory.join("pagemesh");
    install(PROGRAM.as_ref(), &program);
    let mut command = std::process::Command::new(&program);
    command
        .args(["daemon", "--no-config", "--bind", "127.0.0.1:0"])
        .env_remove("XDG_RUNTIME_DIR")
        .env("PAGEMESH_SOCKET", "/run/pagemesh-of-nobody/pagemesh.sock")
        .uid(65_534)
        .gid(65_534);
    let (_, err) = ends(&mut command, 1);
    assert!(
        err.contains("XDG_RUNTIME_DIR") && err.contains("--socket"),
        "{err}"
    );
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn global_options_stand_apart_and_switches_are_advertised_once() {
    let (help, _) = ends(&mut pagemesh(&["daemon", "--help"]), 0);
    let at = |what: &str| {
        help.find(what)
            .unwrap_or_else(|| panic!("no {what} in {help}"))
    };
    let global = at("Global options:");
    assert!(at("--bind") < global && global < at("--output") && global < at("--socket"));
    assert!(help.contains("--recorder <on|off>"));
    assert!(!help.contains("possible values: true, false"), "{help}");
}
