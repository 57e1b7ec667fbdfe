//! A coordinator's daemon is killed, alone, with its standby, or with all others, and goes on from
//! its disk.

use crate::coordinators::{control, say, wait_for_the_standby};
use crate::support::{Cluster, Joiner, eventually, load, store};
use crate::sysv::Stage;
use pagemesh::{Access, Options, PAGE_SIZE};
use pagemesh_cli::sandbox::{Netns, Plan};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// The number of the coordinator's second life.
const SECOND: u64 = 127;

/// Segments whose records do not fit into a page.
const MANY: usize = 64;

fn plan(nodes: usize) -> Plan {
    let mut plan = Plan::new(nodes);
    plan.netns = Netns::Never;
    plan.state = true;
    plan
}

pub(crate) fn names(cluster: &Cluster, node: usize) -> Vec<String> {
    let segments = cluster.mesh(node).list().unwrap();
    segments.into_iter().map(|info| info.name).collect()
}

fn wait_for_coordinator(cluster: &Cluster, nodes: &[usize], coordinator: u64, term: u64) {
    for node in nodes {
        eventually("the coordinator is known", || {
            let control = control(cluster, *node);
            control["coordinator"] == coordinator && control["term"] == term
        });
    }
}

/// The first daemon alone is killed. Programs on other nodes do not notice it, but for what only it
/// had.
fn goes_on_alone(sealed: bool) {
    let mut plan = plan(3);
    plan.sealed = sealed;
    let Some(stage) = Stage::of(plan) else {
        return;
    };
    let cluster = &stage.cluster;
    wait_for_the_standby(cluster, 0, 2);
    for (node, name) in [(0, "first"), (1, "count"), (2, "third")] {
        cluster.make_on(node, name, 1, Options::default());
    }
    let maps = [1, 2].map(|node| cluster.map(node, "count"));
    store(&maps[0], 0, 7);
    assert_eq!(load(&maps[1], 0), 7);
    let mut players = [1, 2].map(|node| stage.scripted_node(node));
    let set = players[0].ask("semget 77 1 01600");
    assert_eq!(players[1].ask("semget 77 1 0"), set);
    let mut took = Duration::MAX;
    for life in 0..2 {
        cluster.kill(0).unwrap();
        let start = Instant::now();
        cluster.restart(0).unwrap();
        took = took.min(start.elapsed());
        wait_for_coordinator(cluster, &[0, 1, 2], SECOND - life, life + 2);
        for node in 0..3 {
            assert_eq!(names(cluster, node), ["count", "first", "third"]);
        }
        assert_eq!(players[1].ask("semget 77 1 0"), set);
        store(&maps[1], 0, 8 + life);
        assert_eq!(load(&maps[0], 0), 8 + life);
        let here = cluster.map(0, "count");
        assert_eq!(load(&here, 0), 8 + life, "the old pages, on the new node");
        wait_for_the_standby(cluster, 0, 2);
    }
    // No member is silent, so none is waited for. A busy host may be late in one life.
    assert!(took < Duration::from_secs(4), "it took {took:?}");
    assert_eq!(cluster.counter(0, "resumptions"), 1);
    let taken = Options {
        exclusive: true,
        ..Options::default()
    };
    let taken = cluster.mesh(1).create("first", PAGE_SIZE as u64, taken);
    assert!(taken.is_err(), "the name is taken");
    cluster.mesh(1).remove("first").unwrap();
    cluster.make_on(0, "first", 1, Options::default());
}

#[test]
fn a_killed_coordinator_goes_on_from_its_disk() {
    goes_on_alone(false);
}

#[test]
fn a_killed_coordinator_goes_on_through_seals() {
    goes_on_alone(true);
}

