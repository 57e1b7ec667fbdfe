//! What the daemons of a failed test remember, kept for those who look into it.

use pagemesh_cli::sandbox::Sandbox;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where a node's socket and log are.
pub(super) struct Place {
    socket: PathBuf,
    pub(super) log: PathBuf,
}

/// The places of all nodes.
pub(super) fn places(sandbox: &Sandbox) -> Vec<Place> {
    let directory = sandbox.directory();
    let nodes = sandbox.nodes().iter().enumerate();
    nodes
        .map(|(number, node)| Place {
            socket: node.socket().to_owned(),
            log: directory.join(format!("{number}.log")),
        })
        .collect()
}

/// Copies logs and flight recorders to the directory that `PAGEMESH_KEEP` names,
/// if it names one: `cargo xtask soak` does.
pub(super) fn keep(places: &[Place]) {
    let Some(directory) = std::env::var_os("PAGEMESH_KEEP") else {
        return;
    };
    let directory = Path::new(&directory);
    for (number, place) in places.iter().enumerate() {
        // What cannot be had any more is not had.
        let _ = std::fs::copy(&place.log, directory.join(format!("node{number}.log")));
        let _ = Command::new(env!("CARGO_BIN_EXE_pagemesh-under-test"))
            .arg("--socket")
            .arg(&place.socket)
            .args(["debug", "dump"])
            .arg(directory.join(format!("node{number}.dump")))
            .stdin(Stdio::null())
            .status();
    }
}
