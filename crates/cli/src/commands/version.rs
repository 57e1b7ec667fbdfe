//! `pagemesh version`.

use crate::exit::Exit;
use crate::global::Global;
use crate::output;
use anyhow::Result;
use clap::Args;
use pagemesh_wire::Versions;
use pagemesh_wire::local::{LOCAL_VERSION, OLDEST_LOCAL_VERSION};
use serde_json::json;

/// Print the version
#[derive(Args)]
pub(crate) struct Version {}

impl Version {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let version = env!("CARGO_PKG_VERSION");
        let spoken = Versions::SPOKEN;
        let sentence = format!(
            "pagemesh {version} (between nodes: protocol {spoken}, \
             between processes and daemon: {OLDEST_LOCAL_VERSION} to {LOCAL_VERSION})"
        );
        let document = json!({
            "version": version,
            "protocol": spoken.newest,
            "oldest_protocol": spoken.oldest,
            "local_protocol": LOCAL_VERSION,
            "oldest_local_protocol": OLDEST_LOCAL_VERSION,
        });
        output::told(global.output, &sentence, document)?;
        Ok(Exit::OK)
    }
}
