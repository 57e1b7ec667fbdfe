//! Mether's programs (E15, E20, E21) on the nodes of a cluster. Each checks what it gets.

use crate::support::{Cluster, Player, finish_all};
use crate::tmk::{bench_paper, programs};
use std::collections::BTreeMap;

/// What a program says: words with `=`.
fn words(line: &str) -> BTreeMap<&str, &str> {
    line.split_whitespace()
        .filter_map(|word| word.split_once('='))
        .collect()
}

fn run(cluster: &Cluster, nodes: usize, program: &str, arguments: &str, job: &str) -> Vec<String> {
    let path = programs().join("mether").join(program);
    let players = (0..nodes).map(|node| {
        let mut command = cluster.node(node).command(&path);
        command
            .args(arguments.split_whitespace())
            .env("PAGEMESH_JOB", job);
        Player::run(command, &format!("{program} {arguments}"))
    });
    let said = finish_all(players.collect());
    let first = said.into_iter().map(|lines| lines.first().cloned());
    first
        .map(|line| line.unwrap_or_else(|| panic!("{program} {arguments} says nothing")))
        .collect()
}

#[test]
fn e21_two_processes_count_by_every_protocol() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let protocols = [
        "full --to=200",
        "short --to=200",
        "disjoint --purge=100 --to=200",
        "disjoint --purge=100 --delay=50 --to=200",
        "data --to=200",
        "final --to=1024",
    ];
    for (turn, protocol) in protocols.iter().enumerate() {
        let arguments = format!("--protocol={protocol} --bound=60");
        let said = run(&cluster, 2, "count", &arguments, &format!("count{turn}"));
        let target = protocol.rsplit_once('=').unwrap().1;
        for line in &said {
            assert_eq!(words(line)["value"], target, "{line}");
        }
    }
}

#[test]
fn e21_the_protocol_that_never_finishes_has_a_bound() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    // No purge, ever: it cannot get far.
    let arguments = "--protocol=disjoint --purge=0 --delay=100 --to=1000000 --bound=1";
    for line in run(&cluster, 2, "count", arguments, "never") {
        let value: u64 = words(&line)["value"].parse().unwrap();
        assert!(value < 1_000_000, "{line}");
    }
}

#[test]
fn e21_one_packet_for_an_addition_by_the_final_protocol() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let packets = || -> u64 {
        (0..2)
            .map(|node| cluster.counter(node, "datagrams_out") - cluster.counter(node, "resent"))
            .sum()
    };
    let before = packets();
    let additions = 4000;
    let arguments = format!("--protocol=final --to={additions}");
    run(&cluster, 2, "count", &arguments, "packets");
    let each = (packets() - before) as f64 / f64::from(additions);
    assert!((1.0..2.0).contains(&each), "{each} packets for an addition");
}

#[test]
fn e15_the_solver_gets_what_one_process_gets() {
    let Some(cluster) = Cluster::start(4) else {
        return;
    };
    for nodes in [2, 4] {
        let path = programs().join("mether/solver");
        let players = (0..nodes).map(|node| {
            let mut command = cluster.node(node).command(&path);
            command
                .args(["--n=120", "--iterations=60", "--check"])
                .env("PAGEMESH_JOB", format!("solver{nodes}"))
                .env("PAGEMESH_SIZE", nodes.to_string());
            Player::run(command, "solver")
        });
        let said = finish_all(players.collect());
        let first = words(&said[0][0]);
        assert_eq!(first["processes"], nodes.to_string());
        assert!(first["messages"].parse::<u64>().unwrap() > 100);
    }
}

#[test]
fn er0_to_er8_are_measured_and_kept() {
    // Takes the place of a cluster, and tells whether there can be one.
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let directory = cluster.directory();
    let (kept, report) = (directory.join("kept.json"), directory.join("mether.md"));
    let measure = |part: &str| {
        bench_paper(&[
            "mether",
            "--rounds=1",
            "--to=64",
            "--bound=3",
            "--grid=60",
            "--iterations=20",
            "--nodes=1,2",
            &format!("--parts={part}"),
            &format!("--programs={}", programs().join("mether").display()),
            &format!("--keep={}", kept.display()),
            &format!("--report={}", report.display()),
        ])
    };
    let document = measure("count");
    let counts = document["counts"].as_array().unwrap();
    assert_eq!(counts.len(), 9);
    let last = &counts[8];
    assert_eq!(last["value"], 64);
    assert!(last["packets"].as_u64().unwrap() >= 64, "{last}");
    let document = measure("solver");
    assert_eq!(document["solver"].as_array().unwrap().len(), 2);
    assert_eq!(document["counts"].as_array().unwrap().len(), 9, "kept");
    let text = std::fs::read_to_string(&report).unwrap();
    for section in ["## ER0 to ER5", "## ER7", "## ER6", "| ER8 |"] {
        assert!(text.contains(section), "{section}: {text}");
    }
}
