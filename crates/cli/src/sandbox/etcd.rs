//! An etcd for a sandbox: three members, one on each of the first three nodes.

use super::daemon::DaemonProcess;
use super::network::Network;
use super::room::Room;
use super::spawner::Spawner;
use anyhow::{Context as _, Result, bail};
use std::env;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Members of an etcd that goes on when one of them fails.
const MEMBERS: usize = 3;

/// How long the members may take to elect their first leader.
const PATIENCE: Duration = Duration::from_secs(20);

/// See the module.
pub struct Etcd {
    members: Vec<Mutex<DaemonProcess>>,
    network: Arc<Network>,
    url: String,
    program: PathBuf,
    clients: Vec<String>,
    peers: Vec<String>,
}

impl Etcd {
    /// Starts the members, and waits until they have a leader.
    pub(super) fn start(
        spawner: &Spawner,
        network: &Arc<Network>,
        room: &Room,
        nodes: usize,
    ) -> Result<Self> {
        let program = find("etcd").context(
            "--control etcd needs the programs etcd and etcdctl: apt-get install etcd-server \
             etcd-client",
        )?;
        let count = MEMBERS.min(nodes);
        let ips: Vec<_> = (0..count).map(|node| network.address(node).ip()).collect();
        let at = |usual| -> Result<Vec<String>> {
            let each = ips.iter().map(|ip| free(*ip, usual));
            each.map(|place| Ok(place?.to_string())).collect()
        };
        let (clients, peers) = (at(2379)?, at(2380)?);
        let peers: Vec<_> = peers.iter().map(|peer| format!("http://{peer}")).collect();
        let mut etcd = Self {
            members: Vec::new(),
            network: Arc::clone(network),
            url: format!("etcd://{}", clients.join(",")),
            program,
            clients,
            peers,
        };
        for member in 0..count {
            let process = etcd.launch(spawner, room, member)?;
            etcd.members.push(Mutex::new(process));
        }
        etcd.wait()?;
        Ok(etcd)
    }

    /// As `pagemesh daemon --control` takes it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Number of members that were started.
    #[must_use]
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// Kills a member, without any chance to say good-bye.
    ///
    /// # Errors
    /// If it has ended already.
    pub fn kill(&self, member: usize) -> Result<()> {
        self.member(member).kill()
    }

    /// Starts a killed member again, with what it had on its disk.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn restart(&self, spawner: &Spawner, room: &Room, member: usize) -> Result<()> {
        let process = self.launch(spawner, room, member)?;
        *self.member(member) = process;
        Ok(())
    }

    fn launch(&self, spawner: &Spawner, room: &Room, member: usize) -> Result<DaemonProcess> {
        let (client, peers) = (&self.clients[member], &self.peers);
        let named = peers.iter().enumerate();
        let named: Vec<_> = named
            .map(|(node, peer)| format!("etcd{node}={peer}"))
            .collect();
        let mut command = Command::new(&self.program);
        command
            .arg(format!("--name=etcd{member}"))
            .arg("--data-dir")
            .arg(room.path().join(format!("etcd{member}")))
            .arg(format!("--listen-client-urls=http://{client}"))
            .arg(format!("--advertise-client-urls=http://{client}"))
            .arg(format!("--listen-peer-urls={}", peers[member]))
            .arg(format!("--initial-advertise-peer-urls={}", peers[member]))
            .arg(format!("--initial-cluster={}", named.join(",")))
            .arg("--initial-cluster-state=new");
        self.network.confine(member, &mut command)?;
        let log = room.path().join(format!("etcd{member}.log"));
        DaemonProcess::start(spawner, command, member, log)
    }

    /// Which member leads.
    ///
    /// # Errors
    /// If none does.
    pub fn leader(&self) -> Result<usize> {
        for member in 0..self.members.len() {
            let out = self.ask(member, &["endpoint", "status", "--write-out=fields"])?;
            let text = String::from_utf8_lossy(&out.stdout);
            let field = |name: &str| {
                let line = text.lines().find(|line| line.starts_with(name))?;
                line.rsplit(' ').next().map(str::to_owned)
            };
            let (own, leader) = (field("\"MemberID\""), field("\"Leader\""));
            if out.status.success() && own.is_some() && own == leader {
                return Ok(member);
            }
        }
        bail!("no member of etcd leads")
    }

    /// Asks a member something, from the node that it is on.
    fn ask(&self, member: usize, what: &[&str]) -> Result<Output> {
        let mut command = Command::new(find("etcdctl").context("etcdctl is not installed")?);
        command
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints=http://{}", self.clients[member]))
            .arg("--command-timeout=1s")
            .args(what)
            .stdin(Stdio::null());
        self.network.confine(member, &mut command)?;
        command.output().context("etcdctl does not run")
    }

    fn wait(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while let Err(error) = self.leader() {
            for member in 0..self.members.len() {
                let mut process = self.member(member);
                if let Some(status) = process.ended()? {
                    bail!("etcd has ended with {status}{}", process.tail());
                }
            }
            if Instant::now() > end {
                return Err(error.context(format!("after {} s", PATIENCE.as_secs())));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn member(&self, member: usize) -> MutexGuard<'_, DaemonProcess> {
        let process = self.members[member].lock();
        process.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the programs that such a sandbox needs are there.
#[must_use]
pub fn is_installed() -> bool {
    find("etcd").is_some() && find("etcdctl").is_some()
}

/// The usual port of an address, or a free one where other sandboxes have the same addresses.
fn free(ip: IpAddr, usual: u16) -> Result<SocketAddr> {
    match TcpListener::bind((ip, 0)) {
        // An address of a network namespace is this sandbox's alone.
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => Ok((ip, usual).into()),
        listener => Ok(listener.and_then(|at| at.local_addr())?),
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<_> = env::split_paths(&path).collect();
    places.push(Path::new("/usr/bin").to_owned());
    let mut places = places.into_iter().map(|place| place.join(program));
    places.find(|place| place.is_file())
}
