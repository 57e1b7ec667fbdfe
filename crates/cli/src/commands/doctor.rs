//! `pagemesh doctor`: the obstacles on this host, each with its cure.

mod container;
mod etcd;
mod kernel;
mod memory;
mod network;

use super::daemon::control::EtcdFlags;
use crate::exit::Exit;
use crate::global::{Format, Global};
use crate::output;
use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

/// Find what keeps PageMesh from working here, and how to cure it
#[derive(Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    etcd: EtcdFlags,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ok,
    /// Works, but not as well as it could.
    Warning,
    /// Does not work.
    Blocker,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Blocker => "blocker",
        }
    }
}

/// One finding.
#[derive(Clone, Debug)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    found: String,
    cure: Option<String>,
    /// The cure is a setting of this host, not another kernel.
    setting: bool,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            verdict: Verdict::Ok,
            found: found.into(),
            cure: None,
            setting: false,
        }
    }

    fn warning(name: &'static str, found: impl Into<String>, cure: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Warning,
            cure: Some(cure.into()),
            setting: true,
            ..Self::ok(name, found)
        }
    }

    fn blocker(name: &'static str, found: impl Into<String>, cure: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Blocker,
            ..Self::warning(name, found, cure)
        }
    }

    /// The cure is another kernel.
    fn of_the_kernel(self) -> Self {
        Self {
            setting: false,
            ..self
        }
    }
}

impl Doctor {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let mut checks = kernel::checks();
        checks.extend(memory::checks());
        checks.extend(network::checks(&super::sockets(global)));
        checks.extend(container::checks());
        checks.extend(etcd::check(&self.etcd));
        match global.output {
            Format::Json => output::json(document(&checks))?,
            Format::Table | Format::Wide => output::lines(lines(&checks, global.quiet))?,
        }
        let blocked = checks.iter().any(|check| check.verdict == Verdict::Blocker);
        Ok(if blocked { Exit::FAILURE } else { Exit::OK })
    }
}

fn lines(checks: &[Check], quiet: bool) -> Vec<String> {
    let count = |verdict| {
        checks
            .iter()
            .filter(|check| check.verdict == verdict)
            .count()
    };
    let mut lines = Vec::new();
    for check in checks {
        if quiet && check.verdict == Verdict::Ok {
            continue;
        }
        lines.push(format!(
            "{:<8} {}: {}",
            check.verdict.name(),
            check.name,
            check.found
        ));
        lines.extend(
            check
                .cure
                .iter()
                .map(|cure| format!("         cure: {cure}")),
        );
    }
    lines.push(match (count(Verdict::Blocker), count(Verdict::Warning)) {
        (0, 0) => "PageMesh can work here.".to_owned(),
        (0, warnings) => format!("PageMesh can work here; {warnings} thing(s) could be better."),
        (blockers, _) => format!("PageMesh cannot work here: {blockers} blocker(s)."),
    });
    lines
}

fn document(checks: &[Check]) -> Value {
    let rows: Vec<Value> = checks
        .iter()
        .map(|check| {
            json!({
                "check": check.name,
                "verdict": check.verdict.name(),
                "found": check.found,
                "cure": check.cure,
                "setting": check.setting,
            })
        })
        .collect();
    let blocked = checks.iter().any(|check| check.verdict == Verdict::Blocker);
    json!({ "ok": !blocked, "checks": rows })
}

/// The trimmed contents of a small file of `/proc` or `/sys`.
fn read(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// A number in a file of `/proc` or `/sys`.
fn read_number(path: &str) -> Option<u64> {
    read(path)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_that_is_not_ok_has_a_cure() {
        let mut checks = kernel::checks();
        checks.extend(memory::checks());
        checks.extend(network::checks(&[]));
        checks.extend(container::checks());
        for check in &checks {
            assert_eq!(
                check.cure.is_some(),
                check.verdict != Verdict::Ok,
                "{check:?}"
            );
        }
        let lines = lines(&checks, false);
        assert!(lines.len() > checks.len());
    }
}
