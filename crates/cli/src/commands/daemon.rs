//! `pagemesh daemon`: the daemon of this node, in the foreground.

pub(super) mod control;
mod ready;
mod settings;

use super::sandbox::{Compress, Wait};
use crate::exit::Exit;
use crate::global::Global;
use crate::units::parse_switch;
use anyhow::Result;
use clap::Args;
use clap::builder::BoolishValueParser;
use control::EtcdFlags;
#[cfg(feature = "experiment")]
use pagemesh_daemon::Experiment;
use pagemesh_daemon::Quota;
use pagemesh_os::signals::Signals;
use rustix::process::Signal;
use std::path::PathBuf;

/// How the node for a lent page is chosen.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Placement {
    /// By the ages of all nodes' pages, collected in epochs
    Epoch,
    /// Any other node
    Random,
    /// None: private pages go to the disk
    None,
    /// Any other node, and donors without room send pages on (N-chance forwarding), to compare
    NChance,
}

/// Run the daemon of this node in the foreground
#[derive(Args)]
#[command(
    after_help = "Flags beat PAGEMESH_* variables, these beat $XDG_CONFIG_HOME/pagemesh/config.toml, \
                  and that beats /etc/pagemesh/config.toml; --config reads another file in place of both (keys: bind, advertise, join, node_name, \
                  socket, wait, latency, cpu, compress, multicast, impair, grace, join_timeout, quota, memory, lend, private_dir, recorder, standby, state, control, control_ca, control_cert, control_key, \
                  control_password, insecure, key, join_token)."
)]
pub(crate) struct Daemon {
    /// Loopback and defaults only, to try things out; no configuration is read
    #[arg(long)]
    dev: bool,
    /// Address for other nodes, UDP and TCP; port 0 takes any free one [default: 127.0.0.1:7450]
    #[arg(long, value_name = "ADDRESS[:PORT]", env = "PAGEMESH_BIND")]
    bind: Option<String>,
    /// Address by which others reach this node, if it is another one
    #[arg(long, value_name = "ADDRESS[:PORT]", env = "PAGEMESH_ADVERTISE")]
    advertise: Option<String>,
    /// A node of the cluster to join; the first that answers counts
    #[arg(
        long,
        value_name = "ADDRESS[:PORT]",
        env = "PAGEMESH_JOIN",
        value_delimiter = ','
    )]
    join: Vec<String>,
    /// This node's name [default: the host name]
    #[arg(long, env = "PAGEMESH_NODE_NAME")]
    name: Option<String>,
    /// How to wait for datagrams
    #[arg(long, value_enum, env = "PAGEMESH_WAIT")]
    wait: Option<Wait>,
    /// Keep idle processors awake: faster, but costs power
    #[arg(long, env = "PAGEMESH_LATENCY", value_parser = BoolishValueParser::new())]
    latency: bool,
    /// Pin the daemon's hot thread to this CPU
    #[arg(long, env = "PAGEMESH_CPU")]
    cpu: Option<usize>,
    /// Make pages smaller for the wire [default: auto]
    #[arg(long, value_enum, env = "PAGEMESH_COMPRESS")]
    compress: Option<Compress>,
    /// Send what goes to several nodes at once to this IPv4 multicast group; all daemons
    /// should name the same, such as 239.77.0.1:7450
    #[arg(long, value_name = "GROUP[:PORT]", env = "PAGEMESH_MULTICAST")]
    multicast: Option<String>,
    /// Spoil outgoing datagrams, for tests: loss=1%,dup=1%,reorder=1%,delay=1ms,seed=7
    #[arg(long, value_name = "SPEC", env = "PAGEMESH_IMPAIR")]
    impair: Option<String>,
    /// Switches for those who measure: packet=1024,acknowledge=packet,receive=worker
    #[cfg(feature = "experiment")]
    #[arg(long, value_name = "SPEC", env = "PAGEMESH_EXPERIMENT")]
    experiment: Option<Experiment>,
    /// Seal all datagrams with the keys in this file; `pagemesh key new` makes one
    #[arg(
        long,
        value_name = "FILE",
        env = "PAGEMESH_KEY",
        conflicts_with = "join_token"
    )]
    key: Option<PathBuf>,
    /// Seal all datagrams, and join by the token in this file (`pagemesh key token`)
    #[arg(long, value_name = "FILE", env = "PAGEMESH_JOIN_TOKEN")]
    join_token: Option<PathBuf>,
    /// Serve other hosts without a key: nothing is encrypted, nobody is authenticated
    #[arg(long, env = "PAGEMESH_INSECURE", value_parser = BoolishValueParser::new())]
    insecure: bool,
    /// What a user other than root may have: segments and their bytes in the cluster (said to
    /// the first node), locks on this node, lines of its log in a minute [default:
    /// segments=4096,bytes=64TiB,locks=65536,log=60]
    #[arg(long, value_name = "SPEC", env = "PAGEMESH_QUOTA")]
    quota: Option<Quota>,
    /// Memory of private segments on this host together: auto is half of the host's [default: auto]
    #[arg(long, value_name = "SIZE|auto", env = "PAGEMESH_MEMORY")]
    memory: Option<String>,
    /// Memory that this node lends to others: auto is half of what is idle [default: auto]
    #[arg(long, value_name = "SIZE|auto|none", env = "PAGEMESH_LEND")]
    lend: Option<String>,
    /// Where files for private pages are made; they have no names [default: /var/tmp]
    #[arg(long, value_name = "DIRECTORY", env = "PAGEMESH_PRIVATE_DIR")]
    private_dir: Option<PathBuf>,
    /// How the node for a lent page is chosen [default: epoch]
    #[arg(long, value_enum, env = "PAGEMESH_PLACEMENT")]
    placement: Option<Placement>,
    /// Record what the node does, for `pagemesh debug dump` [default: on]
    #[arg(long, value_name = "on|off", env = "PAGEMESH_RECORDER", value_parser = parse_switch)]
    recorder: Option<bool>,
    /// When this node coordinates, stream its decisions to a standby that can take over [default: on]
    #[arg(long, value_name = "on|off", env = "PAGEMESH_STANDBY", value_parser = parse_switch)]
    standby: Option<bool>,
    /// Keep what the coordinator decides, and its standby knows, in this directory: a coordinator
    /// that is started again goes on from there
    #[arg(long, value_name = "DIRECTORY", env = "PAGEMESH_STATE")]
    state: Option<PathBuf>,
    #[command(flatten)]
    etcd: EtcdFlags,
    /// Go on as the coordinator with what this node knew as the standby: if the coordinator's host
    /// is gone for good, and its standby's daemon has ended, too
    #[arg(long, requires = "state", conflicts_with = "join")]
    promote: bool,
    /// Look, in segments of policy `release`, for bytes that two nodes write without
    /// synchronizing; all daemons of a cluster should, or none
    #[arg(long, env = "PAGEMESH_CHECK_RACES", value_parser = BoolishValueParser::new())]
    check_races: bool,
    /// Go on in the place of a daemon that runs, without leaving: to upgrade it
    #[arg(long)]
    replace: bool,
    /// How long programs wait for another daemon should this one die; then they get errors [default: 30s]
    #[arg(long, value_name = "DURATION", env = "PAGEMESH_GRACE")]
    grace: Option<String>,
    /// How long to ask for admission before giving up; 0s for ever [default: 60s]
    #[arg(long, value_name = "DURATION", env = "PAGEMESH_JOIN_TIMEOUT")]
    join_timeout: Option<String>,
    /// Die between two effects, for tests: Map:7
    #[cfg(debug_assertions)]
    #[arg(long, hide = true)]
    die_after: Option<pagemesh_daemon::CrashPoint>,
    /// Change the pages kept for others, for tests
    #[cfg(debug_assertions)]
    #[arg(long, hide = true)]
    tamper: bool,
    /// Read this configuration file, and no other
    #[arg(long, value_name = "FILE", env = "PAGEMESH_CONFIG", conflicts_with_all = ["dev", "no_config"])]
    config: Option<PathBuf>,
    /// Read no configuration file
    #[arg(long, hide = true)]
    no_config: bool,
}

impl Daemon {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let options = settings::options(self, global)?;
        // The announcer must not die of a signal meant for the daemon.
        let _signals = Signals::catch(&[Signal::INT, Signal::TERM].map(Signal::as_raw))?;
        let socket = options.socket.clone();
        pagemesh_daemon::run_announced(options, || ready::announce(socket))?;
        Ok(Exit::OK)
    }
}
