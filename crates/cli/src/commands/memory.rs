//! `pagemesh memory`: where the pages of private segments are, and what each node keeps for others.

use crate::control::Control;
use crate::exit::Exit;
use crate::global::{Format, Global};
use crate::output::{self, Table};
use crate::units::{parse_duration, size};
use anyhow::Result;
use clap::Args;
use pagemesh_wire::peer::{Member, MemoryReport, Placement};
use pagemesh_wire::{NodeId, PAGE_SIZE};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Show the memory of each node: its budget, what is lent, what is borrowed
#[derive(Args)]
#[command(
    after_help = "Of the node that is asked, two more lines say what its daemon really has in memory, \
                  by the kernel's count, and where pages came from that were needed again. Ask \
                  another node by its --socket.\n\
                  Example: pagemesh memory --watch 5s"
)]
pub(crate) struct Memory {
    /// Again and again, until Ctrl-C; with -o json one document a line
    #[arg(
        short,
        long,
        value_name = "TIME",
        value_parser = parse_duration,
        num_args = 0..=1,
        default_missing_value = "1s"
    )]
    watch: Option<Duration>,
}

impl Memory {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let mut control = super::connect(global)?;
        loop {
            let state = State::ask(&mut control)?;
            match (global.output, self.watch) {
                (Format::Json, Some(_)) => output::lines([state.document().to_string()])?,
                (Format::Json, None) => output::json(state.document())?,
                _ => output::lines(state.lines())?,
            }
            let Some(pause) = self.watch else {
                return Ok(Exit::OK);
            };
            if global.output != Format::Json {
                output::lines([""])?;
            }
            std::thread::sleep(pause);
        }
    }
}

/// The memory of the cluster, as one node sees it.
struct State {
    me: NodeId,
    /// Without a report if the node did not answer.
    nodes: Vec<(Member, Option<MemoryReport>)>,
    resident: Option<Resident>,
    hits: Hits,
}

/// What a daemon has in memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Resident {
    /// Frames, its stash, and other memory that outlives it.
    shared: u64,
    own: u64,
    swapped: u64,
}

/// Where pages came from that had left their frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hits {
    /// Out of the stage, without a message.
    soft: u64,
    /// From other nodes.
    nodes: u64,
    disk: u64,
}

impl State {
    fn ask(control: &mut Control) -> Result<Self> {
        let mut nodes = Vec::new();
        for member in control.alive()? {
            // A node that dies meanwhile is no reason to show nothing of the others.
            let report = control.memory(member.id).ok();
            nodes.push((member, report));
        }
        let counters: BTreeMap<_, _> = control.counters()?.into_iter().collect();
        let counter = |name: &str| counters.get(name).copied().unwrap_or_default();
        let resident = control.process().and_then(Resident::of);
        Ok(Self {
            me: control.node,
            nodes,
            resident,
            hits: Hits {
                soft: counter("faults_soft"),
                nodes: counter("pages_in"),
                disk: counter("pages_from_disk"),
            },
        })
    }

    fn lines(&self) -> Vec<String> {
        let mut table = Table::new(&[
            "NODE",
            "NAME",
            "BUDGET",
            "LOCAL",
            "LENT",
            "DISK",
            "LEND",
            "BORROWED",
            "IDLE",
            "PLACEMENT",
            "EPOCH",
            "MIN-AGE",
            "WEIGHT",
        ]);
        for (member, report) in &self.nodes {
            let star = if member.id == self.me { "*" } else { "" };
            let mut cells = vec![format!("{}{star}", member.id), member.name.clone()];
            match report {
                Some(report) => cells.extend(cells_of(report)),
                None => cells.push("no answer".to_owned()),
            }
            table.row(cells);
        }
        let mut lines = table.lines();
        if let Some(resident) = self.resident {
            lines.push(format!(
                "resident in the daemon of {}: {} shared, {} of its own, {} swapped out",
                self.me,
                size(resident.shared),
                size(resident.own),
                size(resident.swapped)
            ));
        }
        lines.push(match self.hits.ratio() {
            Some(ratio) => format!(
                "needed again on {}: {} from the stage, {} from other nodes, {} from the disk; \
                 {:.1} % without the disk",
                self.me,
                self.hits.soft,
                self.hits.nodes,
                self.hits.disk,
                ratio * 100.0
            ),
            None => format!("needed again on {}: no page yet", self.me),
        });
        lines
    }

