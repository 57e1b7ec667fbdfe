//! Clusters whose daemons are replaced, one after the other, by ones of another edition, while
//! programs compute: they notice nothing, and all results are right.

use crate::release::release;
use crate::replacement::lasting;
use crate::stress::{Stage, shape, stress_with};
use crate::support::{Cluster, Player, eventually, finish_all, load, store, stress_time};
use pagemesh::{Access, Options};
use pagemesh_cli::sandbox::{Plan, Variant};
use pagemesh_wire::{Program, Versions};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// As [`Plan::experiment`](pagemesh_cli::sandbox::Plan::experiment) says it.
const FORMER: &str = "edition=former";

/// The versions of the protocol of the two editions.
const SPOKEN_BEFORE: u8 = 4;
const SPOKEN_NOW: u8 = Versions::SPOKEN.newest;

/// A program built from a commit that speaks the former version: `scripts/roll-commits`.
const FORMER_PROGRAM: &str = "PAGEMESH_FORMER_PROGRAM";

const NODES: usize = 4;

/// Two programs that take each other's place.
struct Editions<'a> {
    former: Variant<'a>,
    present: Variant<'a>,
}

impl<'a> Editions<'a> {
    /// Both editions of one program.
    fn of(program: &'a Path) -> Self {
        let variant = |experiment| Variant {
            program,
            experiment,
        };
        Self {
            former: variant(FORMER),
            present: variant(""),
        }
    }

    /// Replaces every daemon by one of the present edition, then by one of the former.
    fn roll_over_and_back(&self, cluster: &Cluster) {
        for node in 0..NODES {
            cluster.replace_by(node, self.present).unwrap();
            let renewed = 0..=node;
            let last = node == NODES - 1;
            expect_spoken(
                cluster,
                renewed,
                if last { SPOKEN_NOW } else { SPOKEN_BEFORE },
            );
        }
        expect_programs(cluster, self.present.program);
        // The coordinator is neither the first nor the last.
        for (done, node) in [2, 0, 3, 1].into_iter().enumerate() {
            cluster.replace_by(node, self.former).unwrap();
            let renewed = [2, 0, 3, 1].into_iter().skip(done + 1);
            expect_spoken(cluster, renewed, SPOKEN_BEFORE);
        }
    }
}

/// All these nodes, of the present edition, know that the cluster speaks this version.
fn expect_spoken(cluster: &Cluster, nodes: impl IntoIterator<Item = usize>, version: u8) {
    for node in nodes {
        eventually(&format!("node {node} knows of version {version}"), || {
            let mut control = cluster.node(node).control().unwrap();
            let (_, spoken, _) = control.everyone().unwrap();
            spoken == version
        });
    }
}

