//! What the paper claims, and whether the figures show it.

use super::super::claims::Claim;
use super::super::figures::Figures;
use super::contention::NODES;
use super::copies::{COPIES, FEW, MEMBERS, line};
use super::literature::{
    EACH_COPY, PING, READ, READ_DATAGRAMS, READ_IPC, READ_LEAST, READ_SERVER, TAKE_BACK, WRITE,
    WRITE_IPC, WRITE_LEAST, WRITE_SERVER, multicast_datagrams, write_datagrams,
};
use super::loss::NETWORKS;

/// All claims, in the order of their codes.
pub(super) fn all(document: &Figures) -> Vec<Claim> {
    let mut claims = faults(document);
    claims.extend(division(document));
    claims.extend(taking_back(document));
    claims.extend(datagrams(document));
    claims.extend(contention(document));
    claims.push(loss(document));
    claims.push(interface(document));
    claims
}

// The paper's are means of a quiet machine. On a host that others share a mean is that of its time
// slices, and of an exchange between two programs as much as of a fault: medians are compared.

/// A figure of nodes whose daemons sleep while nothing comes, as the paper's servers did.
fn basic(document: &Figures, name: &str) -> Option<f64> {
    document.get(&format!("basic block {name}"))
}

fn faults(document: &Figures) -> Vec<Claim> {
    let order = (|| {
        let (read, write) = (
            basic(document, "read median us")?,
            basic(document, "write median us")?,
        );
        let words = format!(
            "{read:.1} against {write:.1} us, {:.2} times (medians)",
            read / write
        );
        Some((words, read > write))
    })();
    let even = (|| {
        let ratio = |kind: &str| {
            let of = |what: &str| basic(document, &format!("{kind} {what} us"));
            Some(of("mean")? / of("least")?)
        };
        let (read, write) = (ratio("read")?, ratio("write")?);
        let words = format!("{read:.2} and {write:.2} times the least");
        Some((words, read <= 1.15 && write <= 1.15))
    })();
    let pings = (|| {
        let raw = basic(document, "raw short median us")?;
        let (read, write) = (
            basic(document, "read median us")? / raw,
            basic(document, "write median us")? / raw,
        );
        let words = format!(
            "{read:.1} and {write:.1} times an exchange of short datagrams between two programs ({raw:.1} us; medians)"
        );
        Some((words, read <= READ / PING && write <= WRITE / PING))
    })();
    vec![
        Claim::of(
            "FR1",
            format!(
                "a read takes longer than a write of a page that is there: {READ} against {WRITE} ms, {:.2} times",
                READ / WRITE
            ),
            order,
        ),
        Claim::of(
            "FR1",
            format!(
                "the mean is hardly above the least: {:.2} times for reads, {:.2} for writes",
                READ / READ_LEAST,
                WRITE / WRITE_LEAST
            ),
            even,
        ),
        Claim::of(
            "FR1",
            format!(
                "a read takes {:.1} pings, a write {:.1}, or fewer",
                READ / PING,
                WRITE / PING
            ),
            pings,
        ),
    ]
}

/// The share of a fault that passes until the daemon knows of it.
pub(super) fn way_to_server(document: &Figures, waiting: &str, kind: &str) -> Option<f64> {
    let median = |part: &str| document.get(&format!("basic {waiting} {kind} {part} median us"));
    let (way, rest) = (median("ipc")?, median("server")?);
    Some(way / (way + rest))
}

fn division(document: &Figures) -> Vec<Claim> {
    let most = (|| {
        let (read, write) = (
            1.0 - way_to_server(document, "block", "read")?,
            1.0 - way_to_server(document, "block", "write")?,
        );
        let words = format!(
            "{:.0} and {:.0} %, with the way back to the program",
            100.0 * read,
            100.0 * write
        );
        Some((words, read > 0.5 && write > 0.5))
    })();
    let alike = (|| {
        let (read, write) = (
            basic(document, "read ipc median us")?,
            basic(document, "write ipc median us")?,
        );
        let words = format!("{read:.1} and {write:.1} us");
        Some((words, (read / write - 1.0).abs() < 0.2))
    })();
    let shorter = (|| {
        let (read, write) = (
            basic(document, "read server median us")?,
            basic(document, "write server median us")?,
        );
        let words = format!("{read:.1} and {write:.1} us, {:.2} of it", write / read);
        Some((words, write < read))
    })();
    vec![
        Claim::of(
            "FR2",
            format!(
                "most of a fault is the server's time and the network's: {:.0} % of a read, {:.0} % of a write",
                100.0 * READ_SERVER / READ,
                100.0 * WRITE_SERVER / WRITE
            ),
            most,
        ),
        Claim::of(
            "FR2",
            format!(
                "it takes a read as long to reach the server as a write: {READ_IPC} and {WRITE_IPC} ms"
            ),
            alike,
        ),
        Claim::of(
            "FR2",
            format!(
                "the server has less to do for a write: {READ_SERVER} and {WRITE_SERVER} ms, {:.2} of it",
                WRITE_SERVER / READ_SERVER
            ),
            shorter,
        ),
    ]
}

/// The line through the times to take copies back: constant, slope, correlation.
pub(super) fn fitted(document: &Figures, name: &str) -> Option<(f64, f64, f64)> {
    let points: Option<Vec<_>> = COPIES
        .map(|copies| {
            Some((
                copies as f64,
                document.get(&format!("copies {copies} {name} us"))?,
            ))
        })
        .collect();
    Some(line(&points?))
}

