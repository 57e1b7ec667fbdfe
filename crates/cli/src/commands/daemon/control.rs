//! `--control`: the etcd that has what the coordinator decides. What is not set is taken from the
//! variables that etcd's own program, etcdctl, goes by.

use super::settings::bad;
use crate::config::Config;
use anyhow::Result;
use clap::Args;
use pagemesh_wire::etcd::{Hello, Password, Tls, VERSION};
use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Has the password of etcd's user, if no file has.
const PASSWORD: &str = "PAGEMESH_CONTROL_PASSWORD";

/// Clusters have names in one etcd; this is the usual one.
const PREFIX: &str = "pagemesh";

/// Rights that no user but the owner may have to the file of a password.
const ALL_OTHERS: u32 = 0o077;
/// Rights that no user outside the group may have to the file of a key, which a group of programs may
/// share.
const STRANGERS: u32 = 0o007;

/// Which etcd, and how to be let in.
#[derive(Args)]
pub(crate) struct EtcdFlags {
    /// Keep what the coordinator decides in etcd, and have it elect the coordinator:
    /// etcd://[USER@]HOST:PORT,...[/PREFIX], or etcds://... if it encrypts
    #[arg(long, value_name = "URL", env = "PAGEMESH_CONTROL")]
    control: Option<String>,
    /// The certificate of those who certify etcd's members; the connection is encrypted then
    /// [default with etcds://: ETCDCTL_CACERT, or those that this host trusts]
    #[arg(long, value_name = "FILE", env = "PAGEMESH_CONTROL_CA")]
    control_ca: Option<PathBuf>,
    /// This host's certificate for etcd
    #[arg(
        long,
        value_name = "FILE",
        env = "PAGEMESH_CONTROL_CERT",
        requires = "control_key"
    )]
    control_cert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(
        long,
        value_name = "FILE",
        env = "PAGEMESH_CONTROL_KEY",
        requires = "control_cert"
    )]
    control_key: Option<PathBuf>,
    /// The password of etcd's user [default: PAGEMESH_CONTROL_PASSWORD]
    #[arg(long, value_name = "FILE", env = "PAGEMESH_CONTROL_PASSWORD_FILE")]
    control_password: Option<PathBuf>,
}

/// The etcd that flags, variables or files name.
pub(crate) fn options(flags: &EtcdFlags, config: &Config) -> Result<Option<Hello>> {
    let Some(url) = flags.control.as_ref().or(config.control.as_ref()) else {
        return Ok(None);
    };
    let place = Place::read(url).map_err(|why| bad(format!("control: {why}")))?;
    let path = |flag: &Option<PathBuf>, set: &Option<PathBuf>, variable| {
        let named = flag.clone().or_else(|| set.clone());
        named.or_else(|| text_of(variable).map(PathBuf::from))
    };
    let tls = tls(
        &place,
        path(&flags.control_ca, &config.control_ca, "ETCDCTL_CACERT"),
        path(&flags.control_cert, &config.control_cert, "ETCDCTL_CERT"),
        path(&flags.control_key, &config.control_key, "ETCDCTL_KEY"),
    )?;
    let file = flags.control_password.clone();
    let file = file.or_else(|| config.control_password.clone());
    let user = user(place.user, file)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let members = place.members.iter();
    Ok(Some(Hello {
        version: VERSION,
        endpoints: members.map(|one| format!("{scheme}://{one}")).collect(),
        prefix: place.prefix,
        user,
        tls,
    }))
}

fn text_of(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|text| !text.is_empty())
}

/// How connections are encrypted: with `etcds://`, or if files for it are named.
fn tls(
    place: &Place,
    authority: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<Tls>> {
    let named = authority.is_some() || certificate.is_some();
    let Some(true) = place.encrypts.or(Some(named)) else {
        return match named {
            true => Err(bad(
                "control: http:// does not encrypt, and certificates are named: write https:// or \
                 etcds://"
                    .into(),
            )),
            false => Ok(None),
        };
    };
    for path in authority.iter().chain(&certificate) {
        check(path, 0)?;
    }
    if let Some(key) = &key {
        check(key, STRANGERS)?;
    }
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => {
            return Err(bad(
                "control: a certificate and its key belong together: --control-cert FILE and \
                 --control-key FILE"
                    .into(),
            ));
        }
    };
    Ok(Some(Tls {
        authority,
        identity,
    }))
}

