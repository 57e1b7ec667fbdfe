//! The rows of `bench boards`: for people and for scripts.

use super::super::report::{Machine, Samples};
use super::outcome::Outcome;
use super::systems::System;
use super::{Case, Scenario};
use anyhow::Result;
use pagemesh_cli::Format;
use pagemesh_cli::output;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
pub(crate) struct Table {
    bench: &'static str,
    machine: Machine,
    rows: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<Skipped>,
}

#[derive(Serialize)]
struct Skipped {
    name: String,
    why: String,
}

/// A system in a case. Times are in microseconds.
#[derive(Serialize)]
struct Row {
    system: System,
    #[serde(flatten)]
    case: Case,
    /// Of what the case is about: the age of states, a round trip, the time to join.
    what: &'static str,
    p50: f64,
    p99: f64,
    n: usize,
    /// To the floor's p50 and p99, where it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_p99: Option<f64>,
    #[serde(flatten)]
    watched: Option<Watching>,
    /// Round trips without an answer in time, or those who joined and saw nothing.
    missing: u64,
}

/// What is counted where many watch.
#[derive(Serialize)]
struct Watching {
    states_per_second: f64,
    /// Of the states that readers could have seen.
    seen_percent: f64,
    torn: u64,
    back: u64,
    cut_off: u64,
    /// Median age in the last quarter to that in the first; 0 of too few states.
    growth: f64,
    readers_without_last: u64,
    last_age_p99: f64,
    publish_p50: f64,
    publish_p99: f64,
    publish_worst: f64,
    /// Microseconds of processor: of the writer's node for a state written, of a reader's for one
    /// seen, of the broker for one written.
    cpu_writer: f64,
    cpu_reader: f64,
    cpu_broker: f64,
    /// Bytes that left the writer's node for each byte of state.
    sent: f64,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            bench: "boards",
            machine: Machine::this(),
            rows: Vec::new(),
            skipped: Vec::new(),
        }
    }
}

impl Table {
    /// Notes what could not be measured, and the reason, once.
    pub(super) fn skip(&mut self, name: String, why: &anyhow::Error) {
        let why = format!("{why:#}");
        if !self.skipped.iter().any(|one| one.name == name) {
            self.skipped.push(Skipped { name, why });
        }
    }

    /// Adds a row for each.
    pub(super) fn tell(&mut self, found: &BTreeMap<(Case, System), Outcome>) {
        for (&(case, system), outcome) in found {
            let floor = found.get(&(case, System::Floor));
            let floor = floor.filter(|_| system != System::Floor);
            self.rows.push(row(case, system, outcome, floor));
        }
    }

