//! The daemon's settings: flags over environment over files over defaults.

use super::{Daemon, Placement};
use crate::commands::key::key_file;
use crate::commands::sandbox::{Compress, Wait};
use crate::config::Config;
use crate::exit::{Exit, Trouble};
use crate::global::Global;
use anyhow::Result;
use clap::ValueEnum;
use pagemesh_daemon::keeper::Keeping;
use pagemesh_daemon::{Admission, Amount, MemoryOptions, Options, Waiting};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpStream, ToSocketAddrs, UdpSocket,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Used where an address names no port.
const PORT: u16 = 7450;

/// How long a node may take to show that it is there, if there are several to join.
const PATIENCE: Duration = Duration::from_secs(1);

/// Restarts of a daemon take a second or two; its programs wait so long for it.
const GRACE: Duration = Duration::from_secs(30);

/// Combines all sources of settings.
pub(super) fn options(flags: Daemon, global: &Global) -> Result<Options> {
    let config = match &flags.config {
        Some(path) => Config::load_from(path)?,
        None if flags.dev || flags.no_config => Config::default(),
        None => Config::load()?,
    };
    let dev = flags.dev;
    let options = merge(flags, &config, global)?;
    if dev && !options.bind.ip().is_loopback() {
        return Err(bad(format!(
            "--dev serves loopback only, not {}",
            options.bind
        )));
    }
    check_reach(&options)?;
    options.check().map_err(|error| bad(error.to_string()))?;
    Ok(options)
}

/// clap has merged flags and environment already; flags that are missing come
/// from the configuration, or have a default.
fn merge(flags: Daemon, config: &Config, global: &Global) -> Result<Options> {
    /// A setting that flag, variable and file give as text.
    macro_rules! setting {
        ($key:ident, $read:expr) => {
            text(config, stringify!($key), &flags.$key, &config.$key, $read)?
        };
    }
    let default = Options::default();
    let bind = setting!(bind, |text| address("bind", text));
    let advertise = setting!(advertise, |text| address("advertise", text));
    let multicast = setting!(multicast, group);
    let impair = setting!(impair, |spec| spec
        .parse()
        .map_err(|error| bad(format!("impair: {error}"))));
    let grace = setting!(grace, |text| duration("grace", text));
    let join_timeout = setting!(join_timeout, |text| duration("join_timeout", text));
    let waiting = chosen(config, "wait", flags.wait, &config.wait)?.unwrap_or(Wait::Auto);
    let compress = chosen(config, "compress", flags.compress, &config.compress)?;
    let join = if flags.join.is_empty() {
        whom_to_join(&config.join).map_err(|error| config.blame("join", error))?
    } else {
        whom_to_join(&flags.join)?
    };
    let quota = match (flags.quota, &config.quota) {
        (Some(quota), _) => quota,
        (None, Some(spec)) => spec
            .parse()
            .map_err(|error| config.blame("quota", bad(format!("quota: {error}"))))?,
        (None, None) => default.quota,
    };
    let memory = memory(&flags, config)?;
    let control = super::control::options(&flags.etcd, config)?;
    Ok(Options {
        memory,
        bind: bind.unwrap_or(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT)),
        advertise,
        join,
        join_timeout: join_timeout.unwrap_or(default.join_timeout),
        waiting: waiting.into(),
        compress: compress.unwrap_or(Compress::Auto).into(),
        multicast,
        impair,
        admission: admission(&flags, config),
        latency: flags.latency || config.latency.unwrap_or(false),
        cpu: flags.cpu.or(config.cpu),
        quota,
        recorder: flags.recorder.or(config.recorder).unwrap_or(true),
        standby: flags.standby.or(config.standby).unwrap_or(true),
        control,
        state: flags.state.or_else(|| config.state.clone()),
        promote: flags.promote,
        check_races: flags.check_races,
        keeping: Some(Keeping {
            // Also if its file was replaced since.
            program: "/proc/self/exe".into(),
            grace: grace.unwrap_or(GRACE),
            replace: flags.replace,
        }),
        insecure: flags.insecure || config.insecure.unwrap_or(false),
        #[cfg(debug_assertions)]
        tamper: flags.tamper,
        #[cfg(debug_assertions)]
        crash_point: flags.die_after,
        #[cfg(feature = "experiment")]
        experiment: flags.experiment.unwrap_or_default(),
        #[cfg(not(feature = "experiment"))]
        experiment: pagemesh_daemon::Experiment {},
        name: flags
            .name
            .or_else(|| config.node_name.clone())
            .unwrap_or(default.name),
        socket: global
            .socket
            .clone()
            .or_else(|| config.socket.clone())
            .unwrap_or_else(default_socket),
        ..Options::default()
    })
}

