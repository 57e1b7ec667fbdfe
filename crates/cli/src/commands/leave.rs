//! `pagemesh leave`: this node goes, its pages stay in the cluster; System V objects that
//! were made on it do not.

use super::ipc;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;
use anyhow::Result;
use clap::Args;
use pagemesh_wire::local::Request;
use serde_json::json;
use std::fmt::Write as _;

/// Hand over all pages and leave the cluster; System V objects made here are removed
#[derive(Args)]
pub(crate) struct Leave {}

impl Leave {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let mut control = super::connect(global)?;
        // Handing over gigabytes takes as long as it takes.
        control.be_patient()?;
        let node = control.node;
        let gone = ipc::at_home(&mut control, node)?;
        control.ask(Request::Leave)?;
        let mut words = format!("{node} has handed over its pages and left the cluster");
        if !gone.is_empty() {
            let _ = write!(
                words,
                "; System V objects went with it: {}",
                gone.join(", ")
            );
        }
        let document = json!({ "left": node.0, "sysv_gone": gone });
        output::told(global.output, &words, document)?;
        Ok(Exit::OK)
    }
}
