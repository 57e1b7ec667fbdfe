//! Barriers of the whole cluster.

use crate::support::{Cluster, eventually, finish_all};
use pagemesh::{Error, Options, PAGE_SIZE, Refusal};
use std::time::Duration;

fn phases(cluster: &Cluster, name: &str, parties: usize, stride: usize, phases: u64) {
    let nodes = cluster.nodes().len();
    cluster.make_on(0, name, parties as u64, Options::default());
    let players = (0..parties)
        .map(|place| {
            let arguments = format!(
                "phases {name} --place {place} --parties {parties} --phases {phases} \
                 --stride {stride}"
            );
            cluster.player(place % nodes, &arguments)
        })
        .collect();
    finish_all(players);
    let passed: u64 = (0..nodes)
        .map(|node| cluster.counter(node, "barriers"))
        .sum();
    assert!(passed >= 2 * phases * parties as u64, "{passed}");
}

#[test]
fn phases_are_told_apart_on_four_nodes_with_two_processes_each() {
    let Some(cluster) = Cluster::start(4) else {
        return;
    };
    phases(&cluster, "pages", 8, PAGE_SIZE, 30);
    phases(&cluster, "words", 8, 8, 30);
}

#[test]
fn who_gave_up_waiting_has_not_arrived() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("given-up", 1);
    let barrier = |node: usize| maps[node].segment().barrier(1, 2);
    let short = Duration::from_millis(50);
    for node in [0, 1, 1, 0] {
        let waited = barrier(node).wait_timeout(short);
        assert!(matches!(waited, Err(Error::TimedOut)), "{waited:?}");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| barrier(0).wait().unwrap());
        barrier(1).wait().unwrap();
    });
}

#[test]
fn parties_must_agree_on_their_number() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("disagree", 1);
    let mut scripted_node = cluster.scripted_node(0, "disagree");
    scripted_node.tell("barrier 1 2");
    scripted_node.expect_silence();
    let here = maps[1].segment();
    match here.barrier(1, 3).wait() {
        Err(Error::Refused(Refusal::Invalid(why))) => assert!(why.contains("2 parties"), "{why}"),
        other => panic!("{other:?}"),
    }
    here.barrier(1, 2).wait().unwrap();
    scripted_node.expect("passed");
}

#[test]
fn who_died_waiting_does_not_count() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    cluster.make_on(0, "dead-party", 1, Options::default());
    let mut scripted_nodes = [1, 1, 0, 0].map(|node| cluster.scripted_node(node, "dead-party"));
    scripted_nodes[1].tell("barrier 1 3");
    let [mut victim, one, mut two, mut three] = scripted_nodes;
    victim.tell("barrier 1 3");
    victim.wait_until_it_sleeps_in("skb");
    let clients = cluster.mesh(1).status().unwrap().clients;
    victim.kill();
    eventually("its node knows", || {
        cluster.mesh(1).status().unwrap().clients < clients
    });
    two.tell("barrier 1 3");
    one.expect_silence();
    two.expect_silence();
    three.tell("barrier 1 3");
    for scripted_node in [one, two, three] {
        scripted_node.expect("passed");
    }
}