/// Whether a file can be read, has certificates or a key, and is hidden from whom it must be.
fn check(path: &Path, hidden: u32) -> Result<()> {
    let text = read(path, hidden)?;
    if !text.contains("-----BEGIN ") {
        return Err(bad(format!(
            "control: {} has no certificate or key in it (PEM)",
            path.display()
        )));
    }
    Ok(())
}

fn read(path: &Path, hidden: u32) -> Result<String> {
    let name = path.display();
    let cannot = |error| bad(format!("control: cannot read {name}: {error}"));
    let mode = fs::metadata(path).map_err(cannot)?.mode();
    if mode & hidden != 0 {
        return Err(bad(format!(
            "control: {name} can be read by others than its owner, who could then change what the \
             cluster has in etcd: chmod 600 {name}"
        )));
    }
    let bytes = fs::read(path).map_err(cannot)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The user that is named, or that of etcdctl; and the password.
fn user(named: Option<String>, file: Option<PathBuf>) -> Result<Option<(String, Password)>> {
    let (name, known) = match named {
        Some(name) => (name, None),
        None => match text_of("ETCDCTL_USER") {
            None => return Ok(None),
            Some(user) => match user.split_once(':') {
                Some((name, password)) => (name.to_owned(), Some(password.to_owned())),
                None => (user, None),
            },
        },
    };
    if let Some(path) = file {
        if read(&path, ALL_OTHERS)?.trim_end().is_empty() {
            let path = path.display();
            return Err(bad(format!(
                "control: {path} is empty, and is to have the password of {name}"
            )));
        }
        return Ok(Some((name, Password::In(path))));
    }
    let known = text_of(PASSWORD).or(known);
    match known.or_else(|| text_of("ETCDCTL_PASSWORD")) {
        Some(password) => Ok(Some((name, Password::Is(password)))),
        None => Err(bad(format!(
            "control: the password of {name} is missing: name a file that has it \
             (--control-password), or set {PASSWORD}"
        ))),
    }
}

/// What the URL says.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    user: Option<String>,
    members: Vec<String>,
    prefix: String,
    /// Whether connections are encrypted, if the URL says so.
    encrypts: Option<bool>,
}

impl Place {
    fn read(url: &str) -> Result<Self, String> {
        let form = "write etcd://HOST:2379,HOST:2379,HOST:2379 (etcds:// if etcd encrypts), and /NAME \
                    behind that if several clusters use one etcd";
        let (encrypts, rest) =
            strip_scheme(url).ok_or_else(|| format!("{url:?} is no etcd: {form}"))?;
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, rest)) => (Some(user.to_owned()), rest),
            None => (None, &*rest),
        };
        if user.as_ref().is_some_and(|user| user.contains(':')) {
            return Err(format!(
                "a password here can be seen by all users: name a file that has it \
                 (--control-password), or set {PASSWORD}"
            ));
        }
        let (members, prefix) = rest.split_once('/').unwrap_or((rest, PREFIX));
        let members: Vec<_> = members.split(',').map(str::to_owned).collect();
        let port = |one: &String| {
            one.rsplit_once(':')
                .and_then(|(_, port)| port.parse::<u16>().ok())
        };
        if members.iter().any(|one| port(one).is_none()) {
            return Err(format!(
                "each member of etcd needs a host and a port: {form}"
            ));
        }
        let odd = |c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c);
        if prefix.is_empty() || prefix.contains(odd) {
            return Err("the name of a cluster has letters, digits, and - _ . only".into());
        }
        Ok(Self {
            user,
            members,
            prefix: prefix.to_owned(),
            encrypts,
        })
    }
}

