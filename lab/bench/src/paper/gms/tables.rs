//! The report.

use super::super::claims;
use super::super::figures::{Figures, table};
use super::claims::all;
use super::epochs::SIZES as EPOCHS;
use super::literature::{
    DISK_NEXT, DISK_RANDOM, DUPLICATE, HIT, MISS, PUTPAGE, RAW, READ, SHARED_HIT, SHARED_MISS,
    SINGLE, epoch_bytes,
};
use super::models::{IDLE, SIZES, SKEWS, SWITCHES};
use super::nodes::{CLIENTS, SKEWED};
use super::programs::{IDLE as FRACTIONS, PROGRAMS};
use super::shared::{DUPLICATE as CASE_DUPLICATE, SINGLE as CASE_SINGLE};

/// Seconds after which a page counts as idle, by the classes of ages in the core.
const IDLE_SECONDS: f64 = 8.0;

/// Figures that stand beside those of a companion, with their titles.
const BUSY: [(&str, &str); 20] = [
    ("raw exchange of a page, us", "costs raw us"),
    ("random read from a donor, mean us", "costs gms random us"),
    (
        "random read from a donor, median us",
        "costs gms random median us",
    ),
    ("read in order from a donor, us", "costs gms sequential us"),
    ("random read, declared disk, us", "costs slow random us"),
    ("putpage, sender, us", "costs putpage sender us"),
    ("putpage, target, us", "costs putpage target us"),
    ("shared read of a last copy, us", "shared single random us"),
    (
        "shared read of a duplicate, us",
        "shared duplicate random us",
    ),
    (
        "hit of a shared page, median us",
        "shared duplicate random median us",
    ),
    ("miss of a shared page, median us", "shared miss us"),
    ("shared putpage, sender, us", "shared putpage sender us"),
    (
        "initiator of an epoch of 100 nodes, us",
        "epochs 100 initiator us",
    ),
    (
        "numpy, enough idle memory: speedup",
        "programs numpy: gather 1.5 speedup",
    ),
    (
        "sqlite, enough idle memory: speedup",
        "programs sqlite: a join without an index 1.5 speedup",
    ),
    (
        "sort, enough idle memory: speedup",
        "programs sort: two columns 1.5 speedup",
    ),
    ("one client, read us", "clients 1 us"),
    ("four clients, read us", "clients 4 us"),
    ("four clients, donor us", "clients 4 donor us"),
    ("four clients, operations/s", "clients 4 operations/s"),
];

/// The report in Markdown.
pub(super) fn markdown(document: &Figures) -> String {
    let mut text = format!(
        "# GMS, measured here\n\n\
         `pagemesh-bench paper gms --report FILE` writes this file: what Feeley and others measured in 1995 (DEC 3000/700 under OSF/1, ATM at 155 Mbit/s,\n\
         pages of 8192 bytes), measured under policy `private` with pages of 4096 bytes. The paper's figures are in parentheses. What was measured is kept in\n\
         `gms.json` (`--keep`). The *declared disk* is a file whose reads are made to last as long, to the raw exchange of a page, as those of the paper's\n\
         disk ({:.2} times for the next page, {:.2} times at random); *this disk* is the file as it is, which the kernel's page cache holds.\n\
         A model of frames stands where nodes would need a processor each; it says so. Placement `n-chance` is the paper's comparison; the list of victims is incomplete in our copy of the paper (decision 0031).\n\n\
         Machine: {}.\n\n",
        DISK_NEXT / RAW,
        DISK_RANDOM / RAW,
        document.machine,
    );
    text += &document.origins();
    text += &claims::section(all(document));
    text += &table_1(document);
    text += &table_2(document);
    text += &operations(document);
    text += &shared(document);
    text += &epochs(document);
    text += &programs(document);
    text += &skew(document);
    text += &clients(document);
    text += &model(document);
    text += &document.beside_companion(BUSY);
    text
}

