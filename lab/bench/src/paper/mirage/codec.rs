//! MR9 to MR11: compression, by the contents of pages and the speed of the link.

use super::super::super::compress;
use super::super::super::report::Samples;
use super::document::{Document, Section, number, percent, ratio};
use super::faults::{INTERRUPT_BLAST, Pair, SERVER_BLAST, Setting};
use super::literature;
use super::plot::{Figure, svg};
use anyhow::{Context, Result};
use pagemesh_compress::{Codec, PAGE, pack, unpack};
use std::hint::black_box;
use std::time::Instant;

/// Pages that need one, two, three and four packets by MIRAGE+'s code.
const CLASSES: [&str; 4] = ["up_to_512", "up_to_1500", "up_to_2600", "noise"];

/// Links, the paper's first, and how many pages are enough there.
const LINKS: [(&str, Option<&str>, u32); 4] = [
    ("10 Mbit/s", Some("10mbit"), 40),
    ("100 Mbit/s", Some("100mbit"), 100),
    ("1 Gbit/s", Some("1gbit"), 200),
    ("unshaped", None, 300),
];

/// Mbit/s, for a figure's axis; the last is about the rate of this machine's memory.
const RATES: [f64; 4] = [10.0, 100.0, 1000.0, 20_000.0];

/// Measurements whose median counts.
const TURNS: usize = 3;

pub(super) fn measure(document: &mut Document) -> Result<()> {
    table4(document)?;
    figure2(document)?;
    figure4(document)
}

/// The median of some measurements of faults.
fn fault(pair: &mut Pair, kind: &str, pages: u32) -> Result<f64> {
    let mut all = Vec::new();
    for _ in 0..TURNS {
        all.push(pair.fault(kind, pages)?);
    }
    all.sort_by(f64::total_cmp);
    Ok(all[TURNS / 2])
}

/// The time of packing and unpacking, in microseconds a page.
fn codec(kind: &str) -> Result<[f64; 2]> {
    let pages = compress::of_kind(kind).context("no such pages")?;
    let (mut packing, mut unpacking) = <(Samples, Samples)>::default();
    let mut room = Vec::with_capacity(2 * PAGE);
    for page in pages.iter().cycle().take(pages.len() * 100) {
        room.clear();
        let begin = Instant::now();
        let form = pack(Codec::Runs, black_box(page), &mut room);
        packing.extend(vec![begin.elapsed().as_nanos() as u64]);
        if room.is_empty() {
            continue;
        }
        let mut back = [0; PAGE];
        let begin = Instant::now();
        unpack(form, black_box(&room), &mut back)?;
        unpacking.extend(vec![begin.elapsed().as_nanos() as u64]);
    }
    Ok([packing.median() / 1000.0, unpacking.median() / 1000.0])
}

/// MR9, on the paper's wire and on a fast one.
fn table4(document: &mut Document) -> Result<()> {
    let head = [
        "LINK",
        "PACKETS",
        "PACK us",
        "UNPACK us",
        "OFF us",
        "RUNS us",
        "GAIN",
        "PAPER ms",
        "ITS GAIN",
        "RATIO",
    ];
    let mut section = Section::new("Table 4, faults with compression (S+B+C)", &head);
    for (name, rate, pages) in [LINKS[0], LINKS[3]] {
        let setting = |compress| Setting {
            compress,
            experiment: SERVER_BLAST,
            rate,
        };
        let (mut off, mut runs) = (Pair::raise(setting("off"))?, None);
        for (class, kind) in CLASSES.into_iter().enumerate() {
            let plain = fault(&mut off, kind, pages)?;
            off.stand_still(true)?;
            let pair = match &mut runs {
                Some(pair) => pair,
                None => runs.insert(Pair::raise(setting("runs"))?),
            };
            pair.stand_still(false)?;
            let packed = fault(pair, kind, pages)?;
            pair.stand_still(true)?;
            off.stand_still(false)?;
            if rate.is_none() {
                document.value(format!("fault S+B+C {}", class + 1), packed);
            }
            let [pack, unpack] = codec(kind)?;
            let paper = literature::COMPRESSED[class];
            section.cells(vec![
                name.to_owned(),
                (class + 1).to_string(),
                format!("{} ({} ms)", number(pack), literature::COMPRESSING[class]),
                format!(
                    "{} ({} ms)",
                    number(unpack),
                    literature::DECOMPRESSING[class]
                ),
                number(plain),
                number(packed),
                percent(plain, packed),
                number(paper),
                percent(literature::SERVER_BLAST, paper),
                ratio(packed, paper),
            ]);
        }
    }
    section.note("In parentheses the paper's codec. It runs in the faulting path on both sides, as theirs did.");
    document.put(9, section);
    Ok(())
}