/// Whether the URL says that connections are encrypted, and what is behind the scheme. Etcd's own
/// programs write a scheme before each member.
fn strip_scheme(url: &str) -> Option<(Option<bool>, String)> {
    if let Some(rest) = url.strip_prefix("etcd://") {
        return Some((None, rest.to_owned()));
    }
    if let Some(rest) = url.strip_prefix("etcds://") {
        return Some((Some(true), rest.to_owned()));
    }
    [("https://", true), ("http://", false)]
        .into_iter()
        .find_map(|(scheme, encrypts)| {
            let members = url.split(',').map(|one| one.strip_prefix(scheme));
            let members: Option<Vec<_>> = members.collect();
            Some((Some(encrypts), members?.join(",")))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn directory(name: &str) -> PathBuf {
        let name = format!("pagemesh-control-{name}-{}", std::process::id());
        let directory = env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn urls_name_members_user_and_cluster() {
        let place = Place::read("etcd://a:2379,b:2380").unwrap();
        assert_eq!((place.user, place.prefix.as_str()), (None, "pagemesh"));
        assert_eq!(place.members, ["a:2379", "b:2380"]);
        let place = Place::read("etcd://me@[::1]:2379/two").unwrap();
        assert_eq!(
            (place.user.as_deref(), place.prefix.as_str()),
            (Some("me"), "two")
        );
        for (url, why) in [
            ("ftp://a:2379", "no etcd"),
            ("https://a:2379,b:2379", "no etcd"),
            ("https://a:2379,http://b:2379", "no etcd"),
            ("etcd://a", "host and a port"),
            ("etcd://a:2379,", "host and a port"),
            ("etcd://me:secret@a:2379", "seen by all users"),
            ("etcd://a:2379/x/y", "letters"),
        ] {
            let refused = Place::read(url).unwrap_err();
            assert!(refused.contains(why), "{url}: {refused}");
        }
    }

    #[test]
    fn urls_are_written_as_for_etcdctl_too() {
        let same = |url: &str, encrypts| {
            let place = Place::read(url).unwrap();
            assert_eq!(place.members, ["a:2379", "b:2379"], "{url}");
            assert_eq!(place.prefix, "two", "{url}");
            assert_eq!(place.encrypts, encrypts, "{url}");
        };
        same("etcd://a:2379,b:2379/two", None);
        same("etcds://a:2379,b:2379/two", Some(true));
        same("https://a:2379,https://b:2379/two", Some(true));
        same("http://a:2379,http://b:2379/two", Some(false));
        let place = Place::read("https://me@a:2379").unwrap();
        assert_eq!(place.user.as_deref(), Some("me"));
    }

    #[test]
    fn certificates_are_for_connections_that_are_encrypted() {
        let directory = directory("tls");
        let ca = directory.join("ca.pem");
        fs::write(&ca, "-----BEGIN CERTIFICATE-----\n").unwrap();
        let ask = |url: &str, ca: Option<&PathBuf>| {
            tls(&Place::read(url).unwrap(), ca.cloned(), None, None)
        };
        assert_eq!(ask("etcd://a:1", None).unwrap(), None);
        assert_eq!(ask("etcds://a:1", None).unwrap(), Some(Tls::default()));
        for url in ["etcd://a:1", "etcds://a:1", "https://a:1"] {
            let tls = ask(url, Some(&ca)).unwrap().expect(url);
            assert_eq!(tls.authority.as_ref(), Some(&ca));
        }
        let refused = ask("http://a:1", Some(&ca)).unwrap_err().to_string();
        assert!(refused.contains("does not encrypt"), "{refused}");
        fs::write(&ca, "nothing").unwrap();
        let refused = ask("etcd://a:1", Some(&ca)).unwrap_err().to_string();
        assert!(refused.contains("no certificate"), "{refused}");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_password_that_others_can_read_is_refused() {
        let directory = directory("password");
        let file = directory.join("password");
        fs::write(&file, "secret\n").unwrap();
        let ask = |mode| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            user(Some("me".into()), Some(file.clone()))
        };
        for mode in [0o644, 0o640, 0o604] {
            let refused = ask(mode).unwrap_err().to_string();
            assert!(refused.contains("chmod 600"), "{mode:o}: {refused}");
        }
        let user = ask(0o600).unwrap();
        assert_eq!(user, Some(("me".into(), Password::In(file))));
        fs::remove_dir_all(directory).unwrap();
    }
}