/// A value in words: the flag's, else that of the configuration, whose file and line an error
/// then names.
fn text<T>(
    config: &Config,
    key: &str,
    flag: &Option<String>,
    set: &Option<String>,
    read: impl Fn(&str) -> Result<T>,
) -> Result<Option<T>> {
    if let Some(text) = flag {
        return read(text).map(Some);
    }
    let value = set.as_deref().map(read).transpose();
    value.map_err(|error| config.blame(key, error))
}

/// One of several words: as [`text`].
fn chosen<T: ValueEnum>(
    config: &Config,
    key: &str,
    flag: Option<T>,
    set: &Option<String>,
) -> Result<Option<T>> {
    if flag.is_some() {
        return Ok(flag);
    }
    text(config, key, &None, set, |name| {
        T::from_str(name, false).map_err(|_| {
            let words: Vec<_> = T::value_variants()
                .iter()
                .filter_map(T::to_possible_value)
                .map(|word| word.get_name().to_owned())
                .collect();
            bad(format!("{key}: {name:?} is none of {}", words.join(", ")))
        })
    })
}

/// The means by which the daemon seals: the named key or token; else, unless it was told to do
/// without, the key file in its usual place.
fn admission(flags: &Daemon, config: &Config) -> Option<Admission> {
    let named = |key: &Option<PathBuf>, token: &Option<PathBuf>| {
        let key = key.clone().map(Admission::KeyFile);
        key.or_else(|| token.clone().map(Admission::Token))
    };
    let usual = || {
        let insecure = flags.insecure || config.insecure.unwrap_or(false);
        let path = (!flags.dev && !flags.no_config && !insecure).then(key_file)?;
        path.exists().then_some(Admission::KeyFile(path))
    };
    named(&flags.key, &flags.join_token)
        .or_else(|| named(&config.key, &config.join_token))
        .or_else(usual)
}

/// Refuses to join from where the others cannot answer: that would take a minute to fail.
fn check_reach(options: &Options) -> Result<()> {
    let here = options.advertise.unwrap_or(options.bind);
    match options.join {
        Some(join) if here.ip().is_loopback() && !join.ip().is_loopback() => {
            let own = own_address(join).filter(|own| !own.is_loopback());
            let own = own.map_or("ADDRESS".to_owned(), |own| own.to_string());
            Err(bad(format!(
                "{join} is to be joined from {here}, which is a loopback address that other \
                 hosts cannot reach; name this host's own: --bind {own}"
            )))
        }
        _ => Ok(()),
    }
}

/// The address of this host from which the kernel would send to `other`; nothing is sent.
fn own_address(other: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match other {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(other).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Memory for private segments and for other nodes.
fn memory(flags: &Daemon, config: &Config) -> Result<MemoryOptions> {
    let default = MemoryOptions::default();
    let size = |key, flag, set| text(config, key, flag, set, |text| amount(key, text));
    let directory = flags.private_dir.clone();
    Ok(MemoryOptions {
        memory: size("memory", &flags.memory, &config.memory)?.unwrap_or(default.memory),
        lend: size("lend", &flags.lend, &config.lend)?.unwrap_or(default.lend),
        placement: flags.placement.map_or(default.placement, Into::into),
        directory: directory
            .or_else(|| config.private_dir.clone())
            .unwrap_or(default.directory),
    })
}

/// An amount of memory.
fn amount(what: &str, text: &str) -> Result<Amount> {
    text.parse().map_err(|error| {
        bad(format!(
            "{what}: {text:?} is neither auto, none nor a size: {error}"
        ))
    })
}

impl From<Placement> for pagemesh_daemon::Placement {
    fn from(placement: Placement) -> Self {
        match placement {
            Placement::Epoch => Self::Epoch,
            Placement::Random => Self::Random,
            Placement::None => Self::None,
            Placement::NChance => Self::NChance,
        }
    }
}

impl From<Wait> for Waiting {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Spin => Self::Spin,
            Wait::Block => Self::Block,
            Wait::Auto => Self::Auto,
        }
    }
}

