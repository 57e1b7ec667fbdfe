//! Configuration files: the daemon's settings where flags and environment give none.

use crate::exit::{Exit, Trouble};
use anyhow::Result;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The keys of a configuration file. Unknown ones are errors: a misspelt key
/// that is silently ignored costs an evening.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Address and port for other nodes.
    pub(crate) bind: Option<String>,
    /// The address by which others reach this node, if it is another one.
    pub(crate) advertise: Option<String>,
    /// Nodes of the cluster to join.
    #[serde(default)]
    pub(crate) join: Vec<String>,
    /// This node's name.
    pub(crate) node_name: Option<String>,
    /// Where processes of this node find the daemon.
    pub(crate) socket: Option<PathBuf>,
    /// `spin`, `block` or `auto`.
    pub(crate) wait: Option<String>,
    /// Keep idle processors awake.
    pub(crate) latency: Option<bool>,
    /// Pin the daemon to this CPU.
    pub(crate) cpu: Option<usize>,
    /// `off`, `runs`, `lz4` or `auto`.
    pub(crate) compress: Option<String>,
    /// Multicast group and port for datagrams to several nodes.
    pub(crate) multicast: Option<String>,
    /// Impairment of outgoing datagrams; for tests.
    pub(crate) impair: Option<String>,
    /// Quota of a user, such as `segments=4096,locks=65536`.
    pub(crate) quota: Option<String>,
    /// What private segments of the node may have together: auto, or a size.
    pub(crate) memory: Option<String>,
    /// What the node keeps for others: auto, none, or a size.
    pub(crate) lend: Option<String>,
    /// Where files of private segments are made.
    pub(crate) private_dir: Option<PathBuf>,
    /// Record the node's inputs.
    pub(crate) recorder: Option<bool>,
    /// Stream decisions to a standby.
    pub(crate) standby: Option<bool>,
    /// Where the coordinator and its standby keep what they know.
    pub(crate) state: Option<PathBuf>,
    /// The etcd that has what the coordinator decides, and elects it.
    pub(crate) control: Option<String>,
    /// The certificate of those who certify its members.
    pub(crate) control_ca: Option<PathBuf>,
    /// This host's certificate for it.
    pub(crate) control_cert: Option<PathBuf>,
    /// The key of that certificate.
    pub(crate) control_key: Option<PathBuf>,
    /// A file with the password of its user.
    pub(crate) control_password: Option<PathBuf>,
    /// How long programs wait for another daemon, such as `30s`.
    pub(crate) grace: Option<String>,
    /// How long to ask for admission, such as `60s`.
    pub(crate) join_timeout: Option<String>,
    /// Serve other hosts although nothing is encrypted.
    pub(crate) insecure: Option<bool>,
    /// The file with the cluster's keys.
    pub(crate) key: Option<PathBuf>,
    /// A file with a token that lets this node join.
    pub(crate) join_token: Option<PathBuf>,
    /// File and line of each key that is set.
    #[serde(skip)]
    places: BTreeMap<String, String>,
}

impl Config {
    /// The system's file, overridden by the user's, key by key.
    pub(crate) fn load() -> Result<Self> {
        let mut config = Self::default();
        for path in paths() {
            match std::fs::read_to_string(&path) {
                Ok(text) => config = parse(&path, &text)?.over(config),
                Err(_) if !can_be_looked_up(&path) => {}
                Err(error) => return Err(bad(&path, &error.to_string())),
            }
        }
        Ok(config)
    }

