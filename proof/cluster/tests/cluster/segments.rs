//! Segments by name: made, opened, found, removed.

use crate::support::{Cluster, PAGE, load, store};
use pagemesh::{Access, Error, Options, Refusal};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use std::path::Path;

fn refused(result: Result<impl Sized, Error>) -> Refusal {
    match result {
        Err(Error::Refused(why)) => why,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("no error"),
    }
}

fn exclusive() -> Options {
    Options {
        exclusive: true,
        ..Options::default()
    }
}

#[test]
fn a_segment_made_anywhere_is_open_to_all() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    for home in 0..3 {
        let name = format!("made on {home}");
        let options = Options {
            mode: 0o640,
            ..Options::default()
        };
        let made = cluster.mesh(home).create(&name, 10_000, options).unwrap();
        for node in 0..3 {
            let opened = cluster.mesh(node).open(&name, Access::Writable).unwrap();
            assert_eq!(opened.info().id, made.info().id);
            assert_eq!(opened.size(), 10_000, "as given, not rounded");
            assert_eq!(opened.info().spec.mode, 0o640);
            assert_eq!(cluster.mesh(node).stat(&name).unwrap().id, made.info().id);
        }
    }
}

#[test]
fn a_name_is_made_once_and_then_opened() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let (one, two) = (cluster.mesh(0), cluster.mesh(1));
    let made = one.create("once", 3 * PAGE, exclusive()).unwrap();
    assert_eq!(
        refused(two.create("once", 3 * PAGE, exclusive())),
        Refusal::Exists
    );
    let opened = two.create("once", PAGE, Options::default()).unwrap();
    assert_eq!(opened.info().id, made.info().id);
    assert_eq!(opened.size(), 3 * PAGE, "what exists keeps its size");
}

#[test]
fn what_is_not_there_is_not_found() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    for node in 0..2 {
        let mesh = cluster.mesh(node);
        assert!(
            mesh.open("nothing", Access::ReadOnly)
                .unwrap_err()
                .is_not_found()
        );
        assert!(mesh.stat("nothing").unwrap_err().is_not_found());
        assert!(mesh.remove("nothing").unwrap_err().is_not_found());
    }
}

#[test]
fn impossible_names_and_sizes_are_refused() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let mesh = cluster.mesh(1);
    let long = "x".repeat(256);
    for name in ["", "a/b", "nul\0nul", &long] {
        let why = refused(mesh.create(name, PAGE, Options::default()));
        assert_eq!(why, Refusal::BadName, "{name:?}");
    }
    for size in [0, (16 << 40) + 1, u64::MAX] {
        let why = refused(mesh.create("sized", size, Options::default()));
        assert_eq!(why, Refusal::BadSize, "{size}");
    }
    let longest = &long[1..];
    assert_eq!(
        mesh.create(longest, 1, Options::default()).unwrap().name(),
        longest
    );
}

#[test]
fn a_removed_segment_lives_on_where_it_is_mapped() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("removed", 1);
    store(&maps[0], 0, 1);
    cluster.mesh(1).remove("removed").unwrap();
    for node in 0..2 {
        assert!(
            cluster
                .mesh(node)
                .stat("removed")
                .unwrap_err()
                .is_not_found()
        );
    }
    assert_eq!(load(&maps[1], 0), 1);
    store(&maps[1], 0, 2);
    assert_eq!(load(&maps[0], 0), 2);

    let fresh = cluster.share("removed", 1);
    assert_eq!(load(&fresh[1], 0), 0, "the name is free for a new segment");
    store(&fresh[1], 0, 3);
    assert_eq!(load(&maps[0], 0), 2, "the old one is another");
    drop(maps);
    assert_eq!(load(&fresh[0], 0), 3, "and its end touches nobody");
}

