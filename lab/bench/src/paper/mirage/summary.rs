//! MR17: the switches together.

use super::document::{Document, Section, number};
use super::literature::{
    BATTLESHIP, COMPRESSED, COMPRESSED_INTERRUPT, INTERRUPT_BLAST, MATRIX_60, MIRAGE, SERVER_BLAST,
    SERVER_HANDSHAKE,
};

/// The figures of several classes, or dashes.
fn joined(all: impl IntoIterator<Item = Option<f64>>) -> String {
    let all = all.into_iter();
    let all = all.map(|one| one.map_or_else(|| "-".to_owned(), number));
    all.collect::<Vec<_>>().join(" / ")
}

/// Adds it of the figures that are there.
pub(super) fn add(document: &mut Document) {
    let head = [
        "SWITCHES",
        "FAULT us",
        "PAPER ms",
        "BATTLESHIP s",
        "PAPER s",
        "MATRIX s",
        "PAPER s",
    ];
    let mut section = Section::new("Table 7, summary", &head);
    let known = |name: &str| document.known(name);
    let classes = |switches: &str| {
        let class = |class| known(&format!("fault {switches} {class}"));
        joined((1..=4).map(class))
    };
    let four = |paper: [f64; 4]| joined(paper.map(Some));
    let one = |value: Option<f64>| joined([value]);
    let rows = [
        ("Mirage (S)", one(None), one(Some(MIRAGE)), None),
        (
            "S+H",
            one(known("fault S+H")),
            one(Some(SERVER_HANDSHAKE)),
            None,
        ),
        (
            "S+B",
            one(known("fault S+B")),
            one(Some(SERVER_BLAST)),
            Some(0),
        ),
        (
            "I+B",
            one(known("fault I+B")),
            one(Some(INTERRUPT_BLAST)),
            Some(1),
        ),
        ("S+B+C", classes("S+B+C"), four(COMPRESSED), Some(2)),
        (
            "I+B+C",
            classes("I+B+C"),
            four(COMPRESSED_INTERRUPT),
            Some(3),
        ),
    ];
    for (switches, ours, paper, programs) in rows {
        let mut row = vec![switches.to_owned(), ours, paper];
        row.extend([
            one(known(&format!("battleship {switches} s"))),
            one(programs.map(|place| BATTLESHIP[place])),
            one(known(&format!("matrix 60 {switches} s"))),
            one(programs.map(|place| MATRIX_60[place])),
        ]);
        section.cells(row);
    }
    section.note(
        "Compressed faults: of pages that need one, two, three and four packets. Battleship: 789 turns of each player, \
         write locks, Δ = 0, two sites; matrix multiply: 60 x 60 on two sites, each with a fifth of a processor. All \
         figures are those of the other tables, and as old.",
    );
    document.derive(17, section);
}
