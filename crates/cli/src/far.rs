//! Memory that one program of this host has for itself, for the commands that lend it to others.

use anyhow::{Context as _, Result};
use pagemesh::{Mesh, Options, Policy, Segment};

/// The policy of such memory.
fn policy() -> Policy {
    Policy::default()
}

/// A new segment of so many bytes, without a name: it goes with the process that has it open, be
/// that killed.
///
/// # Errors
/// If the daemon does not answer, or refuses so large a segment.
pub(crate) fn memory(mesh: &Mesh, purpose: &str, size: u64) -> Result<Segment> {
    // Nobody else shall have guessed the name, in the moment for which it is there.
    let name = format!("{purpose}.{:032x}", rand::random::<u128>());
    let options = Options {
        policy: policy(),
        exclusive: true,
        ..Options::default()
    };
    let segment = mesh.create(&name, size, options);
    let segment = segment.with_context(|| format!("no memory for {purpose}"))?;
    mesh.remove(&name)?;
    Ok(segment)
}