fn taking_back(document: &Figures) -> Vec<Claim> {
    let fit = fitted(document, "writer");
    let linear = fit.map(|(constant, slope, correlation)| {
        let words = format!(
            "{constant:.0} us and {slope:.1} us for each, a correlation of {correlation:.3} (0.95 is enough)"
        );
        (words, correlation >= 0.95)
    });
    let cheap = fit.map(|(constant, slope, _)| {
        let words = format!("{:.2} of the constant", slope / constant);
        (
            words,
            constant > 0.0 && slope / constant <= EACH_COPY / TAKE_BACK,
        )
    });
    vec![
        Claim::of(
            "FR3",
            format!(
                "taking back 2 to 11 copies takes a time that is linear in their number: {TAKE_BACK} ms and {EACH_COPY} ms for each"
            ),
            linear,
        ),
        Claim::of(
            "FR3",
            format!(
                "a copy adds {:.2} of the constant, or less",
                EACH_COPY / TAKE_BACK
            ),
            cheap,
        ),
    ]
}

fn datagrams(document: &Figures) -> Vec<Claim> {
    let near = |ours: f64, paper: f64| (ours - paper).abs() <= 0.02 * paper + 0.1;
    let read = basic(document, "read datagrams")
        .map(|ours| (format!("{ours:.2}"), near(ours, READ_DATAGRAMS)));
    let all: Option<Vec<_>> = COPIES
        .map(|copies| {
            let ours = document.get(&format!("copies {copies} writer datagrams"))?;
            Some((copies, ours, write_datagrams(copies, copies)))
        })
        .collect();
    let everybody = all.map(|all| {
        let (first, last) = (all[0], all[all.len() - 1]);
        let words = format!(
            "{:.1} for {} copies to {:.1} for {}",
            first.1, first.0, last.1, last.0
        );
        let same = all.iter().all(|(_, ours, paper)| near(*ours, *paper));
        (words, same)
    });
    let few = document
        .get(&format!("copies {FEW} writer datagrams"))
        .map(|ours| {
            let words = format!("{ours:.1}: only the holders are told (decision 0043)");
            (words, near(ours, write_datagrams(MEMBERS, FEW)))
        });
    let last = *COPIES.end();
    let multicast = document
        .get(&format!("copies {last} multicast datagrams"))
        .map(|ours| {
            let words = format!(
                "{ours:.1}: the request to the owner is one more, since the writer does not know the holders"
            );
            (words, near(ours, multicast_datagrams(last)))
        });
    vec![
        Claim::of("FR4", "a read takes two datagrams", read),
        Claim::of(
            "FR4",
            format!(
                "a write takes n + c + 1 with n members and c copies: where each member has a copy {:.0} for {} to {:.0} for {last}",
                write_datagrams(*COPIES.start(), *COPIES.start()),
                COPIES.start(),
                write_datagrams(last, last),
            ),
            everybody,
        ),
        Claim::of(
            "FR4",
            format!(
                "where {FEW} of {MEMBERS} members have a copy it takes {:.0}, too",
                write_datagrams(MEMBERS, FEW)
            ),
            few,
        ),
        Claim::of(
            "FR4",
            format!(
                "by multicast it would take 1 + c + 1: {:.0} for {last} copies",
                multicast_datagrams(last)
            ),
            multicast,
        ),
    ]
}

fn contention(document: &Figures) -> Vec<Claim> {
    let share = |slow: &str| document.get(&format!("contention {slow} share of the slow"));
    let starved = (|| {
        let (crowded, pausing, far) = (
            share("half_a_processor")?,
            share("pausing_50us")?,
            share("far_2000us")?,
        );
        let words = format!(
            "of the turns the slow node has {crowded:.2} with half a processor, {pausing:.2} if it pauses between stores, {far:.2} behind a line of 2 ms: requests queue at the owner"
        );
        Some((words, crowded.min(pausing).min(far) < 0.4))
    })();
    let again = (|| {
        let of = |nodes: usize| document.get(&format!("contention {nodes} again"));
        let (first, last) = (NODES[0], NODES[NODES.len() - 1]);
        let (few, many) = (of(first)?, of(last)?);
        let words = format!("{few:.3} for a turn with {first} writers, {many:.3} with {last}");
        // One in ten turns is many.
        Some((words, many > few && many > 0.1))
    })();
    vec![
        Claim::of(
            "FR5",
            "slow machines starve in favour of fast ones where they contend for a page",
            starved,
        ),
        Claim::of(
            "FR5",
            "under high contention many messages are sent again",
            again,
        ),
    ]
}

fn loss(document: &Figures) -> Claim {
    let found = (|| {
        let (mut wrong, mut additions) = (0.0, 0.0);
        for network in NETWORKS {
            wrong += document.get(&format!("loss {network} wrong words"))?;
            additions += document.get(&format!("loss {network} additions"))?;
        }
        let words = format!(
            "{additions:.0} additions by four nodes on {} networks, {wrong:.0} wrong sums",
            NETWORKS.len()
        );
        Some((words, wrong == 0.0))
    })();
    Claim::of(
        "FR6",
        "the protocol is right though datagrams are lost, doubled and reordered",
        found,
    )
}

fn interface(document: &Figures) -> Claim {
    let found = (|| {
        let (read, write) = (
            way_to_server(document, "block", "read")?,
            way_to_server(document, "block", "write")?,
        );
        let words = format!("{:.0} and {:.0} %", 100.0 * read, 100.0 * write);
        Some((words, read.min(write) >= 0.2))
    })();
    Claim::of(
        "FR7",
        format!(
            "a server in the kernel would save the way to it, {:.0} % of a read and {:.0} % of a write: a fifth or more",
            100.0 * READ_IPC / READ,
            100.0 * WRITE_IPC / WRITE
        ),
        found,
    )
}
