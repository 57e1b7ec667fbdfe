//! `pagemesh segment inspect`: where the pages are, as this node knows it.

use super::{sharing, show};
use crate::control::{Control, unexpected};
use crate::exit::Exit;
use crate::global::{Format, Global};
use crate::output::{self, Table};
use crate::units::parse_duration;
use anyhow::{Result, bail};
use clap::Args;
use pagemesh_wire::PageIndex;
use pagemesh_wire::local::{PageLine, PageReport, Reply, Request};
use pagemesh_wire::peer::SegmentInfo;
use serde_json::{Value, json};
use std::time::Duration;

/// Show what this node knows of a segment's pages
#[derive(Args)]
pub(crate) struct Inspect {
    /// Which segment
    name: String,
    /// From which page
    #[arg(long, default_value_t = 0)]
    first: u32,
    /// At most so many pages
    #[arg(long, default_value_t = 32)]
    limit: u32,
    /// Watch which nodes write which bytes of its pages, and say what kind of sharing
    /// that is and what to do about it; only pages that this node has or gets
    #[arg(long)]
    sharing: bool,
    /// Watch for so long; 0 says what has been seen since somebody began to watch
    #[arg(long = "for", value_name = "DURATION", default_value = "2s", requires = "sharing", value_parser = parse_duration)]
    time: Duration,
}

impl Inspect {
    pub(super) fn run(self, global: &Global) -> Result<Exit> {
        let mut control = crate::commands::connect(global)?;
        if self.sharing {
            let shown = sharing::show(&mut control, &self.name, self.time, global.output);
            return match (shown, open_elsewhere(&mut control, &self.name)) {
                (Err(_), Some(info)) => bail!(not_here(&info)),
                (shown, _) => shown.map(|()| Exit::OK),
            };
        }
        let asked = control.ask(Request::Inspect {
            name: self.name.clone(),
            first: PageIndex(self.first),
            limit: self.limit,
        });
        let report = match asked {
            Ok(Reply::Pages(report)) => report,
            Ok(other) => return unexpected(&other),
            // The daemon knows its own segments; the cluster may have it all the same.
            Err(error) => match open_elsewhere(&mut control, &self.name) {
                Some(info) => nothing_known(info),
                None => return Err(error),
            },
        };
        match global.output {
            Format::Json => output::json(document(&report, control.node.0))?,
            Format::Table | Format::Wide => {
                output::lines([summary(&report)])?;
                if !report.info.attached.contains(control.node) {
                    output::lines([not_here(&report.info)])?;
                }
                if !report.pages.is_empty() {
                    table(&report.pages).print()?;
                }
            }
        }
        Ok(Exit::OK)
    }
}

/// The segment, if there is one of this name that this node does not take part in.
fn open_elsewhere(control: &mut Control, name: &str) -> Option<SegmentInfo> {
    let name = name.to_owned();
    match control.ask(Request::Stat { name }) {
        Ok(Reply::Segment(info)) if !info.attached.contains(control.node) => Some(info),
        _ => None,
    }
}

fn not_here(info: &SegmentInfo) -> String {
    let name = &info.name;
    if info.attached.is_empty() {
        return format!("no process has {name} open: no node has pages of it");
    }
    format!(
        "no process of this node has {name} open: run this command on a node that has ({})",
        show::nodes(info.attached.clone())
    )
}

fn nothing_known(info: SegmentInfo) -> PageReport {
    PageReport {
        info,
        known: 0,
        readable: 0,
        writable: 0,
        owned: 0,
        unreplicated: 0,
        pages: Vec::new(),
    }
}

fn summary(report: &PageReport) -> String {
    let pages = report.info.spec.size.pages().map_or(0, |pages| pages.0);
    let summary = format!(
        "{}: of {pages} pages this node knows {}, reads {}, writes {}, owns {}",
        report.info.name, report.known, report.readable, report.writable, report.owned
    );
    match (report.info.spec.replicas, report.unreplicated) {
        (0, _) => summary,
        (_, 0) => format!("{summary}; what it owns is on a second node"),
        (_, lacking) => format!("{summary}; {lacking} are on no second node yet"),
    }
}

fn table(pages: &[PageLine]) -> Table {
    let mut table = Table::new(&["PAGE", "RIGHTS", "OWNER", "VERSION", "COPIES", "QUEUED"]);
    for line in pages {
        let owner = if line.owner {
            "here".to_owned()
        } else {
            format!("{}?", line.hint)
        };
        table.row([
            line.page.to_string(),
            rights(line.rights).to_owned(),
            owner,
            line.version.to_string(),
            show::nodes(line.copies.clone()),
            line.queued.to_string(),
        ]);
    }
    table
}

fn document(report: &PageReport, node: u16) -> Value {
    let pages: Vec<Value> = report
        .pages
        .iter()
        .map(|line| {
            json!({
                "page": line.page.0,
                "rights": rights(line.rights),
                "owner": line.owner,
                "hint": line.hint.0,
                "version": line.version,
                "copies": line.copies.iter().map(|node| node.0).collect::<Vec<_>>(),
                "queued": line.queued,
            })
        })
        .collect();
    json!({
        "node": node,
        "segment": show::document(&report.info),
        "known": report.known,
        "readable": report.readable,
        "writable": report.writable,
        "owned": report.owned,
        "unreplicated": report.unreplicated,
        "pages": pages,
    })
}

fn rights(rights: u8) -> &'static str {
    match rights {
        0 => "none",
        1 => "read",
        _ => "write",
    }
}
