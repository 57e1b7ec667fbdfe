//! Of which sources a document was measured, and what else the machine did meanwhile.

use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;

/// The origin of what was measured in one go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Origin {
    /// Of the sources in the working directory; empty if that is unknown.
    #[serde(default)]
    commit: String,
    /// Runnable threads of the machine, the mean of a minute, before the first measurement
    /// and after the last.
    #[serde(default)]
    load: Vec<f64>,
    /// The weight of the session among others at the scheduler (its autogroup's `nice`), if it is not
    /// that of all: others run, and take little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    /// By a build for tests, which is slower.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unoptimized: bool,
}

/// What a person wrote into a document, which no command computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Note {
    /// The day.
    pub(super) date: String,
    pub(super) text: String,
}

impl Origin {
    /// A measurement begins.
    pub(super) fn now() -> Self {
        Self {
            commit: commit(),
            load: load().into_iter().collect(),
            priority: priority(),
            unoptimized: cfg!(debug_assertions),
        }
    }

    /// It has ended.
    pub(super) fn end(&mut self) {
        self.load.truncate(1);
        self.load.extend(load());
    }

    /// `commit C, load 0.1 before and 2.0 after`
    pub(super) fn words(&self) -> String {
        let commit = match self.commit.as_str() {
            "" => "of an unknown commit".to_owned(),
            commit => format!("commit {commit}"),
        };
        let load = match self.load[..] {
            [] => "load not recorded".to_owned(),
            [before] => format!("load {before:.1} before"),
            [before, after, ..] => format!("load {before:.1} before and {after:.1} after"),
        };
        let build = match self.unoptimized {
            true => ", by a build for tests, which is slower",
            false => "",
        };
        let priority = self.priority.map_or_else(String::new, |nice| {
            format!(", others at a lower priority (autogroup nice {nice})")
        });
        format!("{commit}, {load}{priority}{build}")
    }
}

/// The section of a report that no command computes; nothing if there are no notes.
pub(super) fn by_hand(notes: &[Note]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let mut text = "\n## Written by hand\n\nNo command computes what stands here.\n\n".to_owned();
    for note in notes {
        text += &format!("- {}: {}\n", note.date, note.text);
    }
    text
}

/// The `nice` of this session's autogroup, unless it is 0 or there are none.
fn priority() -> Option<i32> {
    let text = std::fs::read_to_string(Path::new("/proc/self/autogroup")).ok()?;
    let nice = text.split_whitespace().last()?.parse().ok()?;
    (nice != 0).then_some(nice)
}

/// The mean number of runnable threads in the last minute.
fn load() -> Option<f64> {
    let text = std::fs::read_to_string(Path::new("/proc/loadavg")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// The commit of the working directory, with a `+` if files differ from it.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let success = output.status.success();
        success.then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return String::new();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit}+"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_says_what_it_knows() {
        let unknown = Origin::default();
        assert_eq!(unknown.words(), "of an unknown commit, load not recorded");
        let mut known = Origin {
            commit: "abc".to_owned(),
            load: vec![1.0],
            priority: None,
            unoptimized: false,
        };
        assert_eq!(known.words(), "commit abc, load 1.0 before");
        known.priority = Some(-19);
        assert!(known.words().ends_with("(autogroup nice -19)"));
        known.unoptimized = true;
        assert!(known.words().ends_with("which is slower"));
        known.end();
        known.end();
        assert_eq!(known.load.len(), 2);
        assert_eq!(by_hand(&[]), "");
    }
}
