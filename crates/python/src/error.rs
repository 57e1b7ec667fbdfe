//! Failures of the library, as the exceptions of `pagemesh.errors`.

use pagemesh::{Error, Refusal};
use pyo3::prelude::*;

/// The exception for a failure.
pub fn raise(error: &Error) -> PyErr {
    raise_about(error, None)
}

/// The exception for a failure that has to do with a segment's name.
pub fn raise_about(error: &Error, name: Option<&str>) -> PyErr {
    Python::attach(|py| {
        let made = py
            .import("pagemesh.errors")
            .and_then(|module| module.getattr("make"))
            .and_then(|make| make.call1((kind(error), error.to_string(), name)));
        match made {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        }
    })
}

/// The name by which `pagemesh.errors` knows a failure.
fn kind(error: &Error) -> &'static str {
    match error {
        Error::NoDaemon { .. } => "no-daemon",
        Error::DaemonGone => "daemon-gone",
        Error::DaemonSilent => "daemon-silent",
        Error::Refused(refusal) => kind_of(refusal),
        Error::TimedOut => "timed-out",
        Error::Interrupted => "interrupted",
        Error::Forked => "forked",
        Error::PipeClosed => "pipe-closed",
        Error::PeerDied => "peer-died",
        Error::NoUserfaultfd(_) => "no-userfaultfd",
        Error::Map(_) | Error::AddressTaken(_) => "map",
        Error::Invalid(_) | Error::Environment { .. } => "invalid",
        _ => "other",
    }
}

fn kind_of(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NotFound => "not-found",
        Refusal::Exists => "exists",
        Refusal::Permission => "permission",
        Refusal::BadName | Refusal::Invalid(_) => "invalid",
        Refusal::BadSize => "bad-size",
        Refusal::NodeGone(_) => "node-gone",
        Refusal::NotMember
        | Refusal::NotYetMember
        | Refusal::Superseded { .. }
        | Refusal::DeclaredDead { .. } => "not-member",
        Refusal::Limit(_) => "limit",
        _ => "other",
    }
}
