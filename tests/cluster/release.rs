//! Properly labelled programs: what they find does not depend on the policy.

use crate::stress::{bad_network, seed};
use crate::support::{Cluster, Player, finish_all, stress_time};
use pagemesh::Options;
use pagemesh_cli::sandbox::Plan;

/// Pages of the ground of labelled players.
const GROUND: u64 = 7;

/// Properly labelled programs, so many processes on each node, until `trouble` ends.
fn labelled(plan: Plan, processes: usize, options: Options, trouble: impl FnOnce(&Cluster)) {
    let (nodes, seed) = (plan.nodes, seed());
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    eprintln!("PAGEMESH_STRESS_SEED={seed}");
    cluster.make_on(nodes - 1, "labelled", GROUND, options);
    let parties = nodes * processes;
    let seconds = stress_time().as_secs_f64();
    let players: Vec<Player> = (0..parties)
        .map(|place| {
            let arguments = format!(
                "labelled labelled --place {place} --processes {parties} --seed {seed} \
                 --seconds {seconds}"
            );
            cluster.player(place % nodes, &arguments)
        })
        .collect();
    trouble(&cluster);
    let said = finish_all(players);
    let numbers = |line: &str| -> Vec<u64> {
        let words = line.split_whitespace();
        words.map(|word| word.parse().unwrap()).collect()
    };
    let turns: u64 = said.iter().map(|lines| numbers(&lines[0])[1]).sum();
    for lines in &said {
        assert_eq!(numbers(&lines[1]), [turns], "turns with locks");
    }
    let phases = numbers(&said[0][0])[0];
    assert!(phases >= 3, "only {phases} phases");
    eprintln!("{phases} phases, {turns} turns with locks");
    for node in 0..nodes {
        for counter in ["frames_overwritten", "placing_failed"] {
            let count = cluster.counter(node, counter);
            assert_eq!(count, 0, "{counter} on node {node}");
        }
    }
}

#[test]
fn a_labelled_program_finds_the_same_in_sequential_memory() {
    labelled(Plan::new(3), 1, Options::default(), |_| {});
    labelled(bad_network(2), 2, Options::default(), |_| {});
}
