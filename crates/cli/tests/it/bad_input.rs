//! Impossible orders are refused with the reason and the cure, and do no harm.

use crate::common::{Background, at, ends, pagemesh, scratch, small, soon};
use std::fs::File;
use std::path::Path;

#[test]
fn impossible_segments_are_refused_with_the_reason() {
    let sandbox = small(1);
    let socket = sandbox.nodes()[0].socket();
    let refused = |arguments: &[&str]| {
        let (_, err) = ends(&mut at(socket, arguments), 1);
        err
    };
    let create = ["segment", "create"];
    let long = "x".repeat(256);
    for name in ["a/b", "", &long] {
        let err = refused(&[&create[..], &[name, "1M"]].concat());
        assert!(err.contains("1 to 255 bytes"), "{err}");
    }
    let err = refused(&[&create[..], &["empty", "0"]].concat());
    assert!(err.contains("between 1 byte and 16 TiB"), "{err}");
    let err = refused(&[&create[..], &["slow", "1M", "--window", "11s"]].concat());
    assert!(err.contains("10s at most"), "{err}");
    let err = refused(&["segment", "rm", "nothing"]);
    assert!(err.contains("pagemesh segment ls"), "{err}");
    ends(
        &mut at(
            socket,
            &["segment", "create", "odd", "1M", "--mode", "1777"],
        ),
        2,
    );
}

#[test]
fn every_name_is_listed_however_many_there_are() {
    let sandbox = small(1);
    let socket = sandbox.nodes()[0].socket();
    let mut control = sandbox.nodes()[0].control().unwrap();
    let names: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
    for name in &names {
        let spec = pagemesh_wire::peer::SegmentSpec {
            size: pagemesh_wire::ByteLen(4096),
            mode: 0o600,
            policy: pagemesh_wire::peer::Policy::default(),
            replicas: 0,
        };
        let open = pagemesh_wire::local::Request::Open {
            name: name.clone(),
            create: Some(spec),
            exclusive: true,
            write: true,
        };
        control.ask(open).unwrap();
    }
    let (out, _) = ends(&mut at(socket, &["segment", "ls"]), 0);
    let listed = out.lines().skip(1);
    let listed: Vec<_> = listed.filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(listed, names);
}

/// A daemon at this socket, its log going to this file.
fn daemon(socket: &Path, log: &str) -> Background {
    let mut command = pagemesh(&[
        "daemon",
        "--dev",
        "-vv",
        "--bind",
        "127.0.0.1:0",
        "--socket",
    ]);
    let log = File::options().append(true).open(log).unwrap();
    Background::start(command.arg(socket).stderr(log))
}

