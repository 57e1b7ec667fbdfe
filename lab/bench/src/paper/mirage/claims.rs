//! What the paper claims (MR1 to MR17), beside the figures of a document.

use super::super::claims::Claim;
use super::document::{Document, number};
use super::literature::{COMPRESSED, INTERRUPT_BLAST, SERVER_BLAST, SERVER_HANDSHAKE};

/// A whole page.
const PAGE: f64 = 4096.0;

pub(super) fn claims(document: &Document) -> Vec<Claim> {
    let mut all = faults(document);
    all.extend(compression(document));
    all.extend(break_even(document));
    all.extend(programs(document));
    all.extend(battleship(document));
    all.extend(matrix(document));
    all
}

/// A share in percent counts as reproduced if it has the same sign, and is between half and twice the
/// paper's.
fn alike(ours: f64, paper: f64) -> bool {
    (0.5..=2.0).contains(&(ours / paper))
}

fn change(from: f64, to: f64) -> f64 {
    100.0 * (to - from) / from
}

/// A share beside the paper's.
fn share(code: &'static str, what: &str, paper: f64, ours: Option<f64>) -> Claim {
    let claim = format!("{what}: {paper:+.1} %");
    let found = ours.map(|ours| (format!("{ours:+.1} %"), alike(ours, paper)));
    Claim::of(code, claim, found)
}

fn faults(document: &Document) -> Vec<Claim> {
    let known = |name: &str| document.known(&format!("fault {name}"));
    let between = |from: &str, to: &str| Some(change(known(from)?, known(to)?));
    let order = known("S+H")
        .zip(known("S+B"))
        .zip(known("I+B"))
        .map(|((one, two), three)| {
            let words = [one, two, three].map(number).join(", ");
            (format!("{words} us"), one > two && two > three)
        });
    let disk = document
        .cell(8, &["network, the page in one datagram"], "MICROSECONDS")
        .zip(document.cell(
            8,
            &["disk, 4 KiB here and there, past the cache"],
            "MICROSECONDS",
        ))
        .map(|(network, disk)| {
            let words = format!("{} against {} us", number(network), number(disk));
            (words, network < disk)
        });
    vec![
        share(
            "MR4",
            "blasting against a handshake for each packet",
            change(SERVER_HANDSHAKE, SERVER_BLAST),
            between("S+H", "S+B"),
        ),
        share(
            "MR6",
            "packets handled by the thread that receives them, against a server process",
            change(SERVER_BLAST, INTERRUPT_BLAST),
            between("S+B", "I+B"),
        ),
        Claim::of(
            "MR7",
            "invalidating further sites takes a time that is linear in their number",
            linear(document),
        ),
        Claim::of(
            "MR8",
            "a fault from the network is quicker than one from the disk",
            disk,
        ),
        Claim::of("MR17", "each switch shortens a fault: S+H, S+B, I+B", order),
        Claim::unshown(
            "MR5",
            "a fault takes MIRAGE+ 19.9 ms, where Mirage took 27.5 ms",
            "no VAX 11/750 with pages of 512 bytes",
        ),
    ]
}

/// How well a line describes the invalidations of one to seven sites.
fn linear(document: &Document) -> Option<(String, bool)> {
    let took: Vec<f64> = (1..=7)
        .map_while(|sites: u32| document.cell(7, &[&sites.to_string()], "OURS us"))
        .collect();
    let correlation = correlation(&took)?;
    let words = format!(
        "{} to {} us for 1 to {} sites, a correlation of {correlation:.3} (0.95 is enough)",
        number(took[0]),
        number(took[took.len() - 1]),
        took.len()
    );
    Some((words, correlation >= 0.95))
}

/// The correlation of figures with their places; none of less than three.
fn correlation(all: &[f64]) -> Option<f64> {
    let count = all.len() as f64;
    let mean = all.iter().sum::<f64>() / count;
    let middle = (count - 1.0) / 2.0;
    let places = || (0..all.len()).map(|place| place as f64 - middle);
    let both: f64 = all
        .iter()
        .zip(places())
        .map(|(one, at)| (one - mean) * at)
        .sum();
    let squares: f64 = all.iter().map(|one| (one - mean).powi(2)).sum();
    let steps: f64 = places().map(|at| at * at).sum();
    (all.len() >= 3).then(|| both / (squares * steps).sqrt())
}

