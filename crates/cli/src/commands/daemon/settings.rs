//! What the daemon shall be: flags over environment over files over defaults.

use super::Daemon;
use crate::commands::key::key_file;
use crate::commands::sandbox::{Compress, Wait};
use crate::config::Config;
use crate::exit::{Exit, Trouble};
use crate::global::Global;
use anyhow::Result;
use clap::ValueEnum;
use pagemesh_daemon::keeper::Keeping;
use pagemesh_daemon::{Admission, Options, Waiting};
use std::net::{SocketAddr, SocketAddrV4, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Used where an address names no port.
const PORT: u16 = 7450;

/// How long a node may take to show that it is there, if there are several to join.
const PATIENCE: Duration = Duration::from_secs(1);

/// Restarts of a daemon take a second or two; its programs wait so long for it.
const GRACE: Duration = Duration::from_secs(30);

/// Everything decided.
pub(super) fn options(flags: Daemon, global: &Global) -> Result<Options> {
    let config = if flags.dev || flags.no_config {
        Config::default()
    } else {
        Config::load()?
    };
    let dev = flags.dev;
    let options = merge(flags, config, global)?;
    if dev && !options.bind.ip().is_loopback() {
        return Err(bad(format!(
            "--dev serves loopback only, not {}",
            options.bind
        )));
    }
    options.check().map_err(|error| bad(error.to_string()))?;
    Ok(options)
}

/// clap has merged flags and environment already; flags that are missing come
/// from the configuration, or have a default.
fn merge(flags: Daemon, config: Config, global: &Global) -> Result<Options> {
    let default = Options::default();
    let admission = admission(&flags, &config);
    let bind = flags.bind.or(config.bind);
    let advertise = flags.advertise.or(config.advertise);
    let join = if flags.join.is_empty() {
        config.join
    } else {
        flags.join
    };
    let waiting = match (flags.wait, &config.wait) {
        (Some(wait), _) => wait,
        (None, Some(name)) => Wait::from_str(name, false)
            .map_err(|_| bad(format!("wait: {name:?} is none of spin, block, auto")))?,
        (None, None) => Wait::Auto,
    };
    let compress = match (flags.compress, &config.compress) {
        (Some(compress), _) => compress,
        (None, Some(name)) => Compress::from_str(name, false).map_err(|_| {
            bad(format!(
                "compress: {name:?} is none of off, runs, lz4, auto"
            ))
        })?,
        (None, None) => Compress::Auto,
    };
    let multicast = flags.multicast.or(config.multicast);
    let impair = flags
        .impair
        .or(config.impair)
        .map(|spec| {
            spec.parse()
                .map_err(|error| bad(format!("impair: {error}")))
        })
        .transpose()?;
    let quota = match (flags.quota, config.quota) {
        (Some(quota), _) => quota,
        (None, Some(spec)) => spec
            .parse()
            .map_err(|error| bad(format!("quota: {error}")))?,
        (None, None) => default.quota,
    };
    let grace = duration("grace", flags.grace.or(config.grace))?.unwrap_or(GRACE);
    let join_timeout = duration("join_timeout", flags.join_timeout.or(config.join_timeout))?;
    Ok(Options {
        name: flags.name.or(config.node_name).unwrap_or(default.name),
        bind: address("bind", bind.as_deref().unwrap_or("127.0.0.1"))?,
        advertise: advertise
            .map(|text| address("advertise", &text))
            .transpose()?,
        join: whom_to_join(&join)?,
        join_timeout: join_timeout.unwrap_or(default.join_timeout),
        socket: global
            .socket
            .clone()
            .or(config.socket)
            .unwrap_or_else(default_socket),
        waiting: waiting.into(),
        latency: flags.latency || config.latency.unwrap_or(false),
        compress: compress.into(),
        multicast: multicast.map(|text| group(&text)).transpose()?,
        impair,
        experiment: flags.experiment.unwrap_or_default(),
        cpu: flags.cpu.or(config.cpu),
        admission,
        quota,
        recorder: flags.recorder.or(config.recorder).unwrap_or(true),
        check_races: flags.check_races,
        keeping: Some(Keeping {
            // Also if its file was replaced since.
            program: "/proc/self/exe".into(),
            grace,
            replace: flags.replace,
        }),
        insecure: flags.insecure || config.insecure.unwrap_or(false),
        #[cfg(debug_assertions)]
        fuse: flags.die_after,
        ..Options::default()
    })
}

/// By what the daemon seals: what was named; else, unless it was told to do
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

/// A length of time, if one is given.
fn duration(what: &str, text: Option<String>) -> Result<Option<Duration>> {
    text.map(|text| {
        humantime::parse_duration(&text).map_err(|error| bad(format!("{what}: {text:?}: {error}")))
    })
    .transpose()
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

fn bad(message: String) -> anyhow::Error {
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
    fn groups_are_of_ipv4() {
        let read = |text| group(text).map(|found| found.to_string());
        assert_eq!(read("239.77.0.1").unwrap(), "239.77.0.1:7450");
        assert_eq!(read("239.77.0.1:9").unwrap(), "239.77.0.1:9");
        let refused = read("[ff15::1]:9").unwrap_err().to_string();
        assert!(refused.contains("IPv6"), "{refused}");
    }
}