impl From<Compress> for pagemesh_daemon::Compress {
    fn from(compress: Compress) -> Self {
        match compress {
            Compress::Off => Self::Off,
            Compress::Runs => Self::Runs,
            Compress::Lz4 => Self::Lz4,
            Compress::Auto => Self::Auto,
        }
    }
}

/// The first of these nodes that is there; the very first if none is, since it
/// may still come.
fn whom_to_join(nodes: &[String]) -> Result<Option<SocketAddr>> {
    let nodes: Vec<SocketAddr> = nodes
        .iter()
        .map(|text| address("join", text))
        .collect::<Result<_>>()?;
    let there =
        |node: &&SocketAddr| nodes.len() == 1 || TcpStream::connect_timeout(node, PATIENCE).is_ok();
    Ok(nodes.iter().find(there).or(nodes.first()).copied())
}

/// Where programs of this user look for a daemon.
fn default_socket() -> PathBuf {
    if !rustix::process::geteuid().is_root()
        && let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty())
    {
        return Path::new(&runtime).join("pagemesh/pagemesh.sock");
    }
    PathBuf::from("/run/pagemesh/pagemesh.sock")
}

/// A length of time.
fn duration(what: &str, text: &str) -> Result<Duration> {
    humantime::parse_duration(text).map_err(|error| bad(format!("{what}: {text:?}: {error}")))
}

/// An address; without a port it has the usual one.
fn address(what: &str, text: &str) -> Result<SocketAddr> {
    if let Ok(ip) = text.parse() {
        return Ok(SocketAddr::new(ip, PORT));
    }
    let found = if text.contains(':') {
        text.to_socket_addrs()
    } else {
        (text, PORT).to_socket_addrs()
    };
    let why = match found.map(|mut found| found.next()) {
        Ok(Some(address)) => return Ok(address),
        Ok(None) => "no such host".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(bad(format!("{what}: {text:?} is no address: {why}")))
}

/// A multicast group; without a port it has the usual one.
fn group(text: &str) -> Result<SocketAddrV4> {
    match address("multicast", text)? {
        SocketAddr::V4(group) => Ok(group),
        SocketAddr::V6(group) => Err(bad(format!(
            "multicast: {group} is an IPv6 group; only IPv4 groups are supported, such as \
             239.77.0.1:7450"
        ))),
    }
}

pub(super) fn bad(message: String) -> anyhow::Error {
    Trouble::new(Exit::BAD_CONFIG, message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_get_the_usual_port() {
        let read = |text| address("bind", text).map(|found| found.to_string());
        assert_eq!(read("10.0.0.1").unwrap(), "10.0.0.1:7450");
        assert_eq!(read("10.0.0.1:0").unwrap(), "10.0.0.1:0");
        assert_eq!(read("::1").unwrap(), "[::1]:7450");
        assert_eq!(read("[::1]:9").unwrap(), "[::1]:9");
        assert!(read("10.0.0.1:seven").is_err());
    }

    #[test]
    fn a_loopback_address_joins_nobody_elsewhere() {
        let at = |bind: &str, join: &str| Options {
            bind: bind.parse().unwrap(),
            join: Some(join.parse().unwrap()),
            ..Options::default()
        };
        let refused = check_reach(&at("127.0.0.1:7450", "192.0.2.1:7450")).unwrap_err();
        assert!(refused.to_string().contains("--bind"), "{refused}");
        assert!(check_reach(&at("127.0.0.2:7450", "127.0.0.1:7450")).is_ok());
        assert!(check_reach(&at("192.0.2.2:7450", "192.0.2.1:7450")).is_ok());
        let mut behind = at("127.0.0.1:7450", "192.0.2.1:7450");
        behind.advertise = Some("192.0.2.9:7450".parse().unwrap());
        assert!(check_reach(&behind).is_ok());
    }

    #[test]
    fn groups_are_of_ipv4() {
        let read = |text| group(text).map(|found| found.to_string());
        assert_eq!(read("239.77.0.1").unwrap(), "239.77.0.1:7450");
        assert_eq!(read("239.77.0.1:9").unwrap(), "239.77.0.1:9");
        let refused = read("[ff15::1]:9").unwrap_err().to_string();
        assert!(refused.contains("IPv6"), "{refused}");
    }
}
