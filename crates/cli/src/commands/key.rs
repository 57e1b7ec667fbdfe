//! `pagemesh key`: the keys by which nodes of a cluster know each other.

use crate::config;
use crate::exit::{Exit, Trouble};
use crate::global::Global;
use crate::output;
use crate::units::parse_duration;
use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use pagemesh_seal::{Ring, Secret, SystemDice, Token};
use pagemesh_wire::NodeId;
use pagemesh_wire::local::Request;
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Make, show and rotate the keys by which nodes know each other
#[derive(Subcommand)]
#[command(
    after_help = "A key file has one key a line, the newest first. Every node that has it may join, \
                  and let others join; copy it over a secure way, readable by its owner only. \
                  Daemons use it by --key FILE, or from its usual place \
                  (/etc/pagemesh/cluster.key, ~/.config/pagemesh/cluster.key), and read it \
                  again within a second of a change: a key that is not in it any more lets nobody \
                  in, nor do tokens made with it. To shut a host out: `key rotate --keep 0`, copy \
                  the file to the other hosts, then `key revoke NODE`."
)]
pub(crate) enum Key {
    /// Make a key file
    New(New),
    /// Show the public names of the keys in a key file
    Show(Show),
    /// Put a new key in front; nodes already in the cluster go on undisturbed
    Rotate(Rotate),
    /// Print a token that lets its bearer join, but not let others in
    Token(TokenCommand),
    /// Put a node out of the cluster for good
    Revoke(Revoke),
}

/// Which key file.
#[derive(Args)]
pub(crate) struct Place {
    /// The key file [default: the usual place]
    #[arg(value_name = "FILE", env = "PAGEMESH_KEY")]
    file: Option<PathBuf>,
}

/// Make a key file
#[derive(Args)]
pub(crate) struct New {
    #[command(flatten)]
    place: Place,
}

/// Show the public names of the keys in a key file
#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    place: Place,
}

/// Put a new key in front; nodes already in the cluster go on undisturbed
#[derive(Args)]
pub(crate) struct Rotate {
    #[command(flatten)]
    place: Place,
    /// How many of the older keys still admit nodes
    #[arg(long, default_value_t = 1)]
    keep: usize,
}

/// Print a token that lets its bearer join, but not let others in
#[derive(Args)]
pub(crate) struct TokenCommand {
    #[command(flatten)]
    place: Place,
    /// How long it may be used; 0 for ever, or until its key is rotated away
    #[arg(long, default_value = "24h", value_parser = parse_duration)]
    expires: Duration,
}

/// Put a node out of the cluster for good
#[derive(Args)]
pub(crate) struct Revoke {
    /// Its number, as `pagemesh members` shows it
    #[arg(value_name = "NODE", value_parser = clap::value_parser!(u16).range(1..128))]
    node: u16,
}

impl Key {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        match self {
            Self::New(command) => command.run(global),
            Self::Show(command) => command.run(global),
            Self::Rotate(command) => command.run(global),
            Self::Token(command) => command.run(global),
            Self::Revoke(command) => command.run(global),
        }
    }
}

impl Place {
    fn path(&self) -> PathBuf {
        self.file.clone().unwrap_or_else(key_file)
    }

    fn ring(&self) -> Result<(PathBuf, Ring)> {
        let path = self.path();
        let text = fs::read_to_string(&path).with_context(|| {
            let name = path.display();
            format!("cannot read {name}; `pagemesh key new {name}` makes a key file")
        })?;
        let ring = Ring::from_text(&text).map_err(|(line, why)| {
            let message = format!("{}, line {line}: {why}", path.display());
            Trouble::new(Exit::BAD_CONFIG, message)
        })?;
        Ok((path, ring))
    }
}

