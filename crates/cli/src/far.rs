//! Memory that one program of this host has for itself, for the commands that lend it to others.

use crate::exit::{Exit, Trouble};
use crate::global::Global;
use anyhow::{Context as _, Result};
use pagemesh::{Mesh, Options, Policy, Segment};
use pagemesh_wire::ByteLen;

/// Connects to the daemon of this host.
///
/// # Errors
/// With an exit code of its own if there is no daemon.
pub(crate) fn connect(global: &Global) -> Result<Mesh> {
    let mesh = match &global.socket {
        Some(socket) => Mesh::connect_to(socket),
        None => Mesh::connect(),
    };
    mesh.map_err(|error| match error {
        pagemesh::Error::NoDaemon { .. } => Trouble::new(Exit::NO_DAEMON, error.to_string()).into(),
        error => error.into(),
    })
}

/// The policy of such memory: `private`, of which this host keeps so many bytes in its frames at
/// most; none: as many as its daemon's memory allows.
///
/// # Errors
/// If these are fewer than a private segment can have.
pub(crate) fn policy(local: Option<u64>) -> Result<Policy> {
    policy_by("private", local)
}

fn policy_by(name: &str, local: Option<u64>) -> Result<Policy> {
    let private: Policy = name.parse().map_err(anyhow::Error::msg)?;
    let Some(local) = local else {
        return Ok(private);
    };
    private
        .with_local(ByteLen(local))
        .map_err(anyhow::Error::msg)
}

/// A new private segment of so many bytes, without a name: it goes with the process that has it
/// open, be that killed.
///
/// # Errors
/// If the daemon does not answer, or refuses so large a segment.
pub(crate) fn memory(mesh: &Mesh, purpose: &str, size: u64, local: Option<u64>) -> Result<Segment> {
    memory_by("private", mesh, purpose, size, local)
}

/// As [`memory`], by a policy of this name: `private` or `private-copies`.
///
/// # Errors
/// As [`memory`].
pub(crate) fn memory_by(
    policy: &str,
    mesh: &Mesh,
    purpose: &str,
    size: u64,
    local: Option<u64>,
) -> Result<Segment> {
    // The name exists for a moment, and another process must not guess it.
    let name = format!("{purpose}.{:032x}", rand::random::<u128>());
    let options = Options {
        policy: policy_by(policy, local)?,
        exclusive: true,
        ..Options::default()
    };
    let segment = mesh.create(&name, size, options);
    let segment = segment.with_context(|| format!("no memory for {purpose}"))?;
    mesh.remove(&name)?;
    Ok(segment)
}
