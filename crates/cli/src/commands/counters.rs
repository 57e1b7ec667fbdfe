//! `pagemesh counters`: the counters of this node since its start.

use crate::exit::Exit;
use crate::global::{Format, Global};
use crate::output::{self, Table};
use anyhow::Result;
use clap::Args;
use serde_json::{Map, json};

/// Show the counters of this node
#[derive(Args)]
pub(crate) struct Counters {
    /// Zeros, too
    #[arg(short, long)]
    all: bool,
    /// Only counters whose name contains this
    #[arg(value_name = "PART")]
    part: Option<String>,
}

impl Counters {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let mut control = super::connect(global)?;
        let mut counters = control.counters()?;
        if let Some(part) = &self.part {
            counters.retain(|(name, _)| name.contains(part.as_str()));
        }
        if global.output == Format::Json {
            let values: Map<_, _> = counters.into_iter().map(|(k, v)| (k, v.into())).collect();
            output::json(json!({ "node": control.node.0, "counters": values }))?;
            return Ok(Exit::OK);
        }
        let mut table = Table::new(&["COUNTER", "VALUE"]);
        for (name, value) in counters {
            if value > 0 || self.all || global.output == Format::Wide {
                table.row([name, value.to_string()]);
            }
        }
        table.print()?;
        Ok(Exit::OK)
    }
}
