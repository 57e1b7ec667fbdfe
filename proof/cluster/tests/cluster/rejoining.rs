//! Nodes that are declared dead while they live: they join again, and programs that lost nothing go
//! on (decision 40).

use crate::support::{A_WHILE, Cluster, Player, eventually, load, store};
use pagemesh::{Health, Mapping, PAGE_SIZE};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

/// A page that the first node stores to and the third one reads.
const READ: usize = 0;
/// A page of which only the third node has the newest contents.
const OWN: usize = PAGE_SIZE;

fn dead(cluster: &Cluster) -> usize {
    let members = cluster.mesh(0).members().unwrap().members;
    let dead = members
        .iter()
        .filter(|member| member.health == Health::Dead);
    dead.count()
}

/// The third daemon stands still until it is declared dead; `meanwhile` the others go on.
fn pause(cluster: &Cluster, meanwhile: impl FnOnce()) {
    let before = dead(cluster);
    quiet();
    cluster.signal(2, Signal::STOP).unwrap();
    eventually("the third node is declared dead", || dead(cluster) > before);
    meanwhile();
    cluster.signal(2, Signal::CONT).unwrap();
}

/// Grants and answers that were repeated on a busy host have come: in the socket of a daemon that
/// stands still they would be news of which it cannot know how old they are, and all would count as
/// lost.
fn quiet() {
    std::thread::sleep(5 * A_WHILE);
}

fn wait_for_the_rejoined(cluster: &Cluster, times: u64) {
    eventually("the third node has joined again", || {
        cluster.counter(2, "rejoined") == times
    });
}

/// A program on the third node that has read what the first one stored.
fn reader(cluster: &Cluster, name: &str) -> (Mapping, Player) {
    let mapping = cluster.share(name, 4).swap_remove(0);
    store(&mapping, READ, 1);
    let mut reader = cluster.scripted_node(2, name);
    assert_eq!(reader.ask(&format!("load {READ}")), "1");
    (mapping, reader)
}

/// What the program sees is what the first node stored last, and the other way round.
fn shares(mapping: &Mapping, reader: &mut Player, value: u64) {
    assert_eq!(reader.ask(&format!("load {READ}")), value.to_string());
    assert_eq!(reader.ask(&format!("store {} {value}", READ + 8)), "done");
    assert_eq!(load(mapping, READ + 8), value);
    store(mapping, READ, value + 1);
    assert_eq!(reader.ask(&format!("load {READ}")), (value + 1).to_string());
    store(mapping, READ + 8, 0);
}

/// Output and exit code of `pagemesh status` on a node.
fn status(cluster: &Cluster, node: usize) -> (Option<i32>, String) {
    let mut command = cluster.node(node).command(cluster.program());
    let output = command.arg("status").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), said)
}

/// As when a virtual machine is suspended, or all containers of a host are paused.
#[test]
fn a_cluster_that_stood_still_as_a_whole_goes_on() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let (mapping, mut reader) = reader(&cluster, "whole");
    shares(&mapping, &mut reader, 1);
    for (order, value) in [([0, 1, 2], 2), ([2, 1, 0], 3)] {
        (0..3).for_each(|node| cluster.signal(node, Signal::STOP).unwrap());
        // Longer than a member may be silent.
        std::thread::sleep(Duration::from_secs(7));
        for node in order {
            cluster.signal(node, Signal::CONT).unwrap();
            std::thread::sleep(5 * A_WHILE);
        }
        // A member that is given up is given up by then.
        std::thread::sleep(Duration::from_secs(6));
        assert_eq!(dead(&cluster), 0);
        shares(&mapping, &mut reader, value);
    }
    for node in 0..3 {
        let counted = ["absences", "members_died", "rejoined"];
        let counted = counted.map(|name| cluster.counter(node, name));
        assert!(counted[0] >= 2 && counted[1..] == [0, 0], "{counted:?}");
    }
}

#[test]
fn a_program_whose_daemon_stood_still_goes_on() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let (mapping, mut reader) = reader(&cluster, "kept");
    let before = cluster.mesh(2).node();
    for times in 1..=2 {
        let held = mapping.segment().lock(times).lock().unwrap();
        let mut waiter = cluster.scripted_node(2, "kept");
        waiter.tell(&format!("lock {times}"));
        waiter.expect_silence();
        pause(&cluster, || store(&mapping, READ, 10 * times));
        wait_for_the_rejoined(&cluster, times);
        shares(&mapping, &mut reader, 10 * times);
        waiter.expect_silence();
        drop(held);
        assert!(["locked", "recovered"].contains(&waiter.hear().as_str()));
        assert_eq!(waiter.ask(&format!("unlock {times}")), "done");
        // What the program stored would be lost: another node reads it.
        assert_eq!(load(&mapping, READ + 8), 0);
    }
    assert_ne!(cluster.mesh(2).node(), before, "it is another node");
    for node in 0..3 {
        let (code, said) = status(&cluster, node);
        assert_eq!(code, Some(0), "{said}");
    }
}