    /// The contents of one file, which must exist.
    pub(crate) fn load_from(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| bad(path, &error.to_string()))?;
        parse(path, &text)
    }

    /// An error about the value of a key, with the place in the file that set it.
    pub(crate) fn blame(&self, key: &str, error: anyhow::Error) -> anyhow::Error {
        match self.places.get(key) {
            Some(place) => Trouble::new(Exit::BAD_CONFIG, format!("{place}: {error:#}")).into(),
            None => error,
        }
    }

    /// This configuration, and `other` where it says nothing.
    fn over(self, other: Self) -> Self {
        let mut places = other.places;
        places.extend(self.places);
        Self {
            places,
            bind: self.bind.or(other.bind),
            advertise: self.advertise.or(other.advertise),
            join: if self.join.is_empty() {
                other.join
            } else {
                self.join
            },
            node_name: self.node_name.or(other.node_name),
            socket: self.socket.or(other.socket),
            wait: self.wait.or(other.wait),
            latency: self.latency.or(other.latency),
            cpu: self.cpu.or(other.cpu),
            compress: self.compress.or(other.compress),
            multicast: self.multicast.or(other.multicast),
            impair: self.impair.or(other.impair),
            quota: self.quota.or(other.quota),
            memory: self.memory.or(other.memory),
            lend: self.lend.or(other.lend),
            private_dir: self.private_dir.or(other.private_dir),
            recorder: self.recorder.or(other.recorder),
            standby: self.standby.or(other.standby),
            state: self.state.or(other.state),
            control: self.control.or(other.control),
            control_ca: self.control_ca.or(other.control_ca),
            control_cert: self.control_cert.or(other.control_cert),
            control_key: self.control_key.or(other.control_key),
            control_password: self.control_password.or(other.control_password),
            grace: self.grace.or(other.grace),
            join_timeout: self.join_timeout.or(other.join_timeout),
            insecure: self.insecure.or(other.insecure),
            key: self.key.or(other.key),
            join_token: self.join_token.or(other.join_token),
        }
    }
}

/// Weakest first.
fn paths() -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::from("/etc/pagemesh/config.toml")];
    paths.extend(home().map(|directory| directory.join("pagemesh/config.toml")));
    paths
}

/// Whether there is a file at `path` for this user. `sudo -u` and the like leave `HOME` as it was:
/// what lies in a home that is closed to the user is not the user's configuration.
fn can_be_looked_up(path: &Path) -> bool {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    let missing = |error: std::io::Error| matches!(error.kind(), NotFound | PermissionDenied);
    !path.metadata().is_err_and(missing)
}

/// Where this user's configuration files are.
pub(crate) fn home() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    variable("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&variable("HOME")?).join(".config")))
}

fn parse(path: &Path, text: &str) -> Result<Config> {
    // The error names line and column, and shows the line.
    let wrong = |error: toml::de::Error| bad(path, error.to_string().trim_end());
    let mut config: Config = toml::from_str(text).map_err(wrong)?;
    let values: BTreeMap<String, toml::Spanned<IgnoredAny>> =
        toml::from_str(text).map_err(wrong)?;
    config.places = values
        .into_iter()
        .map(|(key, value)| {
            let line = text[..value.span().start].matches('\n').count() + 1;
            (key, format!("{}, line {line}", path.display()))
        })
        .collect();
    Ok(config)
}

fn bad(path: &Path, why: &str) -> anyhow::Error {
    Trouble::new(Exit::BAD_CONFIG, format!("{}: {why}", path.display())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stronger_file_wins_key_by_key() {
        let path = Path::new("config.toml");
        let weak = parse(path, "bind = '10.0.0.1'\nnode_name = 'a'\njoin = ['x']").unwrap();
        let strong = parse(path, "node_name = 'b'\nlatency = true").unwrap();
        let config = strong.over(weak);
        assert_eq!(config.bind.as_deref(), Some("10.0.0.1"));
        assert_eq!(config.node_name.as_deref(), Some("b"));
        assert_eq!(config.join, ["x"]);
        assert_eq!(config.latency, Some(true));
    }

    #[test]
    fn a_wrong_value_is_blamed_on_file_and_line() {
        let weak = parse(Path::new("weak.toml"), "\nwait = 'sometimes'\n").unwrap();
        let strong = parse(Path::new("strong.toml"), "# mine\njoin = [\n 'x',\n]").unwrap();
        let config = strong.over(weak);
        let blame = |key| config.blame(key, anyhow::anyhow!("why"));
        assert_eq!(blame("wait").to_string(), "weak.toml, line 2: why");
        assert_eq!(blame("join").to_string(), "strong.toml, line 2: why");
        assert_eq!(crate::exit::of(&blame("join")), Exit::BAD_CONFIG);
        assert_eq!(blame("cpu").to_string(), "why");
    }

    #[test]
    fn an_unknown_key_is_shown_with_line_and_column() {
        let error = parse(Path::new("c.toml"), "bind = 'x'\nbnid = 'y'\n").unwrap_err();
        assert_eq!(crate::exit::of(&error), Exit::BAD_CONFIG);
        let text = error.to_string();
        assert!(
            text.contains("c.toml") && text.contains("line 2, column 1"),
            "{text}"
        );
        assert!(parse(Path::new("c.toml"), "cpu = 'two'").is_err());
    }
}
