//! The parallel kernels in `lab/apps/kernels/`: each is built as processes, as threads and
//! single, and all three get the same result.

use crate::c_examples::library_of;
use crate::support::Cluster;
use crate::tmk::{HERE, bench, compile, programs, run};
use pagemesh_cli::sandbox::Plan;
use std::path::Path;
use std::process::Command;

/// All kernels, with problems small enough for a test.
const KERNELS: [(&str, &str); 9] = [
    ("fft", "--log=12"),
    ("lu", "--size=128 --block=16"),
    ("lu", "--size=128 --block=16 --contiguous=0"),
    ("radix", "--count=50000 --bits=20"),
    ("cholesky", "--edge=7 --layers=6 --task=40 --width=8"),
    ("barnes", "--bodies=500 --steps=2"),
    ("water", "--molecules=45 --steps=2 --per-lock=8"),
    ("ocean", "--cells=64"),
    ("raytrace", "--side=96 --generations=2 --samples=1"),
];

#[test]
fn kernels_on_two_nodes_get_what_one_process_gets() {
    on_two_nodes("sequential");
}

#[test]
fn kernels_on_two_nodes_get_it_where_changes_travel_with_locks() {
    on_two_nodes("release");
}

#[test]
fn kernels_in_threads_get_what_one_process_gets() {
    let kernels = programs().join("kernels");
    for (name, arguments) in KERNELS {
        let expected = natively(&kernels, &format!("{name}-single"), arguments);
        for threads in [1, 2, 3] {
            let arguments = format!("{arguments} --processes={threads}");
            let found = natively(&kernels, &format!("{name}-threads"), &arguments);
            assert_same(name, &found, &expected, threads);
        }
    }
}

#[test]
fn a_kernel_with_another_number_of_processes_says_so() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let program = programs().join("kernels/fft");
    let mut command = cluster.node(0).command(&program);
    let output = command.args(["--log=4", "--processes=3"]).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        words.trim(),
        "0: 3 processes are wanted, but the launcher started 1"
    );
}

#[test]
fn the_macros_of_the_document_make_a_parmacs_program_run() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let document = std::fs::read_to_string(format!("{HERE}/../../docs/treadmarks.md")).unwrap();
    let (_, steps) = document.split_once("*Replace the macros.*").unwrap();
    let header = steps
        .split("```")
        .nth(1)
        .unwrap()
        .strip_prefix('c')
        .unwrap();
    let directory = library_of(&cluster);
    std::fs::write(directory.join("parmacs.h"), header).unwrap();
    let source = format!("{HERE}/tests/cluster/c/parmacs.c");
    let include = format!("-I{}", directory.display());
    let program = compile(
        &directory,
        "parmacs",
        "cc",
        &["-std=c99", &include, &source, "-lpagemesh"],
    );
    for policy in ["sequential", "release"] {
        let arguments = format!("-- --policy {policy}");
        let said = run(&cluster, &program, policy, &arguments);
        assert_eq!(said[0], ["the sum of 3 is 24995000"], "{policy}");
    }
}

#[test]
fn kernels_are_measured_beside_threads() {
    // Takes the place of a cluster, and tells whether there can be one.
    let Some(_cluster) = Cluster::start(1) else {
        return;
    };
    let document = bench(
        "programs",
        &[
            "--only=radix,lu-rows",
            "--size=small",
            "--limited=0",
            &format!("--programs={}", programs().join("kernels").display()),
        ],
    );
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        let [one, two] = [&row["native"][0], &row["native"][1]];
        assert_eq!((&one["threads"], &two["threads"]), (&1.into(), &2.into()));
        assert_eq!(one["speedup"], 1.0);
        let (nodes, base) = (&row["nodes"][1], one["seconds"].as_f64().unwrap());
        assert_eq!(nodes["nodes"], 2);
        let speedup = base / nodes["seconds"].as_f64().unwrap();
        assert!((nodes["speedup"].as_f64().unwrap() - speedup).abs() < 1e-9);
        for what in ["messages", "megabytes", "faults", "barrier_wait"] {
            assert!(nodes[what].as_f64().unwrap() > 0.0, "{what}: {row}");
        }
    }
}

fn on_two_nodes(policy: &str) {
    let mut plan = Plan::new(2);
    plan.daemon_args.push("--check-races".to_owned());
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    let kernels = programs().join("kernels");
    for (turn, (name, arguments)) in KERNELS.into_iter().enumerate() {
        let expected = natively(&kernels, &format!("{name}-single"), arguments);
        let job = format!("{name}{turn}{policy}");
        let arguments = format!("{arguments} --check -- --policy {policy}");
        let said = run(&cluster, &kernels.join(name), &job, &arguments);
        assert_eq!(said[0].len(), 1, "{name}: {said:?}");
        assert_same(name, &said[0][0], &expected, 2);
        for node in 0..2 {
            assert_eq!(cluster.counter(node, "races_found"), 0, "{name} has races");
        }
    }
}

/// What a program without PageMesh says.
fn natively(kernels: &Path, program: &str, arguments: &str) -> String {
    let output = Command::new(kernels.join(program))
        .args(arguments.split_whitespace())
        .arg("--check")
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {words}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The results behind the times are the same: to the bit, but for Water, which adds
/// forces in the order in which processes get a lock.
fn assert_same(name: &str, found: &str, expected: &str, processes: usize) {
    let start = format!("{name} processes={processes} seconds=");
    assert!(found.starts_with(&start), "{found}");
    let (found, expected) = (result(found), result(expected));
    if name == "water" {
        let number = |text: &str| -> f64 { text.strip_prefix("energy=").unwrap().parse().unwrap() };
        let (found, expected) = (number(found), number(expected));
        assert!(
            (found / expected - 1.0).abs() < 1e-9,
            "{found}, not {expected}"
        );
    } else {
        assert_eq!(found, expected, "{name}, {processes} processes");
    }
}

/// What stands behind the time: `NAME processes=N seconds=S RESULT`.
fn result(line: &str) -> &str {
    line.splitn(4, ' ').nth(3).unwrap()
}