/// MR9, on the paper's wire.
fn compression(document: &Document) -> Vec<Claim> {
    let class = |(class, paper): (usize, f64)| {
        let number = (class + 1).to_string();
        let ours = document.cell(9, &["10 Mbit/s", &number], "GAIN");
        let what =
            format!("compression of a page that needs {number} of four packets, at 10 Mbit/s");
        share("MR9", &what, change(SERVER_BLAST, paper), ours)
    };
    COMPRESSED.into_iter().enumerate().map(class).collect()
}

/// MR10: the paper needs a slow network for compression to gain.
fn break_even(document: &Document) -> Vec<Claim> {
    [("2 PACKETS", "0.3"), ("3 PACKETS", "0.9")]
        .map(|(packets, latency)| {
            let fastest = document.rows(10).last().map_or("", |row| &row[0]);
            let figure = |column| document.cell(10, &[fastest], column);
            let found = figure("OFF us").zip(figure(packets)).map(|(off, packed)| {
                let words = format!(
                    "on the fastest link, {fastest}, {} us with and {} us without: {}",
                    number(packed),
                    number(off),
                    if packed < off {
                        "a gain, so there is no break-even"
                    } else {
                        "no gain"
                    }
                );
                (words, packed >= off)
            });
            let claim = format!(
                "pages of {} gain only if a short message takes {latency} ms or more",
                packets.to_lowercase()
            );
            Claim::of("MR10", claim, found)
        })
        .into()
}

/// MR11: from which N on, or up to which, a page gets smaller.
fn programs(document: &Document) -> Vec<Claim> {
    // Pairs of N and whether the page leaves smaller, in the order of N.
    let smaller = |program: &str| -> Vec<(f64, bool)> {
        let rows = document.rows(11).iter().filter(|row| row[0] == program);
        rows.filter_map(|row| Some((row[1].parse().ok()?, row[2].parse::<f64>().ok()? < PAGE)))
            .collect()
    };
    let first = |program: &str, packs: bool| {
        let mut all = smaller(program).into_iter();
        all.find(|(_, smaller)| *smaller == packs).map(|(n, _)| n)
    };
    let last = |program: &str| {
        let mut all = smaller(program).into_iter().rev();
        all.find(|(_, smaller)| *smaller).map(|(n, _)| n)
    };
    let each = first("EachN", true).map(|n| (format!("first at N = {n}"), n == 11.0));
    let up_to = last("UptoN")
        .zip(first("UptoN", false))
        .map(|(last, first)| {
            let words = format!("up to {last} bytes, not at {first}");
            (words, last < 3072.0 && first >= 3072.0)
        });
    let random = last("RandN")
        .zip(first("RandN", false))
        .map(|(last, first)| {
            let words = format!("up to {last} writes, not at {first}");
            (words, last <= 650.0 && first >= 650.0)
        });
    vec![
        Claim::of("MR11", "EachN packs from N = 11 on", each),
        Claim::of("MR11", "UptoN packs below 3 KiB", up_to),
        Claim::of("MR11", "RandN packs up to about 650 writes", random),
    ]
}

/// MR12 to MR14.
fn battleship(document: &Document) -> Vec<Claim> {
    let event = |name: &str| document.cell(12, &[name], "OURS");
    let once = |name: &str| {
        event(name).map(|times| {
            (
                format!("{} a turn", number(times)),
                (0.9..=1.1).contains(&times),
            )
        })
    };
    let turn = |row: &str| document.cell(13, &[row], "A TURN us");
    let seconds = |row: &str| document.cell(13, &[row], "OURS s");
    let yielding = seconds("one site, one processor, no yield")
        .zip(seconds("one site, one processor, yield"))
        .map(|(without, with)| {
            let words = format!("{} s without, {} s with", number(without), number(with));
            (words, without > 10.0 * with)
        });
    let ticks = turn("two sites, Δ = 20 ms, ticks, woken early")
        .zip(turn("two sites, Δ = 20 ms"))
        .zip(turn("two sites, Δ = 20 ms, ticks, strict minimum"))
        .map(|((early, exact), strict)| {
            let words = format!(
                "{:.1} ms woken early, {:.1} ms with windows as they are asked for, {:.1} ms with a strict minimum",
                early / 1000.0,
                exact / 1000.0,
                strict / 1000.0
            );
            (words, early < exact && exact < strict)
        });
    let locks = seconds("two sites, Δ = 0, write locks")
        .zip(seconds("two sites, Δ = 20 ms"))
        .map(|(locked, window)| {
            let words = format!("{} against {} s", number(locked), number(window));
            (words, locked < window)
        });
    vec![
        Claim::of("MR12", "a turn is a read fault", once("read faults")),
        Claim::of("MR12", "a turn is a page sent", once("pages sent")),
        Claim::of(
            "MR12",
            "a turn is a write fault on a page that is readable",
            once("write faults, page readable"),
        ),
        Claim::of("MR12", "a turn is an invalidation", once("invalidations")),
        Claim::of(
            "MR13",
            "on one site without yield it takes many times as long as with it (490 s, 4 s)",
            yielding,
        ),
        Claim::of(
            "MR13",
            "at Δ = 20 ms a turn woken early by a clock tick is shorter than expected (51 ms of 64.6), and with a strict minimum longer",
            ticks,
        ),
        Claim::of(
            "MR13",
            "write locks at Δ = 0 are quicker than Δ = 20 ms (48 s, 81 s)",
            locks,
        ),
        Claim::unshown(
            "MR13",
            "at Δ = 0 without the guard pages are stolen before they are used",
            "the guard cannot be turned off",
        ),
        share(
            "MR14",
            "compression and packets of pages; ours counts all packets",
            -54.0,
            document.cell(14, &["runs"], "CHANGE"),
        ),
        share("MR14", "compression and time", -21.0, time_change(document)),
    ]
}

