//! The etcd that flags, variables or the configuration name, if any does.

use super::Check;
use crate::commands::daemon::control::{EtcdFlags, options};
use crate::config::Config;
use pagemesh_daemon::EtcdFault;

pub(super) fn check(flags: &EtcdFlags) -> Option<Check> {
    const NAME: &str = "etcd";
    let config = match Config::load() {
        Ok(config) => config,
        Err(why) => {
            let cure = "correct the file, or see that this user may read it";
            return Some(Check::blocker("configuration", format!("{why:#}"), cure));
        }
    };
    let hello = match options(flags, &config) {
        Ok(hello) => hello?,
        Err(why) => {
            let cure = "set it right, as for pagemesh daemon (--control ...)";
            return Some(Check::blocker(NAME, format!("{why:#}"), cure));
        }
    };
    Some(match pagemesh_daemon::look_into_etcd(&hello) {
        Ok(found) => Check::ok(NAME, found),
        Err(EtcdFault::Refuses(why)) => Check::blocker(NAME, "it does not let this host in", why),
        Err(EtcdFault::Silent(why)) => Check::blocker(
            NAME,
            format!("it does not answer ({why})"),
            "see that most members of etcd run (`etcdctl endpoint health`) and are reached from here",
        ),
        Err(EtcdFault::Other(why)) => {
            let cure = "give the cluster another name in etcd (--control etcd://.../NAME)";
            Check::blocker(NAME, why, cure)
        }
        Err(EtcdFault::NotInstalled(why)) => {
            Check::blocker(NAME, why, "make install, or make etcd")
        }
    })
}
