//! Daemons beside those of a sandbox.

use super::Cluster;
use pagemesh::Mesh;
use pagemesh_os::netns::die_with_parent;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};

/// One more daemon, which wants to join.
pub(crate) struct Joiner {
    pub(crate) child: Child,
    pub(crate) socket: PathBuf,
    log: PathBuf,
}

impl Joiner {
    /// With these arguments, and whatever the cluster is.
    pub(crate) fn start(cluster: &Cluster, name: &str, arguments: &[&str]) -> Self {
        Self::through(cluster, 0, name, arguments)
    }

    /// As [`Joiner::start`], asking that node.
    pub(crate) fn through(cluster: &Cluster, node: usize, name: &str, arguments: &[&str]) -> Self {
        Self::under(cluster, &[], (node, name), arguments)
    }

    /// With these arguments alone, which say whom it joins.
    pub(crate) fn with(cluster: &Cluster, name: &str, arguments: &[&str]) -> Self {
        Self::start_daemon(cluster, &[], name, arguments)
    }

    /// As [`Joiner::through`], started by these words, to which the daemon's own are appended.
    pub(crate) fn under(
        cluster: &Cluster,
        starter: &[&str],
        (node, name): (usize, &str),
        arguments: &[&str],
    ) -> Self {
        let join = format!("--join={}", cluster.node(node).address());
        let arguments: Vec<_> = [&*join].iter().chain(arguments).copied().collect();
        Self::start_daemon(cluster, starter, name, &arguments)
    }

    fn start_daemon(cluster: &Cluster, starter: &[&str], name: &str, arguments: &[&str]) -> Self {
        let directory = cluster.directory();
        let socket = directory.join(format!("{name}.sock"));
        let log = directory.join(format!("{name}.log"));
        let mut words = starter.iter().map(OsStr::new).collect::<Vec<_>>();
        words.push(cluster.program().as_os_str());
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .args([
                "daemon",
                "--no-config",
                "--bind=127.0.0.1:0",
                "--name",
                name,
            ])
            .arg("--socket")
            .arg(&socket)
            .args(arguments)
            .stderr(File::create(&log).unwrap());
        die_with_parent(&mut command);
        let child = command.spawn().unwrap();
        Self { child, socket, log }
    }

    /// Whether its log has this.
    pub(crate) fn says(&self, what: &str) -> bool {
        fs::read_to_string(&self.log).unwrap().contains(what)
    }

    /// What its `pagemesh` says to these words, and the exit code.
    pub(crate) fn say(&self, cluster: &Cluster, words: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(cluster.program());
        let output = command
            .arg("--socket")
            .arg(&self.socket)
            .args(words)
            .output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), said)
    }

    /// A connection to it.
    pub(crate) fn mesh(&self) -> Mesh {
        Mesh::connect_to(&self.socket).unwrap()
    }

    /// Whether it was let in.
    pub(crate) fn is_member(&self) -> bool {
        let mesh = Mesh::connect_to(&self.socket);
        mesh.is_ok_and(|mesh| mesh.status().is_ok_and(|status| status.node.is_valid()))
    }
}

impl Drop for Joiner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
