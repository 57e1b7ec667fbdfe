//! `pagemesh probe`: the round trip to a node, through every layer (M24).

use crate::control::Control;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;
use crate::units::nanos;
use anyhow::{Context, Result};
use clap::Args;
use pagemesh_wire::NodeId;
use pagemesh_wire::local::Request;
use serde_json::json;
use std::time::Instant;

/// Measure the round trip to a node through every layer
#[derive(Args)]
pub(crate) struct Probe {
    /// Its number or its name
    node: String,
    /// How often
    #[arg(short, long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

impl Probe {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let mut control = super::connect(global)?;
        let node = find(&mut control, &self.node)?;
        let mut times = Vec::new();
        for _ in 0..self.count {
            let start = Instant::now();
            control.ask(Request::Probe { node })?;
            times.push(start.elapsed().as_nanos() as u64);
        }
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        let (min, p50, p99) = (times[0], at(0.5), at(0.99));
        output::told(
            global.output,
            &format!(
                "{node}: {} round trips from this process, min {}, p50 {}, p99 {}",
                self.count,
                nanos(min),
                nanos(p50),
                nanos(p99)
            ),
            json!({ "node": node.0, "n": self.count, "min_ns": min, "p50_ns": p50, "p99_ns": p99 }),
        )?;
        Ok(Exit::OK)
    }
}

/// A member by its number (`2`, `n2`) or its name.
fn find(control: &mut Control, wanted: &str) -> Result<NodeId> {
    let number = wanted.strip_prefix('n').unwrap_or(wanted).parse::<u16>();
    let (_, members) = control.members()?;
    members
        .iter()
        .find(|member| Ok(member.id.0) == number || member.name == wanted)
        .map(|member| member.id)
        .with_context(|| format!("no member {wanted:?}; `pagemesh members` lists them"))
}