/// Adds what follows from the figures of MR9 and MR10.
pub(super) fn add_notes(document: &mut Document) {
    let mut notes = vec![(9, plain_faults(document)), (10, break_even(document))];
    notes.retain(|(_, note)| !note.is_empty());
    for (code, note) in notes {
        if let Some(section) = document.sections.get_mut(&code)
            && !section.notes.contains(&note)
        {
            section.note(note);
        }
    }
}

/// MR9: without compression the contents do not matter, so that how far those faults differ is
/// chance.
fn plain_faults(document: &Document) -> String {
    let mut words = Vec::new();
    for (link, ..) in [LINKS[0], LINKS[3]] {
        let class = |name: &str| {
            let cells = (1..=4).map(|class| document.cell(9, &[link, &class.to_string()], name));
            cells.collect::<Option<Vec<f64>>>()
        };
        let (Some(off), Some(runs)) = (class("OFF us"), class("RUNS us")) else {
            continue;
        };
        let mut sorted = off;
        sorted.sort_by(f64::total_cmp);
        let middle = f64::midpoint(sorted[1], sorted[2]);
        let gains = runs.iter().map(|packed| percent(middle, *packed));
        words.push(format!(
            "{link}: {} to {} us, and against their median the gains are {}",
            number(sorted[0]),
            number(sorted[3]),
            gains.collect::<Vec<_>>().join(", ")
        ));
    }
    match words.is_empty() {
        true => String::new(),
        false => format!(
            "Without compression the contents of a page do not matter: how much OFF differs between rows is chance, by which \
             GAIN is wrong. {}.",
            words.join("; ")
        ),
    }
}

/// MR10: up to which link compression gains.
fn break_even(document: &Document) -> String {
    let all = document.rows(10).iter();
    let links: Vec<&str> = all
        .filter_map(|row| row.first().map(String::as_str))
        .collect();
    let class = |packets: &str| {
        let loses = links.iter().filter(|link| {
            let figure = |column| document.cell(10, &[**link], column);
            matches!((figure("OFF us"), figure(packets)), (Some(off), Some(packed)) if packed >= off)
        });
        let loses: Vec<&str> = loses.copied().collect();
        match loses[..] {
            [] => format!("{packets}: on none"),
            _ => format!("{packets}: {}", loses.join(", ")),
        }
    };
    if links.is_empty() {
        return String::new();
    }
    let all = ["1 PACKET", "2 PACKETS", "3 PACKETS", "4 PACKETS"].map(class);
    format!(
        "Our break-even is a rate: links on which compression does not gain. {}.",
        all.join("; ")
    )
}

