//! Etcd in the place of the disk, and of the person who promotes: what the coordinator decides goes
//! there, and it elects the next coordinator. Another program speaks to it
//! ([`pagemesh_wire::etcd`]), because its libraries take long to compile.

mod elections;
mod look;
mod program;
mod records;
mod start;

pub(crate) use elections::Elections;
pub use look::{EtcdFault, look_into_etcd};
pub(crate) use program::EtcdProgram;
pub(crate) use records::EtcdRecords;
pub(crate) use start::{begin, go_on};

use pagemesh_wire::local::Trouble;
use std::error::Error;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Etcd does not let this host in, or this host does not trust it: why, and the cure.
#[derive(Debug, thiserror::Error)]
#[error("etcd refuses this host: {0}")]
pub(crate) struct EtcdRefuses(String);

/// Whether an error says that trying again does not help.
fn is_refusal(error: &(dyn Error + 'static)) -> bool {
    let wrapped = error.downcast_ref().and_then(io::Error::get_ref);
    wrapped.is_some_and(|error| error.is::<EtcdRefuses>())
}

/// Etcd does not do what it is asked.
pub(crate) fn trouble(why: &(dyn Error + 'static)) -> String {
    let stands = "opening, closing and removing segments and joining wait, and nobody takes the place \
                  of a coordinator that fails; pages, locks and barriers go on";
    if is_refusal(why) {
        return Trouble::EtcdRefuses.line(format_args!("{why}; until then {stands}"));
    }
    Trouble::NoQuorum.line(format_args!(
        "etcd does not answer ({why}), so {stands}: see that most members of etcd run and are \
         reached from here"
    ))
}

/// What a mutex guards, also after a thread that held it has failed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
