//! `pagemesh promote`: this node, the standby, becomes the coordinator.

use crate::exit::Exit;
use crate::global::Global;
use crate::output;
use anyhow::Result;
use clap::Args;
use pagemesh_wire::local::Request;
use serde_json::json;

/// Make this node the coordinator in the place of one that is dead
///
/// Only the standby can do that (`pagemesh status` names it), and only if the coordinator has been
/// silent for 5 seconds; the command waits for that long. The old coordinator counts as dead from
/// then on, and so do members that do not answer: pages that only they held are lost. If its daemon
/// comes back, it is told that it is no member any more. So make sure that the other side of a cut
/// network is not used any more before you promote on this side. Root and the daemon's user may do
/// that.
#[derive(Args)]
pub(crate) struct Promote {}

impl Promote {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let mut control = super::connect(global)?;
        let node = control.node;
        let before = control.status()?.control;
        if before.coordinator == node {
            let words = format!("{node} is the coordinator already");
            let document = json!({ "coordinator": node.0, "term": before.term, "changed": false });
            output::told(global.output, &words, document)?;
            return Ok(Exit::OK);
        }
        control.ask(Request::Promote)?;
        let now = control.status()?.control;
        let words = format!(
            "{node} coordinates the cluster now (term {}), in the place of {}",
            now.term, before.coordinator
        );
        let document = json!({
            "coordinator": node.0,
            "term": now.term,
            "changed": true,
            "former": before.coordinator.0,
        });
        output::told(global.output, &words, document)?;
        Ok(Exit::OK)
    }
}
