//! MR1 to MR8: the cost of messages, faults and invalidations.

use super::super::super::report::{Report, Samples};
use super::super::super::testbed::Testbed;
use super::super::super::{ETHERNET_JUMBO, Effort, Waiting, fault, raw};
use super::document::{Document, Section, number, percent, ratio};
use super::faults::{INTERRUPT_BLAST, PLAIN, Pair, Parts, SERVER_BLAST, SERVER_HANDSHAKE, Setting};
use super::literature;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Instant;

/// Pages of a measurement, and measurements whose median counts.
const PAGES: u32 = 400;
const TURNS: usize = 5;

pub(super) fn measure(document: &mut Document) -> Result<()> {
    messages(document)?;
    let handshake = parts(SERVER_HANDSHAKE)?;
    let blast = parts(SERVER_BLAST)?;
    let inline = parts(INTERRUPT_BLAST)?;
    let plain = parts(PLAIN)?;
    document.value("fault S+H", handshake.total);
    document.value("fault S+B", blast.total);
    document.value("fault I+B", inline.total);
    document.value("fault plain", plain.total);
    trace(document, &plain);
    components(
        document,
        3,
        "Table 1, a fault by handshake (S+H)",
        &handshake,
        literature::HANDSHAKE_PARTS,
    );
    components(
        document,
        4,
        "Table 2, a fault by blasting (S+B)",
        &blast,
        literature::BLAST_PARTS,
    );
    if let Some(section) = document.sections.get_mut(&4) {
        let paper = percent(literature::SERVER_HANDSHAKE, literature::SERVER_BLAST);
        let ours = percent(handshake.total, blast.total);
        section.note(format!(
            "Against the handshake: {ours}; the paper: {paper}."
        ));
    }
    compared(document, &handshake, &blast);
    levels(document, &blast, &inline, &plain);
    invalidations(document)?;
    disk(document, plain.total);
    Ok(())
}

/// The median of several measurements: this machine has other things to do, too.
fn parts(experiment: &'static str) -> Result<Parts> {
    let mut pair = Pair::raise(Setting {
        compress: "off",
        experiment,
        rate: None,
    })?;
    pair.parts(PAGES)?;
    let mut all = Vec::new();
    for _ in 0..TURNS {
        all.push(pair.parts(PAGES)?);
    }
    all.sort_by(|one, other| one.total.total_cmp(&other.total));
    Ok(all.swap_remove(TURNS / 2))
}

fn messages(document: &mut Document) -> Result<()> {
    let effort = Effort {
        count: 500,
        rounds: 1,
        waiting: Some(Waiting::Spin),
        latency: false,
        mtu: ETHERNET_JUMBO,
        only: None,
    };
    let mut testbed = Testbed::new(2, &effort, Waiting::Spin)?;
    let (mut short, mut long) = <(Samples, Samples)>::default();
    for _ in 0..3 {
        testbed.raw(raw::REQUEST, effort.count, &mut short)?;
        testbed.raw(1024 + raw::REQUEST, effort.count, &mut long)?;
    }
    let probe = testbed.probe(effort.count)?.median() / 1000.0;
    let (short, long) = (short.median() / 1000.0, long.median() / 1000.0);
    let mut section = Section::new(
        "Basic costs, in microseconds",
        &["", "OURS", "PAPER ms", "RATIO"],
    );
    for (name, ours, paper) in [
        (
            "probe, through all layers and back",
            probe,
            literature::PROBE,
        ),
        ("short message, one way", short / 2.0, literature::SHORT),
        (
            "short message there, 1 KiB back",
            long,
            literature::LONG_EXCHANGE,
        ),
        ("1 KiB, one way", long - short / 2.0, literature::LONG),
    ] {
        section.row([
            name.to_owned(),
            number(ours),
            number(paper),
            ratio(ours, paper),
        ]);
    }
    section.note(
        "The probe is a call from a process outside the nodes, and has that process's daemon on its way; messages \
         are raw exchanges between the nodes.",
    );
    document.put(1, section);
    document.value("round trip", short);
    Ok(())
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
            "page is installed, thread goes on",
            "user site",
            parts.install,
        ),
        ("as the thread sees it", "user site", parts.total),
    ] {
        section.row([step.to_owned(), place.to_owned(), number(took)]);
    }
    section.note(
        "Medians of each step, by time stamps of both daemons, whose clocks are one here. What the kernel needs to \
         stop the thread, to wake the daemon and to run the thread again is in the last line only.",
    );
    document.put(2, section);
}

fn components(document: &mut Document, code: u8, title: &str, parts: &Parts, paper: [f64; 3]) {
    let mut section = Section::new(
        title,
        &["STEP", "OURS us", "SHARE", "PAPER ms", "SHARE", "RATIO"],
    );
    let ours = [
        parts.trap + parts.request,
        parts.transfer,
        parts.total - parts.trap - parts.request - parts.transfer,
    ];
    let all: f64 = paper.iter().sum();
    let names = [
        "request and its processing",
        "transfer of the page in four packets",
        "installation",
    ];
    let share = |part: f64, whole: f64| format!("{:.0} %", 100.0 * part / whole);
    for ((name, ours), paper) in names.into_iter().zip(ours).zip(paper) {
        section.row([
            name.to_owned(),
            number(ours),
            share(ours, parts.total),
            number(paper),
            share(paper, all),
            ratio(ours, paper),
        ]);
    }
    section.row([
        "all".to_owned(),
        number(parts.total),
        String::new(),
        number(all),
        String::new(),
        ratio(parts.total, all),
    ]);
    document.put(code, section);
}

