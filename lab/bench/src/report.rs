//! The results of a benchmark: rows for people and for scripts.

use anyhow::Result;
use pagemesh_cli::Format;
use pagemesh_cli::output::{self, Table};
use serde::{Deserialize, Serialize};
use std::fs;

/// All rows of one run.
#[derive(Serialize)]
pub(super) struct Report {
    bench: &'static str,
    machine: Machine,
    rows: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<Skipped>,
}

/// A row that could not be measured here.
#[derive(Serialize)]
struct Skipped {
    name: String,
    why: String,
}

/// Where it was measured.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    kernel: String,
    processor: String,
    cores: usize,
}

/// One thing measured, beside its baseline of the same run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) waiting: &'static str,
    unit: &'static str,
    p50: f64,
    p99: f64,
    n: usize,
    /// Microseconds of processor that the daemons used for each, waiting included.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<f64>,
    #[serde(flatten)]
    baseline: Option<Baseline>,
    /// The quicker one, where another system's work stands beside ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    wins: Option<&'static str>,
}

/// The comparison of a row.
#[derive(Clone, Debug, Serialize)]
struct Baseline {
    baseline: &'static str,
    baseline_p50: f64,
    baseline_p99: f64,
    ratio: f64,
}

/// Durations of one kind, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<u64>);

impl Samples {
    pub(super) fn extend(&mut self, more: Vec<u64>) {
        self.0.extend(more);
    }

