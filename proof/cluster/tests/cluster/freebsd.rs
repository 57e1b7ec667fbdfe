//! What the FreeBSD DSM's authors measured (FR1 to FR7), measured by the benchmark on a small scale:
//! what must hold whatever else this host does.

use crate::support::Cluster;
use crate::tmk::bench_paper;
use serde_json::Value;

/// Its report and its document.
fn measured(part: &str) -> Option<(Value, String)> {
    // Takes the place of a cluster, and tells whether there can be one.
    let cluster = Cluster::start(1)?;
    let directory = cluster.directory();
    let (kept, report) = (directory.join("kept.json"), directory.join("freebsd.md"));
    let document = bench_paper(&[
        "freebsd",
        "--operations=200",
        &format!("--parts={part}"),
        &format!("--keep={}", kept.display()),
        &format!("--report={}", report.display()),
    ]);
    let again = bench_paper(&["freebsd", &format!("--from={}", kept.display())]);
    assert_eq!(document, again, "what was kept is what was measured");
    Some((document, std::fs::read_to_string(&report).unwrap()))
}

#[track_caller]
fn value(document: &Value, name: &str) -> f64 {
    let value = document["values"][name].as_f64();
    value.unwrap_or_else(|| panic!("no `{name}` in {document}"))
}

#[test]
fn fr1_fr2_fr4_fr7_faults_are_measured_and_divided() {
    let Some((document, report)) = measured("basic") else {
        return;
    };
    for waiting in ["block", "spin"] {
        let of = |name: &str| value(&document, &format!("basic {waiting} {name}"));
        for kind in ["read", "write"] {
            let [least, mean, ipc, server] =
                ["least us", "mean us", "ipc mean us", "server mean us"]
                    .map(|what| of(&format!("{kind} {what}")));
            assert!(least > 1.0 && least <= mean, "{kind}: {least} {mean}");
            // Of nine in ten at least.
            let parts = ipc + server;
            assert!(
                ipc > 0.0 && server > 0.0 && parts > 0.2 * mean,
                "{kind}: {ipc} {server} of {mean}"
            );
        }
        // What was not sent again, but answers that were given twice and heartbeats.
        let (read, write) = (of("read datagrams"), of("write datagrams"));
        assert!((1.9..3.0).contains(&read), "{read} datagrams for a read");
        assert!((2.9..4.5).contains(&write), "{write} datagrams for a write");
    }
    for section in ["## FR1", "## FR2", "| FR7 |"] {
        assert!(report.contains(section), "{section}: {report}");
    }
}

#[test]
fn fr3_f21_copies_are_taken_back_by_both_ways() {
    let Some((document, report)) = measured("copies,ways") else {
        return;
    };
    for copies in 2..=11_u32 {
        let of = |name: &str| value(&document, &format!("copies {copies} {name}"));
        // A request and an answer for each copy, and for the owner's if it does not write itself. What
        // was sent again is not counted, but the answers to it are.
        for (name, due) in [("writer", 2 * copies + 1), ("owner", 2 * copies)] {
            let (due, sent) = (f64::from(due), of(&format!("{name} datagrams")));
            assert!(
                (due - 0.2..due + f64::from(copies)).contains(&sent),
                "{sent} datagrams for {copies} copies and the {name}"
            );
        }
        for way in ["asks all", "by owner", "asks members"] {
            let [least, median] = ["least us", "median us"]
                .map(|what| value(&document, &format!("ways {copies} {way} {what}")));
            assert!(least > 0.0 && least <= median, "{way}: {least} {median}");
        }
    }
    assert!(report.contains("## F21, F22"), "{report}");
}

#[test]
fn fr6_all_sums_are_right_on_bad_networks() {
    let Some((document, _)) = measured("loss") else {
        return;
    };
    let networks = [
        "loss=0%",
        "loss=5%",
        "loss=10%",
        "dup=5%",
        "reorder=10%",
        "loss=10%,dup=5%,reorder=10%",
    ];
    for network in networks {
        let of = |name: &str| value(&document, &format!("loss {network} {name}"));
        assert_eq!(of("wrong words"), 0.0, "{network}");
        assert_eq!(of("additions"), 4.0 * 2.0 * 50.0, "{network}");
    }
    let again = |network: &str| {
        ["read", "write"]
            .map(|kind| value(&document, &format!("loss {network} {kind} again")))
            .iter()
            .sum::<f64>()
    };
    // Of 100 operations with 250 datagrams a tenth is lost.
    assert!(again("loss=10%") > 0.0, "what was lost was sent again");
}

#[test]
fn fr5_every_node_has_turns_at_a_page_that_all_want() {
    let Some((document, _)) = measured("contention") else {
        return;
    };
    for nodes in [2, 4, 8, 12] {
        let of = |name: &str| value(&document, &format!("contention {nodes} {name}"));
        assert!(of("turns/s") > 0.0, "{nodes}");
        // Of twelve on two busy processors one may not have begun in half a second.
        assert!(nodes > 2 || of("least share of even") > 0.0, "one had none");
    }
    for slow in [
        "alike",
        "pausing_50us",
        "far_200us",
        "far_2000us",
        "half_a_processor",
    ] {
        let share = value(&document, &format!("contention {slow} share of the slow"));
        assert!(share > 0.0 && share < 1.0, "{slow}: {share}");
    }
}
