//! The options of a daemon at its start.

use crate::budget::MemoryOptions;
use crate::crash_point::CrashPoint;
use crate::experiment::Experiment;
use crate::keeper::Keeping;
use crate::quota::Quota;
use anyhow::{Result, bail};
use pagemesh_os::impair::Impairment;
use pagemesh_wire::etcd::Hello;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

/// How a daemon is to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node's name, by default the host name.
    pub name: String,
    /// Where to listen for other daemons.
    pub bind: SocketAddr,
    /// Where others reach this daemon, if not at `bind`.
    pub advertise: Option<SocketAddr>,
    /// A daemon of the cluster to join; none to found one.
    pub join: Option<SocketAddr>,
    /// How long to ask for admission before giving up; zero: for ever.
    pub join_timeout: Duration,
    /// Where local processes find the daemon.
    pub socket: PathBuf,
    /// Permission bits of the socket, as of a file.
    pub socket_mode: u32,
    /// How to wait for datagrams.
    pub waiting: Waiting,
    /// Keep the host's idle processors awake: faster, but costs power.
    pub latency: bool,
    /// Whether pages are made smaller for the wire.
    pub compress: Compress,
    /// Send datagrams that go to several nodes at once to this multicast group; all daemons should
    /// name the same.
    pub multicast: Option<SocketAddrV4>,
    /// Make the network worse than it is, for tests.
    pub impair: Option<Impairment>,
    /// Switches for those who measure.
    pub experiment: Experiment,
    /// Run on this processor only.
    pub cpu: Option<usize>,
    /// The quota of a user.
    pub quota: Quota,
    /// Memory for private segments and for other nodes.
    pub memory: MemoryOptions,
    /// Record the node's inputs, to find the cause of a failure later.
    pub recorder: bool,
    /// Name a standby, and stream to it what this node decides, when it coordinates.
    pub standby: bool,
    /// Where this node keeps what it decides as the coordinator, or knows as the standby; none:
    /// nowhere.
    pub state: Option<PathBuf>,
    /// The etcd that has what the coordinator decides, and elects it; none: the nodes do that
    /// themselves.
    pub control: Option<Hello>,
    /// Go on as the coordinator with what this node knew as the standby when its daemon ended.
    pub promote: bool,
    /// Look for bytes that two nodes write without synchronizing.
    pub check_races: bool,
    /// Lose stores: take pages away without stopping those who store to them. By
    /// this, tests show that they would notice; there is no other way to ask for it.
    #[doc(hidden)]
    pub unprotected: bool,
    /// Change the pages that are kept for others: by this, tests see that their owners notice.
    #[doc(hidden)]
    pub tamper: bool,
    /// Die between two effects: by this, tests see that nothing is lost there.
    #[doc(hidden)]
    pub crash_point: Option<CrashPoint>,
    /// Have everything kept for the daemon that takes the place of this one.
    pub keeping: Option<Keeping>,
    /// Listen at an address others can reach although nothing is encrypted.
    pub insecure: bool,
    /// Seal all datagrams, and be admitted by this; none: nothing is sealed.
    pub admission: Option<Admission>,
}

/// The means of admission to a cluster whose datagrams are sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The file with the cluster's keys; such a daemon may admit others.
    KeyFile(PathBuf),
    /// A file with a token made from a key.
    Token(PathBuf),
}

/// How to wait for datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// Ask again and again for a while: fastest, but takes a processor.
    Spin,
    /// Sleep until something comes.
    Block,
    /// Spin if there is more than one processor.
    #[default]
    Auto,
}

/// Whether pages are made smaller for the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compress {
    /// Never.
    Off,
    /// Every page, as runs of equal double words: MIRAGE+'s code.
    Runs,
    /// Every page, by LZ4.
    Lz4,
    /// Zero pages are not sent; others are packed on links that are slow enough, by the code that
    /// gained most so far.
    #[default]
    Auto,
}

