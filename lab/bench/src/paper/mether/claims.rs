//! What the paper claims, and whether the figures show it.

use super::super::claims::Claim;
use super::document::{Count, Document};
use super::literature::{self, Paper};
use super::protocol::{DATA, DISJOINT, FINAL, FULL, ONE_HOST, ONE_PROCESS, PROTOCOLS, SHORT};

/// Purges after 10,000 losses: the paper's hysteresis.
const HYSTERESIS: usize = DISJOINT + 2;

/// Bytes of a page, in the paper and here.
const PAPER_PAGE: f64 = 8192.0;
const PAGE: f64 = 4096.0;

/// Additions of the paper.
const ADDITIONS: f64 = 1024.0;

/// All claims, in the order of their codes.
pub(super) fn all(document: &Document) -> Vec<Claim> {
    let mut claims = first(document);
    claims.extend(disjoint(document));
    claims.extend(data_driven(document));
    claims.push(solver(document));
    claims.extend(steps(document));
    claims.extend(best(document));
    claims
}

/// The run of a protocol.
fn count(document: &Document, place: usize) -> Option<&Count> {
    document.quiet.counts.get(place)
}

fn bytes(count: &Count) -> f64 {
    count.each(count.bytes as f64)
}

fn packets(count: &Count) -> f64 {
    count.each(count.packets as f64)
}

/// A figure of the paper, which has it.
fn of(paper: Option<f64>) -> f64 {
    paper.unwrap_or(f64::NAN)
}

fn first(document: &Document) -> Vec<Claim> {
    let base = (|| {
        let alone = count(document, ONE_PROCESS)?.seconds;
        let both = count(document, ONE_HOST)?.seconds;
        let words = format!(
            "{both:.4} s against {alone:.6} s, {:.0} times",
            both / alone
        );
        Some((words, both / alone > 100.0))
    })();
    let full = (|| {
        let pages = bytes(count(document, FULL)?) / PAGE;
        Some((format!("{pages:.2} pages"), (0.5..2.0).contains(&pages)))
    })();
    let factor = of(literature::FULL.bytes) / of(literature::SHORT.bytes);
    let short = (|| {
        let (full, short) = (
            bytes(count(document, FULL)?),
            bytes(count(document, SHORT)?),
        );
        let words = format!(
            "{full:.0} bytes against {short:.0}, {:.1} times: the consistent copy moves as a whole page, only copies for reading are short",
            full / short
        );
        Some((words, full / short >= factor / 2.0))
    })();
    let quicker = (|| {
        let (full, short) = (
            count(document, FULL)?.seconds,
            count(document, SHORT)?.seconds,
        );
        Some((format!("{short:.3} against {full:.3} s"), short < full))
    })();
    let (alone, both) = (of(literature::ALONE.wall), of(literature::ONE_HOST.wall));
    vec![
        Claim::of(
            "ER0",
            format!(
                "two processes of one host take {:.0} times as long as one ({both} s, {alone} s): hundreds of times",
                both / alone
            ),
            base,
        ),
        Claim::of(
            "ER1",
            format!(
                "by full pages an addition moves about a page: {:.2} pages",
                of(literature::FULL.bytes) / ADDITIONS / PAPER_PAGE
            ),
            full,
        ),
        Claim::of(
            "ER2",
            format!(
                "full pages move {factor:.0} times the bytes of short ones; at least half as many times"
            ),
            short,
        ),
        Claim::of(
            "ER2",
            format!(
                "short pages take less time: {} against {} s",
                of(literature::SHORT.wall),
                of(literature::FULL.wall)
            ),
            quicker,
        ),
    ]
}

fn disjoint(document: &Document) -> Vec<Claim> {
    let never = count(document, DISJOINT).map(|never| {
        let losses = never.losses_for_a_win();
        match never.is_whole(document.to) {
            false => (
                format!(
                    "stopped after {} s at {} of {}, with {losses:.0} losses for a win",
                    document.bound, never.value, document.to
                ),
                true,
            ),
            true => (
                format!(
                    "it finishes, in {:.2} s, with {losses:.0} losses for a win and {:.1} packets for an addition: a purge and the \
                     fetch after it are one round trip, and an addition is seen after {:.0} us",
                    never.seconds,
                    packets(never),
                    never.latency
                ),
                false,
            ),
        }
    });
    let delayed = (|| {
        let (full, delayed) = (count(document, FULL)?, count(document, HYSTERESIS)?);
        let words = format!("{:.3} against {:.3} s", delayed.seconds, full.seconds);
        let is_whole = delayed.is_whole(document.to);
        Some((words, is_whole && delayed.seconds < full.seconds))
    })();
    vec![
        Claim::of(
            "ER3",
            format!(
                "two pages with a purge after each loss never finish: {} losses for a win",
                of(literature::DISJOINT.losses)
            ),
            never,
        ),
        Claim::of(
            "ER3",
            format!(
                "with a purge after 10,000 losses they do, and quicker than by full pages: {} against {} s",
                of(literature::HYSTERESIS.wall),
                of(literature::FULL.wall)
            ),
            delayed,
        ),
    ]
}

