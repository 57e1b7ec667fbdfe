//! Steps from each version of the schema to the next.

use rmpv::Value;

/// Turns the node of one version into that of the next; the error says what is missing.
pub type Step = fn(&mut Value) -> Result<(), String>;

/// The first step leads from [`OLDEST`](super::OLDEST) to the version after it.
pub(super) const STEPS: &[Step] = &[];