#[test]
fn a_coordinator_goes_on_when_its_standby_was_killed_too() {
    let Some(cluster) = Cluster::of(plan(4)) else {
        return;
    };
    wait_for_the_standby(&cluster, 0, 2);
    cluster.make_on(1, "lost", 1, Options::default());
    cluster.make_on(2, "kept", 1, Options::default());
    let memory = cluster.map(3, "kept");
    store(&memory, 0, 7);
    cluster.kill(0).unwrap();
    cluster.kill(1).unwrap();
    cluster.restart(0).unwrap();
    wait_for_coordinator(&cluster, &[0, 2, 3], SECOND, 2);
    assert_eq!(names(&cluster, 3), ["kept", "lost"]);
    assert_eq!(load(&cluster.map(2, "kept"), 0), 7);
    cluster.restart(1).unwrap();
    assert_eq!(names(&cluster, 1), ["kept", "lost"]);
    let (code, said) = say(&cluster, 2, "status");
    assert_eq!(code, Some(0), "both have come back: {said}");
}

/// All daemons are killed at once. Names, owners and modes are there again, contents are not, and
/// those that were saved are loaded.
#[test]
fn names_go_on_after_all_daemons_were_killed() {
    let Some(cluster) = Cluster::of(plan(3)) else {
        return;
    };
    let options = Options {
        mode: 0o640,
        ..Options::default()
    };
    cluster.make_on(1, "saved", 1, options);
    cluster.make_on(2, "empty", 1, Options::default());
    let memory = cluster.map(1, "saved");
    store(&memory, 0, 7);
    let file = cluster.directory().join("saved.pm");
    let file = file.display();
    let (code, said) = say(&cluster, 1, &format!("segment save saved {file}"));
    assert_eq!(code, Some(0), "{said}");
    drop(memory);
    for node in 0..3 {
        cluster.kill(node).unwrap();
    }
    cluster.restart(0).unwrap();
    for node in 1..3 {
        cluster.restart(node).unwrap();
    }
    wait_for_coordinator(&cluster, &[0, 1, 2], SECOND, 2);
    for node in 0..3 {
        assert_eq!(names(&cluster, node), ["empty", "saved"]);
    }
    let saved = cluster.mesh(2).open("saved", Access::Writable).unwrap();
    assert_eq!(saved.info().spec.mode, 0o640);
    let (code, said) = say(&cluster, 1, &format!("segment load saved {file} --replace"));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(load(&cluster.map(2, "saved"), 0), 7);
    cluster.mesh(1).remove("empty").unwrap();
    cluster.make_on(1, "empty", 1, Options::default());
    let (code, said) = say(&cluster, 2, "status");
    assert_eq!(code, Some(0), "{said}");
}

/// The coordinator's host does not come back, and the standby's daemon has ended, too.
#[test]
fn a_standby_goes_on_from_its_disk_and_the_old_host_is_told() {
    let Some(cluster) = Cluster::of(plan(3)) else {
        return;
    };
    cluster.make_on(2, "one", 1, Options::default());
    wait_for_the_standby(&cluster, 0, 2);
    for node in 0..3 {
        cluster.kill(node).unwrap();
    }
    cluster.restart_promoted(1).unwrap();
    cluster.restart_joining(2, 1).unwrap();
    wait_for_coordinator(&cluster, &[1, 2], SECOND - 1, 2);
    assert_eq!(names(&cluster, 2), ["one"]);
    // n1 is a member of the file of the old host only, whose view knows no later life.
    let old = cluster.restart(0);
    assert!(old.is_ok() || cluster.node(0).log().contains("coordinates"));
    assert_eq!(names(&cluster, 2), ["one"]);
    assert_eq!(control(&cluster, 2)["coordinator"], SECOND - 1);
}

#[test]
fn an_old_coordinator_is_refused_with_the_cure() {
    let Some(cluster) = Cluster::of(plan(3)) else {
        return;
    };
    wait_for_the_standby(&cluster, 0, 2);
    cluster.kill(0).unwrap();
    eventually("the coordinator is silent", || {
        say(&cluster, 1, "status").0 == Some(4)
    });
    let (code, said) = say(&cluster, 1, "promote");
    assert_eq!(code, Some(0), "{said}");
    assert!(cluster.restart(0).is_err(), "n2 coordinates");
    let log = cluster.node(0).log();
    assert!(log.contains("n2 coordinates the cluster now"), "{log}");
    cluster.restart_joining(0, 1).unwrap();
    assert_eq!(control(&cluster, 0)["coordinator"], 2);
}

