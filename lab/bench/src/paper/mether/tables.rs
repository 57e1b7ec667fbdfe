//! The report: tables, and sentences whose figures are those of the run.

use super::super::claims;
use super::super::figures::number;
use super::claims::all;
use super::document::{Count, Document, Solved};
use super::literature::Paper;
use super::protocol::{DATA, FINAL, FULL, PROTOCOLS, Protocol, SHORT};
use std::fmt::Write as _;

type Table = Vec<Vec<String>>;

/// For people, without Markdown.
pub(super) fn plain(document: &Document) -> Vec<String> {
    let mut lines = Vec::new();
    for (title, table) in tables(document) {
        lines.push(title);
        lines.extend(table.iter().map(|row| format!("  {}", row.join(" | "))));
    }
    lines.extend(claims::section(all(document)).lines().map(str::to_owned));
    lines
}

pub(super) fn markdown(document: &Document) -> String {
    let mut text = format!(
        "{HEAD}\nMachine: {}; medians of {} rounds.\n\n",
        document.machine, document.rounds
    );
    let beside = (" beside a companion", &document.busy.parts);
    for (kind, parts) in [("", &document.quiet.parts), beside] {
        for (part, measured) in parts {
            let origin = measured.origin.words();
            let _ = writeln!(text, "- Part `{part}`{kind}: {}, {origin}.", measured.date);
        }
    }
    text += &claims::section(all(document));
    for (title, table) in tables(document) {
        let _ = write!(text, "\n## {title}\n\n");
        for (number, row) in table.iter().enumerate() {
            let _ = writeln!(text, "| {} |", row.join(" | "));
            if number == 0 {
                let _ = writeln!(text, "|{}", "---|".repeat(row.len()));
            }
        }
    }
    text.push_str(TAIL);
    text
}

fn tables(document: &Document) -> Vec<(String, Table)> {
    let mut all = Vec::new();
    if !document.quiet.counts.is_empty() {
        let title = format!("ER0 to ER5: two processes count to {}", document.to);
        all.push((title, counts(document)));
        let title = "The same, ours to the paper's (ratios), per addition".to_owned();
        all.push((title, ratios(document)));
        let title = "ER7: what each step saves (factor; the paper's in parentheses)".to_owned();
        all.push((title, steps(document)));
    }
    if !document.quiet.solver.is_empty() {
        let title = format!(
            "ER6: the sparse solver, {0} x {0} points, {1} steps",
            document.grid, document.iterations
        );
        all.push((title, solver(document)));
    }
    let busy = busy(document);
    if busy.len() > 1 {
        let title = "Beside a companion that takes a tenth of each processor in bursts";
        all.push((title.to_owned(), busy));
    }
    all
}

/// Figures of quiet processors, and the same beside a companion.
fn busy(document: &Document) -> Table {
    let head = ["FIGURE", "QUIET", "BUSY", "BUSY TO QUIET"];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    let mut row = |name: String, quiet: f64, busy: f64| {
        let ratio = format!("{:.2}", busy / quiet);
        table.push(vec![name, number(quiet), number(busy), ratio]);
    };
    let beside = PROTOCOLS.iter().zip(&document.busy.counts);
    for ((_, quiet), (protocol, busy)) in measured(document).zip(beside) {
        let name = format!("{} {}", protocol.code, protocol.name);
        row(format!("{name}: wall s"), quiet.seconds, busy.seconds);
        if quiet.packets > 0 {
            row(format!("{name}: latency us"), quiet.latency, busy.latency);
            let packets = |count: &Count| count.each(count.packets as f64);
            row(
                format!("{name}: packets each"),
                packets(quiet),
                packets(busy),
            );
        }
    }
    if let (Some(quiet), Some(busy)) = (document.quiet.solver_alone, document.busy.solver_alone) {
        row("ER6 alone: seconds".to_owned(), quiet, busy);
    }
    for quiet in &document.quiet.solver {
        let same = |other: &&Solved| other.nodes == quiet.nodes;
        if let Some(busy) = document.busy.solver.iter().find(same) {
            let name = format!("ER6 on {}: seconds", quiet.nodes);
            row(name, quiet.seconds, busy.seconds);
        }
    }
    table
}

/// The protocols that were measured, each with its run.
fn measured(document: &Document) -> impl Iterator<Item = (&'static Protocol, &Count)> {
    PROTOCOLS.iter().zip(&document.quiet.counts)
}

