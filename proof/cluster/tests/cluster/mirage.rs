//! MIRAGE+'s programs (M28): on this host's own System V, and on pagemesh.h across
//! nodes. Each checks itself, and fails if memory did.

use crate::support::{Cluster, Player, finish_all};
use crate::sysv::Stage;
use crate::tmk::{bench_paper, programs};
use std::process::Command;

/// Small enough for a test. The first word is the program.
const RUNS: [&str; 8] = [
    "scramble --how=each --n=10 --count=20",
    "scramble --how=upto --n=128 --count=20",
    "scramble --how=rand --n=600 --count=20",
    "battleship --yield=1",
    "battleship --yield=1 --turns=40",
    "matrix --n=60",
    "matrix --n=130",
    "matrix --n=130 --padding=0",
];

fn split(run: &str) -> (&str, Vec<&str>) {
    let (name, arguments) = run.split_once(' ').unwrap();
    (name, arguments.split(' ').collect())
}

#[test]
fn the_programs_of_mirage_run_on_this_hosts_own_system_v() {
    // A test that was cut short must not disturb this one, nor this one another.
    let Some(_cluster) = Cluster::start(1) else {
        return;
    };
    for run in RUNS {
        let (name, arguments) = split(run);
        let output = Command::new(programs().join("mirage").join(name))
            .args(arguments)
            .env_remove("PAGEMESH_RANK")
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{run}: {words}");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.starts_with(&format!("{name} processes=2 seconds=")),
            "{run}: {said}"
        );
    }
}

#[test]
fn the_programs_of_mirage_run_across_nodes() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    for (turn, run) in RUNS.into_iter().enumerate() {
        let (name, arguments) = split(run);
        let program = programs().join("mirage").join(format!("{name}-mesh"));
        let players = (0..3).map(|node| {
            let mut command = cluster.node(node).command(&program);
            command
                .args(&arguments)
                .env("PAGEMESH_JOB", format!("mirage{turn}"));
            Player::run(command, run)
        });
        let said = finish_all(players.collect());
        let first = said[0]
            .first()
            .unwrap_or_else(|| panic!("{run} says nothing"));
        assert!(
            first.starts_with(&format!("{name} processes=3 seconds=")),
            "{run}: {first}"
        );
        assert!(
            run != "battleship --yield=1" || first.contains("turns=789 hits=17"),
            "{first}"
        );
    }
}

/// The same binaries that run on one host's own System V, with the library before them.
#[test]
fn the_programs_of_mirage_run_across_nodes_on_the_plain_system_v_interface() {
    let Some(stage) = Stage::set(3) else {
        return;
    };
    for (turn, run) in RUNS.into_iter().enumerate() {
        let (name, arguments) = split(run);
        let program = programs().join("mirage").join(name);
        let players = (0..3).map(|node| {
            let mut command = stage.command(node, &program);
            command
                .args(&arguments)
                .env("PAGEMESH_JOB", format!("{turn}"));
            Player::run(command, run)
        });
        let said = finish_all(players.collect());
        let first = said[0].first().map_or("", String::as_str);
        assert!(
            first.starts_with(&format!("{name} processes=3 seconds=")),
            "{run}: {first}"
        );
    }
    let pages = stage.cluster.counter(1, "pages_out");
    assert!(pages > 100, "memory went to and fro: {pages}");
}

/// `sandbox --sysv` and `run --sysv` start such programs.
#[test]
fn system_v_programs_are_started_by_the_commands() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let pagemesh = env!("CARGO_BIN_EXE_pagemesh-under-test");
    let battleship = programs().join("mirage/battleship");
    let game = ["--yield=1", "--turns=40"];
    let mut run = stage.cluster.node(1).command(pagemesh);
    run.args(["run", "--sysv", "--"])
        .arg(&battleship)
        .args(game);
    let mut sandbox = Command::new(pagemesh);
    sandbox.args(["sandbox", "2", "--sysv", "--"]);
    sandbox.arg(&battleship).args(game);
    for mut command in [run, sandbox] {
        let output = command.output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {words}");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("battleship processes=2 seconds="), "{said}");
    }
    let mut refused = Command::new(pagemesh);
    refused.args(["sandbox", "2", "--sysv", "--", "/no/such/program"]);
    assert!(!refused.output().unwrap().status.success());
}

#[test]
fn the_paper_is_measured_again_and_kept() {
    // Takes the place of a cluster, and tells whether there can be one.
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let directory = cluster.directory();
    let (kept, report) = (directory.join("kept.json"), directory.join("mirage.md"));
    let measure = |part: &str| {
        bench_paper(&[
            "mirage",
            "--rounds=1",
            "--turns=50",
            &format!("--parts={part}"),
            &format!("--programs={}", programs().join("mirage").display()),
            &format!("--keep={}", kept.display()),
            &format!("--report={}", report.display()),
        ])
    };
    let document = measure("battleship");
    let rows = document["sections"]["13"]["rows"].as_array().unwrap();
    let windows = rows
        .iter()
        .filter(|row| row[0].as_str().unwrap().contains("Δ = "));
    assert_eq!(windows.count(), 22, "{rows:?}");
    let pages = &document["sections"]["12"]["rows"][3];
    assert_eq!(pages[0], "pages sent");
    let each: f64 = pages[1].as_str().unwrap().parse().unwrap();
    assert!((0.5..4.0).contains(&each), "a page for each turn: {each}");
    let text = std::fs::read_to_string(&report).unwrap();
    assert!(
        text.contains("## MR14: ") && text.contains("two sites, Δ = auto"),
        "{text}"
    );
    // Figures that are not measured now stay as they were.
    let again: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&kept).unwrap()).unwrap();
    assert_eq!(again["sections"]["13"], document["sections"]["13"]);
}