/// MR10: the paper varies its network's latency; ours varies the link's rate, for a blasted page is
/// one flight, at any latency.
fn figure2(document: &mut Document) -> Result<()> {
    let head = [
        "LINK",
        "OFF us",
        "1 PACKET",
        "2 PACKETS",
        "3 PACKETS",
        "4 PACKETS",
    ];
    let mut section = Section::new(
        "Fig. 2, compressed faults by how fast the network is (I+B+C)",
        &head,
    );
    let mut lines: Vec<(String, Vec<(f64, f64)>)> =
        ["off", "1 packet", "2 packets", "3 packets", "4 packets"]
            .map(|name| (name.to_owned(), Vec::new()))
            .into();
    for ((name, rate, pages), axis) in LINKS.into_iter().zip(RATES) {
        let setting = |compress| Setting {
            compress,
            experiment: INTERRUPT_BLAST,
            rate,
        };
        let mut row = vec![name.to_owned()];
        let mut add = |line: usize, took: f64| {
            row.push(number(took));
            lines[line].1.push((axis, took));
        };
        add(0, fault(&mut Pair::raise(setting("off"))?, "noise", pages)?);
        let mut pair = Pair::raise(setting("runs"))?;
        for (class, kind) in CLASSES.into_iter().enumerate() {
            let took = fault(&mut pair, kind, pages)?;
            add(class + 1, took);
            if rate.is_none() {
                document.value(format!("fault I+B+C {}", class + 1), took);
            }
        }
        section.cells(row);
    }
    section.note(
        "The paper's axis is the latency of a message, of which it has one for each packet; here packets of a page \
         follow each other without waiting, so what they cost is the link's rate. Its break-even: 0.3 ms for two \
         packets, 0.9 ms for three.",
    );
    let figure = Figure {
        title: "Fault time by link rate, by packets needed",
        x: "Mbit/s",
        y: "microseconds",
        logarithmic: true,
        lines,
    };
    section.plot("mr10", svg(&figure));
    document.put(10, section);
    Ok(())
}

const EACH: [u32; 10] = [4, 8, 9, 10, 11, 12, 16, 24, 32, 64];
const UP_TO: [u32; 8] = [128, 512, 1024, 1536, 2048, 2560, 3000, 4096];
const RANDOM: [u32; 9] = [50, 100, 200, 300, 400, 500, 600, 700, 900];

/// MR11, on the paper's wire.
fn figure4(document: &mut Document) -> Result<()> {
    let (name, rate, pages) = LINKS[0];
    let title = format!("Fig. 4, fault time by N, at {name} (I+B), in microseconds");
    let mut section = Section::new(
        &title,
        &["PROGRAM", "N", "BYTES SENT", "OFF", "RUNS", "CHANGE"],
    );
    let setting = |compress| Setting {
        compress,
        experiment: INTERRUPT_BLAST,
        rate,
    };
    let mut off = Pair::raise(setting("off"))?;
    let plain = fault(&mut off, "noise", pages)?;
    drop(off);
    let mut pair = Pair::raise(setting("runs"))?;
    for (program, kind, all) in [
        ("EachN", "each", EACH.as_slice()),
        ("UptoN", "up_to", UP_TO.as_slice()),
        ("RandN", "random", RANDOM.as_slice()),
    ] {
        let mut line = Vec::new();
        for n in all {
            let kind = format!("{kind}_{n}");
            let took = pair.fault(&kind, pages)?;
            line.push((f64::from(*n), took));
            let page = compress::of_kind(&kind).context("no such pages")?[0];
            let mut room = Vec::new();
            let form = pack(Codec::Runs, &page, &mut room);
            let sent = if form.mark() == 0 { PAGE } else { room.len() };
            section.cells(vec![
                program.to_owned(),
                n.to_string(),
                sent.to_string(),
                number(plain),
                number(took),
                percent(plain, took),
            ]);
        }
        let ends = [line[0].0, line[line.len() - 1].0].map(|n| (n, plain));
        let figure = Figure {
            title: program,
            x: "N",
            y: "microseconds",
            logarithmic: false,
            lines: vec![("off".to_owned(), ends.into()), ("runs".to_owned(), line)],
        };
        section.plot(&format!("mr11-{kind}"), svg(&figure));
    }
    section.note(
        "The paper's figure has no numbers but these: EachN does not pack up to N = 8, is worst at 10 and reaches 75 % \
         at 11; UptoN reaches 75 % below 3 KiB; RandN packs up to about 650 writes.",
    );
    document.put(11, section);
    Ok(())
}
