//! `pagemesh demo`: betweenness centrality of this machine's packages on four nodes.

mod onlooker;
mod traffic;

use super::sandbox::{Shape, run_on_all};
use crate::exit::Exit;
use crate::global::{Format, Global};
use crate::interrupts::Interrupts;
use crate::output;
use crate::ranks::Care;
use crate::sandbox::Sandbox;
use crate::units::parse_duration;
use anyhow::{Context, Result};
use clap::Args;
use onlooker::Onlooker;
use pagemesh_centrality::Outcome;
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;
use traffic::Traffic;

/// See it work: which of this machine's packages lie between the others, on four nodes
#[derive(Args)]
#[command(
    after_help = "Betweenness centrality, by Brandes' algorithm. Each node has one process; the graph \
                  of dependencies lies in one shared segment, each process adds what it finds to \
                  sums in it, a barrier adds them up, and the result is checked against one \
                  process alone. Threads of one process show what the machine's processors allow."
)]
pub(crate) struct Demo {
    /// How many nodes
    #[arg(short = 'n', long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    nodes: u8,
    /// Use only the first so many packages
    #[arg(long)]
    packages: Option<usize>,
    /// Follow the paths from so many packages; more take longer
    #[arg(long)]
    sources: Option<usize>,
    /// Give up after this long
    #[arg(long, default_value = "100s", value_parser = parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    shape: Shape,
}

/// Suggestions after the demo.
const NEXT: &str =
    "Next: `pagemesh sandbox 3` brings up nodes to try things on; README says how to join hosts.";

impl Demo {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let interrupts = Interrupts::catch()?;
        let onlooker = Onlooker::new(global.quiet);
        onlooker.say(format!("bringing up {} nodes on this machine", self.nodes));
        let sandbox = Sandbox::start(&self.shape.plan(self.nodes.into()))?;
        if let Some(notice) = sandbox.notice() {
            onlooker.say(notice.to_owned());
        }
        onlooker.watch(&sandbox);
        let result = sandbox.directory().join("centrality.json");
        let care = Care {
            prefix: true,
            grace: Duration::from_secs(2),
            limit: Some(self.timeout),
        };
        let exit = run_on_all(
            &sandbox,
            &self.command(&sandbox, &result),
            care,
            &interrupts,
        );
        onlooker.finish();
        let exit = exit?;
        if exit != Exit::OK {
            return Ok(exit);
        }
        let text = std::fs::read_to_string(&result).context("the demo left no result")?;
        let outcome: Outcome = serde_json::from_str(&text)?;
        let traffic = traffic::of(&sandbox)?;
        tell(global.output, &outcome, &traffic)?;
        Ok(Exit::OK)
    }

    fn command(&self, sandbox: &Sandbox, result: &Path) -> Vec<OsString> {
        let mut command: Vec<OsString> = vec![
            sandbox.program().into(),
            "app".into(),
            "centrality".into(),
            "--result".into(),
            result.into(),
        ];
        if let Some(packages) = self.packages {
            command.push(format!("--packages={packages}").into());
        }
        if let Some(sources) = self.sources {
            command.push(format!("--sources={sources}").into());
        }
        command
    }
}

fn tell(format: Format, outcome: &Outcome, traffic: &[Traffic]) -> Result<()> {
    if format == Format::Json {
        let nodes: Vec<_> = traffic.iter().map(Traffic::document).collect();
        return output::json(json!({
            "demo": "centrality",
            "result": outcome,
            "speedup": outcome.speedup(),
            "ideal_speedup": outcome.ideal(),
            "nodes": nodes,
        }));
    }
    output::lines(outcome.lines())?;
    output::lines(["", &traffic::summary(traffic)])?;
    traffic::table(traffic).print()?;
    output::lines(["", NEXT])
}
