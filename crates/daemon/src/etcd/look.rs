//! What etcd has, for people who look for obstacles.

use super::{EtcdProgram, EtcdRefuses};
use crate::ledger::file;
use pagemesh_wire::etcd::{Answer, Hello, Request, Seen};
use std::io;

/// Why nothing is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdFault {
    /// The program that speaks to etcd is missing.
    NotInstalled(String),
    /// Etcd does not let this host in, or this host does not trust it: why, and the cure.
    Refuses(String),
    /// Etcd does not answer.
    Silent(String),
    /// What etcd has is none of ours.
    Other(String),
}

/// What etcd has of a cluster, in words.
///
/// # Errors
/// If that cannot be seen.
pub fn look_into_etcd(hello: &Hello) -> Result<String, EtcdFault> {
    let program = EtcdProgram::find(hello.clone());
    let program = program.map_err(|why| EtcdFault::NotInstalled(format!("{why:#}")))?;
    let prefix = &hello.prefix;
    match program.ask(&Request::Look) {
        Ok(Answer::Seen(seen)) if seen.records.is_empty() => {
            Ok(format!("it answers, and has no cluster {prefix} yet"))
        }
        Ok(Answer::Seen(seen)) => said(prefix, &seen),
        Ok(other) => Err(EtcdFault::Other(format!("an odd answer: {other:?}"))),
        Err(why) => Err(fault(&why)),
    }
}

fn said(prefix: &str, seen: &Seen) -> Result<String, EtcdFault> {
    let kept = file::read_whole(&seen.records);
    let kept = kept.map_err(|why| EtcdFault::Other(format!("{why:#}")))?;
    let view = kept.view();
    let coordinator = seen.term.coordinator();
    let lives = match seen.silent {
        Some(0 | 1) => String::new(),
        Some(silent) => format!(", and has been silent for {silent} s"),
        None => ", and is silent".into(),
    };
    Ok(format!(
        "cluster {prefix} has {} member(s) and {} name(s); {coordinator} coordinates{lives}",
        view.living().count(),
        kept.names(),
    ))
}

fn fault(why: &io::Error) -> EtcdFault {
    let refusal = why.get_ref().and_then(|why| why.downcast_ref());
    match refusal {
        Some(EtcdRefuses(why)) => EtcdFault::Refuses(why.clone()),
        None => EtcdFault::Silent(why.to_string()),
    }
}
