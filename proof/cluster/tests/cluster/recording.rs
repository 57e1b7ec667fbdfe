//! The flight recorder of real daemons.

use crate::support::{Cluster, load, store};
use pagemesh::PAGE_SIZE;
use pagemesh_cli::control::Control;
use pagemesh_core::Input;
use pagemesh_recorder::{Dump, Transition, Verdict};
use pagemesh_wire::local::{Reply, Request};
use std::fs::{File, Permissions, set_permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The dump of the daemon at the other end.
fn dump(mut control: Control) -> Vec<u8> {
    let (reply, fds) = control.exchange(Request::Dump).unwrap();
    let Reply::Dumped { length } = reply else {
        panic!("no dump: {reply:?}");
    };
    let mut bytes = Vec::new();
    let file = fds.into_iter().next().expect("a file comes along");
    File::from(file).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, length.0);
    bytes
}

#[test]
fn what_a_daemon_did_is_repeated_to_the_same_state() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("recorded", 8);
    // Such bytes are nowhere else.
    let secret = 0x7365_6372_6574_2121;
    let segment = maps[0].segment().clone();
    for round in 0..200 {
        let at = round % 8 * PAGE_SIZE;
        store(&maps[round % 2], at, secret);
        assert_eq!(load(&maps[1 - round % 2], at), secret);
        drop(segment.lock(1).lock().unwrap());
    }
    for node in 0..2 {
        let bytes = dump(cluster.node(node).control().unwrap());
        let secret = secret.to_le_bytes();
        let found = bytes.windows(8).any(|window| window == secret);
        assert!(!found, "contents of memory are not recorded");

        let dump = Dump::from_bytes(&bytes).unwrap();
        let (mut faults, mut datagrams) = (0, 0);
        let verdict = dump.replay(|Transition { input, .. }| match input {
            Input::Fault { .. } => faults += 1,
            Input::Datagram { .. } => datagrams += 1,
            _ => {}
        });
        assert!(matches!(verdict, Ok(Verdict::Same(_))), "{verdict:?}");
        assert!(faults > 100 && datagrams > 200, "{faults} {datagrams}");
    }
}

#[test]
fn only_its_owner_sees_what_a_daemon_remembers() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root to become somebody else");
        return;
    }
    // The program itself may be where only its builder can read it.
    let program = cluster.directory().join("dumper");
    let mut install = Command::new("install");
    install
        .args(["-m", "755"])
        .args([cluster.program(), &program]);
    assert!(install.status().unwrap().success());
    set_permissions(cluster.directory(), Permissions::from_mode(0o711)).unwrap();
    let mut other = Command::new(program);
    other
        .args(["debug", "dump", "/dev/null", "--force"])
        .env("PAGEMESH_SOCKET", cluster.node(0).socket());
    let output = other.uid(65534).gid(65534).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(77), "{said}");
}