#[test]
fn a_full_disk_takes_the_log_and_not_the_daemon() {
    let directory = scratch("full-log");
    let socket = directory.join("s.sock");
    let mut daemon = daemon(&socket, "/dev/full");
    assert!(daemon.line().starts_with("ready"));
    ends(&mut at(&socket, &["segment", "create", "kept", "1M"]), 0);
    let (out, _) = ends(&mut at(&socket, &["segment", "ls"]), 0);
    assert!(out.contains("kept"), "{out}");
    let mut told = at(&socket, &["segment", "ls"]);
    let output = told.stdout(File::options().write(true).open("/dev/full").unwrap());
    let output = output.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(err.contains("No space left"), "{err}");
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_daemon_without_room_for_its_socket_says_so() {
    let directory = scratch("full-run");
    // One inode, which is that of the directory itself.
    let script = "mount -t tmpfs -o nr_inodes=1 none \"$1\" && exec \"$2\" daemon --dev \
                  --bind 127.0.0.1:0 --socket \"$1/s.sock\"";
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--user", "--map-root-user"]);
    let allowed = command
        .arg("true")
        .status()
        .is_ok_and(|status| status.success());
    if !allowed {
        return eprintln!("skipped: no namespaces here");
    }
    let mut command = std::process::Command::new("unshare");
    command.args([
        "--mount",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        script,
        "-",
    ]);
    command.arg(&directory).arg(crate::common::PROGRAM);
    let (_, err) = ends(&mut command, 1);
    assert!(err.contains("No space left on device"), "{err}");
    assert!(err.contains("s.sock"), "names the path: {err}");
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_second_daemon_names_what_is_taken() {
    let directory = scratch("second");
    let socket = directory.join("s.sock");
    let mut first = daemon(&socket, "/dev/null");
    let ready = first.line();
    let address = ready.rsplit(' ').next().unwrap().trim();
    let second = |socket: &Path| {
        let arguments = ["daemon", "--dev", "--bind", address, "--socket"];
        ends(pagemesh(&arguments).arg(socket), 1).1
    };
    let err = second(&socket);
    assert!(err.contains("another daemon listens"), "{err}");
    let err = second(&directory.join("other.sock"));
    assert!(
        err.contains(&format!("cannot listen for daemons at {address}")),
        "{err}"
    );
    ends(&mut at(&socket, &["status"]), 0);
    drop(first);
    // It was killed, so its sockets are still there, but do not block a new daemon.
    let sockets = [socket.clone(), directory.join("s.sock.run")];
    assert!(sockets.iter().all(|path| path.exists()));
    let next = daemon(&socket, "/dev/null");
    soon("the next one", || {
        at(&socket, &["status"])
            .output()
            .is_ok_and(|output| output.status.success())
    });
    next.signal(rustix::process::Signal::TERM);
    soon("its end", || !sockets.iter().any(|path| path.exists()));
    std::fs::remove_dir_all(directory).unwrap();
}

/// The kernel gives a daemon a port for datagrams, and may have given that port to somebody's
/// connections.
#[test]
fn a_daemon_takes_a_port_that_is_free_for_connections() {
    let directory = scratch("port");
    let socket = directory.join("s.sock");
    const FOUR_PORTS_OF_WHICH_ONE_IS_FREE: &str = r#"
import os, socket, subprocess, sys
subprocess.check_call(["ip", "link", "set", "lo", "up"])
with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as range:
    range.write("40000 40003")
for port in 40000, 40001, 40003:
    taken = socket.create_server(("127.0.0.1", port))
    os.set_inheritable(taken.detach(), True)
os.execv(sys.argv[1], sys.argv[1:])
"#;
    let alone = |arguments: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--net", "--user", "--map-root-user"]);
        command.args(arguments);
        command
    };
    if !alone(&["true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        return eprintln!("skipped: no namespaces here");
    }
    let mut command = alone(&["python3", "-c", FOUR_PORTS_OF_WHICH_ONE_IS_FREE]);
    command.args([crate::common::PROGRAM, "daemon", "--dev", "--no-config"]);
    command.args(["--bind", "127.0.0.1:0", "--socket"]);
    let mut daemon = Background::start(command.arg(&socket));
    let ready = daemon.line();
    assert!(ready.trim().ends_with(" 127.0.0.1:40002"), "{ready}");
    assert!(directory.join("s.sock.run").exists());
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_daemon_that_comes_while_another_dies_takes_its_place() {
    let directory = scratch("dying");
    let socket = directory.join("s.sock");
    let lasting = || {
        let words = ["daemon", "--dev", "--grace=30s", "--bind", "127.0.0.1:0"];
        Background::start(pagemesh(&words).arg("--socket").arg(&socket))
    };
    let mut first = lasting();
    assert!(first.line().starts_with("ready"));
    ends(&mut at(&socket, &["segment", "create", "kept", "1M"]), 0);
    let mut second = lasting();
    // As if the first were killed, and not gone yet.
    std::thread::sleep(std::time::Duration::from_millis(300));
    drop(first);
    assert!(second.line().starts_with("ready"));
    let (out, _) = ends(&mut at(&socket, &["segment", "ls"]), 0);
    assert!(out.contains("kept"), "it goes on: {out}");
    std::fs::remove_dir_all(directory).unwrap();
}