impl New {
    fn run(self, global: &Global) -> Result<Exit> {
        let path = self.place.path();
        let ring = Ring::default().rotated(Secret::new(&SystemDice::default()), 0);
        if let Some(directory) = path.parent().filter(|path| !path.as_os_str().is_empty()) {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        write_new(&path, &ring)?;
        tell(global, &path, &ring, "made")?;
        Ok(Exit::OK)
    }
}

impl Show {
    fn run(self, global: &Global) -> Result<Exit> {
        let (path, ring) = self.place.ring()?;
        tell(global, &path, &ring, "has")?;
        Ok(Exit::OK)
    }
}

impl Rotate {
    fn run(self, global: &Global) -> Result<Exit> {
        let (path, ring) = self.place.ring()?;
        let ring = ring.rotated(Secret::new(&SystemDice::default()), self.keep);
        replace(&path, &ring)?;
        tell(global, &path, &ring, "now has")?;
        Ok(Exit::OK)
    }
}

impl TokenCommand {
    fn run(self, global: &Global) -> Result<Exit> {
        let (_, ring) = self.place.ring()?;
        let Some(secret) = ring.newest() else {
            bail!("the key file has no key");
        };
        let expires = if self.expires.is_zero() {
            0
        } else {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            (now.unwrap_or_default() + self.expires).as_secs()
        };
        let token = Token::new(secret, expires, &SystemDice::default()).to_text();
        let document = json!({
            "token": token,
            "key": secret.id().to_string(),
            "expires": (expires > 0).then_some(expires),
        });
        output::told(global.output, &token, document)?;
        if !global.quiet {
            output::note(format_args!(
                "Put it into a file of mode 600 on the joining host, then: \
                 pagemesh daemon --bind ITS-OWN-ADDRESS --join-token FILE --join ADDRESS\n\
                 ADDRESS must be that of a node with the key file."
            ));
        }
        Ok(Exit::OK)
    }
}

impl Revoke {
    fn run(self, global: &Global) -> Result<Exit> {
        let node = NodeId(self.node);
        super::connect(global)?.ask(Request::Revoke { node })?;
        let sentence = format!("{node} is out of the cluster, and what only it held is lost");
        output::told(global.output, &sentence, json!({"revoked": node.0}))?;
        if !global.quiet {
            output::note(format_args!(
                "Its daemon's own key opens nothing any more. If its host has the key file, or a \
                 token that has not expired, it can have come back as a new node until the key was \
                 rotated away: pagemesh key rotate --keep 0, copy the file to the other hosts, and \
                 look at `pagemesh members` for what is to be revoked then"
            ));
        }
        Ok(Exit::OK)
    }
}

fn tell(global: &Global, path: &Path, ring: &Ring, verb: &str) -> Result<()> {
    let names: Vec<_> = ring.iter().map(|secret| secret.id().to_string()).collect();
    let sentence = match &names[..] {
        [only] => format!("{} {verb} key {only}", path.display()),
        [newest, older @ ..] => format!(
            "{} {verb} key {newest}, and still accepts {}",
            path.display(),
            older.join(", ")
        ),
        [] => format!("{} {verb} no key", path.display()),
    };
    output::told(
        global.output,
        &sentence,
        json!({"file": path, "keys": names}),
    )
}

/// Where key files usually are: the system's for root, else the user's.
pub(crate) fn key_file() -> PathBuf {
    match config::home() {
        Some(home) if !rustix::process::geteuid().is_root() => home.join("pagemesh/cluster.key"),
        _ => PathBuf::from("/etc/pagemesh/cluster.key"),
    }
}

/// Writes a key file where there is none.
pub(crate) fn write_new(path: &Path, ring: &Ring) -> Result<()> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let mut file = match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!(
            "{0} exists; `pagemesh key rotate {0}` puts a new key in front of those in it",
            path.display()
        ),
        made => made.with_context(|| format!("cannot write {}", path.display()))?,
    };
    file.write_all(ring.to_text().as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Replaces a key file at once: no daemon ever reads half of it. The file keeps its owner, whose
/// daemon must be able to read it, and a link to it stays one.
fn replace(path: &Path, ring: &Ring) -> Result<()> {
    let cannot = || format!("cannot replace {}", path.display());
    let path = fs::canonicalize(path).with_context(cannot)?;
    let before = fs::metadata(&path).with_context(cannot)?;
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let _ = fs::remove_file(&new);
    let replaced = write_new(&new, ring).and_then(|()| {
        let now = fs::metadata(&new)?;
        if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
            chown(&new, Some(before.uid()), Some(before.gid())).with_context(|| {
                format!(
                    "{} belongs to uid {}: rotate it as that user, or as root",
                    path.display(),
                    before.uid()
                )
            })?;
        }
        fs::rename(&new, &path).with_context(cannot)
    });
    replaced.inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}
