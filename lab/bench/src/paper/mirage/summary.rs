//! MR17: the switches together.

use super::document::{Document, Section, number, ratio};
use super::literature;

pub(super) fn add(document: &mut Document) {
    let head = ["SWITCHES", "FAULT us", "PAPER ms", "RATIO"];
    let mut section = Section::new("Table 7, summary", &head);
    let known = |name: &str| document.values.get(name).copied();
    let mut row = |name: &str, ours: Option<f64>, paper: f64| {
        if let Some(ours) = ours {
            section.row([
                name.to_owned(),
                number(ours),
                number(paper),
                ratio(ours, paper),
            ]);
        }
    };
    row("S+H", known("fault S+H"), literature::SERVER_HANDSHAKE);
    row("S+B", known("fault S+B"), literature::SERVER_BLAST);
    row("I+B", known("fault I+B"), literature::INTERRUPT_BLAST);
    for (switches, paper) in [
        ("S+B+C", literature::COMPRESSED),
        ("I+B+C", literature::COMPRESSED_INTERRUPT),
    ] {
        for (class, paper) in paper.into_iter().enumerate() {
            let name = format!("{switches}, {} packets", class + 1);
            row(
                &name,
                known(&format!("fault {switches} {}", class + 1)),
                paper,
            );
        }
    }
    for (name, value) in [
        ("Battleship, write locks, I+B", "battleship off s"),
        ("Battleship, write locks, I+B+C", "battleship runs s"),
        ("Matrix 60 x 60 on two sites, S+B", "matrix 60 off s"),
        ("Matrix 60 x 60 on two sites, S+B+C", "matrix 60 runs s"),
    ] {
        let paper = match value {
            "battleship off s" => 42.0,
            "battleship runs s" => 35.0,
            "matrix 60 off s" => 2.4,
            _ => 1.9,
        };
        if let Some(seconds) = known(value) {
            section.note(format!(
                "{name}: {} s; the paper: {paper} s; ratio {:.5}.",
                number(seconds),
                seconds / paper
            ));
        }
    }
    section.note("Of what the tables above are made of, and as old as that.");
    document.put(17, section);
}
