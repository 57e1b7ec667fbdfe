//! Processes of another user.

use crate::support::{Cluster, Player, load, store};
use pagemesh::Options;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const NOBODY: u32 = 65534;

/// A scripted node on a node, of a user without rights on this host.
pub(crate) fn nobodys_scripted_node(cluster: &Cluster, node: usize, arguments: &str) -> Player {
    // The player itself may be where only its builder can read it.
    let program = cluster.directory().join("player");
    if !program.exists() {
        // By another process: were the copy open for writing in this one, a
        // player just being started by another test would keep it busy.
        let mut install = Command::new("install");
        install.args(["-m", "755", env!("CARGO_BIN_EXE_pagemesh-player")]);
        assert!(install.arg(&program).status().unwrap().success());
        set_permissions(cluster.directory(), Permissions::from_mode(0o711)).unwrap();
    }
    // Not in the node's namespace, which takes rights to enter; its socket is a file.
    let mut command = Command::new(program);
    command
        .arg("scripted-node")
        .args(arguments.split_whitespace())
        .env("PAGEMESH_SOCKET", cluster.node(node).socket())
        .uid(NOBODY)
        .gid(NOBODY);
    Player::run(command, arguments)
}

#[test]
fn the_mode_of_a_segment_says_who_may_read_and_write() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let share = |mode: u16| {
        let options = Options {
            mode,
            ..Options::default()
        };
        cluster.share_with(&format!("mode-{mode:o}"), 2, options)
    };
    share(0o600);
    for arguments in ["mode-600", "mode-600 --read-only"] {
        assert!(
            !nobodys_scripted_node(&cluster, 1, arguments)
                .end()
                .success()
        );
    }
    let maps = share(0o644);
    assert!(
        !nobodys_scripted_node(&cluster, 1, "mode-644")
            .end()
            .success()
    );
    let mut reader = nobodys_scripted_node(&cluster, 1, "mode-644 --read-only");
    reader.expect("ready");
    for value in 1..=10 {
        store(&maps[0], 4096, value);
        assert_eq!(reader.ask("load 4096"), value.to_string());
        assert_eq!(reader.ask("send 4096 8"), value.to_string());
    }
    let maps = share(0o666);
    let mut writer = nobodys_scripted_node(&cluster, 1, "mode-666");
    writer.expect("ready");
    for value in 1..=10 {
        assert_eq!(writer.ask(&format!("store 0 {value}")), "done");
        assert_eq!(load(&maps[0], 0), value);
        assert_eq!(writer.ask("lock 1"), "locked");
        assert_eq!(writer.ask("unlock 1"), "done");
    }
}

#[test]
fn a_segment_is_removed_by_its_owner_only() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let mut owner = nobodys_scripted_node(&cluster, 1, "owned --create 4096");
    owner.expect("ready");
    let info = cluster.mesh(0).stat("owned").unwrap();
    assert_eq!(info.owner, (NOBODY, NOBODY));
    let everybodys = Options {
        mode: 0o666,
        ..Options::default()
    };
    cluster.make_on(0, "roots", 1, everybodys);
    let mut other = nobodys_scripted_node(&cluster, 0, "roots");
    other.expect("ready");
    let answer = other.ask("remove");
    assert!(answer.contains("permission"), "{answer}");
    assert!(cluster.mesh(1).stat("roots").is_ok());
    assert_eq!(owner.ask("remove"), "done");
    assert!(cluster.mesh(0).stat("owned").unwrap_err().is_not_found());
}
