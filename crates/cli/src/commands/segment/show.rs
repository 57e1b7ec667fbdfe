//! Segments as people and programs see them.

use crate::output::Table;
use crate::units::{nanos, size};
use pagemesh_wire::peer::{Backing, Manager, Policy, SegmentInfo, Window};
use pagemesh_wire::{NodeSet, PageCount};
use serde_json::{Value, json};

pub(super) fn table(segments: &[SegmentInfo], wide: bool) -> Table {
    let mut header = vec!["NAME", "SIZE", "MODE", "POLICY", "HOME", "NODES"];
    if wide {
        header.extend(["OWNER", "WINDOW", "ID", "STATE"]);
    }
    let mut table = Table::new(&header);
    for info in segments {
        let mut row = vec![
            info.name.clone(),
            size(info.spec.size.0),
            mode(info),
            policy(info),
            info.id.home().to_string(),
            nodes(info.attached.clone()),
        ];
        if wide {
            row.extend([
                owner(info),
                window(info),
                info.id.to_string(),
                state(info).to_owned(),
            ]);
        }
        table.row(row);
    }
    table
}

pub(super) fn lines(info: &SegmentInfo) -> Vec<String> {
    let pages = info.spec.size.pages().map_or(0, |pages| pages.0);
    vec![
        format!("name     {}", info.name),
        format!("size     {} ({pages} pages)", size(info.spec.size.0)),
        format!("mode     {}, owner {}", mode(info), owner(info)),
        format!("policy   {}, window {}", policy(info), window(info)),
        format!("home     {}", info.id.home()),
        format!("open on  {}", nodes(info.attached.clone())),
        format!("state    {}", state(info)),
        format!("id       {}", info.id),
    ]
}

pub(super) fn document(info: &SegmentInfo) -> Value {
    json!({
        "id": info.id.0,
        "name": info.name,
        "size": info.spec.size.0,
        "pages": info.spec.size.pages().map(|pages| pages.0),
        "mode": mode(info),
        "uid": info.owner.0,
        "gid": info.owner.1,
        "policy": rules(info).split(&['/', ',']).next(),
        "manager": manager(info),
        "replicas": info.spec.replicas,
        "window_ns": window_nanos(info),
        "home": info.id.home().0,
        "nodes": info.attached.iter().map(|node| node.0).collect::<Vec<_>>(),
        "removed": info.removed,
    })
}

fn mode(info: &SegmentInfo) -> String {
    format!("{:03o}", info.spec.mode)
}

fn owner(info: &SegmentInfo) -> String {
    format!("{}:{}", info.owner.0, info.owner.1)
}

fn state(info: &SegmentInfo) -> &'static str {
    if info.removed { "removed" } else { "named" }
}

fn manager(info: &SegmentInfo) -> &'static str {
    match info.spec.policy.sequential() {
        Some((Manager::Dynamic, _)) => "dynamic",
        Some((Manager::Fixed, _)) => "fixed",
        None => "none",
    }
}

fn policy(info: &SegmentInfo) -> String {
    let rules = rules(info);
    match info.spec.replicas {
        0 => rules,
        1 => format!("{rules}, 1 replica"),
        more => format!("{rules}, {more} replicas"),
    }
}

fn rules(info: &SegmentInfo) -> String {
    match info.spec.policy {
        Policy::Sequential { .. } => format!("sequential/{}", manager(info)),
        Policy::Release { spread } => format!("release/{}", spread.name()),
        Policy::Views { prefix } => format!("views/{prefix}"),
        Policy::Private { local, backing } => {
            let backing = match backing {
                Backing::File => "file",
                Backing::Copies => "copies",
            };
            match local {
                PageCount(0) => format!("private/{backing}"),
                local => format!("private/{backing}, {} local", size(local.bytes().0)),
            }
        }
        Policy::Files => "files".to_owned(),
        Policy::Numbered(number) => format!("policy {number}"),
    }
}

/// `None` is `auto`.
fn window_nanos(info: &SegmentInfo) -> Option<u64> {
    match info.spec.policy.sequential() {
        None | Some((_, Window::Auto)) => None,
        Some((_, Window::Nanos(nanos))) => Some(nanos),
    }
}

fn window(info: &SegmentInfo) -> String {
    window_nanos(info).map_or_else(|| "auto".to_owned(), nanos)
}

/// `n1,n3`, or `-`.
pub(super) fn nodes(set: NodeSet) -> String {
    let names: Vec<String> = set.iter().map(|node| node.to_string()).collect();
    if names.is_empty() {
        "-".to_owned()
    } else {
        names.join(",")
    }
}