/// Ours, and the paper's in parentheses.
fn beside(ours: f64, paper: Option<f64>) -> String {
    match paper {
        Some(paper) => format!("{} ({})", number(ours), number(paper)),
        None => number(ours),
    }
}

fn counts(document: &Document) -> Table {
    let head = [
        "",
        "PROTOCOL",
        "REACHED",
        "WALL s",
        "USER s",
        "SYSTEM s",
        "DAEMON s",
        "LOAD kB/s",
        "SWITCHES EACH",
        "PAGES",
        "LATENCY ms",
        "LOSSES/WIN",
        "BYTES EACH",
        "PACKETS EACH",
    ];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    for (protocol, count) in measured(document) {
        let paper = &protocol.paper;
        let additions = 1024.0;
        table.push(vec![
            protocol.code.to_owned(),
            protocol.name.to_owned(),
            count.value.to_string(),
            beside(count.seconds, paper.wall),
            beside(count.user, paper.user),
            beside(count.system, paper.system),
            number(count.daemon_user + count.daemon_system),
            beside(count.load(), paper.load),
            beside(count.each(count.switches as f64), paper.switches),
            protocol.pages.to_string(),
            beside(count.latency / 1000.0, paper.latency),
            beside(count.losses_for_a_win(), paper.losses),
            beside(
                count.each(count.bytes as f64),
                paper.bytes.map(|bytes| bytes / additions),
            ),
            number(count.each(count.packets as f64)),
        ]);
    }
    table
}

fn ratios(document: &Document) -> Table {
    let head = [
        "PROTOCOL",
        "WALL",
        "PROCESSOR",
        "LOAD",
        "SWITCHES",
        "LATENCY",
        "LOSSES/WIN",
        "BYTES",
    ];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    let ratio = |ours: f64, paper: Option<f64>| match paper {
        Some(paper) => number(ours / paper),
        None => "–".to_owned(),
    };
    for (protocol, count) in measured(document) {
        let paper = &protocol.paper;
        let each = |all: Option<f64>| all.map(|all| all / 1024.0);
        table.push(vec![
            protocol.name.to_owned(),
            ratio(count.each(count.seconds), each(paper.wall)),
            ratio(count.each(count.host()), each(host(paper))),
            ratio(count.load(), paper.load),
            ratio(count.each(count.switches as f64), paper.switches),
            ratio(count.latency / 1000.0, paper.latency),
            ratio(count.losses_for_a_win(), paper.losses),
            ratio(count.each(count.bytes as f64), each(paper.bytes)),
        ]);
    }
    table
}

/// Seconds of processor that the paper gives for a host.
fn host(paper: &Paper) -> Option<f64> {
    Some(paper.user? + paper.system?)
}

/// The steps from the first protocol to the last one.
const STEPS: [(&str, usize, usize); 3] = [
    ("page size: full page to short page", FULL, SHORT),
    ("data-driven views of one page", SHORT, DATA),
    ("two pages, sleep instead of spinning", DATA, FINAL),
];

fn steps(document: &Document) -> Table {
    let head = [
        "STEP",
        "BYTES EACH",
        "LOAD kB/s",
        "PROCESSOR EACH",
        "LATENCY",
        "WALL",
    ];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    let all = [("all steps", FULL, FINAL)];
    for (name, from, to) in STEPS.into_iter().chain(all) {
        let (Some(before), Some(after)) = (
            document.quiet.counts.get(from),
            document.quiet.counts.get(to),
        ) else {
            continue;
        };
        let (old, new) = (&PROTOCOLS[from].paper, &PROTOCOLS[to].paper);
        let cell = |ours: f64, paper: Option<f64>| match paper {
            Some(paper) => format!("{} ({})", number(ours), number(paper)),
            None => number(ours),
        };
        let paper = |pick: fn(&Paper) -> Option<f64>| Some(pick(old)? / pick(new)?);
        let factor = |pick: &dyn Fn(&Count) -> f64| pick(before) / pick(after);
        table.push(vec![
            name.to_owned(),
            cell(factor(&|c| c.each(c.bytes as f64)), paper(|p| p.bytes)),
            cell(factor(&Count::load), paper(|p| p.load)),
            cell(factor(&|c| c.each(c.host())), paper(host)),
            cell(factor(&|c| c.latency), paper(|p| p.latency)),
            cell(factor(&|c| c.each(c.seconds)), paper(|p| p.wall)),
        ]);
    }
    table
}