    fn document(&self) -> Value {
        let nodes = self.nodes.iter().map(|(member, report)| {
            json!({
                "node": member.id.0,
                "name": member.name,
                "memory": report.as_ref().map(document_of),
            })
        });
        json!({
            "node": self.me.0,
            "nodes": nodes.collect::<Vec<_>>(),
            "resident": self.resident.map(|resident| json!({
                "shared": resident.shared,
                "own": resident.own,
                "swapped": resident.swapped,
            })),
            "needed_again": {
                "stage": self.hits.soft,
                "nodes": self.hits.nodes,
                "disk": self.hits.disk,
                "without_disk": self.hits.ratio(),
            },
        })
    }
}

fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(PAGE_SIZE as u64)
}

fn idle(report: &MemoryReport) -> u64 {
    report.lend.saturating_sub(report.borrowed)
}

/// The number of pages; none if there is no bound.
fn budget(report: &MemoryReport) -> Option<u64> {
    (report.budget != u32::MAX).then_some(report.budget.into())
}

/// In milliseconds; none if no page is too old to be sent.
fn min_age(report: &MemoryReport) -> Option<u32> {
    (report.min_age != u32::MAX).then_some(report.min_age)
}

fn placement(placement: Placement) -> &'static str {
    match placement {
        Placement::Epoch => "epoch",
        Placement::Random => "random",
        Placement::None => "none",
        Placement::NChance => "n-chance",
    }
}

fn cells_of(report: &MemoryReport) -> [String; 11] {
    let age = |millis: u32| format!("{:.1} s", f64::from(millis) / 1000.0);
    [
        budget(report).map_or_else(|| "none".to_owned(), |pages| size(bytes(pages))),
        size(bytes(report.local)),
        size(bytes(report.lent)),
        size(bytes(report.on_disk)),
        size(bytes(report.lend)),
        size(bytes(report.borrowed)),
        size(bytes(idle(report))),
        placement(report.placement).to_owned(),
        report.epoch.to_string(),
        min_age(report).map_or_else(|| "any".to_owned(), age),
        report.weight.to_string(),
    ]
}

fn document_of(report: &MemoryReport) -> Value {
    json!({
        "budget": budget(report).map(bytes),
        "local": bytes(report.local),
        "lent": bytes(report.lent),
        "on_disk": bytes(report.on_disk),
        "lend": bytes(report.lend),
        "borrowed": bytes(report.borrowed),
        "idle": bytes(idle(report)),
        "placement": placement(report.placement),
        "epoch": report.epoch,
        "min_age_ms": min_age(report),
        "weight": report.weight,
    })
}

impl Resident {
    fn of(pid: u32) -> Option<Self> {
        Self::read(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn read(status: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut lines = status.lines();
            let rest = lines.find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
            kib.checked_mul(1024)
        };
        Some(Self {
            shared: field("RssShmem:")?,
            own: field("RssAnon:")?,
            swapped: field("VmSwap:")?,
        })
    }
}

impl Hits {
    /// The part that needed no disk; none if nothing was needed again.
    fn ratio(self) -> Option<f64> {
        let near = self.soft + self.nodes;
        let all = near + self.disk;
        (all > 0).then(|| near as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_bound_is_said_to_have_none() {
        let report = MemoryReport {
            budget: u32::MAX,
            min_age: u32::MAX,
            lend: 5,
            borrowed: 7,
            ..MemoryReport::default()
        };
        let cells = cells_of(&report);
        assert_eq!((cells[0].as_str(), cells[9].as_str()), ("none", "any"));
        let document = document_of(&report);
        assert!(document["budget"].is_null() && document["min_age_ms"].is_null());
        assert_eq!(
            (&document["idle"], &document["borrowed"]),
            (&json!(0), &json!(28_672))
        );
    }

    #[test]
    fn residence_and_hits_are_computed_from_what_is_counted() {
        let status = "VmSwap:\t       4 kB\nRssAnon:\t    8 kB\nRssShmem:\t   12 kB\n";
        let resident = Resident::read(status).unwrap();
        assert_eq!(
            (resident.own, resident.shared, resident.swapped),
            (8192, 12_288, 4096)
        );
        let hits = Hits {
            soft: 1,
            nodes: 2,
            disk: 1,
        };
        assert_eq!(hits.ratio(), Some(0.75));
        assert_eq!(
            Hits {
                soft: 0,
                nodes: 0,
                disk: 0
            }
            .ratio(),
            None
        );
    }
}