    pub(crate) fn print(&self, format: Format) -> Result<()> {
        if format == Format::Json {
            return output::json(serde_json::to_value(self)?);
        }
        let mut table = output::Table::new(&[
            "SYSTEM",
            "CASE",
            "WHAT",
            "P50 us",
            "P99 us",
            "RATIO",
            "RATIO P99",
            "GROWTH",
            "STATES/S",
            "SEEN %",
            "TORN",
            "CUT OFF",
            "PUBLISH WORST us",
            "CPU WRITER",
            "CPU READER",
            "CPU BROKER",
            "SENT",
            "WITHOUT LAST",
            "MISSING",
        ]);
        for row in &self.rows {
            let ratio =
                |ratio: Option<f64>| ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
            let of =
                |get: fn(&Watching) -> String| row.watched.as_ref().map(get).unwrap_or_default();
            table.row([
                row.system.name().to_owned(),
                row.case.name(),
                row.what.to_owned(),
                format!("{:.1}", row.p50),
                format!("{:.1}", row.p99),
                ratio(row.ratio),
                ratio(row.ratio_p99),
                of(|one| format!("{:.2}", one.growth)),
                of(|one| format!("{:.0}", one.states_per_second)),
                of(|one| format!("{:.1}", one.seen_percent)),
                of(|one| one.torn.to_string()),
                of(|one| one.cut_off.to_string()),
                of(|one| format!("{:.0}", one.publish_worst)),
                of(|one| format!("{:.1}", one.cpu_writer)),
                of(|one| format!("{:.1}", one.cpu_reader)),
                of(|one| format!("{:.1}", one.cpu_broker)),
                of(|one| format!("{:.2}", one.sent)),
                of(|one| one.readers_without_last.to_string()),
                row.missing.to_string(),
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

/// What a case is about.
fn subject(case: Case, outcome: &Outcome) -> (&'static str, &Samples) {
    match case.scenario {
        Scenario::Ping => ("trip", &outcome.trips),
        Scenario::Late => ("join", &outcome.joined),
        _ => ("age", &outcome.ages),
    }
}

fn row(case: Case, system: System, outcome: &Outcome, floor: Option<&Outcome>) -> Row {
    let (what, samples) = subject(case, outcome);
    let beside = floor.map(|floor| subject(case, floor).1);
    let ratio = |percent| {
        let beside = beside.filter(|beside| beside.len() > 0 && samples.len() > 0)?;
        Some(rounded(
            samples.percentile(percent) / beside.percentile(percent).max(1.0),
        ))
    };
    Row {
        system,
        case,
        what,
        p50: micros(samples.percentile(50)),
        p99: micros(samples.percentile(99)),
        n: samples.len(),
        ratio: ratio(50),
        ratio_p99: ratio(99),
        watched: (what == "age").then(|| watching(case, outcome)),
        missing: outcome.lost + outcome.never_joined,
    }
}

fn watching(case: Case, outcome: &Outcome) -> Watching {
    let each = |sum: u64, count: u64| rounded(sum as f64 / count.max(1) as f64 / 1e3);
    Watching {
        states_per_second: rounded(outcome.published as f64 / outcome.seconds.max(1e-9)),
        seen_percent: rounded(outcome.seen as f64 / outcome.shown.max(1) as f64 * 100.0),
        torn: outcome.torn,
        back: outcome.back,
        cut_off: outcome.cut_off,
        growth: rounded(outcome.growth.percentile(50) / 1e3),
        readers_without_last: outcome.without_last,
        last_age_p99: micros(outcome.last_ages.percentile(99)),
        publish_p50: micros(outcome.publishing.percentile(50)),
        publish_p99: micros(outcome.publishing.percentile(99)),
        publish_worst: micros(outcome.worst as f64),
        cpu_writer: each(outcome.cpu_writer, outcome.published),
        cpu_reader: each(outcome.cpu_readers, outcome.seen),
        cpu_broker: each(outcome.cpu_broker, outcome.published),
        sent: rounded(outcome.sent as f64 / (outcome.published.max(1) * case.size as u64) as f64),
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn micros(nanos: f64) -> f64 {
    rounded(nanos / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boards::Load;

    #[test]
    fn a_row_stands_beside_the_floor() {
        let case = Case {
            readers: 3,
            scenario: Scenario::Paced,
            size: 32,
            load: Load::Quiet,
        };
        let outcome = |nanos, published| {
            let mut outcome = Outcome {
                published,
                seen: 150,
                shown: 300,
                seconds: 1.0,
                ..Outcome::default()
            };
            outcome.ages.extend(vec![nanos; 100]);
            outcome
        };
        let floor = outcome(10_000, 100);
        let found = BTreeMap::from([
            ((case, System::Floor), floor),
            ((case, System::Zenoh), outcome(25_000, 100)),
        ]);
        let mut table = Table::default();
        table.tell(&found);
        let rows = serde_json::to_value(&table.rows).unwrap();
        assert_eq!(rows[0].get("ratio"), None);
        assert_eq!(rows[1]["system"], "zenoh");
        assert_eq!(
            (&rows[1]["ratio"], &rows[1]["scenario"]),
            (&2.5.into(), &"100hz".into())
        );
        assert_eq!(
            (&rows[1]["seen_percent"], &rows[1]["states_per_second"]),
            (&50.0.into(), &100.0.into())
        );
    }
}
