//! Keys that are taken away, and hosts that are kept out.

use crate::support::{Cluster, Joiner, eventually, load, store};
use pagemesh_cli::sandbox::{Netns, Plan};
use pagemesh_os::netns::die_with_parent;
use rustix::process::{Resource, Signal, getrlimit, setrlimit};
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Sealed nodes on loopback, where this process can reach them.
fn sealed(nodes: usize) -> Option<Cluster> {
    let mut plan = Plan::new(nodes);
    plan.sealed = true;
    plan.netns = Netns::Never;
    Cluster::of(plan)
}

/// `pagemesh key ...`, which succeeds; what it prints.
pub(crate) fn key(cluster: &Cluster, arguments: &[&str]) -> String {
    let mut command = cluster.node(0).command(cluster.program());
    let output = command.arg("key").args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The files of a host that was admitted once: the key file, and a token made with it.
fn stolen(cluster: &Cluster) -> (PathBuf, PathBuf) {
    let old = cluster.directory().join("stolen.key");
    fs::copy(cluster.key_file(), &old).unwrap();
    let token = cluster.directory().join("stolen.token");
    fs::write(&token, key(cluster, &["token", text(&old)])).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    (old, token)
}

/// Takes all older keys out of the file, and waits until all nodes have seen that; they get no
/// signal, and no host comes with a key they do not know.
fn rotate(cluster: &Cluster) {
    key(
        cluster,
        &["rotate", text(&cluster.key_file()), "--keep", "0"],
    );
    for node in cluster.nodes() {
        eventually("the file is read again", || {
            node.log().contains("keys were read again")
        });
    }
}

/// Tries to join through every node, with key and token; all are told why not.
fn stays_outside(cluster: &Cluster, who: &str, (old, token): &(PathBuf, PathBuf)) {
    let start = |node: usize, (flag, file): (&str, &PathBuf)| {
        let name = format!("{who}{flag}{node}");
        Joiner::through(cluster, node, &name, &[flag, text(file)])
    };
    let nodes = 0..cluster.nodes().len();
    let joiners: Vec<_> = nodes
        .flat_map(|node| [(node, ("--key", old)), (node, ("--join-token", token))])
        .map(|(node, by)| start(node, by))
        .collect();
    for joiner in &joiners {
        eventually("the host is told why", || {
            joiner.says("does not accept the key or join token")
        });
    }
    assert!(!joiners.iter().any(Joiner::is_member));
}

#[test]
fn a_key_that_is_taken_out_of_the_file_admits_nobody_anywhere() {
    let Some(cluster) = sealed(3) else { return };
    let maps = cluster.share("rotated", 1);
    let stolen = stolen(&cluster);
    rotate(&cluster);
    stays_outside(&cluster, "outdated", &stolen);
    for (writer, memory) in maps.iter().enumerate() {
        store(memory, 0, writer as u64);
        assert!(maps.iter().all(|map| load(map, 0) == writer as u64));
    }
    let file = cluster.key_file();
    let joiner = Joiner::through(&cluster, 2, "new", &["--key", text(&file)]);
    eventually("the new key admits", || joiner.is_member());
    assert_eq!(cluster.mesh(0).members().unwrap().members.len(), 4);
}

#[test]
fn a_revoked_host_has_no_way_back() {
    let Some(cluster) = sealed(2) else { return };
    let stolen = stolen(&cluster);
    let flags = ["--key", text(&stolen.0)];
    let host = Joiner::start(&cluster, "host", &flags);
    eventually("the host is a member", || host.is_member());
    let script = [
        "run",
        "-n",
        "3",
        "--",
        "sh",
        "-c",
        "echo $$; exec sleep 600",
    ];
    let mut run = Command::new(cluster.program());
    run.args(script)
        .env("PAGEMESH_SOCKET", &host.socket)
        .stdout(Stdio::null());
    die_with_parent(&mut run);
    let mut run = run.spawn().unwrap();
    // As `key --help` says: first rotate, then revoke.
    rotate(&cluster);
    key(&cluster, &["revoke", "3"]);
    eventually("it knows itself", || {
        host.says("not a member of the cluster")
    });
    eventually("what it ran on members ends", || {
        run.try_wait().unwrap().is_some()
    });
    drop(host);
    stays_outside(&cluster, "revoked", &stolen);
    assert_eq!(cluster.mesh(1).members().unwrap().members.len(), 3);
}

#[test]
fn while_the_key_file_cannot_be_read_no_host_is_let_in() {
    let Some(cluster) = sealed(1) else { return };
    let file = cluster.key_file();
    let (copy, _) = stolen(&cluster);
    fs::remove_file(&file).unwrap();
    eventually("that is said", || {
        cluster
            .node(0)
            .log()
            .contains("this daemon lets no host in")
    });
    let early = Joiner::start(&cluster, "early", &["--key", text(&copy)]);
    eventually("the host is told why", || {
        early.says("does not accept the key or join token")
    });
    assert!(!early.is_member());
    fs::copy(&copy, &file).unwrap();
    eventually("the key admits again", || early.is_member());
}

#[test]
fn an_expired_token_is_called_so() {
    let Some(cluster) = sealed(1) else { return };
    let file = cluster.key_file();
    let token = cluster.directory().join("short.token");
    fs::write(
        &token,
        key(&cluster, &["token", text(&file), "--expires", "1s"]),
    )
    .unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let late = Joiner::start(&cluster, "late", &["--join-token", text(&token)]);
    eventually("the host is told why", || late.says("token has expired"));
    assert!(!late.is_member());
}

#[test]
fn who_admits_hosts_is_named_when_it_is_dead() {
    let Some(cluster) = sealed(2) else { return };
    cluster.signal(0, Signal::STOP).unwrap();
    let file = cluster.key_file();
    let joiner = Joiner::through(&cluster, 1, "late", &["--key", text(&file)]);
    let (asked, first) = (cluster.node(1).address(), cluster.node(0).address());
    eventually("the first node is blamed", || {
        joiner.says(&format!("{asked} answers that {first}, the coordinator"))
    });
    cluster.signal(0, Signal::CONT).unwrap();
    eventually("it admits later", || joiner.is_member());
}

#[test]
fn ordinary_joins_warn_of_nothing() {
    let Some(cluster) = sealed(3) else { return };
    let file = cluster.key_file();
    let flags = ["--key", text(&file)];
    let joiner = Joiner::start(&cluster, "joiner", &flags);
    eventually("the joiner is a member", || joiner.is_member());
    let maps = cluster.share("calm", 1);
    store(&maps[2], 0, 1);
    assert_eq!(load(&maps[1], 0), 1);
    for node in cluster.nodes() {
        let log = node.log();
        let warned = log.lines().filter(|line| line.contains("WARN"));
        let warned: Vec<_> = warned.filter(|line| !line.contains("rmem_max")).collect();
        assert!(warned.is_empty(), "{warned:?}");
    }
    assert!(!joiner.says("not let in"));
}

#[test]
fn a_rotated_key_file_keeps_its_owner_and_its_links() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root to give a file to somebody else");
        return;
    }
    let directory = std::env::temp_dir().join(format!("pagemesh-owner-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let (file, link) = (directory.join("key"), directory.join("link"));
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagemesh-under-test"));
        let output = command.arg("key").args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    run(&["new", text(&file)]);
    chown(&file, Some(1234), Some(1235)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let before = fs::read_to_string(&file).unwrap();
    run(&["rotate", text(&link)]);
    let now = fs::metadata(&file).unwrap();
    assert_eq!((now.uid(), now.gid()), (1234, 1235));
    assert_eq!(now.mode() & 0o777, 0o600);
    assert_ne!(fs::read_to_string(&file).unwrap(), before);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn silent_connections_keep_nobody_from_starting_programs() {
    let Some(cluster) = sealed(2) else { return };
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let orders = format!("{}.run", cluster.node(0).socket().display());
    let calls: Vec<_> = (0..700)
        .map(|_| TcpStream::connect(cluster.node(1).address()).unwrap())
        .collect();
    let asks: Vec<_> = (0..700)
        .map(|_| UnixStream::connect(&orders).unwrap())
        .collect();
    let mut command = cluster.node(0).command(cluster.program());
    let output = command
        .args(["run", "--", "sh", "-c", "echo here $PAGEMESH_RANK"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("here 0") && text.contains("here 1"), "{text}");
    drop((calls, asks));
}
