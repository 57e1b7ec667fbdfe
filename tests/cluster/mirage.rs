//! MIRAGE+'s programs (M28): on this host's own System V, and on pagemesh.h across
//! nodes. Each checks itself, and fails if memory did.

use crate::support::{Cluster, Player, finish_all};
use crate::tmk::programs;
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
    // What another test cuts short must not be in the way, nor this in its.
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
