//! One module a command.

use crate::control::Control;
use crate::exit::{Exit, Trouble};
use crate::global::Global;
use anyhow::Result;
use pagemesh::Mesh;
use std::path::PathBuf;

pub(crate) mod app;
pub(crate) mod bench;
pub(crate) mod board;
pub(crate) mod borrow;
pub(crate) mod cache;
pub(crate) mod completions;
pub(crate) mod counters;
pub(crate) mod daemon;
pub(crate) mod debug;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod ipc;
pub(crate) mod keeper;
pub(crate) mod key;
pub(crate) mod leave;
pub(crate) mod members;
pub(crate) mod memory;
pub(crate) mod probe;
pub(crate) mod promote;
mod races;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod segment;
pub(crate) mod status;
pub(crate) mod swap;
pub(crate) mod version;

/// Where the daemon may listen, the likeliest place first.
fn sockets(global: &Global) -> Vec<PathBuf> {
    global
        .socket
        .clone()
        .map_or_else(pagemesh::socket_paths, |path| vec![path])
}

/// This process as a program of the cluster.
fn mesh(global: &Global) -> Result<Mesh> {
    let mesh = match &global.socket {
        Some(socket) => Mesh::connect_to(socket),
        None => Mesh::connect(),
    };
    mesh.map_err(|error| match error {
        pagemesh::Error::NoDaemon { .. } => Trouble::new(Exit::NO_DAEMON, error.to_string()).into(),
        error => error.into(),
    })
}

/// A conversation with this node's daemon.
fn connect(global: &Global) -> Result<Control> {
    let mut failure = None;
    for path in sockets(global) {
        match Control::connect(&path) {
            Ok(control) => return Ok(control),
            // The last place is the most general one: its error tells most.
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| anyhow::anyhow!("nowhere to look for a daemon")))
}
