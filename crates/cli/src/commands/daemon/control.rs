//! `--control`: the etcd that has what the coordinator decides.

use super::Daemon;
use super::settings::bad;
use crate::config::Config;
use anyhow::Result;
use pagemesh_wire::etcd::{Hello, VERSION};
use std::env;
use std::fs;
use std::path::PathBuf;

/// Has the password of etcd's user, if no file has.
const PASSWORD: &str = "PAGEMESH_CONTROL_PASSWORD";

/// Clusters have names in one etcd; this is the usual one.
const PREFIX: &str = "pagemesh";

/// The etcd that flags, variables or files name.
pub(super) fn options(flags: &Daemon, config: &Config) -> Result<Option<Hello>> {
    let Some(url) = flags.control.as_ref().or(config.control.as_ref()) else {
        return Ok(None);
    };
    let file = |flag: &Option<PathBuf>, set: &Option<PathBuf>| -> Result<Option<Vec<u8>>> {
        let Some(path) = flag.as_ref().or(set.as_ref()) else {
            return Ok(None);
        };
        let read = fs::read(path);
        read.map(Some)
            .map_err(|error| bad(format!("cannot read {}: {error}", path.display())))
    };
    let authority = file(&flags.control_ca, &config.control_ca)?;
    let certificate = file(&flags.control_cert, &config.control_cert)?;
    let key = file(&flags.control_key, &config.control_key)?;
    let password = match file(&flags.control_password, &config.control_password)? {
        Some(bytes) => Some(String::from_utf8_lossy(&bytes).trim_end().to_owned()),
        None => env::var(PASSWORD).ok(),
    };
    let place = Place::read(url).map_err(|why| bad(format!("control: {why}")))?;
    if certificate.is_some() && authority.is_none() {
        return Err(bad(
            "control_cert needs control_ca, the certificate of those who certify etcd".into(),
        ));
    }
    let user = match (place.user, password) {
        (None, _) => None,
        (Some(name), Some(password)) => Some((name, password)),
        (Some(name), None) => {
            return Err(bad(format!(
                "control: the password of {name} is missing: name a file that has it \
                 (--control-password), or set {PASSWORD}"
            )));
        }
    };
    let scheme = if authority.is_some() { "https" } else { "http" };
    let members = place.members.iter();
    Ok(Some(Hello {
        version: VERSION,
        endpoints: members.map(|one| format!("{scheme}://{one}")).collect(),
        prefix: place.prefix,
        user,
        authority,
        identity: certificate.zip(key),
    }))
}

/// What the URL says.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    user: Option<String>,
    members: Vec<String>,
    prefix: String,
}

impl Place {
    fn read(url: &str) -> Result<Self, String> {
        let form = "write etcd://HOST:2379,HOST:2379,HOST:2379, and /NAME behind that if several \
                    clusters use one etcd";
        let rest = url
            .strip_prefix("etcd://")
            .ok_or_else(|| format!("{url:?} is no etcd: {form}"))?;
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, rest)) => (Some(user.to_owned()), rest),
            None => (None, rest),
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
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("http://a:2379", "no etcd"),
            ("etcd://a", "host and a port"),
            ("etcd://a:2379,", "host and a port"),
            ("etcd://me:secret@a:2379", "seen by all users"),
            ("etcd://a:2379/x/y", "letters"),
        ] {
            let refused = Place::read(url).unwrap_err();
            assert!(refused.contains(why), "{url}: {refused}");
        }
    }
}
