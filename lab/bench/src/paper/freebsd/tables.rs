//! The report.

use super::super::claims;
use super::super::figures::{Figures, number, table};
use super::bounce::WAITINGS;
use super::claims::{all, fitted, way_to_server};
use super::contention::NODES;
use super::copies::{COPIES, FEW, MEMBERS};
use super::literature::{
    EACH_COPY, PING, READ, READ_DATAGRAMS, READ_IPC, READ_LEAST, READ_SERVER, TAKE_BACK, WRITE,
    WRITE_IPC, WRITE_LEAST, WRITE_SERVER, multicast_datagrams, write_datagrams,
};
use super::loss::NETWORKS;

/// Figures that stand beside those of a companion, with their titles.
const BUSY: [(&str, &str); 16] = [
    ("read, mean us", "basic block read mean us"),
    ("read, median us", "basic block read median us"),
    ("write, mean us", "basic block write mean us"),
    ("write, median us", "basic block write median us"),
    (
        "short exchange, median us",
        "basic block raw short median us",
    ),
    ("read, spinning, median us", "basic spin read median us"),
    ("write, spinning, median us", "basic spin write median us"),
    ("2 copies taken back, us", "copies 2 writer us"),
    ("11 copies taken back, us", "copies 11 writer us"),
    (
        "11 copies, plain sockets, the writer asks, least us",
        "ways 11 asks all least us",
    ),
    (
        "11 copies, plain sockets, the owner asks, least us",
        "ways 11 by owner least us",
    ),
    ("read at 5 % loss, mean us", "loss loss=5% read mean us"),
    ("turns a second of 2 writers", "contention 2 turns/s"),
    ("turns a second of 12 writers", "contention 12 turns/s"),
    ("sent again for a turn of 12 writers", "contention 12 again"),
    (
        "share of the node with half a processor",
        "contention half_a_processor share of the slow",
    ),
];

/// The report in Markdown.
pub(super) fn markdown(document: &Figures) -> String {
    let mut text = format!("{HEAD}\nMachine: {}.\n\n", document.machine);
    text += &document.origins();
    text += &claims::section(all(document));
    text += &basic(document);
    text += &division(document);
    text += &copies(document);
    text += &ways(document);
    text += &datagrams(document);
    text += &contention(document);
    text += &losses(document);
    text += &document.beside_companion(BUSY);
    text
}

/// A number, or a dash if it was not measured.
fn cell(document: &Figures, name: &str) -> String {
    shown(document.get(name))
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), number)
}

/// Ours in microseconds to the paper's milliseconds.
fn ratio(document: &Figures, name: &str, paper: f64) -> String {
    shown(document.get(name).map(|ours| ours / 1000.0 / paper))
}

fn basic(document: &Figures) -> String {
    let mut rows = Vec::new();
    for waiting in WAITINGS {
        let waiting = waiting.name();
        for (kind, least, mean) in [
            ("read", Some(READ_LEAST), Some(READ)),
            ("write", Some(WRITE_LEAST), Some(WRITE)),
            ("raw short", None, Some(PING)),
            ("raw page", None, None),
        ] {
            let name = |what: &str| format!("basic {waiting} {kind} {what} us");
            let title = match kind {
                "raw short" => "exchange of short datagrams (a ping)",
                "raw page" => "a short datagram there, a page back",
                kind => kind,
            };
            let of = |what: &str, paper: Option<f64>| {
                [
                    cell(document, &name(what)),
                    shown(paper),
                    paper.map_or_else(
                        || "–".to_owned(),
                        |paper| ratio(document, &name(what), paper),
                    ),
                ]
            };
            let mut row = vec![title.to_owned(), waiting.to_owned()];
            row.extend(of("least", least));
            row.extend(of("mean", mean));
            row.push(cell(document, &name("median")));
            rows.push(row);
        }
    }
    let operations = document.get("basic operations").unwrap_or_default();
    table(
        &format!("FR1, Table 1: {operations:.0} reads and as many writes, microseconds"),
        &[
            "", "DAEMONS", "LEAST", "PAPER ms", "RATIO", "MEAN", "PAPER ms", "RATIO", "MEDIAN",
        ],
        &rows,
    ) + &format!(
        "\nPages bounce between two nodes: each loads a word of a page that the other one has stored to, then stores it. The paper's program has one page; here \
         it is 500, one after the other, so that the nodes change turns once for all of them. A write takes back the other's copy and its ownership; the page is there. \
         The paper timed in its kernel, this is timed in the program. Means are those of a host that others share: its time slices are in them, so claims compare medians. By these a read takes {} pings ({}), a write {} ({}).\n",
        shown(document.ratio(
            "basic block read median us",
            "basic block raw short median us"
        )),
        number(READ / PING),
        shown(document.ratio(
            "basic block write median us",
            "basic block raw short median us"
        )),
        number(WRITE / PING),
    )
}

