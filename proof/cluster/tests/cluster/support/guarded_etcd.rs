//! A real etcd that lets in only whom it knows: by a certificate, or by a password.

use super::eventually;
use pagemesh_os::netns::die_with_parent;
use std::fs::{self, File, Permissions};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// How certificates are made.
const SETTINGS: &str = "\
[req]
distinguished_name=name
[name]
[authority]
basicConstraints=critical,CA:TRUE
keyUsage=keyCertSign
[host]
basicConstraints=CA:FALSE
subjectAltName=IP:127.0.0.1
extendedKeyUsage=serverAuth,clientAuth
";

/// The password of etcd's superuser.
const ROOT: &str = "root:of-all";

/// The seconds after which a user has to log in again.
pub(crate) const LOGIN_LASTS: u32 = 1;

/// What it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guards {
    /// Nothing.
    None,
    /// Certificates of both sides.
    Certificates,
    /// A user's password; user `pagemesh` has a role for the keys below `pagemesh/`.
    Users,
    /// Both.
    Both,
}

/// See the module.
pub(crate) struct GuardedEtcd {
    guards: Guards,
    directory: PathBuf,
    address: String,
    etcd: Child,
}

/// An address where nothing listens, and for which no other test asks. Its port is below those that
/// the kernel gives to whoever connects in between.
fn free() -> SocketAddr {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let first = 10_000 + std::process::id() % 1_000 * 20;
    let mut addresses = std::iter::repeat_with(|| {
        let port = first + ASKED.fetch_add(1, Ordering::Relaxed);
        SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).unwrap()))
    });
    addresses.find(|at| TcpListener::bind(at).is_ok()).unwrap()
}

impl GuardedEtcd {
    /// One that runs.
    pub(crate) fn start(guards: Guards) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("pagemesh-guarded-etcd-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        if guards.certify() {
            fs::write(directory.join("settings"), SETTINGS).unwrap();
            make_authority(&directory, "ca");
            make_certificate(&directory, "ca", "host");
        }
        let (address, peers) = (free().to_string(), format!("http://{}", free()));
        let url = format!("{}://{address}", guards.scheme());
        let mut command = Command::new("etcd");
        command
            .arg(format!("--data-dir={}", directory.join("data").display()))
            .arg(format!("--listen-client-urls={url}"))
            .arg(format!("--advertise-client-urls={url}"))
            .arg(format!("--listen-peer-urls={peers}"))
            .arg(format!("--initial-advertise-peer-urls={peers}"))
            .arg(format!("--initial-cluster=default={peers}"))
            // Hashing passwords is as slow as it is meant to be, and this machine has other tests.
            .arg("--bcrypt-cost=4")
            .arg(format!("--auth-token-ttl={LOGIN_LASTS}"))
            .stderr(File::create(directory.join("log")).unwrap())
            .stdout(Stdio::null());
        if guards.certify() {
            let file = |name: &str| directory.join(name).display().to_string();
            command
                .arg("--client-cert-auth")
                .args([
                    "--cert-file",
                    &file("host.pem"),
                    "--key-file",
                    &file("host.key"),
                ])
                .args(["--trusted-ca-file", &file("ca.pem")]);
        }
        die_with_parent(&mut command);
        let etcd = Self {
            guards,
            address,
            etcd: command.spawn().expect("etcd is installed"),
            directory,
        };
        eventually("etcd is healthy", || {
            let health = etcd.ctl(&["endpoint", "health"], "");
            health.status.success()
        });
        if guards.know_users() {
            etcd.make_users();
        }
        etcd
    }

    fn make_users(&self) {
        for words in [
            "user add root:of-all",
            "user grant-role root root",
            "role add keys",
            "role grant-permission keys --prefix=true readwrite pagemesh/",
            "user add pagemesh:secret",
            "user grant-role pagemesh keys",
            "user add stranger:secret",
            "auth enable",
        ] {
            let words: Vec<_> = words.split(' ').collect();
            let output = self.ctl(&words, "");
            assert!(output.status.success(), "{words:?}: {output:?}");
        }
        for (name, text) in [("password", "secret\n"), ("wrong", "guessed\n")] {
            self.write_private(name, text);
        }
    }

    /// Its superuser does something.
    pub(crate) fn rule(&self, words: &str) {
        let words: Vec<_> = words.split(' ').collect();
        let output = self.ctl(&words, ROOT);
        assert!(output.status.success(), "{words:?}: {output:?}");
    }

    fn ctl(&self, words: &[&str], user: &str) -> Output {
        let mut command = Command::new("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .arg(format!(
                "--endpoints={}://{}",
                self.guards.scheme(),
                self.address
            ))
            .args(words)
            .stdin(Stdio::null());
        if !user.is_empty() {
            command.arg(format!("--user={user}"));
        }
        if self.guards.certify() {
            command
                .env("ETCDCTL_CACERT", self.file("ca.pem"))
                .env("ETCDCTL_CERT", self.file("host.pem"))
                .env("ETCDCTL_KEY", self.file("host.key"));
        }
        command.output().expect("etcdctl is installed")
    }

    /// A file of certificates, keys or passwords.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A file that its owner alone can read.
    pub(crate) fn write_private(&self, name: &str, text: &str) {
        let new = self.file("new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, Permissions::from_mode(0o600)).unwrap();
        fs::rename(new, self.file(name)).unwrap();
    }

    /// An authority that it does not know, `foreign.pem`, with a certificate, `stranger.pem`.
    pub(crate) fn make_strangers(&self) {
        make_authority(&self.directory, "foreign");
        make_certificate(&self.directory, "foreign", "stranger");
    }

    /// The URL for `--control`.
    pub(crate) fn url(&self, scheme: &str, user: &str) -> String {
        let at = if user.is_empty() { "" } else { "@" };
        format!("{scheme}://{user}{at}{}", self.address)
    }
}

impl Drop for GuardedEtcd {
    fn drop(&mut self) {
        let _ = self.etcd.kill();
        let _ = self.etcd.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.file("log")).unwrap_or_default();
            let last: Vec<_> = log.lines().rev().take(20).collect();
            eprintln!("etcd's log, the last line first:\n{}", last.join("\n"));
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Guards {
    fn certify(self) -> bool {
        matches!(self, Self::Certificates | Self::Both)
    }

    fn know_users(self) -> bool {
        matches!(self, Self::Users | Self::Both)
    }

    fn scheme(self) -> &'static str {
        if self.certify() { "https" } else { "http" }
    }
}

fn make_authority(directory: &Path, name: &str) {
    openssl(directory, "authority", name, &[]);
}

fn make_certificate(directory: &Path, authority: &str, name: &str) {
    let file = |ending: &str| format!("{authority}.{ending}");
    let by = ["-CA", &file("pem"), "-CAkey", &file("key")];
    openssl(directory, "host", name, &by);
}

fn openssl(directory: &Path, kind: &str, name: &str, by: &[&str]) {
    let output = Command::new("openssl")
        .current_dir(directory)
        .args(["req", "-x509", "-config", "settings", "-extensions", kind])
        .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
        .args(["-nodes", "-days", "2", "-subj", &format!("/CN={name}")])
        .args([
            "-keyout",
            &format!("{name}.key"),
            "-out",
            &format!("{name}.pem"),
        ])
        .args(by)
        .output()
        .expect("openssl is installed");
    assert!(output.status.success(), "{output:?}");
}
