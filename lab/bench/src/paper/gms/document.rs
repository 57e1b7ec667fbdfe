//! What was measured: numbers by name, and when each part was.

use super::super::super::report::Machine;
use super::super::origin::Origin;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

/// One run of the whole benchmark, or several put together.
#[derive(Serialize, Deserialize)]
pub(super) struct Document {
    bench: String,
    pub(super) machine: String,
    /// Parts that were measured.
    pub(super) parts: BTreeMap<String, Measured>,
    values: BTreeMap<String, f64>,
}

/// When a part was measured, and of which sources.
#[derive(Serialize, Deserialize)]
pub(super) struct Measured {
    /// In UTC.
    pub(super) date: String,
    pub(super) origin: Origin,
}

impl Document {
    pub(super) fn new() -> Self {
        let machine = Machine::this();
        Self {
            bench: "paper gms".to_owned(),
            machine: format!(
                "{} ({} processors, Linux {})",
                machine.processor(),
                machine.cores(),
                machine.kernel()
            ),
            parts: BTreeMap::new(),
            values: BTreeMap::new(),
        }
    }

    /// The kept document, if it is of this machine.
    pub(super) fn kept(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path.filter(|path| path.exists()) else {
            return Ok(Self::new());
        };
        let kept = Self::read(&std::fs::read_to_string(path)?)
            .with_context(|| format!("{} is no file that --keep wrote", path.display()))?;
        let new = Self::new();
        Ok(if kept.machine == new.machine {
            kept
        } else {
            new
        })
    }

    pub(super) fn read(text: &str) -> Result<Self> {
        Ok(serde_json::from_str(text)?)
    }

    /// A part is measured anew: forgets its numbers, which have its name in front.
    pub(super) fn begin(&mut self, part: &str) {
        let begin = format!("{part} ");
        self.values.retain(|name, _| !name.starts_with(&begin));
    }

    /// A part was measured.
    pub(super) fn end(&mut self, part: &str, origin: Origin) {
        let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        self.parts
            .insert(part.to_owned(), Measured { date, origin });
    }

    pub(super) fn put(&mut self, name: impl Into<String>, value: f64) {
        self.values.insert(name.into(), value);
    }

    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }

    /// One number over another.
    pub(super) fn ratio(&self, name: &str, to: &str) -> Option<f64> {
        Some(self.get(name)? / self.get(to)?)
    }
}