/// Every node knows which program each member is, and people see it.
fn expect_programs(cluster: &Cluster, program: &Path) {
    for node in 0..NODES {
        eventually("all programs are known", || {
            let mut control = cluster.node(node).control().unwrap();
            let members = control.alive().unwrap();
            let known =
                |program: Program| program.speaks == Versions::SPOKEN && program.release.build != 0;
            members.iter().all(|member| known(member.program))
        });
    }
    let mut command = cluster.node(0).command(program);
    let output = command.args(["status", "-o", "json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["protocol"]["spoken"], SPOKEN_NOW, "{document}");
}

/// Programs in memory of policy `release`, and ones with a board, beside those of the stage.
fn more_players(cluster: &Cluster) -> Vec<Player> {
    let seconds = stress_time().as_secs_f64() * 2.0;
    let writer = cluster.player(1, &format!("board board --seconds {seconds}"));
    writer.expect("ready");
    let mut players = vec![writer];
    for node in [0, 2, 3] {
        let reader = cluster.player(node, "board board");
        reader.expect("ready");
        players.push(reader);
    }
    cluster.make_on(3, "labelled", 7, release());
    players.extend((0..NODES).map(|place| {
        let arguments = format!(
            "labelled labelled --place {place} --processes {NODES} --seed 7 --seconds {seconds}"
        );
        cluster.player(place, &arguments)
    }));
    players
}

/// Nothing was lost of what these programs did.
fn check(players: Vec<Player>) {
    let said = finish_all(players);
    let (boards, labelled) = said.split_at(4);
    let last = boards[0].last().unwrap();
    for lines in boards {
        assert_eq!(lines.last().unwrap(), last, "the last state");
    }
    let numbers = |line: &str| -> Vec<u64> {
        let words = line.split_whitespace();
        words.map(|word| word.parse().unwrap()).collect()
    };
    let turns: u64 = labelled.iter().map(|lines| numbers(&lines[0])[1]).sum();
    for lines in labelled {
        assert_eq!(numbers(&lines[1]), [turns], "turns with locks");
    }
    let phases = numbers(&labelled[0][0])[0];
    eprintln!("{last} states, {phases} phases, {turns} turns with locks");
    assert!(phases >= 3, "only {phases} phases");
}

fn roll(stage: &Stage<'_>, over: &AtomicBool, editions: &Editions<'_>) {
    let cluster = stage.cluster;
    let players = more_players(cluster);
    let mut times = 0;
    while times == 0 || !over.load(Relaxed) {
        editions.roll_over_and_back(cluster);
        times += 1;
    }
    eprintln!("rolled over and back {times} times");
    check(players);
    for node in 0..NODES {
        assert_eq!(cluster.counter(node, "races_found"), 0);
    }
}

/// A program of this release under a daemon of the former one: it is told, and goes on.
#[test]
fn a_program_is_told_what_an_older_daemon_cannot_do() {
    let mut plan = Plan::new(1);
    plan.experiment = FORMER.into();
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    let segment = cluster.make_on(0, "old", 1, Options::default());
    let Err(refused) = segment.capability(Access::ReadOnly) else {
        panic!("the former local protocol has no capabilities");
    };
    assert!(refused.to_string().contains("older release"), "{refused}");
    let memory = segment.map().unwrap();
    store(&memory, 0, 7);
    assert_eq!(load(&memory, 0), 7);
}

#[test]
fn a_loaded_cluster_is_rolled_to_the_next_edition_and_back() {
    let mut plan = lasting(NODES);
    plan.experiment = FORMER.into();
    stress_with(plan, &shape(1, 2), 0, |stage, over| {
        roll(stage, over, &Editions::of(stage.cluster.program()));
    });
}

/// With datagrams that are sealed, lost and doubled.
#[test]
fn a_cluster_on_a_bad_network_is_rolled_to_the_next_edition_and_back() {
    let mut plan = lasting(NODES);
    plan.experiment = FORMER.into();
    plan.sealed = true;
    plan.impair = crate::stress::bad_network(NODES).impair;
    stress_with(plan, &shape(1, 1), 0, |stage, over| {
        roll(stage, over, &Editions::of(stage.cluster.program()));
    });
}

#[test]
#[ignore = "needs a program of a former commit: scripts/roll-commits"]
fn a_loaded_cluster_is_rolled_from_a_former_commit_and_back() {
    let former = std::env::var_os(FORMER_PROGRAM);
    let former = PathBuf::from(former.expect("scripts/roll-commits names the program"));
    let mut plan = lasting(NODES);
    plan.program = Some(former.clone());
    // It may not know the switches of today.
    plan.experiment.clear();
    let present = Path::new(env!("CARGO_BIN_EXE_pagemesh-under-test"));
    stress_with(plan, &shape(1, 2), 0, |stage, over| {
        let variant = |program| Variant {
            program,
            experiment: "",
        };
        let editions = Editions {
            former: variant(&former),
            present: variant(present),
        };
        roll(stage, over, &editions);
    });
}

#[test]
fn a_daemon_that_is_put_back_joins_a_newer_cluster_as_well() {
    let Some(cluster) = Cluster::of(lasting(2)) else {
        return;
    };
    expect_spoken(&cluster, [0, 1], SPOKEN_NOW);
    let variant = Variant {
        program: cluster.program(),
        experiment: FORMER,
    };
    cluster.replace_by(1, variant).unwrap();
    expect_spoken(&cluster, [0], SPOKEN_BEFORE);
    let mut command = cluster.node(0).command(cluster.program());
    let output = command.arg("status").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("the newest that n2 can speak"), "{text}");
    // Its journal is of the same build, and it goes on as the present edition.
    cluster.kill(1).unwrap();
    cluster.restart(1).unwrap();
    expect_spoken(&cluster, [0, 1], SPOKEN_NOW);
    assert_eq!(cluster.mesh(1).status().unwrap().takeovers, 2);
}