fn data_driven(document: &Document) -> Vec<Claim> {
    let compared = |pick: &dyn Fn(&Count) -> f64| {
        let (short, data) = (count(document, SHORT)?, count(document, DATA)?);
        Some((pick(short), pick(data)))
    };
    let load = compared(&Count::load).map(|(short, data)| {
        let words = format!("{data:.0} against {short:.0} kB/s");
        (words, data < short / 1.5)
    });
    let switches = compared(&|count| count.each(count.switches as f64)).map(|(short, data)| {
        let words = format!("{data:.1} against {short:.1}");
        (words, data > short * 1.5)
    });
    let one = count(document, FINAL).map(|last| {
        let packets = packets(last);
        (format!("{packets:.2}"), packets < 1.1)
    });
    let losses = (|| {
        let all: Vec<f64> = document
            .quiet
            .counts
            .get(FULL..)?
            .iter()
            .map(Count::losses_for_a_win)
            .collect();
        let last = count(document, FINAL)?.losses_for_a_win();
        let words = format!(
            "{last:.2}; a look takes nanoseconds here, and a process that sleeps does not look"
        );
        Some((words, all.iter().all(|other| last <= *other)))
    })();
    vec![
        Claim::of(
            "ER4",
            format!(
                "data-driven views of one page load the network less than short pages: {} against {} kB/s",
                of(literature::DATA.load),
                of(literature::SHORT.load)
            ),
            load,
        ),
        Claim::of(
            "ER4",
            format!(
                "with more context switches an addition: {} against {}",
                of(literature::DATA.switches),
                of(literature::SHORT.switches)
            ),
            switches,
        ),
        Claim::of(
            "ER5",
            "the final protocol sends one packet for an addition",
            one,
        ),
        Claim::of(
            "ER5",
            format!(
                "and has the fewest losses for a win: {}",
                of(literature::FINAL.losses)
            ),
            losses,
        ),
    ]
}

fn solver(document: &Document) -> Claim {
    let found = document
        .quiet
        .solver_alone
        .filter(|_| !document.quiet.solver.is_empty())
        .map(|alone| {
            let speedups: Vec<_> = document
                .quiet
                .solver
                .iter()
                .map(|solved| (solved.nodes, alone / solved.seconds))
                .collect();
            let words: Vec<_> = speedups
                .iter()
                .map(|(nodes, speedup)| format!("{speedup:.2} on {nodes}"))
                .collect();
            let linear = speedups
                .iter()
                .all(|(nodes, speedup)| *speedup > 0.8 * *nodes as f64);
            let words = format!(
                "{}, on {} processors",
                words.join(", "),
                document.processors
            );
            (words, linear)
        });
    Claim::of(
        "ER6",
        format!(
            "the solver's speedup is linear up to {} hosts",
            literature::SOLVER
        ),
        found,
    )
}

/// Seconds of processor that the paper gives for a host.
fn host(paper: &Paper) -> f64 {
    of(paper.user) + of(paper.system)
}

fn steps(document: &Document) -> Vec<Claim> {
    let factor = |from: usize, to: usize, pick: &dyn Fn(&Count) -> f64| {
        Some(pick(count(document, from)?) / pick(count(document, to)?))
    };
    let load = |from, to| factor(from, to, &Count::load);
    let loads = (|| {
        let all = [load(FULL, SHORT)?, load(SHORT, DATA)?, load(DATA, FINAL)?];
        let words = format!("{:.1}, {:.1} and {:.1} times", all[0], all[1], all[2]);
        Some((words, all.iter().all(|factor| *factor > 1.5)))
    })();
    let paper = |pick: fn(&Paper) -> f64| pick(&literature::FULL) / pick(&literature::FINAL);
    let half = |name: &str, paper: f64, ours: Option<f64>| {
        Claim::of(
            "ER7",
            format!(
                "from the first protocol to the last {name} falls {paper:.1} times; at least half as many times"
            ),
            ours.map(|ours| (format!("{ours:.1} times"), ours >= paper / 2.0)),
        )
    };
    vec![
        Claim::of(
            "ER7",
            format!(
                "each step, short pages, data-driven views, two pages, lowers the network's load: {:.0}, {:.1} and {:.1} times",
                of(literature::FULL.load) / of(literature::SHORT.load),
                of(literature::SHORT.load) / of(literature::DATA.load),
                of(literature::DATA.load) / of(literature::FINAL.load)
            ),
            loads,
        ),
        half(
            "the processor time of a host for an addition",
            paper(host),
            factor(FULL, FINAL, &|count| count.each(count.host())),
        ),
        half(
            "the latency",
            paper(|paper| of(paper.latency)),
            factor(FULL, FINAL, &|count| count.latency),
        ),
        half(
            "the time for an addition",
            paper(|paper| of(paper.wall)),
            factor(FULL, FINAL, &|count| count.each(count.seconds)),
        ),
    ]
}

/// What a protocol can be best at, and how to see it.
type Best = (&'static str, fn(&Count) -> f64);

const BESTS: [Best; 5] = [
    ("least bytes", |count| count.bytes as f64),
    ("fewest packets", |count| count.packets as f64),
    ("least processor time", Count::host),
    ("lowest latency", |count| count.latency),
    ("shortest", |count| count.seconds),
];

fn best(document: &Document) -> Vec<Claim> {
    let rows = || {
        let all = PROTOCOLS.iter().zip(&document.quiet.counts).skip(FULL);
        all.filter(|(_, count)| count.is_whole(document.to))
    };
    let found = (document.quiet.counts.len() == PROTOCOLS.len()).then(|| {
        let bests: Vec<_> = BESTS
            .iter()
            .filter_map(|(what, pick)| {
                let best = rows().min_by(|one, other| pick(one.1).total_cmp(&pick(other.1)))?;
                Some((*what, best.0.name))
            })
            .collect();
        let name = PROTOCOLS[FINAL].name;
        let words: Vec<_> = bests
            .iter()
            .map(|(what, who)| format!("{what}: {who}"))
            .collect();
        (words.join("; "), bests.iter().all(|(_, who)| *who == name))
    });
    vec![
        Claim::of(
            "ER8",
            "of all protocols the final one is the best in bytes, packets, processor time, latency and time",
            found,
        ),
        Claim::unshown(
            "ER8",
            "it is the one that is best for MemNet",
            "MemNet was hardware",
        ),
    ]
}