fn division(document: &Figures) -> String {
    let mut rows = Vec::new();
    for waiting in WAITINGS {
        let waiting = waiting.name();
        for (kind, ipc, server, all) in [
            ("read", READ_IPC, READ_SERVER, READ),
            ("write", WRITE_IPC, WRITE_SERVER, WRITE),
        ] {
            let median = |part: &str| {
                cell(
                    document,
                    &format!("basic {waiting} {kind} {part} median us"),
                )
            };
            let share = way_to_server(document, waiting, kind).map(|share| 100.0 * share);
            rows.push(vec![
                kind.to_owned(),
                waiting.to_owned(),
                median("ipc"),
                number(ipc),
                shown(share),
                number(100.0 * ipc / all),
                median("server"),
                number(server),
                number(all - ipc - server),
            ]);
        }
    }
    let mut text = table(
        "FR2, FR7, Table 2: where the time of a fault goes, medians in microseconds (the paper: means)",
        &[
            "",
            "DAEMONS",
            "TO THE SERVER",
            "PAPER ms",
            "%",
            "PAPER %",
            "FROM THERE ON",
            "PAPER ms, IN THE SERVER",
            "PAPER ms, BACK",
        ],
        &rows,
    );
    text += "\nTo the server: from the access to the turn of the daemon in which it reads the fault (the paper: from the pager's request to the server's work on it). \
             From there on: the daemon, the network, the other node, and the way back to the program, which the paper's tables leave over. Here the two are not apart: \
             a daemon on the processor of its program reads its clock behind the thread that it woke.\n";
    if let (Some(read), Some(write)) = (
        way_to_server(document, "block", "read"),
        way_to_server(document, "block", "write"),
    ) {
        text += &format!(
            "So a server in the kernel would save {:.0} % of a read and {:.0} % of a write by the way to it, and a part of the way back (FB5).\n",
            100.0 * read,
            100.0 * write
        );
    }
    text
}

fn copies(document: &Figures) -> String {
    let mut rows = Vec::new();
    for copies in COPIES {
        let paper = TAKE_BACK + EACH_COPY * copies as f64;
        let name = |what: &str| format!("copies {copies} {what}");
        rows.push(vec![
            copies.to_string(),
            cell(document, &name("writer us")),
            number(paper),
            ratio(document, &name("writer us"), paper),
            cell(document, &name("writer datagrams")),
            number(write_datagrams(copies, copies)),
            number(multicast_datagrams(copies)),
            cell(document, &name("owner us")),
            cell(document, &name("owner datagrams")),
        ]);
    }
    let mut text = table(
        "FR3, FR4: taking copies back, medians in microseconds, and datagrams",
        &[
            "COPIES",
            "BY A READER",
            "PAPER ms",
            "RATIO",
            "DATAGRAMS",
            "PAPER, n = c",
            "PAPER BY MULTICAST",
            "BY THE OWNER",
            "DATAGRAMS",
        ],
        &rows,
    );
    text += "\nA node that has a copy stores; so many others have copies, the owner's counted. The paper's figure is its line, 1.3 ms and 0.4 ms for each copy, its number of datagrams n + c + 1 \
             where each member has a copy. By the owner: the node that stores owns the page already, so ownership does not move.\n";
    let fits = [("writer", "By a reader"), ("owner", "By the owner")].map(|(name, title)| {
        let (constant, slope, correlation) = fitted(document, name)?;
        Some(format!(
            "{title} the line is {constant:.0} us and {slope:.1} us for each copy, with a correlation of {correlation:.3}."
        ))
    });
    let fits: Vec<String> = fits.into_iter().flatten().collect();
    text += &(fits.join(" ") + "\n");
    let last = *COPIES.end();
    text += &format!(
        "With `--multicast` {last} copies take {} datagrams and {} us: on one host each multicast wakes all daemons.\n",
        cell(document, &format!("copies {last} multicast datagrams")),
        cell(document, &format!("copies {last} multicast us")),
    );
    text
}

