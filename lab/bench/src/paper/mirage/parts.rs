//! MR2 to MR6: the parts of a fault, of the figures that were measured.

use super::document::{Document, Section, number, percent, ratio};
use super::literature::{
    self, BLAST_PARTS, BLAST_SUMS, COMPARED, HANDSHAKE_PARTS, HANDSHAKE_SUMS, INTERRUPT_BLAST,
    MIRAGE_EXCHANGES, SERVER_BLAST, SERVER_HANDSHAKE, STEPS,
};

/// The parts of a fault under some switches, in microseconds.
struct Parts {
    trap: f64,
    request: f64,
    transfer: f64,
    total: f64,
}

impl Parts {
    fn of(document: &Document, switches: &str) -> Option<Self> {
        let known = |part: &str| document.known(&format!("{part} {switches}"));
        Some(Self {
            trap: known("trap")?,
            request: known("request")?,
            transfer: known("transfer")?,
            total: known("fault")?,
        })
    }

    /// What no stamp divides.
    fn rest(&self) -> f64 {
        self.total - self.trap - self.request - self.transfer
    }
}

/// The paper's table of the parts.
struct Steps {
    title: &'static str,
    places: [[f64; 3]; 7],
    sums: ([f64; 7], [f64; 3]),
    total: f64,
}

/// Adds the sections whose figures are there.
pub(super) fn add(document: &mut Document) {
    let [handshake, blast, plain] =
        ["S+H", "S+B", "plain"].map(|switches| Parts::of(document, switches));
    if let Some(plain) = &plain {
        trace(document, plain);
    }
    if let (Some(handshake), Some(blast)) = (&handshake, &blast) {
        let paper = Steps {
            title: "Table 1, a fault by handshake (S+H)",
            places: HANDSHAKE_PARTS,
            sums: HANDSHAKE_SUMS,
            total: SERVER_HANDSHAKE,
        };
        components(document, 3, handshake, &paper);
        let paper = Steps {
            title: "Table 2, a fault by blasting (S+B)",
            places: BLAST_PARTS,
            sums: BLAST_SUMS,
            total: SERVER_BLAST,
        };
        components(document, 4, blast, &paper);
        compared(document, handshake, blast);
    }
    levels(document);
}

/// Fig. 1, by the time stamps of both daemons.
fn trace(document: &mut Document, parts: &Parts) {
    let head = ["STEP", "WHERE", "MICROSECONDS"];
    let mut section = Section::new("Fig. 1, the steps of a fault, in line, no packets", &head);
    for (step, place, took) in [
        ("fault noticed, request leaves", "user site", parts.trap),
        (
            "request travels, is processed, page leaves",
            "library site",
            parts.request,
        ),
        ("page travels", "between", parts.transfer),
        (
            "what is left: thread stopped, daemon woken, page installed, thread goes on",
            "user site",
            parts.rest(),
        ),
        ("as the thread sees it", "user site", parts.total),
    ] {
        section.row([step.to_owned(), place.to_owned(), number(took)]);
    }
    section.note(
        "Medians of each step, by time stamps of both daemons, whose clocks are one here. What is left is the difference \
         to the whole, not measured itself: no stamp separates the arrival of a page from its installation.",
    );
    document.derive(2, section);
}

