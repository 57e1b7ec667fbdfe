//! An etcd that lets in only whom it knows: by a certificate, or by a password.

use crate::coordinators::say;
use crate::etcd::{can_run, control_call, wait_for_coordinator};
use crate::resuming::names;
use crate::support::guarded_etcd::{GuardedEtcd, Guards, LOGIN_LASTS};
use crate::support::{Cluster, eventually};
use pagemesh::Options;
use pagemesh_cli::sandbox::{Netns, Plan};
use std::process::{Child, Command, Stdio};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

fn argument(name: &str, etcd: &GuardedEtcd, file: &str) -> String {
    format!("--control-{name}={}", etcd.file(file).display())
}

fn with_certificates(etcd: &GuardedEtcd) -> Vec<String> {
    vec![
        argument("ca", etcd, "ca.pem"),
        argument("cert", etcd, "host.pem"),
        argument("key", etcd, "host.key"),
    ]
}

fn cluster(nodes: usize, url: String, arguments: Vec<String>) -> Option<Cluster> {
    let mut plan = Plan::new(nodes);
    plan.netns = Netns::Never;
    plan.control = Some(url);
    plan.daemon_args = arguments;
    Cluster::of(plan)
}

/// The coordinator is killed, and names go on with another one.
fn another_coordinates(cluster: &Cluster) {
    cluster.make_on(0, "first", 1, Options::default());
    cluster.make_on(2, "third", 1, Options::default());
    cluster.kill(0).unwrap();
    let took = control_call(cluster, 1, "after the coordinator");
    println!("control calls went on {took:?} after the coordinator's end");
    assert_ne!(wait_for_coordinator(cluster, &[1, 2]), 1);
    assert_eq!(names(cluster, 2), ["first", "third"]);
}

#[test]
fn a_cluster_lives_in_an_etcd_that_asks_for_certificates() {
    if !can_run() {
        return;
    }
    let etcd = GuardedEtcd::start(Guards::Certificates);
    let Some(cluster) = cluster(3, etcd.url("etcds", ""), with_certificates(&etcd)) else {
        return;
    };
    another_coordinates(&cluster);
}

/// A node that has not asked etcd for long logs in again when it is to be elected. What is changed
/// while the daemons run, to the worse and back, they say and notice.
#[test]
fn a_cluster_lives_in_an_etcd_that_asks_for_a_password() {
    if !can_run() {
        return;
    }
    let etcd = GuardedEtcd::start(Guards::Users);
    let arguments = vec![argument("password", &etcd, "password")];
    let Some(cluster) = cluster(3, etcd.url("etcd", "pagemesh"), arguments) else {
        return;
    };
    thread::sleep(Duration::from_secs(u64::from(LOGIN_LASTS) * 3));
    another_coordinates(&cluster);

    let coordinator = wait_for_coordinator(&cluster, &[1, 2]);
    let node = usize::try_from(coordinator).unwrap() - 1;
    let says = |words: &str, what: &str| {
        eventually(what, || {
            let (code, said) = say(&cluster, node, "status");
            code == Some(4) && said.contains("etcd-refuses:") && said.contains(words)
        });
    };
    let is_well = || {
        eventually("the state is over", || {
            !say(&cluster, node, "status").1.contains("etcd-refuses")
        });
    };
    etcd.rule("role revoke-permission keys pagemesh/ pagemesh0");
    says(
        "user pagemesh may not read and write keys below pagemesh/",
        "status names the right that is missing",
    );
    etcd.rule("role grant-permission keys --prefix=true readwrite pagemesh/");
    is_well();
    etcd.rule("user delete pagemesh");
    etcd.rule("user add pagemesh:another");
    etcd.rule("user grant-role pagemesh keys");
    says(
        "name or password of user pagemesh is wrong",
        "status says that the password is wrong",
    );
    etcd.write_private("password", "another\n");
    is_well();
    control_call(&cluster, 2, "with the new password");
    assert_eq!(names(&cluster, 1), ["first", "third"]);
}

/// A daemon that etcd does not let in.
struct Refused {
    url: String,
    child: Child,
}

