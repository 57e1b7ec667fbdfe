//! `pagemesh version`.

use crate::exit::Exit;
use crate::global::Global;
use crate::output;
use anyhow::Result;
use clap::Args;
use pagemesh_wire::header::PROTOCOL_VERSION;
use pagemesh_wire::local::LOCAL_VERSION;
use serde_json::json;

/// Print the version
#[derive(Args)]
pub(crate) struct Version {}

impl Version {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let version = env!("CARGO_PKG_VERSION");
        let sentence = format!(
            "pagemesh {version} (between nodes: protocol {PROTOCOL_VERSION}, \
             between processes and daemon: {LOCAL_VERSION})"
        );
        let document = json!({
            "version": version,
            "protocol": PROTOCOL_VERSION,
            "local_protocol": LOCAL_VERSION,
        });
        output::told(global.output, &sentence, document)?;
        Ok(Exit::OK)
    }
}
