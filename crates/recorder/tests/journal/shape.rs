//! The shape of what snapshots hold: the names of everything in the state of a
//! node, and the order of its fields.

use core::fmt::Debug;
use std::collections::BTreeSet;

/// A line for each structure that was seen: its name, and its fields in order.
#[derive(Debug, Default)]
pub struct Shape(BTreeSet<String>);

impl Shape {
    /// Looks at something, as it describes itself.
    pub fn see(&mut self, state: &impl Debug) {
        let text = format!("{state:#?}");
        let mut inside: Vec<(String, Vec<String>)> = Vec::new();
        for line in text.lines().map(str::trim) {
            let closes = line.starts_with(['}', ')', ']']);
            if closes && let Some((name, fields)) = inside.pop() {
                self.note(&name, &fields);
            }
            let line = line.trim_start_matches(['}', ')', ']', ':', ' ']);
            if let (Some((name, _)), Some((_, fields))) = (line.split_once(": "), inside.last_mut())
                && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
            {
                fields.push(name.to_owned());
            }
            if line.ends_with(['{', '(', '[']) {
                let opened = line.trim_end_matches(['{', '(', '[', ' ']);
                let name = opened.rsplit(": ").next().unwrap_or_default();
                inside.push((name.to_owned(), Vec::new()));
            }
        }
    }

    fn note(&mut self, name: &str, fields: &[String]) {
        let named = name.starts_with(|c: char| c.is_ascii_uppercase());
        if named && !fields.is_empty() {
            self.0.insert(format!("{name}: {}\n", fields.join(", ")));
        }
    }

    /// For a file.
    pub fn lines(&self) -> String {
        self.0.iter().map(String::as_str).collect()
    }
}
