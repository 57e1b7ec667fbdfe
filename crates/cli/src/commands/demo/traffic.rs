//! The costs of the demo: faults, pages, bytes and latencies of each node.

use crate::output::Table;
use crate::sandbox::{Node, Sandbox};
use crate::units::{nanos, size};
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::HashMap;

/// One node's share. Its daemon was started for the demo, so its counters
/// count nothing else.
pub(super) struct Traffic {
    node: usize,
    counters: HashMap<String, u64>,
    fault_p50: u64,
    fault_p99: u64,
}

pub(super) fn of(sandbox: &Sandbox) -> Result<Vec<Traffic>> {
    sandbox
        .nodes()
        .iter()
        .enumerate()
        .map(|(number, node)| Traffic::of(number, node))
        .collect()
}

/// One line of all nodes together.
pub(super) fn summary(traffic: &[Traffic]) -> String {
    let sum = |name| traffic.iter().map(|node| node.count(name)).sum::<u64>();
    format!(
        "moved between the nodes: {} in {} datagrams",
        size(sum("bytes_out")),
        sum("datagrams_out")
    )
}

pub(super) fn table(traffic: &[Traffic]) -> Table {
    let mut table = Table::new(&[
        "NODE",
        "READ FAULTS",
        "WRITE FAULTS",
        "PAGES IN",
        "PAGES OUT",
        "DIFFS IN",
        "SENT",
        "RECEIVED",
        "FAULT P50",
        "P99",
    ]);
    for node in traffic {
        table.row([
            node.node.to_string(),
            node.count("faults_read").to_string(),
            node.count("faults_write").to_string(),
            node.count("pages_in").to_string(),
            node.count("pages_out").to_string(),
            node.count("diffs_applied").to_string(),
            size(node.count("bytes_out")),
            size(node.count("bytes_in")),
            nanos(node.fault_p50),
            nanos(node.fault_p99),
        ]);
    }
    table
}

impl Traffic {
    fn of(number: usize, node: &Node) -> Result<Self> {
        let mut control = node.control()?;
        let status = control.status()?;
        Ok(Self {
            node: number,
            counters: control.counters()?.into_iter().collect(),
            fault_p50: status.fault_p50,
            fault_p99: status.fault_p99,
        })
    }

    fn count(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    pub(super) fn document(&self) -> Value {
        json!({
            "rank": self.node,
            "faults_read": self.count("faults_read"),
            "faults_write": self.count("faults_write"),
            "faults_upgrade": self.count("faults_upgrade"),
            "pages_in": self.count("pages_in"),
            "pages_out": self.count("pages_out"),
            "diffs_applied": self.count("diffs_applied"),
            "datagrams_out": self.count("datagrams_out"),
            "bytes_out": self.count("bytes_out"),
            "bytes_in": self.count("bytes_in"),
            "fault_p50_ns": self.fault_p50,
            "fault_p99_ns": self.fault_p99,
        })
    }
}
