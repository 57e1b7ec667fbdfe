//! Numbers are given once: those of decisions, which the index names all, and those of invariants.

use super::Repository;
use std::collections::BTreeMap;

pub fn faults(repository: &Repository) -> Vec<String> {
    let records = repository
        .files
        .iter()
        .filter_map(|file| file.strip_prefix("docs/decisions/"));
    let records: Vec<&str> = records.filter(|file| *file != "README.md").collect();
    let mut faults = decisions(&records, &repository.read("docs/decisions/README.md"));
    faults.extend(invariants(&repository.read("docs/protocol.md")));
    faults
}

fn decisions(records: &[&str], index: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let (intro, _) = index.split_once("\n|").unwrap_or((index, ""));
    for record in records {
        if !index.contains(&format!("({record})")) {
            faults.push(format!("docs/decisions/README.md does not name {record}"));
        }
    }
    let number = |record: &&str| {
        record
            .get(..4)
            .and_then(|number| number.parse::<u32>().ok())
    };
    let numbers: Vec<u32> = records.iter().filter_map(number).collect();
    for number in 1..=numbers.iter().copied().max().unwrap_or(0) {
        let times = numbers.iter().filter(|it| **it == number).count();
        let absent = intro.contains(&format!("{number:04}"));
        if times > 1 || (times == 0) != absent {
            faults.push(format!(
                "docs/decisions: {number:04} names {times} records, and README.md says otherwise"
            ));
        }
    }
    faults
}

fn invariants(protocol: &str) -> Vec<String> {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let mut faults = Vec::new();
    for line in protocol.lines() {
        let mut cells = line.split('|').skip(1).map(str::trim);
        if let (Some(number), Some(name)) = (cells.next(), cells.next())
            && name.starts_with("INV-")
            && let Some(other) = names.insert(number, name)
        {
            faults.push(format!(
                "docs/protocol.md: {name} and {other} are both number {number}"
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_indexed_and_none_is_lost_unsaid() {
        let index = "Number 0002 names none.\n| [0001](0001-a.md) | a |\n| [0003](0003-c.md) | c |";
        assert_eq!(decisions(&["0001-a.md", "0003-c.md"], index), [""; 0]);
        assert_eq!(
            decisions(&["0001-a.md"], index).len(),
            0,
            "0003 may have come later"
        );
        assert_eq!(decisions(&["0001-a.md", "0003-d.md"], index).len(), 1);
        assert_eq!(
            decisions(&["0001-a.md", "0002-b.md", "0003-c.md"], index).len(),
            2
        );
        assert_eq!(decisions(&["0003-c.md"], index).len(), 1);
    }

    #[test]
    fn no_two_invariants_have_one_number() {
        assert_eq!(invariants("| 1 | INV-a | |\n| 2 | INV-b | |"), [""; 0]);
        assert_eq!(invariants("| 1 | INV-a | |\n| 1 | INV-b | |").len(), 1);
    }
}