/// F21, F22: the two ways to take copies back, by their messages alone.
fn ways(document: &Figures) -> String {
    let mut rows = Vec::new();
    for copies in COPIES {
        let name = |way: &str, what: &str| format!("ways {copies} {way} {what} us");
        let least = |way: &str| name(way, "least");
        let mut row = vec![copies.to_string()];
        for (way, members) in [
            ("asks all", copies),
            ("by owner", copies),
            ("asks members", MEMBERS),
        ] {
            row.push(cell(document, &least(way)));
            row.push(cell(document, &name(way, "median")));
            row.push(number(write_datagrams(members, copies)));
        }
        row.push(shown(
            document.ratio(&least("by owner"), &least("asks all")),
        ));
        row.push(shown(
            document.ratio(&least("asks members"), &least("by owner")),
        ));
        rows.push(row);
    }
    let mut text = table(
        "F21, F22: the writer asks all members, or the owner asks the holders, microseconds",
        &[
            "COPIES",
            "WRITER, n = c: LEAST",
            "MEDIAN",
            "DATAGRAMS",
            "OWNER: LEAST",
            "MEDIAN",
            "DATAGRAMS",
            "WRITER, n = 11: LEAST",
            "MEDIAN",
            "DATAGRAMS",
            "OWNER TO WRITER, n = c",
            "WRITER, n = 11, TO OWNER",
        ],
        &rows,
    );
    text += "\nThe messages alone, by programs with plain sockets on the same nodes. *Writer*: it sends a WRITE to each of n members, as the paper's \
             implementation did, and waits for the WRITEOK of each of c copies. *Owner*: it asks the owner, the owner asks the other holders, and all answer the writer, as in PageMesh. Each ends with the acknowledgement to the owner, \
             which nobody waits for. Ratios are of the least times: time slices of whatever else this host does are in the medians.\n";
    text += &of_ways(document);
    text
}

/// The comparison of the two ways by their figures.
fn of_ways(document: &Figures) -> String {
    let last = *COPIES.end();
    let ratios = |one: &str, other: &str, last: usize| -> Option<(f64, f64)> {
        let all: Option<Vec<f64>> = (*COPIES.start()..=last)
            .map(|copies| {
                let name = |way: &str| format!("ways {copies} {way} least us");
                document.ratio(&name(one), &name(other))
            })
            .collect();
        let all = all?;
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = all.iter().copied().fold(0.0, f64::max);
        Some((least, most))
    };
    let everybody = ratios("by owner", "asks all", last).map(|(least, most)| {
        format!(
            "Where each member has a copy the owner's way takes {least:.2} to {most:.2} of the writer's time with as many datagrams: it has one way more, \
             and two processes that send."
        )
    });
    let few = ratios("asks members", "by owner", last - 1).map(|(least, most)| {
        format!(
            "Where {MEMBERS} others have the object and {FEW} to {} a copy the writer's way takes {least:.2} to {most:.2} of the owner's time: with {FEW} copies it sends {:.0} datagrams, \
             the owner's way {:.0}, and wakes {} nodes that have nothing to do with the page.",
            last - 1,
            write_datagrams(MEMBERS, FEW),
            write_datagrams(FEW, FEW),
            MEMBERS - FEW
        )
    });
    let met = (|| {
        let turns = document.get("contention 2 turns/s")?;
        let again = document.get("contention 2 again")?;
        Some(format!(
            "Of two WRITEs that meet in the variant neither writer answers the other's, so that the write ends with a timer and a PURGE. \
             A timer as short as PageMesh's shortest, 2 ms, would allow 500 such turns a second at most, even on an idle host; with the owner's queue it was {turns:.0} at the load above (FR5), \
             {again:.4} messages sent again for each."
        ))
    })();
    let said: Vec<String> = [everybody, few, met].into_iter().flatten().collect();
    said.join(" ") + "\n"
}

