//! What one program speaks to daemons, programs and keepers, and writes into journals: its edition.

use crate::experiment::Experiment;
use pagemesh_recorder::{FINGERPRINT, schema};
use pagemesh_wire::local::{LOCAL_VERSION, OLDEST_LOCAL_VERSION};
use pagemesh_wire::{Program, Release, Versions};
use std::ops::RangeInclusive;

/// The versions of everything that a program speaks, reads and writes.
#[derive(Clone, Debug)]
pub(crate) struct Edition {
    /// What other daemons are told.
    pub(crate) program: Program,
    /// Versions of the protocol of the Unix socket.
    pub(crate) local: RangeInclusive<u32>,
    /// The newest schema of a handed-over state.
    pub(crate) schema: u64,
}

impl Edition {
    /// The edition of this program; in an experiment the former one, as far as its versions go.
    pub(crate) fn of(experiment: Experiment) -> Self {
        if experiment.is_former() {
            return Self {
                program: Program::SILENT,
                local: OLDEST_LOCAL_VERSION..=OLDEST_LOCAL_VERSION,
                schema: schema::OLDEST_WRITTEN,
            };
        }
        // A part of it tells builds apart.
        let build = FINGERPRINT as u32;
        Self {
            program: Program {
                speaks: Versions::SPOKEN,
                release: Release::here(build),
            },
            local: OLDEST_LOCAL_VERSION..=LOCAL_VERSION,
            schema: schema::SCHEMA,
        }
    }
}
