//! MR1 to MR8: the cost of messages, faults and invalidations.

use super::super::super::report::{Report, Samples};
use super::super::super::testbed::Testbed;
use super::super::super::{ETHERNET_JUMBO, Effort, Waiting, fault, raw};
use super::document::{Document, Section, number, ratio};
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
    document.dated(2..=6);
    for (name, parts) in [
        ("S+H", &handshake),
        ("S+B", &blast),
        ("I+B", &inline),
        ("plain", &plain),
    ] {
        document.value(format!("fault {name}"), parts.total);
        document.value(format!("trap {name}"), parts.trap);
        document.value(format!("request {name}"), parts.request);
        document.value(format!("transfer {name}"), parts.transfer);
    }
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
    document.value("round trip of 1 KiB", long);
    Ok(())
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