fn solver(document: &Document) -> Table {
    let head = [
        "NODES", "SECONDS", "SPEEDUP", "MESSAGES", "kB", "PACKETS", "RESIDUAL",
    ];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    for solved in &document.quiet.solver {
        let speedup = document
            .quiet
            .solver_alone
            .map_or(0.0, |alone| alone / solved.seconds);
        table.push(vec![
            solved.nodes.to_string(),
            number(solved.seconds),
            number(speedup),
            solved.messages.to_string(),
            number(solved.bytes as f64 / 1000.0),
            solved.packets.to_string(),
            format!("{:.3e}", solved.residual),
        ]);
    }
    table
}

const HEAD: &str = "# Mether, measured here

`pagemesh-bench paper mether --report FILE` writes this file: what Minnich and Farber measured in 1993 (Sun 3/50s under SunOS 4.0, Ethernet, pages
of 8192 bytes), measured with the programs of `lab/apps/mether` on pages of 4096 bytes under policy `views`. The paper's figures are in parentheses.
Two processes count together, each on a node of its own unless the line says otherwise. User and system time are those of a process, the mean of
both; a daemon's time is beside them (the kernel counts it in ticks, so short runs have coarse figures), because Mether's server ran on the same processor. Latency is the mean time from an addition of a process
to its sight of the other one's. Context switches, bytes and packets are those of both nodes, for an addition.
What was measured is kept in `mether.json` (`--keep`).
";

const TAIL: &str = "
Losses for a win cannot be compared in numbers: a look takes nanoseconds here, and took fractions of a millisecond there, while a process that
waits for a page does not look at all. The order of the protocols can be.
";

#[cfg(test)]
mod tests {
    use super::super::protocol::DISJOINT;
    use super::*;

    fn document() -> Document {
        let mut document = Document::kept(None).unwrap();
        document.to = 1024;
        document.bound = 10;
        for (place, protocol) in PROTOCOLS.iter().enumerate() {
            document.quiet.counts.push(Count {
                name: protocol.name.to_owned(),
                value: if place == DISJOINT { 37 } else { 1024 },
                seconds: 1.0,
                user: 0.5,
                system: 0.25,
                daemon_user: 0.5,
                daemon_system: 0.25,
                switches: 2048,
                losses: 4096,
                wins: 1024,
                latency: 100.0,
                bytes: if place == FULL { 8_192_000 } else { 102_400 },
                packets: if place == FINAL { 1024 } else { 4096 },
            });
        }
        document
    }

    #[test]
    fn a_report_has_all_rows_and_computes_its_sentences() {
        let mut document = document();
        let text = markdown(&document);
        assert!(
            text.contains("| ER5 | 5: two pages, one data-driven | 1024 | 1.00 (57.0) |"),
            "{text}"
        );
        assert!(
            text.contains(
                "stopped after 10 s at 37 of 1024, with 4 losses for a win | reproduced |"
            ),
            "{text}"
        );
        assert!(
            text.contains("8000 bytes against 100, 80.0 times: the consistent copy moves as a whole page, only copies for reading are short | reproduced |"),
            "{text}"
        );
        assert!(
            text.contains("fewest packets: 5: two pages, one data-driven"),
            "{text}"
        );
        document.quiet.counts[DISJOINT].value = 1024;
        document.quiet.counts[FULL].bytes = 102_400;
        let text = markdown(&document);
        assert!(text.contains("it finishes, in 1.00 s"), "{text}");
        assert!(
            text.contains("only copies for reading are short | **not reproduced** |"),
            "{text}"
        );
        let lines = plain(&document).len();
        assert!(lines > PROTOCOLS.len() * 2, "{lines}");
    }

    #[test]
    fn a_quiet_figure_has_its_busy_one_beside_it() {
        let mut document = document();
        assert_eq!(busy(&document).len(), 1);
        document.busy.counts = document.quiet.counts.clone();
        document.busy.counts[FINAL].seconds = 1.5;
        let rows = busy(&document);
        let row = [
            "ER5 5: two pages, one data-driven: wall s",
            "1.00",
            "1.50",
            "1.50",
        ];
        assert!(rows.contains(&row.map(str::to_owned).to_vec()), "{rows:?}");
    }

    #[test]
    fn a_kept_document_is_read_again() {
        let text = serde_json::to_string(&document()).unwrap();
        let again: Document = serde_json::from_str(&text).unwrap();
        assert_eq!(markdown(&again), markdown(&document()));
    }
}