fn compared(document: &mut Document, handshake: &Parts, blast: &Parts) {
    let mut section = Section::new(
        "Table 3, against Mirage",
        &["", "OURS us", "PAPER ms", "RATIO"],
    );
    section.row([
        "Mirage, VAX 11/750, pages of 512 bytes".to_owned(),
        "-".to_owned(),
        number(literature::MIRAGE),
        String::new(),
    ]);
    for (name, ours, paper) in [
        ("handshake", handshake, literature::SERVER_HANDSHAKE),
        ("blasting", blast, literature::SERVER_BLAST),
    ] {
        let (user, library) = (ours.trap + ours.install, ours.request);
        let name = format!(
            "{name}: user {} + library and request {}",
            number(user),
            number(library)
        );
        section.row([
            name,
            number(ours.total),
            number(paper),
            ratio(ours.total, paper),
        ]);
    }
    document.put(5, section);
}

fn levels(document: &mut Document, blast: &Parts, inline: &Parts, plain: &Parts) {
    let mut section = Section::new("Interrupt level", &["", "OURS us", "PAPER ms", "RATIO"]);
    for (name, ours, paper) in [
        ("S+B", blast.total, Some(literature::SERVER_BLAST)),
        ("I+B", inline.total, Some(literature::INTERRUPT_BLAST)),
        ("I, the page in one datagram", plain.total, None),
    ] {
        let theirs = paper.map_or_else(|| "-".to_owned(), number);
        let ratio = paper.map(|paper| ratio(ours, paper)).unwrap_or_default();
        section.row([name.to_owned(), number(ours), theirs, ratio]);
    }
    let paper = percent(literature::SERVER_BLAST, literature::INTERRUPT_BLAST);
    let ours = percent(blast.total, inline.total);
    section.note(format!("I against S: {ours}; the paper: {paper}."));
    document.put(6, section);
}

fn invalidations(document: &mut Document) -> Result<()> {
    let effort = Effort {
        count: 100,
        rounds: 2,
        waiting: Some(Waiting::Block),
        latency: false,
        mtu: ETHERNET_JUMBO,
        only: Some("invalidate_".to_owned()),
    };
    let mut report = Report::new("mirage");
    fault::measure(&effort, Waiting::Block, &mut report)?;
    let head = ["FURTHER SITES", "OURS us", "PAPER ms", "RATIO"];
    let mut section = Section::new("Invalidation", &head);
    for (sites, paper) in (1..=7).zip(
        literature::INVALIDATION
            .map(Some)
            .into_iter()
            .chain([None; 3]),
    ) {
        let Some(ours) = report.median(&format!("invalidate_{sites}")) else {
            continue;
        };
        let theirs = paper.map_or_else(|| "-".to_owned(), number);
        let ratio = paper.map(|paper| ratio(ours, paper)).unwrap_or_default();
        section.row([sites.to_string(), number(ours), theirs, ratio]);
    }
    section.note(
        "Eight nodes on two processors, so daemons sleep while nothing comes, and wait for each other. What they would \
         do on a processor each cannot be seen here: there is a forecast below.",
    );
    document.put(7, section);
    Ok(())
}

/// A page of a file, placed as reading past the cache demands.
#[repr(align(4096))]
struct Aligned([u8; 4096]);

fn disk(document: &mut Document, fault: f64) {
    let mut section = Section::new(
        "A fault from the network against one from disk",
        &["", "MICROSECONDS"],
    );
    section.row([
        "network, the page in one datagram".to_owned(),
        number(fault),
    ]);
    match read_disk() {
        Ok(took) => {
            section.row([
                "disk, 4 KiB here and there, past the cache".to_owned(),
                number(took),
            ]);
            section.note(format!("Disk to network: {}.", number(took / fault)));
        }
        Err(why) => section.note(format!("The disk could not be measured: {why:#}.")),
    }
    document.put(8, section);
}

/// The median of reads of a file in the present directory.
fn read_disk() -> Result<f64> {
    const FILE_PAGES: u32 = 8192;
    let path = std::env::current_dir()?.join(format!(".pagemesh-disk-{}", std::process::id()));
    let removed = scopeguard(&path);
    let mut file = File::create(&path)?;
    let mut page = Box::new(Aligned([1; 4096]));
    for number in 0..FILE_PAGES {
        page.0[..4].copy_from_slice(&number.to_le_bytes());
        file.write_all(&page.0)?;
    }
    file.sync_all()?;
    let direct = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path);
    let mut direct = direct.context("no file can be read past the cache here")?;
    let mut samples = Samples::default();
    for number in fault::shuffled(0..FILE_PAGES, 1).into_iter().take(500) {
        let begin = Instant::now();
        direct.seek(SeekFrom::Start(u64::from(number) * 4096))?;
        direct.read_exact(&mut page.0)?;
        samples.extend(vec![begin.elapsed().as_nanos() as u64]);
        ensure!(
            page.0[..4] == number.to_le_bytes(),
            "the disk has lost something"
        );
    }
    drop(removed);
    Ok(samples.median() / 1000.0)
}

/// Removes the file in the end.
fn scopeguard(path: &std::path::Path) -> impl Drop + use<> {
    struct Removed(std::path::PathBuf);
    impl Drop for Removed {
        fn drop(&mut self) {
            // It may never have been made.
            let _ = std::fs::remove_file(&self.0);
        }
    }
    Removed(path.to_owned())
}
