//! GR1, GR2, GR4: reads of pages that several nodes may use. Below the view of `pagemesh cache`: an
//! agent asks the daemon for a page of a file and copies it from its frame.

use super::super::super::Waiting;
use super::super::super::agent::Order;
use super::super::super::fault::shuffled;
use super::super::super::testbed::Testbed;
use super::super::figures::Figures;
use super::nodes::{Setting, mean, median, plan};
use anyhow::{Result, ensure};
use std::time::Duration;

/// Pages of the file, of which the client has frames for a quarter.
const PAGES: u32 = 4096;
const HERE: u32 = PAGES / 4;

/// The file.
const FILE: u64 = 1;

/// Traversals until the other nodes have the pages, at most, and the pause between two.
const WARM: u32 = 8;
const PAUSE: Duration = Duration::from_millis(500);

/// The client, and the node that has all pages at last.
const CLIENT: usize = 0;
const OTHER: usize = 1;

/// The paper's cases, by the names of their numbers.
pub(super) const SINGLE: &str = "single";
pub(super) const DUPLICATE: &str = "duplicate";

/// A page that leaves the client was its last copy, and another node lends memory; or another client has
/// all pages.
pub(super) fn measure(document: &mut Figures) -> Result<()> {
    for (case, lend) in [(SINGLE, 2 * PAGES), (DUPLICATE, 0)] {
        let epoch = Setting {
            placement: "epoch",
            disk: None,
        };
        let mut testbed = Testbed::raise(&plan(epoch, &[0, lend, 0])?, Waiting::Block)?;
        open(&mut testbed, CLIENT, HERE)?;
        if case == DUPLICATE {
            open(&mut testbed, OTHER, 2 * PAGES)?;
            let all = read(&mut testbed, OTHER, &shuffled(0..PAGES, 3))?;
            document.put("shared miss us", median(&all));
        }
        for (access, order) in [
            ("random", shuffled(0..PAGES, 1)),
            ("order", (0..PAGES).collect()),
        ] {
            traverse(
                &mut testbed,
                &order,
                &format!("shared {case} {access}"),
                document,
            )?;
        }
    }
    let [single, duplicate] = [SINGLE, DUPLICATE].map(|case| {
        ["owner us", "other us"].map(|what| document.get(&format!("shared {case} random {what}")))
    });
    let puts = document.get(&format!("shared {SINGLE} random putpages"));
    for (at, what) in ["sender", "target"].into_iter().enumerate() {
        if let (Some(with), Some(without), Some(puts)) = (single[at], duplicate[at], puts) {
            let each = f64::from(PAGES) / puts.max(1.0);
            document.put(format!("shared putpage {what} us"), (with - without) * each);
        }
    }
    Ok(())
}

fn open(testbed: &mut Testbed, agent: usize, pages: u32) -> Result<()> {
    let name = format!("gms.files.{agent}");
    testbed
        .ask(agent, &Order::OpenFrames { name, pages })
        .map(drop)
}

fn read(testbed: &mut Testbed, agent: usize, pages: &[u32]) -> Result<Vec<u64>> {
    let (file, pages) = (FILE, pages.to_vec());
    testbed.ask(agent, &Order::ReadFile { file, pages })
}

/// Reads all pages in an order in which none that is asked for is still here, again and again, until
/// the others have them; then once more for the figures.
fn traverse(
    testbed: &mut Testbed,
    order: &[u32],
    name: &str,
    document: &mut Figures,
) -> Result<()> {
    let most = u64::from(PAGES);
    for _ in 0..WARM {
        let before = testbed.counters(CLIENT)?.of("file_pages_in");
        read(testbed, CLIENT, order)?;
        if testbed.counters(CLIENT)?.of("file_pages_in") - before >= most * 95 / 100 {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    let before = testbed.counters(CLIENT)?;
    let times = [testbed.time_of(CLIENT)?, testbed.time_of(OTHER)?];
    let read = read(testbed, CLIENT, order)?;
    let spent = [
        testbed.time_of(CLIENT)? - times[0],
        testbed.time_of(OTHER)? - times[1],
    ];
    let after = testbed.counters(CLIENT)?;
    let count = |what: &str| after.of(what) - before.of(what);
    let came = count("file_pages_in");
    ensure!(
        came >= most * 9 / 10,
        "{name}: only {came} of {most} pages came from another node"
    );
    let mut put = |what: &str, value| document.put(format!("{name} {what}"), value);
    put("us", mean(&read, read.len()));
    put("median us", median(&read));
    put("getpages", came as f64);
    put("putpages", count("file_pages_put") as f64);
    put("owner us", spent[0] as f64 / 1e3 / f64::from(PAGES));
    put("other us", spent[1] as f64 / 1e3 / f64::from(PAGES));
    Ok(())
}
