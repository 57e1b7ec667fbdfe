//! `pagemesh leave`: this node goes, its pages stay in the cluster.

use crate::cli::Global;
use crate::exit::Exit;
use crate::output;
use anyhow::Result;
use clap::Args;
use pagemesh_wire::local::Request;
use serde_json::json;

/// Hand over all pages and leave the cluster
#[derive(Args)]
pub(crate) struct Leave {}

impl Leave {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let mut control = super::connect(global)?;
        // Handing over gigabytes takes as long as it takes.
        control.be_patient()?;
        let node = control.node;
        control.ask(Request::Leave)?;
        output::told(
            global.output,
            &format!("{node} has handed over its pages and left the cluster"),
            json!({ "left": node.0 }),
        )?;
        Ok(Exit::OK)
    }
}