/// Interfaces of a node, but for the loopback.
fn interfaces(cluster: &Cluster) -> Option<Vec<String>> {
    let listed = cluster
        .node(2)
        .command("ip")
        .args(["-o", "link"])
        .output()
        .ok()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names = listed.lines().filter_map(|line| line.split(": ").nth(1));
    let names = names.filter_map(|name| name.split('@').next());
    Some(names.filter(|name| *name != "lo").map(Into::into).collect())
}

fn set_link(cluster: &Cluster, interface: &str, state: &str) -> bool {
    let mut command = cluster.node(2).command("ip");
    let status = command
        .args(["link", "set", "dev", interface, state])
        .status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn a_program_whose_host_was_cut_off_goes_on() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let interface = match interfaces(&cluster).as_deref() {
        Some([one]) if set_link(&cluster, one, "up") => one.clone(),
        other => {
            eprintln!("skipped: no interface to cut off ({other:?}); install `ip`, run as root");
            return;
        }
    };
    let (mapping, mut reader) = reader(&cluster, "cut");
    quiet();
    assert!(set_link(&cluster, &interface, "down"));
    eventually("the third node is declared dead", || dead(&cluster) == 1);
    // Each half knows what it may do.
    let (code, said) = status(&cluster, 2);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("problem: coordinator-silent: n1"), "{said}");
    let (code, said) = status(&cluster, 0);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("problem: member-dead: n3"), "{said}");
    store(&mapping, READ, 7);
    // It still reads what was true when it was cut off; what it lacks it waits for.
    assert_eq!(reader.ask(&format!("load {READ}")), "1");
    reader.tell(&format!("load {OWN}"));
    reader.expect_silence();
    assert!(set_link(&cluster, &interface, "up"));
    wait_for_the_rejoined(&cluster, 1);
    assert_eq!(reader.hear(), "0");
    shares(&mapping, &mut reader, 7);
}

#[test]
fn what_only_the_dead_node_had_is_named_and_other_programs_go_on() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let (mapping, mut kept) = reader(&cluster, "kept");
    let (others, mut loser) = reader(&cluster, "lost");
    assert_eq!(loser.ask(&format!("store {OWN} 5")), "done");
    pause(&cluster, || store(&mapping, READ, 3));
    wait_for_the_rejoined(&cluster, 1);
    shares(&mapping, &mut kept, 3);
    let (_, said) = status(&cluster, 2);
    assert!(
        said.contains("segment-lost: segment lost")
            && said.contains("page 1,")
            && said.contains("n3"),
        "{said}"
    );
    let answer = loser.ask("lock 1");
    assert!(
        answer.starts_with("error: ") && answer.contains("page 1, which only this node had"),
        "{answer}"
    );
    let mesh = cluster.mesh(2);
    let why = mesh.open("lost", pagemesh::Access::Writable).unwrap_err();
    assert!(why.to_string().contains("start them again"), "{why}");
    loser.tell(&format!("load {READ}"));
    assert_eq!(loser.end().signal(), Some(Signal::BUS.as_raw()));
    eventually("its memory is given back", || {
        !status(&cluster, 2).1.contains("segment lost")
    });
    store(&others, READ, 8);
    let mut next = cluster.scripted_node(2, "lost");
    assert_eq!(next.ask(&format!("load {READ}")), "8");
    next.tell(&format!("load {OWN}"));
    assert_eq!(next.end().signal(), Some(Signal::BUS.as_raw()), "for ever");
}

#[test]
fn a_program_that_holds_a_lock_has_lost_it() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let (mapping, mut holder) = reader(&cluster, "held");
    assert_eq!(holder.ask("lock 1"), "locked");
    pause(&cluster, || {
        let guard = mapping.segment().lock(1).lock().unwrap();
        store(&mapping, READ, 2);
        drop(guard);
    });
    wait_for_the_rejoined(&cluster, 1);
    let answer = holder.ask("lock 2");
    assert!(answer.contains("lock 1, which a program held"), "{answer}");
    drop(mapping.segment().lock(1).lock().unwrap());
}