impl Refused {
    fn start(etcd: &GuardedEtcd, url: String, arguments: &[String]) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let socket = STARTED.fetch_add(1, Ordering::Relaxed);
        let child = Command::new(env!("CARGO_BIN_EXE_pagemesh-under-test"))
            .args(["daemon", "--no-config", "--bind=127.0.0.1:0", "--socket"])
            .arg(etcd.file(&format!("{socket}.sock")))
            .arg(format!("--control={url}"))
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { url, child }
    }

    /// It ends by itself, and says these words.
    fn says(mut self, words: &[&str]) {
        let url = &self.url;
        eventually(&format!("the daemon ends that has {url}"), || {
            self.child.try_wait().unwrap().is_some()
        });
        let output = self.child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        println!("{url}: {said}");
        assert!(!output.status.success(), "{url}: {said}");
        for words in words {
            assert!(said.contains(words), "{url}: no {words:?}: {said}");
        }
    }
}

/// What `pagemesh doctor` says on a host with these settings.
fn doctor(url: &str, arguments: &[&String]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_pagemesh-under-test"))
        .args(["doctor", &format!("--control={url}")])
        .args(arguments)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_daemon_that_etcd_does_not_let_in_says_why() {
    if !can_run() {
        return;
    }
    let etcd = GuardedEtcd::start(Guards::Both);
    etcd.make_strangers();
    let ca = argument("ca", &etcd, "ca.pem");
    let cert = |name: &str| {
        let pem = argument("cert", &etcd, &format!("{name}.pem"));
        [pem, argument("key", &etcd, &format!("{name}.key"))]
    };
    let [pem, key] = cert("host");
    let password = argument("password", &etcd, "password");
    let start = |scheme: &str, user: &str, arguments: &[&String]| {
        let arguments: Vec<_> = arguments.iter().copied().cloned().collect();
        Refused::start(&etcd, etcd.url(scheme, user), &arguments)
    };
    let foreign = argument("ca", &etcd, "foreign.pem");
    let wrong = argument("password", &etcd, "wrong");
    let [odd_pem, odd_key] = cert("stranger");
    let refused = [
        (
            start("etcds", "pagemesh", &[&foreign, &pem, &key, &password]),
            ["was not made by the authority in", "foreign.pem"],
        ),
        (
            start("https", "pagemesh", &[&password]),
            ["no authority that this host trusts", "--control-ca"],
        ),
        (
            start("etcd", "pagemesh", &[&ca, &password]),
            ["wants a certificate of this host", "--control-cert FILE"],
        ),
        (
            start("etcds", "pagemesh", &[&ca, &odd_pem, &odd_key, &password]),
            ["does not accept the certificate in", "--trusted-ca-file"],
        ),
        (
            start("etcd", "pagemesh", &[&password]),
            ["encrypts: write etcds://", "--control-ca FILE"],
        ),
        (
            start("etcds", "pagemesh", &[&ca, &pem, &key, &wrong]),
            [
                "name or password of user pagemesh is wrong",
                "--control-password",
            ],
        ),
        (
            start("etcds", "stranger", &[&ca, &pem, &key, &password]),
            [
                "user stranger may not read and write keys below pagemesh/",
                "grant-role stranger",
            ],
        ),
        (
            // The user is the name in the certificate then, and etcd does not know that.
            start("etcds", "", &[&ca, &pem, &key]),
            [
                "the name (CN) of this host's certificate may not",
                "grant-permission",
            ],
        ),
    ];
    for (daemon, words) in refused {
        daemon.says(&words);
    }
    let good = [&ca, &pem, &key, &password];
    let said = doctor(&etcd.url("etcds", "pagemesh"), &good);
    assert!(
        said.contains("ok       etcd: it answers, and has no cluster pagemesh yet"),
        "{said}"
    );
    let said = doctor(&etcd.url("etcds", "pagemesh"), &[&ca, &pem, &key, &wrong]);
    assert!(
        said.contains("blocker  etcd: it does not let this host in"),
        "{said}"
    );
    assert!(
        said.contains("cure: name or password of user pagemesh is wrong"),
        "{said}"
    );
    let plain = GuardedEtcd::start(Guards::None);
    let daemon = Refused::start(&plain, plain.url("etcds", ""), slice::from_ref(&ca));
    daemon.says(&["does not encrypt", "etcd://"]);
    let daemon = Refused::start(
        &plain,
        plain.url("etcd", "pagemesh"),
        slice::from_ref(&password),
    );
    daemon.says(&["it has no users", "etcdctl auth enable"]);
}
