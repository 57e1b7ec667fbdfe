//! True and false sharing, told apart while programs run (MB5).

use crate::support::{Cluster, PATIENCE, Player, at_best, expect};
use crate::tmk::programs;
use serde_json::Value;
use std::process::Command;
use std::time::Instant;

/// Starts a program of MIRAGE+ on all nodes.
fn play(cluster: &Cluster, name: &str, arguments: &[&str]) -> Vec<Player> {
    let program = programs().join("mirage").join(format!("{name}-mesh"));
    let nodes = cluster.nodes().iter();
    nodes
        .map(|node| {
            let mut command = node.command(&program);
            command.args(arguments).env("PAGEMESH_JOB", name);
            Player::run(command, name)
        })
        .collect()
}

/// The report of a node about the program's first segment, as soon as there is one.
fn seen(cluster: &Cluster, node: usize, name: &str) -> Vec<Value> {
    let end = Instant::now() + PATIENCE;
    loop {
        let output = Command::new(env!("CARGO_BIN_EXE_pagemesh-under-test"))
            .arg("--socket")
            .arg(cluster.node(node).socket())
            .args(["-o", "json", "segment", "inspect"])
            .arg(format!("mirage.{name}.0"))
            .args(["--sharing", "--for", "300ms"])
            .output()
            .unwrap();
        if output.status.success() {
            let document: Value = serde_json::from_slice(&output.stdout).unwrap();
            let pages = document["pages"].as_array().unwrap();
            if !pages.is_empty() {
                return pages.clone();
            }
        }
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(Instant::now() < end, "{name}: {words}");
    }
}

fn writers(page: &Value) -> Vec<u64> {
    let writers = page["writers"].as_array().unwrap().iter();
    writers
        .map(|writer| writer["node"].as_u64().unwrap())
        .collect()
}

#[test]
fn battleship_shares_truly() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let players = play(&cluster, "battleship", &["--games=100000"]);
    for node in 0..2 {
        let pages = seen(&cluster, node, "battleship");
        assert_eq!(pages.len(), 1, "{pages:?}");
        assert_eq!(pages[0]["sharing"], "true", "{pages:?}");
        assert_eq!(writers(&pages[0]), [1, 2]);
        assert!(pages[0]["advice"].as_str().unwrap().contains("write lock"));
    }
    players.into_iter().for_each(Player::kill);
}

#[test]
fn bands_of_a_matrix_without_padding_share_falsely() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let arguments = ["--n=130", "--padding=0", "--times=100000"];
    let players = play(&cluster, "matrix", &arguments);
    // A, B and C have 17 pages each; the second worker's first row begins there.
    let (page, border) = (34 + 65 * 130 * 4 / 4096, 65 * 130 * 4 % 4096);
    // One node makes the matrix anew for each turn: a look may see some of both.
    at_best(|| {
        let pages = seen(&cluster, 1, "matrix");
        let border_page = pages.iter().find(|found| found["page"] == page);
        let shares_falsely = border_page.is_some_and(|found| {
            let advice = found["advice"].as_str().unwrap();
            found["sharing"] == "false"
                && writers(found) == [2, 3]
                && advice.contains(&format!("before byte {border}"))
        });
        let mut others = pages.iter().filter(|other| other["page"] != page);
        let no_other = others.all(|other| other["sharing"] == "one writer");
        expect(shares_falsely && no_other, format!("{pages:?}"))
    });
    players.into_iter().for_each(Player::kill);
}