impl Default for Options {
    fn default() -> Self {
        let name = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        Self {
            name,
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            join: None,
            join_timeout: Duration::from_secs(60),
            socket: PathBuf::from("/run/pagemesh/pagemesh.sock"),
            socket_mode: 0o666,
            waiting: Waiting::default(),
            latency: false,
            compress: Compress::default(),
            multicast: None,
            impair: None,
            experiment: Experiment::default(),
            cpu: None,
            quota: Quota::default(),
            memory: MemoryOptions::default(),
            recorder: true,
            standby: true,
            state: None,
            control: None,
            promote: false,
            check_races: false,
            unprotected: false,
            tamper: false,
            crash_point: None,
            keeping: None,
            insecure: false,
            admission: None,
        }
    }
}

impl Options {
    /// Refuses options that would be unsafe or could not work.
    ///
    /// # Errors
    /// Names the problem and its cure.
    pub fn check(&self) -> Result<()> {
        if !self.bind.ip().is_loopback() && !self.insecure && self.admission.is_none() {
            bail!(
                "refusing to listen at {} without a key: anybody who can send there could read and \
                 change all shared memory; give --key FILE (`pagemesh key new` makes one) or \
                 --join-token FILE, listen at a loopback address, or pass --insecure on a network \
                 where you trust every host",
                self.bind
            );
        }
        if self.bind.ip().is_unspecified() && self.advertise.is_none() {
            bail!(
                "listening at {} needs --advertise ADDRESS: other daemons must be told one \
                 address at which they reach this one",
                self.bind
            );
        }
        if self.promote && (self.join.is_some() || self.state.is_none()) {
            bail!(
                "--promote goes on as the coordinator with what this node knew as the standby: name \
                 its directory (--state), and leave --join away"
            );
        }
        if self.control.is_some() && (self.join.is_some() || self.state.is_some()) {
            bail!(
                "with --control etcd says whom to join, and has what --state would keep: leave \
                 --join and --state away"
            );
        }
        self.check_multicast()
    }

    fn check_multicast(&self) -> Result<()> {
        let Some(group) = self.multicast else {
            return Ok(());
        };
        if !group.ip().is_multicast() {
            bail!(
                "{group} is no multicast group: those have addresses from 224.0.0.0 to \
                 239.255.255.255, and 239.0.0.0/8 is free for use at one site"
            );
        }
        let IpAddr::V4(bind) = self.bind.ip() else {
            bail!(
                "multicast works with IPv4 only, and this daemon listens at {}: give it an \
                 IPv4 address, or leave --multicast away",
                self.bind
            );
        };
        if bind.is_unspecified() || self.advertise.is_some_and(|other| other.ip() != bind) {
            bail!(
                "--multicast needs --bind with the address by which others reach this daemon, \
                 which says on which link the group is, not {}",
                self.bind
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(bind: &str) -> Options {
        Options {
            bind: bind.parse().unwrap(),
            ..Options::default()
        }
    }

    #[test]
    fn only_loopback_without_being_told() {
        assert!(at("127.0.0.1:0").check().is_ok());
        assert!(at("[::1]:0").check().is_ok());
        let refused = at("10.0.0.1:0").check().unwrap_err().to_string();
        assert!(refused.contains("--insecure"));
        let mut open = at("0.0.0.0:0");
        open.insecure = true;
        assert!(
            open.check()
                .unwrap_err()
                .to_string()
                .contains("--advertise")
        );
        open.advertise = Some("10.0.0.1:5".parse().unwrap());
        assert!(open.check().is_ok());
    }

    #[test]
    fn a_group_is_one_and_its_link_is_known() {
        let with = |bind: &str, group: &str| Options {
            multicast: Some(group.parse().unwrap()),
            insecure: true,
            advertise: Some("10.0.0.1:5".parse().unwrap()).filter(|_| bind.starts_with('0')),
            ..at(bind)
        };
        assert!(with("10.0.0.1:5", "239.77.0.1:7450").check().is_ok());
        for (bind, group, why) in [
            ("10.0.0.1:5", "10.77.0.1:7450", "239.0.0.0/8"),
            ("[::1]:5", "239.77.0.1:7450", "IPv4 only"),
            ("0.0.0.0:5", "239.77.0.1:7450", "needs --bind"),
        ] {
            let refused = with(bind, group).check().unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
