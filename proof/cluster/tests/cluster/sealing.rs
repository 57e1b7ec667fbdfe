//! Datagrams that only members can read and make.

use crate::support::{Cluster, Joiner, eventually, load, store};
use pagemesh::{Health, Mesh, Options};
use pagemesh_cli::sandbox::{Netns, Plan};
use pagemesh_os::impair::Impairment;
use pagemesh_seal::{Ring, Secret, SystemDice, Token};
use rustix::process::Signal;
use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Sealed nodes on loopback, where this process can reach them.
fn sealed(nodes: usize) -> Option<Cluster> {
    let mut plan = Plan::new(nodes);
    plan.sealed = true;
    plan.netns = Netns::Never;
    Cluster::of(plan)
}

fn private(path: &Path, text: &str) -> PathBuf {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600);
    file.open(path).unwrap().write_all(text.as_bytes()).unwrap();
    path.to_owned()
}

fn key_of(cluster: &Cluster) -> Ring {
    Ring::from_text(&fs::read_to_string(cluster.key_file()).unwrap()).unwrap()
}

#[test]
fn sealed_nodes_share_memory_over_a_bad_network() {
    let mut plan = Plan::new(4);
    plan.sealed = true;
    plan.impair = Impairment {
        loss: 0.1,
        dup: 0.1,
        reorder: 0.1,
        seed: 7,
        ..Impairment::default()
    };
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    let maps = cluster.share("sealed", 2);
    for round in 1..=10 {
        for (writer, memory) in maps.iter().enumerate() {
            let value = round * 10 + writer as u64;
            store(memory, 8 * writer, value);
            for reader in &maps {
                assert_eq!(load(reader, 8 * writer), value);
            }
        }
    }
    let replayed: u64 = (0..4)
        .map(|node| cluster.counter(node, "seal_replayed"))
        .sum();
    assert!(replayed > 0, "doubled datagrams are opened once");
    for node in 0..4 {
        assert_eq!(cluster.counter(node, "seal_forged"), 0);
    }
}

#[test]
fn without_the_key_nobody_joins_and_everybody_learns_why() {
    let Some(cluster) = sealed(2) else { return };
    let nothing = Joiner::start(&cluster, "nothing", &[]);
    eventually("the joiner is told", || {
        nothing.says("this daemon has no key")
    });
    assert!(cluster.counter(0, "seal_missing") > 0);
    let file = cluster.directory().join("other.key");
    let other = Ring::default().rotated(Secret::new(&SystemDice::default()), 0);
    let file = private(&file, &other.to_text());
    let wrong = Joiner::start(&cluster, "wrong", &["--key", file.to_str().unwrap()]);
    eventually("the wrong key is counted", || {
        cluster.counter(0, "seal_wrong_key") > 0
    });
    assert!(!nothing.is_member() && !wrong.is_member());
    let open = cluster.directory().join("open.key");
    fs::write(&open, other.to_text()).unwrap();
    let mut careless = Joiner::start(&cluster, "careless", &["--key", open.to_str().unwrap()]);
    assert!(!careless.child.wait().unwrap().success());
    assert!(careless.says("chmod 600"));
    assert_eq!(cluster.mesh(0).members().unwrap().members.len(), 2);
}

#[test]
fn a_token_admits_until_it_expires() {
    let Some(cluster) = sealed(1) else { return };
    let ring = key_of(&cluster);
    let secret = ring.newest().unwrap();
    let token = |name: &str, expires| {
        let token = Token::new(secret, expires, &SystemDice::default());
        private(&cluster.directory().join(name), &token.to_text())
    };
    let (good, old) = (token("good.token", 0), token("old.token", 1000));
    let bearer = Joiner::start(
        &cluster,
        "bearer",
        &["--join-token", good.to_str().unwrap()],
    );
    eventually("the bearer is a member", || bearer.is_member());
    let late = Joiner::start(&cluster, "late", &["--join-token", old.to_str().unwrap()]);
    eventually("the old token is counted", || {
        cluster.counter(0, "seal_wrong_key") > 0
    });
    assert!(!late.is_member());
    cluster.make_on(0, "token", 1, Options::default());
    let here = cluster.map(0, "token");
    store(&here, 0, 5);
    let mesh = Mesh::connect_to(&bearer.socket).unwrap();
    let there = mesh.open("token", pagemesh::Access::Writable).unwrap();
    assert_eq!(load(&there.map().unwrap(), 0), 5);
}

