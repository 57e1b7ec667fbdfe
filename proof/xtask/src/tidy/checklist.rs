//! docs/checklist.md: every code has one row, every test and source file that is named exists, and a
//! row that says "yes" names a test.

use super::Repository;
use std::collections::BTreeSet;

/// The permitted first words of the third column.
const STATES: [&str; 5] = ["yes", "partly", "not yet", "otherwise", "refused"];

/// Those that decide nothing.
const UNDECIDED: [&str; 2] = ["partly", "not yet"];

/// Whether a code is of something that a paper's authors left to others: `MB1`.
fn is_limitation(code: &str) -> bool {
    code.trim_end_matches(|c: char| c.is_ascii_digit())
        .ends_with('B')
}

pub fn faults(document: &str, codes: &str, repository: &Repository) -> Vec<String> {
    let codes: BTreeSet<String> = codes
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .flat_map(|line| each(&line.replace('-', " to ")))
        .collect();
    let mut missing = codes.clone();
    let mut seen = BTreeSet::new();
    let mut faults = Vec::new();
    for (number, line) in document.lines().enumerate() {
        let mut say =
            |what: String| faults.push(format!("docs/checklist.md:{}: {what}", number + 1));
        let tests = tests_named(line);
        for name in tests
            .iter()
            .filter(|name| !repository.tests.contains(**name))
        {
            say(format!("there is no test {name}"));
        }
        for file in sources_named(line).filter(|file| !repository.has_source(file)) {
            say(format!("there is no {file}"));
        }
        let [code, _, state, ..] = cells(line)[..] else {
            continue;
        };
        if code == "Code" || code.starts_with("--") {
            continue;
        }
        for code in each(code) {
            let undecided = UNDECIDED.iter().any(|word| state.starts_with(word));
            if undecided && is_limitation(&code) {
                say(format!(
                    "{code} is a limitation, and \"{state}\" is no decision"
                ));
            }
            missing.remove(&code);
            if !seen.insert(code.clone()) {
                say(format!("{code} has a second row"));
            }
            if !codes.contains(&code) {
                say(format!("{code} is no code of docs/checklist-codes.txt"));
            }
        }
        if !STATES.iter().any(|known| state.starts_with(known)) {
            say(format!("\"{state}\" is none of {STATES:?}"));
        }
        if state.starts_with("yes") && tests.is_empty() {
            say(format!("{code} says \"{state}\" and names no test"));
        }
    }
    faults.extend(
        missing
            .iter()
            .map(|code| format!("docs/checklist.md: no row for {code}")),
    );
    faults
}

/// The cells of a row of at least four; else nothing.
fn cells(line: &str) -> Vec<&str> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    match &cells[..] {
        ["", cells @ .., ""] if cells.len() == 4 => cells.to_vec(),
        _ => Vec::new(),
    }
}

/// The codes of a cell: `M15, M16`, `MR9 to MR17`; nothing for rows without one.
fn each(cell: &str) -> Vec<String> {
    let mut codes = Vec::new();
    for part in cell
        .split(", ")
        .filter(|part| !["-", "(none)"].contains(part))
    {
        let Some((first, last)) = part.split_once(" to ") else {
            codes.push(part.to_owned());
            continue;
        };
        let letters = first.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = |code: &str| code.strip_prefix(letters)?.parse::<u32>().ok();
        match (number(first), number(last)) {
            (Some(from), Some(to)) => codes.extend((from..=to).map(|n| format!("{letters}{n}"))),
            _ => codes.push(part.to_owned()),
        }
    }
    codes
}

/// Names of source files in a line: words in backquotes that end like one.
fn sources_named(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter(|word| {
        let is_path = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
        [".rs", ".py", ".c"].iter().any(|end| word.ends_with(end)) && word.chars().all(is_path)
    })
}

/// Names of tests in a line: words of several parts in backquotes.
fn tests_named(line: &str) -> Vec<&str> {
    let quoted = line.split('`').skip(1).step_by(2);
    let is_name = |word: &&str| {
        let word = word.rsplit("::").next().unwrap_or(word);
        let mut parts = word.split('_');
        word.contains('_')
            && parts.all(|part| {
                !part.is_empty()
                    && part
                        .chars()
                        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
            })
    };
    let last = |word: &'_ str| word.rfind("::").map_or(0, |at| at + 2);
    quoted
        .filter(is_name)
        .map(|word| &word[last(word)..])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(rows: &str) -> Vec<String> {
        let repository = Repository {
            root: ".".into(),
            files: ["proof/it/tests/real.rs".to_owned()].into(),
            tests: ["a_test".to_owned(), "another_one".to_owned()].into(),
        };
        let document = format!("| Code | What | State | Covered by |\n|---|---|---|---|\n{rows}");
        let faults = faults(&document, "# codes\nM1-M3\nX1-X1\n", &repository);
        let after = |fault: &String| fault.split_once(": ").unwrap().1.to_owned();
        faults.iter().map(after).collect()
    }

    #[test]
    fn a_checklist_without_a_fault_has_none() {
        let rows = "| M1 to M3 | it | yes | core `a_test` |\n| X1 | it | not yet | later |\n| - | it | yes | `ahead::another_one` |";
        assert_eq!(judged(rows), [""; 0]);
    }

    #[test]
    fn a_limitation_has_a_decision() {
        let of = |code: &str, state: &str| {
            let repository = Repository {
                root: ".".into(),
                files: std::collections::BTreeSet::new(),
                tests: std::collections::BTreeSet::new(),
            };
            let row = format!("| {code} | it | {state} | why |");
            faults(&row, &format!("{code}-{code}"), &repository)
        };
        assert_eq!(of("GB4", "refused: it would lose pages"), [""; 0]);
        assert_eq!(of("G4", "not yet"), [""; 0]);
        for state in ["not yet", "partly: half of it"] {
            let [fault] = &of("GB4", state)[..] else {
                panic!("{state}")
            };
            assert!(fault.contains("is no decision"), "{fault}");
        }
    }

    #[test]
    fn what_a_checklist_lacks_is_named() {
        assert_eq!(
            judged("| M1, X1 | it | yes | `a_test` |"),
            ["no row for M2", "no row for M3"]
        );
        let rest = "\n| M2 to M3, X1 | it | not yet | |";
        let one = |row: &str| judged(&format!("{row}{rest}"));
        assert_eq!(
            one("| M1 | it | yes | `no_such_test` |"),
            ["there is no test no_such_test"]
        );
        assert_eq!(
            one("| M1 | it | yes | sim |"),
            ["M1 says \"yes\" and names no test"]
        );
        assert_eq!(
            one("| M1, M4 | it | not yet | |"),
            ["M4 is no code of docs/checklist-codes.txt"]
        );
        assert_eq!(
            one("| M1 | it | yes | `a_test`, `real.rs`, `tests/unreal.rs` |"),
            ["there is no tests/unreal.rs"]
        );
        assert_eq!(
            one("| M1 | it | yes | `a_test` |\n| M1 | it | not yet | |"),
            ["M1 has a second row"]
        );
        let state =
            "\"done\" is none of [\"yes\", \"partly\", \"not yet\", \"otherwise\", \"refused\"]";
        assert_eq!(one("| M1 | it | done | `a_test` |"), [state]);
    }
}