/// A number, or a dash if it was not measured.
fn cell(document: &Figures, name: &str, digits: usize) -> String {
    let value = document.get(name);
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

/// Ours, and the paper's in parentheses.
fn beside(document: &Figures, name: &str, paper: f64) -> String {
    format!("{} ({paper})", cell(document, name, 1))
}

fn table_1(document: &Figures) -> String {
    let over = document
        .get("costs slow random us")
        .zip(document.get("costs declared random us"))
        .map_or_else(
            || "–".to_owned(),
            |(all, disk)| format!("{:.1}", all - disk),
        );
    let row = vec![
        "total".to_owned(),
        format!("{over} ({MISS})"),
        beside(document, "costs gms random median us", HIT),
        beside(document, "shared miss us", SHARED_MISS),
        beside(document, "shared duplicate random median us", SHARED_HIT),
    ];
    table(
        "GR1, Table 1: getpage, microseconds",
        &["", "NON-SHARED: MISS", "HIT", "SHARED: MISS", "HIT"],
        vec![row],
    ) + "\nMedians, but for the first, which is what a read from the declared disk takes beyond the disk. The paper divides each by request, reply, directory, network and target; \
         here no stamps stand between these, so the rows are not apart. Hits include the program's fault or request to its daemon, which the paper's, timed in the kernel, do not.\n"
}

fn table_2(document: &Figures) -> String {
    let row = |name: &str, what: &str, paper: [f64; 2]| {
        vec![
            name.to_owned(),
            beside(document, &format!("costs putpage {what} us"), paper[0]),
            beside(document, &format!("shared putpage {what} us"), paper[1]),
        ]
    };
    let [(sender, target), (shared_sender, shared_target)] = PUTPAGE;
    table(
        "GR2, Table 2: putpage, microseconds of processor",
        &["", "NON-SHARED", "SHARED"],
        vec![
            row("sender", "sender", [sender, shared_sender]),
            row("target", "target", [target, shared_target]),
        ],
    ) + "\nDifferences of processor time of the daemons, for a putpage: of reads with a getpage and a putpage each, and of reads with a getpage alone. Non-shared: memory is scarce, since \
         the donor keeps pages that nobody has used for 8 s, so it forgets what it sends back. Shared: last copies against duplicates. The target of a last copy takes it out of its stash when it is asked for again, \
         which is in the difference. The paper's network row (989 us) is not apart.\n"
}

fn shared(document: &Figures) -> String {
    let row = |name: &str, access: &str| {
        let number = |case: &str, what: &str, digits| {
            cell(document, &format!("shared {case} {access} {what}"), digits)
        };
        vec![
            name.to_owned(),
            format!("{} ({SINGLE})", number(CASE_SINGLE, "us", 1)),
            number(CASE_SINGLE, "median us", 1),
            number(CASE_SINGLE, "putpages", 0),
            format!("{} ({DUPLICATE})", number(CASE_DUPLICATE, "us", 1)),
            number(CASE_DUPLICATE, "median us", 1),
            number(CASE_DUPLICATE, "putpages", 0),
        ]
    };
    table(
        "GR4, Table 4: reads of shared pages, microseconds",
        &[
            "",
            "LAST COPY ELSEWHERE, MEAN",
            "MEDIAN",
            "PUTPAGES",
            "DUPLICATE, MEAN",
            "MEDIAN",
            "PUTPAGES",
        ],
        vec![row("in order", "order"), row("at random", "random")],
    ) + "\nReads of 4096 pages of a file by a node with frames for 1024, three nodes; timed where the view of `pagemesh cache` asks its daemon, without FUSE and the kernel's page cache. \
         The paper's columns for an NFS server have no counterpart: none is here.\n"
}

fn operations(document: &Figures) -> String {
    let row = |name: &str, key: &str, paper: [&str; 2]| {
        let number = |what: &str, digits| cell(document, &format!("costs {key} {what}"), digits);
        vec![
            name.to_owned(),
            format!("{} ({})", number("random us", 1), paper[0]),
            number("random median us", 1),
            format!("{} ({})", number("sequential us", 1), paper[1]),
            number("owner us", 1),
            number("donor us", 1),
            number("getpages", 0),
            number("putpages", 0),
            number("disk reads", 0),
        ]
    };
    let (read, random, next) = (
        READ.to_string(),
        DISK_RANDOM.to_string(),
        DISK_NEXT.to_string(),
    );
    let mut text = table(
        "GR3, Table 3: reads of private pages, microseconds",
        &[
            "",
            "RANDOM, MEAN",
            "MEDIAN",
            "IN ORDER",
            "OWNER'S DAEMON",
            "DONOR, AN OPERATION",
            "GETPAGES",
            "PUTPAGES",
            "DISK READS",
        ],
        vec![
            row("from a donor", "gms", [&read, &read]),
            row("from a donor, memory scarce", "scarce", ["–", "–"]),
            row("declared disk", "slow", [&random, &next]),
            row("this disk", "disk", ["–", "–"]),
        ],
    );
    text += &format!(
        "\nThe raw exchange of a page takes {} us ({RAW}); the declared disk {} us at random and {} us in order. The owner's processor time is that of its daemon for a read; the rest of a read is the network, the wake-ups, and the kernel's.\n\
         While memory is not scarce a donor keeps what it sends back (decision 0031), so pages that are only read need no putpage. Where it is scarce each read needs one, as in the paper.\n",
        cell(document, "costs raw us", 1),
        cell(document, "costs declared random us", 0),
        cell(document, "costs declared next us", 0),
    );
    text
}

fn epochs(document: &Figures) -> String {
    let row = |size: usize| {
        let number = |what: &str, digits| cell(document, &format!("epochs {size} {what}"), digits);
        vec![
            size.to_string(),
            number("messages", 0),
            format!("{} ({:.0})", number("bytes", 0), epoch_bytes(size as f64)),
            format!(
                "{} ({:.0})",
                number("initiator us", 0),
                (78.0 + 45.0) * size as f64
            ),
            number("other us", 1),
        ]
    };
    let text = table(
        "GR5, Table 5: an epoch of n nodes",
        &[
            "NODES",
            "MESSAGES",
            "BYTES",
            "INITIATOR us",
            "ANOTHER NODE us",
        ],
        EPOCHS.map(row),
    );
    text + &format!(
        "\nReal nodes in one process: what the kernel and the network take for a message is not in it. A scan takes {} us for each page that a node keeps \
         for others (0.54). More than 127 nodes are no cluster of PageMesh.\n",
        cell(document, "epochs scan us", 3)
    )
}

fn programs(document: &Figures) -> String {
    let mut rows = Vec::new();
    for program in &PROGRAMS {
        let number = |what: &str, digits| {
            cell(
                document,
                &format!("programs {} {what}", program.name),
                digits,
            )
        };
        let mut row = vec![
            program.name.to_owned(),
            number("disk s", 2),
            number("none s", 2),
        ];
        row.extend(FRACTIONS.map(|idle| number(&format!("{idle} speedup"), 2)));
        rows.push(row);
    }
    table(
        "GR6, Fig. 6: speedup of programs to the declared disk, by idle memory to what they need",
        &[
            "PROGRAM",
            "THIS DISK s",
            "DECLARED DISK s",
            "0",
            "0.5",
            "1",
            "1.5",
        ],
        rows,
    ) + "\nUnmodified programs under `pagemesh borrow`; half of their memory or less is here. The paper's are 1.5 to 3.5 beyond 200 MB. A compile, a renderer \
         and a server of queries are not among these: their memory is small allocations, which `borrow` leaves alone, or files.\n"
}

fn skew(document: &Figures) -> String {
    let mut rows = Vec::new();
    for (_, _, name) in SKEWS {
        for (placement, idle) in [
            ("epoch", 1.0),
            ("n-chance", IDLE[0]),
            ("n-chance", IDLE[1]),
            ("n-chance", IDLE[2]),
        ] {
            let number = |what: &str, digits| {
                cell(
                    document,
                    &format!("skew {name} {idle} {placement} {what}"),
                    digits,
                )
            };
            rows.push(vec![
                name.to_owned(),
                placement.to_owned(),
                format!("{idle}"),
                number("speedup", 2),
                number("MB", 1),
                number("disk", 0),
            ]);
        }
    }
    let mut text = table(
        "GR9, Fig. 9, GR11, Fig. 11: one client and eight other nodes, real daemons",
        &[
            "IDLE MEMORY",
            "PLACEMENT",
            "OF IT, TO THE NEED",
            "SPEEDUP",
            "NETWORK MB",
            "DISK READS",
        ],
        rows,
    );
    text += &format!(
        "\nA run is one traversal of {SKEWED} pages after two others; the paper's took 100 to 200 s."
    );
    if let Some(millis) = document.get("skew none ms") {
        let seconds = millis / 1000.0;
        let than = if seconds < IDLE_SECONDS {
            "shorter"
        } else {
            "longer"
        };
        text += &format!(
            " From the disk alone it took {seconds:.1} s: {than} than the time after which a page counts as idle here ({IDLE_SECONDS} s). \
             Once no frame is free, an epoch finds no page that is idle for so long and sends none (GB7), where N-chance replaces pages of any age."
        );
    }
    text + "\n"
}

fn clients(document: &Figures) -> String {
    let row = |clients: usize| {
        let number =
            |what: &str, digits| cell(document, &format!("clients {clients} {what}"), digits);
        vec![
            clients.to_string(),
            number("us", 1),
            number("speedup", 2),
            number("operations/s", 0),
            number("donor us", 1),
            number("donor percent", 0),
        ]
    };
    table(
        "GR12, Fig. 12, GR13, Fig. 13: several clients of one donor",
        &[
            "CLIENTS",
            "READ us",
            "SPEEDUP",
            "OPERATIONS/S (2880 of 7)",
            "DONOR us (194)",
            "DONOR % (56 of 7)",
        ],
        CLIENTS.map(row),
    )
}

fn model(document: &Figures) -> String {
    let sizes = SIZES.map(|size| {
        vec![
            size.to_string(),
            cell(document, &format!("model nodes {size}"), 2),
        ]
    });
    let mut text = table(
        "GR7, Fig. 7, model: speedup by nodes, two of five idle",
        &["NODES", "SPEEDUP"],
        sizes,
    );
    let switches = SWITCHES.map(|each| {
        vec![
            each.to_string(),
            cell(document, &format!("model switch {each}"), 2),
        ]
    });
    text += &table(
        "GR8, Fig. 8, model: idle and busy nodes change",
        &["EVERY s", "SPEEDUP"],
        switches,
    );
    let mut rows = Vec::new();
    for (_, _, name) in SKEWS {
        for idle in IDLE {
            let number = |kind: &str, placement: &str, what: &str, digits| {
                cell(
                    document,
                    &format!("model {kind} {name} {idle} {placement} {what}"),
                    digits,
                )
            };
            let both = |kind: &str, what: &str, digits| {
                let [epoch, chance] =
                    ["epoch", "n-chance"].map(|one| number(kind, one, what, digits));
                format!("{epoch} / {chance}")
            };
            rows.push(vec![
                name.to_owned(),
                format!("{idle}"),
                both("skew", "speedup", 2),
                both("interference", "slowdown", 2),
                both("interference", "transfers", 0),
            ]);
        }
    }
    text += &table(
        "GR9 to GR11, Figs. 9 to 11, model: epochs / n-chance",
        &[
            "IDLE MEMORY",
            "OF IT, TO THE NEED",
            "SPEEDUP",
            "SLOWDOWN OF OTHERS",
            "PAGES SENT BESIDE OTHERS",
        ],
        rows,
    );
    text + "\nThe model knows frames, ages, epochs and N-chance's victims, and a cost for a page from another node and from the disk (2.1 and 14.3 ms, as in the paper). \
         It has no protocol. In PageMesh itself a donor's own pages are never victims of N-chance, since it lends only what is idle.\n"
}