fn components(document: &mut Document, code: u8, parts: &Parts, paper: &Steps) {
    let head = [
        "STEP",
        "PAPER ms: USER",
        "COMMUNICATION",
        "LIBRARY",
        "ALL",
        "OURS us",
        "RATIO",
    ];
    let mut section = Section::new(paper.title, &head);
    let (sums, columns) = paper.sums;
    let share = |ours: f64, theirs: f64| {
        let of = |part: f64, whole: f64| 100.0 * part / whole;
        format!(
            "{} ({:.0} % of all; paper {:.0} %)",
            number(ours),
            of(ours, parts.total),
            of(theirs, paper.total)
        )
    };
    let pages: f64 = sums[2..6].iter().sum();
    for (step, (name, places)) in STEPS.into_iter().zip(paper.places).enumerate() {
        let ours = match step {
            0 => format!("leaves after {}", number(parts.trap)),
            1 => share(parts.trap + parts.request, sums[0] + sums[1]),
            5 => share(parts.transfer, pages),
            6 => share(parts.rest(), sums[6]),
            _ => String::new(),
        };
        let compared = match step {
            1 => ratio(parts.trap + parts.request, sums[0] + sums[1]),
            5 => ratio(parts.transfer, pages),
            6 => ratio(parts.rest(), sums[6]),
            _ => String::new(),
        };
        let mut row = vec![name.to_owned()];
        row.extend(places.map(|place| format!("{place:.1}")));
        row.extend([format!("{:.1}", sums[step]), ours, compared]);
        section.cells(row);
    }
    let mut row = vec!["all".to_owned()];
    row.extend(columns.map(|column| format!("{column:.1}")));
    row.extend([
        format!("{:.1}", paper.total),
        number(parts.total),
        ratio(parts.total, paper.total),
    ]);
    section.cells(row);
    section.note(
        "Ours has stamps where the request leaves, where the page leaves and where all of it has arrived: steps 1 and 2 \
         are one figure, and so are the four parts. Step 4 is the difference to the whole: installation, and what the \
         kernel needs to stop the thread, to wake the daemon and to run the thread again.",
    );
    if code == 4 {
        let paper = percent(SERVER_HANDSHAKE, SERVER_BLAST);
        let ours = document.known("fault S+H");
        let ours = ours.map_or_else(String::new, |before| percent(before, parts.total));
        section.note(format!(
            "Against the handshake: {ours}; the paper: {paper}."
        ));
    }
    document.derive(code, section);
}

fn compared(document: &mut Document, handshake: &Parts, blast: &Parts) {
    let head = [
        "",
        "PAPER ms: MIRAGE",
        "HANDSHAKE",
        "BLASTING",
        "OURS us: HANDSHAKE",
        "BLASTING",
    ];
    let mut section = Section::new("Table 3, against Mirage", &head);
    let of = |parts: &Parts| {
        [
            parts.trap,
            parts.request,
            parts.transfer,
            parts.rest(),
            parts.total,
        ]
    };
    for ((name, paper), (one, other)) in COMPARED
        .into_iter()
        .zip(of(handshake).into_iter().zip(of(blast)))
    {
        let mut row = vec![name.to_owned()];
        row.extend(paper.map(|ms| format!("{ms:.1}")));
        row.extend([number(one), number(other)]);
        section.cells(row);
    }
    let exchanges = [
        (
            "a short message and its answer",
            "round trip",
            literature::PROBE,
        ),
        (
            "one of 1 KiB, a short one the other way",
            "round trip of 1 KiB",
            7.2,
        ),
    ];
    for ((name, value, plus), mirage) in exchanges.into_iter().zip(MIRAGE_EXCHANGES) {
        let ours = document.known(value).map_or_else(|| "-".to_owned(), number);
        section.cells(vec![
            name.to_owned(),
            format!("{mirage:.1}"),
            format!("{plus:.1}"),
            format!("{plus:.1}"),
            ours.clone(),
            ours,
        ]);
    }
    section.note(
        "Mirage ran on a VAX 11/750 with pages of 512 bytes. The paper divides each transmission into halves of the user's \
         and of the library's side; here both are together.",
    );
    document.derive(5, section);
}

fn levels(document: &mut Document) {
    let mut section = Section::new("Interrupt level", &["", "OURS us", "PAPER ms", "RATIO"]);
    let (Some(server), Some(inline)) = (document.known("fault S+B"), document.known("fault I+B"))
    else {
        return;
    };
    let plain = document.known("fault plain");
    for (name, ours, paper) in [
        ("S+B", Some(server), Some(SERVER_BLAST)),
        ("I+B", Some(inline), Some(INTERRUPT_BLAST)),
        ("I, the page in one datagram", plain, None),
    ] {
        let Some(ours) = ours else { continue };
        let theirs = paper.map_or_else(|| "-".to_owned(), number);
        let ratio = paper.map(|paper| ratio(ours, paper)).unwrap_or_default();
        section.row([name.to_owned(), number(ours), theirs, ratio]);
    }
    section.note(format!(
        "I against S: {}; the paper: {}.",
        percent(server, inline),
        percent(SERVER_BLAST, INTERRUPT_BLAST)
    ));
    document.derive(6, section);
}
