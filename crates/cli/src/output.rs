//! Results on standard output: columns for people, JSON for programs.

use crate::global::Format;
use anyhow::{Context as _, Result};
use serde_json::{Map, Value};
use std::fmt::Display;
use std::io::{self, Write};

/// Version of every JSON document printed here. Raised when a field changes
/// its meaning or vanishes, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// Columns without borders.
pub struct Table(comfy_table::Table);

impl Table {
    /// A table with no rows yet.
    #[must_use]
    pub fn new(header: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header(header);
        Self(table)
    }

    /// Adds a row.
    pub fn row<I>(&mut self, cells: I)
    where
        I: IntoIterator,
        I::Item: ToString,
    {
        self.0.add_row(cells.into_iter().map(|c| c.to_string()));
    }

    /// The lines, without the spaces comfy-table puts at both ends.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.0
            .lines()
            .map(|line| {
                line.strip_prefix(' ')
                    .unwrap_or(&line)
                    .trim_end()
                    .to_owned()
            })
            .collect()
    }

    /// Prints it.
    ///
    /// # Errors
    /// As [`lines`].
    pub fn print(&self) -> Result<()> {
        lines(self.lines())
    }
}

/// Prints lines. A reader that has seen enough (`| head`) is no error.
///
/// # Errors
/// If standard output cannot be written for another reason.
pub fn lines<I>(lines: I) -> Result<()>
where
    I: IntoIterator,
    I::Item: AsRef<str>,
{
    let mut out = io::stdout().lock();
    let print = |line: I::Item| writeln!(out, "{}", line.as_ref());
    let printed = lines.into_iter().try_for_each(print);
    written(printed.and_then(|()| io::stdout().flush()))
}

fn written(result: io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write the result to standard output"),
    }
}

/// Prints a note on standard error. If that cannot be written, the note is lost and the command
/// goes on: its work matters more than its output.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints a JSON object, with `schema_version`.
///
/// # Errors
/// As [`lines`].
pub fn json(body: Value) -> Result<()> {
    let mut document = Map::new();
    document.insert("schema_version".to_owned(), SCHEMA_VERSION.into());
    match body {
        Value::Object(fields) => document.extend(fields),
        other => {
            document.insert("result".to_owned(), other);
        }
    }
    lines([serde_json::to_string_pretty(&Value::Object(document))?])
}

/// Prints a sentence in table formats, a document in JSON.
///
/// # Errors
/// As [`lines`].
pub fn told(format: Format, sentence: &str, document: Value) -> Result<()> {
    match format {
        Format::Json => json(document),
        Format::Table | Format::Wide => lines([sentence]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_without_borders() {
        let mut table = Table::new(&["NODE", "NAME"]);
        table.row(["n1", "a"]);
        table.row(["n12", "bb"]);
        assert_eq!(table.lines(), ["NODE  NAME", "n1    a", "n12   bb"]);
    }
}