#[test]
fn lists_are_complete_and_in_order() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let mut names: Vec<_> = (0..40).map(|number| format!("listed {number}")).collect();
    for (number, name) in names.iter().enumerate() {
        cluster.make_on(number % 2, name, 1, Options::default());
    }
    names.sort();
    let listed = |node: usize| {
        let list = cluster.mesh(node).list().unwrap();
        list.into_iter().map(|info| info.name).collect::<Vec<_>>()
    };
    assert_eq!(listed(0), names);
    assert_eq!(listed(1), names);
    cluster.mesh(0).remove(&names.remove(17)).unwrap();
    assert_eq!(listed(1), names);
}

#[test]
fn a_process_that_ends_removes_nothing() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let mut maker = cluster.scripted_node(1, &format!("kept --create {PAGE}"));
    assert_eq!(maker.ask("store 0 77"), "done");
    assert!(maker.end().success());
    let other = cluster.map(0, "kept");
    assert_eq!(load(&other, 0), 77);
    let mut victim = cluster.scripted_node(1, "kept");
    assert_eq!(victim.ask("store 8 78"), "done");
    victim.kill();
    assert_eq!(load(&other, 8), 78);
    drop(other);
    assert_eq!(
        load(&cluster.map(1, "kept"), 8),
        78,
        "though nobody had it open"
    );
}

#[test]
fn segments_open_and_close_in_any_order() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let made = cluster.make_on(0, "again", 2, Options::default());
    for round in 1..=20 {
        let here = cluster.map(round % 2, "again");
        let there = cluster.map(1 - round % 2, "again");
        store(&here, 0, round as u64);
        drop(here);
        assert_eq!(load(&there, 0), round as u64);
    }
    let kept = made.map().unwrap();
    assert!(made.clone().close().is_err(), "a mapping keeps it open");
    drop((kept, made));
    assert_eq!(load(&cluster.map(1, "again"), 0), 20);
}

#[test]
fn hundreds_of_segments_are_mapped_at_once() {
    const SEGMENTS: usize = 300;
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let meshes = [0, 1].map(|node| cluster.mesh(node));
    let map = |number: usize, node: usize| {
        let name = format!("of many {number}");
        let segment = meshes[node].create(&name, PAGE, Options::default());
        segment.unwrap().map().unwrap()
    };
    let maps: Vec<_> = (0..SEGMENTS)
        .map(|number| [0, 1].map(|node| map(number, node)))
        .collect();
    for (number, [here, there]) in maps.iter().enumerate() {
        store(here, 0, number as u64 + 1);
        assert_eq!(load(there, 0), number as u64 + 1);
    }
    drop(maps);
    assert_eq!(meshes[0].list().unwrap().len(), SEGMENTS);
}

/// Whichever descriptor it is that a program has no room for, the error says so, and
/// the program goes on with what it had.
#[test]
fn a_program_without_descriptors_is_told() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    cluster.make_on(0, "crowded", 1, Options::default());
    let mut scripted_node = cluster.scripted_node(0, "crowded");
    assert_eq!(scripted_node.ask("store 0 7"), "done");
    let process = Pid::from_raw(scripted_node.id() as i32);
    let of_it = format!("/proc/{}/fd", scripted_node.id());
    let is_free = |number: &u64| !Path::new(&of_it).join(number.to_string()).exists();
    let free = (0..).find(is_free).unwrap();
    let before = getrlimit(Resource::Nofile);
    let mut answers = Vec::new();
    for more in 0..32 {
        let limit = Rlimit {
            current: Some(free + more),
            maximum: before.maximum,
        };
        prlimit(process, Resource::Nofile, limit).unwrap();
        let answer = scripted_node.ask("again");
        if answer == "done" {
            break;
        }
        let named = ["file descriptor", "Too many open files"];
        assert!(named.iter().any(|name| answer.contains(name)), "{answer}");
        answers.push(answer);
        assert_eq!(scripted_node.ask("load 0"), "7");
    }
    assert_eq!(scripted_node.ask("load 0"), "7");
    let memory = "the segment's memory did not arrive";
    let told = |answer: &&String| answer.contains(memory) && answer.contains("ulimit -n");
    assert!(answers.iter().any(|answer| told(&answer)), "{answers:?}");
}