/// Damaged and foreign files, and a directory that is in use.
#[test]
fn a_file_that_cannot_be_gone_on_with_is_refused() {
    let Some(cluster) = Cluster::of(plan(1)) else {
        return;
    };
    cluster.make_on(0, "one", 1, Options::default());
    let place = cluster.directory().join("other.state");
    let start = |place: &std::path::Path| {
        let output = Command::new(cluster.program())
            .args(["daemon", "--no-config", "--bind=127.0.0.1:0", "--state"])
            .arg(place)
            .arg("--socket")
            .arg(cluster.directory().join("other.sock"))
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    fs::create_dir(&place).unwrap();
    let file = place.join("coordinator");
    fs::write(&file, "#!/bin/sh\n").unwrap();
    let why = start(&place);
    assert!(why.contains("no file of a PageMesh coordinator"), "{why}");
    let mut damaged = fs::read(cluster.state(0).join("coordinator")).unwrap();
    damaged[20] ^= 1;
    fs::write(&file, damaged).unwrap();
    let why = start(&place);
    let name = file.display().to_string();
    assert!(
        why.contains(&name) && why.contains("damaged at byte 8"),
        "{why}"
    );
    let why = start(&cluster.state(0));
    assert!(
        why.contains("another daemon uses the state directory"),
        "{why}"
    );
}

/// What needs the disk waits while it is full; memory goes on, and all goes on when there is room.
#[test]
fn a_full_disk_delays_names_and_stops_no_memory() {
    let mut plan = plan(1);
    plan.state = false;
    let place = std::env::temp_dir().join(format!("pagemesh-full-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
        .arg(&place)
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no file system can be mounted here; run as root");
        return;
    }
    plan.daemon_args = vec![format!("--state={}", place.display())];
    let full = || {
        let Some(cluster) = Cluster::of(plan) else {
            return;
        };
        cluster.make_on(0, "before", 1, Options::default());
        let memory = cluster.map(0, "before");
        let filler = place.join("filler");
        let _ = fs::write(&filler, vec![1; 1 << 20]);
        std::thread::scope(|scope| {
            // One record may still fit into the last page of the file.
            let made = scope.spawn(|| {
                for number in 0..MANY {
                    cluster.make_on(0, &format!("during{number}"), 1, Options::default());
                }
            });
            eventually("status says that the disk is full", || {
                let (code, said) = say(&cluster, 0, "status");
                code == Some(4) && said.contains("problem: disk-full: ")
            });
            assert_eq!(control(&cluster, 0)["disk"], "failing");
            assert!(!made.is_finished(), "it was told before it was safe");
            store(&memory, 0, 3);
            let guard = memory.segment().lock(1).lock().unwrap();
            drop(guard);
            fs::remove_file(&filler).unwrap();
            made.join().unwrap();
        });
        assert_eq!(control(&cluster, 0)["disk"], "good");
        let (code, said) = say(&cluster, 0, "status");
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(names(&cluster, 0).len(), MANY + 1);
        let log = cluster.node(0).log();
        assert!(log.contains("the disk takes decisions again"), "{log}");
    };
    full();
    let _ = Command::new("umount").arg("-l").arg(&place).status();
    let _ = fs::remove_dir(&place);
}

/// A host that wants to join while the coordinator is down is admitted when it has come back.
#[test]
fn a_host_joins_when_the_coordinator_has_gone_on() {
    let Some(cluster) = Cluster::of(plan(2)) else {
        return;
    };
    cluster.kill(0).unwrap();
    let joiner = Joiner::through(&cluster, 1, "late", &[]);
    std::thread::sleep(Duration::from_millis(300));
    cluster.restart(0).unwrap();
    eventually("the host is a member", || joiner.is_member());
    eventually("all know three members", || {
        let members = cluster.mesh(1).members().unwrap().members;
        let alive = |member: &&pagemesh_wire::peer::Member| {
            member.health == pagemesh_wire::peer::Health::Alive
        };
        members.iter().filter(alive).count() == 3
    });
}