#[test]
fn keys_are_rotated_under_a_running_cluster() {
    let Some(cluster) = sealed(2) else { return };
    let maps = cluster.share("rotated", 1);
    let old = private(
        &cluster.directory().join("old.key"),
        &key_of(&cluster).to_text(),
    );
    let new = key_of(&cluster).rotated(Secret::new(&SystemDice::default()), 0);
    private(&cluster.key_file(), &new.to_text());
    cluster.signal(0, Signal::HUP).unwrap();
    let key = cluster.key_file();
    let joiner = Joiner::start(&cluster, "new", &["--key", key.to_str().unwrap()]);
    eventually("the new key admits", || joiner.is_member());
    let outdated = Joiner::start(&cluster, "outdated", &["--key", old.to_str().unwrap()]);
    eventually("the old key is counted", || {
        cluster.counter(0, "seal_wrong_key") > 0
    });
    assert!(!outdated.is_member());
    store(&maps[1], 0, 3);
    assert_eq!(load(&maps[0], 0), 3, "the others never noticed");
}

#[test]
fn forged_datagrams_are_dropped_and_counted() {
    let Some(cluster) = sealed(2) else { return };
    let maps = cluster.share("flooded", 1);
    let enemy = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = cluster.node(1).address();
    for round in 0..2000_u32 {
        for kind in 1..=7_u8 {
            let mut bytes = vec![0x5a; 300];
            bytes[..4].copy_from_slice(&[b'P', b'S', 1, kind]);
            bytes[4..8].copy_from_slice(&round.to_le_bytes());
            let _ = enemy.send_to(&bytes, target);
        }
        let _ = enemy.send_to(b"PM\x01\0plain", target);
        if round % 100 == 0 {
            store(&maps[round as usize / 100 % 2], 0, round.into());
            assert_eq!(
                load(&maps[1 - round as usize / 100 % 2], 0),
                u64::from(round)
            );
        }
    }
    let counted = |name| cluster.counter(1, name);
    assert!(counted("seal_forged") > 100 && counted("seal_missing") > 100);
    assert!(counted("seal_unknown") > 100);
}

#[test]
fn programs_are_started_for_members_only() {
    let Some(cluster) = sealed(2) else { return };
    let output = cluster
        .node(0)
        .command(cluster.program())
        .args([
            "run",
            "-n",
            "2",
            "--",
            "sh",
            "-c",
            "echo here $PAGEMESH_RANK",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("here 0") && text.contains("here 1"), "{text}");
    let mut stranger = TcpStream::connect(cluster.node(1).address()).unwrap();
    stranger.write_all(&[7; 200]).unwrap();
    let mut answer = Vec::new();
    let heard = stranger.read_to_end(&mut answer);
    assert!(heard.is_err() || answer.is_empty(), "{answer:?}");
}

#[test]
fn a_revoked_node_is_out_for_good() {
    let Some(cluster) = sealed(3) else { return };
    let maps = cluster.share("revoked", 1);
    store(&maps[0], 0, 1);
    let revoked = cluster
        .node(0)
        .command(cluster.program())
        .args(["key", "revoke", "3"])
        .output()
        .unwrap();
    assert!(revoked.status.success(), "{revoked:?}");
    let health = |node: usize| {
        let members = cluster.mesh(node).members().unwrap().members;
        members[2].health
    };
    eventually("all know", || health(1) == Health::Revoked);
    eventually("it knows itself", || {
        cluster
            .node(2)
            .log()
            .contains("not a member of the cluster")
    });
    store(&maps[1], 0, 2);
    assert_eq!(load(&maps[0], 0), 2);
}