/// MR14: the second column of its name.
fn time_change(document: &Document) -> Option<f64> {
    let turn = |row: &str| document.cell(14, &[row], "A TURN us");
    Some(change(turn("off")?, turn("runs")?))
}

/// MR15 and MR16: on seven sites against two, of which one multiplies.
fn matrix(document: &Document) -> Vec<Claim> {
    let seconds = |n: u32, switches: &str, sites: u32| {
        document.known(&format!("matrix {n} {switches} on {sites} s"))
    };
    let speedup = |n: u32, paper: f64| {
        let found = seconds(n, "S+B", 2)
            .zip(seconds(n, "S+B", 7))
            .map(|(two, seven)| {
                let ours = two / seven;
                (format!("{ours:.2} times"), ours >= 0.9 * paper)
            });
        let claim = format!("{n} x {n} is {paper:.2} times as quick on seven sites as on two");
        Claim::of("MR16", claim, found)
    };
    let packed = seconds(60, "S+B", 7)
        .zip(seconds(60, "S+B+C", 7))
        .map(|(off, runs)| {
            let words = format!("{} s without, {} s with", number(off), number(runs));
            (words, alike(change(off, runs), change(3.7, 0.7)))
        });
    vec![
        speedup(60, 2.4 / 3.7),
        speedup(480, 892.2 / 159.1),
        Claim::of(
            "MR15",
            "compression shortens 60 x 60 on seven sites from 3.7 to 0.7 s",
            packed,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::document::Section;
    use super::*;
    use crate::paper::claims::Verdict;

    fn verdict(document: &Document, words: &str) -> Verdict {
        let mut all = claims(document).into_iter();
        all.find(|one| one.claim.contains(words)).unwrap().verdict
    }

    #[test]
    fn a_run_of_faults_says_only_what_it_has() {
        let mut document = Document::new();
        assert!(
            claims(&document)
                .iter()
                .all(|one| one.verdict == Verdict::NotShown)
        );
        document.value("fault S+H", 100.0);
        document.value("fault S+B", 60.0);
        assert_eq!(verdict(&document, "blasting against"), Verdict::Reproduced);
        document.value("fault S+B", 120.0);
        assert_eq!(verdict(&document, "blasting against"), Verdict::Not);
        assert_eq!(verdict(&document, "woken early"), Verdict::NotShown);
        assert!(!document.markdown("x").contains("Battleship with"));
    }

    #[test]
    fn a_line_is_told_from_what_is_none() {
        assert!(correlation(&[1.0, 2.0, 3.0, 4.0]).unwrap() > 0.999);
        assert!(correlation(&[1.0, 9.0, 2.0, 3.0]).unwrap() < 0.5);
        assert_eq!(correlation(&[1.0, 2.0]), None);
        let mut document = Document::new();
        let mut section = Section::new("Invalidation", &["FURTHER SITES", "OURS us"]);
        for (sites, took) in [("1", "10.0"), ("2", "20.0"), ("3", "31.0")] {
            section.row([sites.to_owned(), took.to_owned()]);
        }
        document.put(7, section);
        assert_eq!(verdict(&document, "linear"), Verdict::Reproduced);
    }
}
