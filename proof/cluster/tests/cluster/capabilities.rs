//! Capabilities: the right to open a segment, handed to another process (E19).

use crate::permissions::nobodys_scripted_node;
use crate::support::{Cluster, Player, load, store};
use pagemesh::{Access, Capability, Error, Mapping, Options, Segment};
use std::fs::{Permissions, set_permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

/// A process of a user without rights, on node 1, which gets the capability through a socket.
fn given(cluster: &Cluster, capability: &Capability, arguments: &str) -> Player {
    let socket = cluster.directory().join("capability");
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    set_permissions(&socket, Permissions::from_mode(0o777)).unwrap();
    let arguments = format!("secret {arguments} --capability {}", socket.display());
    let player = nobodys_scripted_node(cluster, 1, &arguments);
    let (stream, _) = listener.accept().unwrap();
    capability.send(&stream).unwrap();
    player
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can become another user");
    }
    root
}

/// A segment that only its owner may open, on two nodes: mapped on the first, open on the second.
fn secret(cluster: &Cluster) -> (Mapping, Segment) {
    cluster.make_on(0, "secret", 2, Options::default());
    let open = |node: usize| cluster.mesh(node).open("secret", Access::Writable).unwrap();
    (open(0).map().unwrap(), open(1))
}

fn redeemed(cluster: &Cluster, capability: &Capability) -> Result<Segment, Error> {
    cluster.mesh(1).redeem(capability)
}

#[test]
fn e19_a_capability_opens_a_segment_for_a_user_who_may_not_open_it_by_name() {
    if !is_root() {
        return;
    }
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let (owner, here) = secret(&cluster);
    let by_name = nobodys_scripted_node(&cluster, 1, "secret --read-only");
    assert!(!by_name.end().success());

    let loads = here.capability(Access::ReadOnly).unwrap();
    assert_eq!(loads.access().unwrap(), Access::ReadOnly);
    let mut reader = given(&cluster, &loads, "--read-only");
    reader.expect("ready");
    for value in 1..=10 {
        store(&owner, 4096, value);
        assert_eq!(reader.ask("load 4096"), value.to_string());
    }
    let storing = given(&cluster, &loads, "");
    assert!(!storing.end().success(), "it permits loads only");

    let stores = here.capability(Access::Writable).unwrap();
    let mut writer = given(&cluster, &stores, "");
    writer.expect("ready");
    for value in 1..=10 {
        assert_eq!(writer.ask(&format!("store 0 {value}")), "done");
        assert_eq!(load(&owner, 0), value);
        assert_eq!(writer.ask("lock 1"), "locked");
        assert_eq!(writer.ask("unlock 1"), "done");
    }
}

#[test]
fn e19_who_may_not_store_hands_on_no_right_to_store() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let (owner, here) = secret(&cluster);
    let loads = here.capability(Access::ReadOnly).unwrap();
    let reading = redeemed(&cluster, &loads).unwrap();
    assert!(matches!(
        reading.capability(Access::Writable),
        Err(Error::Refused(_))
    ));
    // The right to load is handed on and on.
    let next = reading.capability(Access::ReadOnly).unwrap();
    let again = redeemed(&cluster, &next).unwrap();
    store(&owner, 0, 7);
    assert_eq!(load(&again.map_at(None, 0, 8192, false).unwrap(), 0), 7);
    assert!(again.map_at(None, 0, 8192, true).is_err());
}

#[test]
fn e19_a_capability_lasts_as_long_as_the_segment_is_open_here() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let (owner, here) = secret(&cluster);
    store(&owner, 0, 7);
    let capability = here.capability(Access::Writable).unwrap();
    cluster.mesh(0).remove("secret").unwrap();
    let unnamed = redeemed(&cluster, &capability).unwrap();
    drop(here);
    let memory = unnamed.map().unwrap();
    assert_eq!(load(&memory, 0), 7, "its name is gone, and it is open");
    drop((memory, unnamed));
    let why = redeemed(&cluster, &capability).unwrap_err();
    assert!(matches!(why, Error::Refused(_)), "{why}");

    // Nor is it one for another segment of that name.
    drop(owner);
    let (_owner, _here) = secret(&cluster);
    let why = redeemed(&cluster, &capability).unwrap_err();
    assert!(matches!(why, Error::Refused(_)), "{why}");
}

#[test]
fn e19_a_capability_is_none_on_another_node_and_other_descriptors_are_none() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let (_owner, here) = secret(&cluster);
    let capability = here.capability(Access::ReadOnly).unwrap();
    let why = cluster.mesh(0).redeem(&capability).unwrap_err().to_string();
    assert!(why.contains("by its name"), "{why}");
    let (pipe, _) = std::io::pipe().unwrap();
    let why = redeemed(&cluster, &OwnedFd::from(pipe).into()).unwrap_err();
    assert!(why.to_string().contains("no capability"), "{why}");
    assert!(redeemed(&cluster, &capability).is_ok());
}
