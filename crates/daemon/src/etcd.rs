//! Etcd in the place of the disk, and of the person who promotes: what the coordinator decides goes
//! there, and it elects the next coordinator. Another program speaks to it
//! ([`pagemesh_wire::etcd`]), because its libraries take long to compile.

mod elections;
mod program;
mod records;
mod start;

pub(crate) use elections::Elections;
pub(crate) use program::EtcdProgram;
pub(crate) use records::EtcdRecords;
pub(crate) use start::{begin, go_on};

use pagemesh_wire::local::Trouble;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Etcd does not do what it is asked.
pub(crate) fn no_quorum(why: &str) -> String {
    Trouble::NoQuorum.line(format_args!(
        "etcd does not answer ({why}), so opening, closing and removing segments and joining wait, \
         and nobody takes the place of a coordinator that fails; pages, locks and barriers go on: \
         see that most members of etcd run and are reached from here"
    ))
}

/// What a mutex guards, also after a thread that held it has failed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