fn datagrams(document: &Figures) -> String {
    let row = |kind: &str, paper: f64| {
        let mut row = vec![kind.to_owned()];
        for waiting in WAITINGS {
            row.push(cell(
                document,
                &format!("basic {} {kind} datagrams", waiting.name()),
            ));
        }
        row.push(number(paper));
        row
    };
    let rows = [
        row("read", READ_DATAGRAMS),
        row("write", write_datagrams(1, 1)),
    ];
    table(
        "FR4: datagrams of an operation between two nodes",
        &["", "block", "spin", "PAPER"],
        &rows,
    ) + "\nThe medians of five batches of 500, by the counters of both daemons, without what was sent again. Heartbeats are in it.\n"
}

fn contention(document: &Figures) -> String {
    let mut rows = Vec::new();
    for nodes in NODES {
        let name = |what: &str| format!("contention {nodes} {what}");
        rows.push(vec![
            format!("{nodes}, all alike"),
            cell(document, &name("turns/s")),
            cell(document, &name("datagrams")),
            cell(document, &name("again")),
            cell(document, &name("least share of even")),
            "–".to_owned(),
        ]);
    }
    for (slow, title) in [
        ("alike", "2, each on its own processor"),
        ("pausing_50us", "2, one pauses for 50 us after each store"),
        ("far_200us", "2, one behind a line of 0.2 ms"),
        ("far_2000us", "2, one behind a line of 2 ms"),
        ("half_a_processor", "2, one with half a processor"),
    ] {
        let name = |what: &str| format!("contention {slow} {what}");
        rows.push(vec![
            title.to_owned(),
            cell(document, &name("turns/s")),
            cell(document, &name("datagrams")),
            cell(document, &name("again")),
            "–".to_owned(),
            cell(document, &name("share of the slow")),
        ]);
    }
    table(
        "FR5: nodes that store to one page all the time",
        &[
            "WRITERS",
            "TURNS/S",
            "DATAGRAMS A TURN",
            "SENT AGAIN A TURN",
            "LEAST SHARE, TO AN EVEN ONE",
            "SHARE OF THE SLOW",
        ],
        &rows,
    ) + "\nA turn is an arrival of the page. The paper has no figures: its slower machines (75 MHz beside 100 MHz) tended to starve, and it sent many messages again. \
         The time window is the default, `auto`.\n"
}

fn losses(document: &Figures) -> String {
    let mut rows = Vec::new();
    for network in NETWORKS {
        let mut row = vec![network.replace(',', ", ")];
        for kind in ["read", "write"] {
            for what in ["median us", "mean us", "datagrams", "again"] {
                row.push(cell(document, &format!("loss {network} {kind} {what}")));
            }
        }
        row.push(cell(document, &format!("loss {network} additions")));
        row.push(cell(document, &format!("loss {network} wrong words")));
        rows.push(row);
    }
    table(
        "FR6: on bad networks",
        &[
            "NETWORK",
            "READ, MEDIAN us",
            "MEAN us",
            "DATAGRAMS",
            "SENT AGAIN",
            "WRITE, MEDIAN us",
            "MEAN us",
            "DATAGRAMS",
            "SENT AGAIN",
            "ADDITIONS",
            "WRONG SUMS",
        ],
        &rows,
    ) + "\nReads and writes of one node, as in FR1; then four nodes add to the same words at once, and each reads all sums. Each datagram of each daemon is lost, doubled or held back behind later ones \
         with this probability. The paper says that its protocol bears it, without figures.\n"
}

const HEAD: &str = "# The FreeBSD DSM, measured here

`pagemesh-bench paper freebsd --report FILE` writes this file: what Souto and Stark measured in 1997 (PCs with Pentiums of 75 and 100 MHz under
FreeBSD 2.1, Ethernet at 100 Mbit/s, pages of 4096 bytes), measured under policy `sequential` with pages of the same size. The paper's figures are in milliseconds;
ratios are ours to theirs. `block`: daemons sleep while nothing comes, as the paper's servers did; `spin`: they poll. What was measured is kept in
`freebsd.json` (`--keep`); `--from docs/papers/freebsd.json` in its place writes the report again from the kept figures, on any machine.
";
