//! Figures of quiet processors, and of the same beside a companion.

use super::document::{Document, Section, number};

/// Behind the paper's codes and the sections without one.
const CODE: u8 = 30;

/// Beginnings of figures that are no measured times.
const NO_TIMES: [&str; 5] = ["cost", "error", "forecast", "matrix ceiling", "measured"];

/// The section of all times that were measured in both ways.
pub(super) fn add(document: &mut Document) {
    let rows: Vec<_> = document
        .busy
        .iter()
        .filter(|(name, _)| is_time(name))
        .filter_map(|(name, busy)| Some((name.clone(), document.known(name)?, *busy)))
        .collect();
    if rows.is_empty() {
        return;
    }
    let mut section = Section::new(
        "Beside a companion",
        &["FIGURE", "QUIET", "BUSY", "BUSY TO QUIET"],
    );
    for (name, quiet, busy) in rows {
        let ratio = format!("{:.2}", busy / quiet);
        section.row([name, number(quiet), number(busy), ratio]);
    }
    section.note(
        "The companion takes a tenth of each processor in bursts. Microseconds, unless the name of a figure says else.",
    );
    document.derive(CODE, section);
}

fn is_time(name: &str) -> bool {
    !NO_TIMES.iter().any(|start| name.starts_with(start)) && !name.ends_with("percent")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_both_ways_stand_side_by_side() {
        let mut document = Document::new();
        document.value("fault plain", 20.0);
        document.value("cost page", 4.0);
        let mut beside = Document::new();
        beside.value("fault plain", 30.0);
        beside.value("cost page", 5.0);
        beside.value("fault S+H", 90.0);
        document.beside_companion(beside);
        add(&mut document);
        let row = ["fault plain", "20.0", "30.0", "1.50"].map(str::to_owned);
        assert_eq!(document.rows(CODE), [row.to_vec()]);
    }
}