    /// Adds those of another.
    pub(super) fn merge(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// The median, in nanoseconds; never zero.
    pub(super) fn median(&self) -> f64 {
        self.percentile(50).max(1.0)
    }

    /// The mean, in nanoseconds; 0 of none.
    pub(super) fn mean(&self) -> f64 {
        self.0.iter().sum::<u64>() as f64 / self.0.len().max(1) as f64
    }

    /// The least; 0 of none.
    pub(super) fn least(&self) -> f64 {
        self.0.iter().min().copied().unwrap_or(0) as f64
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// So many of a hundred are not larger; 0 of none.
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
        sorted.get(at).copied().unwrap_or(0) as f64
    }
}

impl Report {
    pub(super) fn new(bench: &'static str) -> Self {
        Self {
            bench,
            machine: Machine::this(),
            rows: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// Adds a row in microseconds, and its ratio to the baseline's median, which is
    /// also returned; zero without a baseline.
    pub(super) fn row(
        &mut self,
        name: impl Into<String>,
        waiting: &'static str,
        samples: &Samples,
        baseline: Option<(&'static str, &Samples)>,
    ) -> f64 {
        let p50 = samples.percentile(50);
        let baseline = baseline.map(|(name, samples)| {
            let beside = samples.percentile(50).max(1.0);
            Baseline {
                baseline: name,
                baseline_p50: micros(beside),
                baseline_p99: micros(samples.percentile(99)),
                ratio: (p50 / beside * 1000.0).round() / 1000.0,
            }
        });
        let ratio = baseline.as_ref().map_or(0.0, |beside| beside.ratio);
        self.rows.push(Row {
            name: name.into(),
            waiting,
            unit: "us",
            p50: micros(p50),
            p99: micros(samples.percentile(99)),
            n: samples.0.len(),
            cpu: None,
            baseline,
            wins: None,
        });
        ratio
    }

    /// Adds a row of how many bytes passed in a second, in MB/s.
    pub(super) fn rate(
        &mut self,
        name: String,
        bytes: f64,
        samples: &Samples,
        beside: Option<(&'static str, &Samples)>,
    ) {
        self.rate_of(name, "MB/s", bytes / 1e6, samples, beside);
    }

    /// Adds a row of how much was done in a second, where each sample did so much.
    /// Its p99 is that of the slow ones.
    pub(super) fn rate_of(
        &mut self,
        name: impl Into<String>,
        unit: &'static str,
        amount: f64,
        samples: &Samples,
        beside: Option<(&'static str, &Samples)>,
    ) {
        let rate = |samples: &Samples, percent| {
            let nanos = samples.percentile(percent).max(1.0);
            (amount / nanos * 1e11).round() / 100.0
        };
        let p50 = rate(samples, 50);
        self.rows.push(Row {
            name: name.into(),
            waiting: "spin",
            unit,
            p50,
            p99: rate(samples, 99),
            n: samples.0.len(),
            cpu: None,
            baseline: beside.map(|(name, beside)| Baseline {
                baseline: name,
                baseline_p50: rate(beside, 50),
                baseline_p99: rate(beside, 99),
                ratio: (p50 / rate(beside, 50) * 1000.0).round() / 1000.0,
            }),
            wins: None,
        });
    }

    /// Adds a row with the times of an operation, beside those of a peer, and says which is
    /// quicker.
    pub(super) fn versus(
        &mut self,
        name: String,
        waiting: &'static str,
        samples: &Samples,
        peer: (&'static str, &Samples),
    ) {
        let ratio = self.row(name, waiting, samples, Some(peer));
        if let Some(row) = self.rows.last_mut() {
            let winner = if ratio > 1.0 { peer.0 } else { "pagemesh" };
            row.wins = Some(winner);
        }
    }

    /// Notes a row that could not be measured, and the reason.
    pub(super) fn skip(&mut self, name: String, why: &anyhow::Error) {
        let why = format!("{why:#}");
        self.skipped.push(Skipped { name, why });
    }

    /// Adds a row of one value.
    pub(super) fn value(&mut self, name: &str, unit: &'static str, value: f64, n: usize) {
        let value = (value * 100.0).round() / 100.0;
        self.rows.push(Row {
            name: name.into(),
            waiting: "block",
            unit,
            p50: value,
            p99: value,
            n,
            cpu: None,
            baseline: None,
            wins: None,
        });
    }

    /// Adds to the last row how daemons waited.
    pub(super) fn waited(&mut self, waiting: &'static str) {
        if let Some(row) = self.rows.last_mut() {
            row.waiting = waiting;
        }
    }

    /// Tells of the last row how much processor time it took in all.
    pub(super) fn took(&mut self, nanos: u64) {
        if let Some(row) = self.rows.last_mut()
            && row.n > 0
        {
            row.cpu = Some(micros(nanos as f64 / row.n as f64));
        }
    }

    /// The median of the row of that name.
    pub(super) fn median(&self, name: &str) -> Option<f64> {
        Some(self.rows.iter().find(|row| row.name == name)?.p50)
    }

    /// The median of the row's comparison.
    pub(super) fn baseline(&self, name: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.name == name)?;
        Some(row.baseline.as_ref()?.baseline_p50)
    }

    pub(super) fn print(&self, format: Format) -> Result<()> {
        if format == Format::Json {
            return output::json(serde_json::to_value(self)?);
        }
        let mut table = Table::new(&[
            "NAME", "WAITING", "P50", "P99", "N", "CPU", "BASELINE", "ITS P50", "ITS P99", "RATIO",
            "WINS",
        ]);
        for row in &self.rows {
            let (baseline, p50, p99, ratio) = match &row.baseline {
                Some(beside) => (
                    beside.baseline.to_owned(),
                    format!("{:.2} {}", beside.baseline_p50, row.unit),
                    format!("{:.2} {}", beside.baseline_p99, row.unit),
                    format!("{:.3}", beside.ratio),
                ),
                None => Default::default(),
            };
            table.row([
                row.name.clone(),
                row.waiting.to_owned(),
                format!("{:.2} {}", row.p50, row.unit),
                format!("{:.2} {}", row.p99, row.unit),
                row.n.to_string(),
                row.cpu
                    .map(|cpu| format!("{cpu:.2} us"))
                    .unwrap_or_default(),
                baseline,
                p50,
                p99,
                ratio,
                row.wins.unwrap_or_default().to_owned(),
            ]);
        }
        for skipped in &self.skipped {
            output::note(format_args!(
                "{} was not measured: {}",
                skipped.name, skipped.why
            ));
        }
        table.print()
    }
}

fn micros(nanos: f64) -> f64 {
    (nanos / 10.0).round() / 100.0
}

impl Machine {
    pub(super) fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let processor = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .map(|rest| rest.trim_start_matches(['\t', ' ', ':']).to_owned())
            .unwrap_or_default();
        Self {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            processor,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// The number of its processors.
    pub(super) fn cores(&self) -> usize {
        self.cores
    }
}

/// `PROCESSOR (2 processors, Linux 6.18)`
impl std::fmt::Display for Machine {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            processor,
            cores,
            kernel,
        } = self;
        write!(to, "{processor} ({cores} processors, Linux {kernel})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_carry_their_ratio() {
        let mut report = Report::new("test");
        let (mut slow, mut quick) = (Samples::default(), Samples::default());
        slow.extend(vec![20_000; 100]);
        quick.extend(vec![10_000; 100]);
        report.row("a", "spin", &slow, Some(("raw", &quick)));
        let row = serde_json::to_value(&report.rows[0]).unwrap();
        assert_eq!(row["p50"], 20.0);
        assert_eq!(row["baseline"], "raw");
        assert_eq!(row["ratio"], 2.0);
    }
}
