//! Segments saved to files while programs store to them, and made again from the files.

use crate::support::{Cluster, PAGE, PATIENCE, eventually, load, store};
use pagemesh::snapshot::{Consistency, LoadOptions, SaveOptions, SnapshotError};
use pagemesh::{Access, Board, BoardOptions, Error, Mapping, Mesh, Options, Policy};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

/// Nodes that store.
const NODES: usize = 4;

/// Pages that are stored once, behind those of the nodes.
const STILL: usize = 300;

/// Offset of a page.
const fn page(number: usize) -> usize {
    number * PAGE as usize
}

/// A directory for the files of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("pagemesh-snapshots-{name}-{id}"));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn command(cluster: &Cluster, node: usize, arguments: &[&str]) -> Command {
    let program = env!("CARGO_BIN_EXE_pagemesh-under-test");
    let mut command = cluster.node(node).command(program);
    command.arg("segment").args(arguments);
    command
}

fn run(cluster: &Cluster, node: usize, arguments: &[&str]) -> Output {
    command(cluster, node, arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Every node takes its turn in a ring, over and over: it stores the round to its own page when
/// the node before has done so; and between, to two pages of its own, one after the other.
fn go_round(memory: &Mapping, node: usize, over: &AtomicBool) {
    let before = (node + NODES - 1) % NODES;
    let mut round = 1;
    while !over.load(Acquire) {
        let turn = round - u64::from(node == 0);
        if load(memory, page(before)) < turn {
            std::hint::spin_loop();
            std::thread::yield_now();
            continue;
        }
        store(memory, page(NODES + 2 * node), round);
        store(memory, page(NODES + 2 * node + 1), round);
        store(memory, page(node), round);
        round += 1;
    }
}

/// The round of the first node, if this is what one instant can have.
fn instant(memory: &Mapping) -> Result<u64, String> {
    instant_read(memory, |_| {})
}

/// The same, where a reader does something else after it has read the round of the first node.
fn instant_read(memory: &Mapping, between: impl FnOnce(u64)) -> Result<u64, String> {
    let first = load(memory, page(0));
    between(first);
    let others = (1..NODES).map(|node| load(memory, page(node)));
    let rounds: Vec<u64> = [first].into_iter().chain(others).collect();
    let in_turn = rounds.is_sorted_by(|one, other| one >= other);
    let mut possible = in_turn && rounds[NODES - 1] + 1 >= first;
    let mut own = Vec::new();
    for (node, round) in rounds.iter().enumerate() {
        let pair = [0, 1].map(|which| load(memory, page(NODES + 2 * node + which)));
        possible &= pair[0] >= pair[1] && pair[1] >= *round && *round + 1 >= pair[0];
        own.push(pair);
    }
    if possible {
        Ok(first)
    } else {
        Err(format!("{rounds:?}, {own:?}"))
    }
}

/// Checks a copy on a node. Returns the round.
fn check_copy(memory: &Mapping, node: usize) -> u64 {
    let words = (0..STILL).map(|number| (still_at(number), still(number)));
    let words = words.map(|(at, right)| (at, load(memory, at), right));
    let wrong: Vec<_> = words.filter(|(_, there, right)| there != right).collect();
    let again: Vec<_> = wrong.iter().map(|(at, ..)| load(memory, *at)).collect();
    assert!(
        wrong.is_empty(),
        "node {node} has other words in the place of these: {wrong:x?}, and then: {again:x?}"
    );
    instant(memory).expect("a state of one instant")
}

/// Ends the threads of a test, however that ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Release);
    }
}

/// The word of a page that is stored once; one in three pages is not stored at all.
fn still(number: usize) -> u64 {
    match number % 3 {
        0 => 0,
        _ => 7 * number as u64,
    }
}

/// Where that word is.
const fn still_at(number: usize) -> usize {
    page(3 * NODES + number) + 8 * (number % 500)
}

fn opened(mesh: &Mesh, name: &str) -> Mapping {
    mesh.open(name, Access::ReadOnly).unwrap().map().unwrap()
}

#[test]
fn a_snapshot_is_of_one_instant_while_four_nodes_store() {
    let Some(cluster) = Cluster::start(NODES) else {
        return;
    };
    let folder = Folder::new("instant");
    let file = folder.file("ring");
    let pages = (3 * NODES + STILL) as u64;
    let memories = cluster.share("ring", pages);
    for number in (0..STILL).filter(|number| number % 3 != 0) {
        store(&memories[number % NODES], still_at(number), still(number));
    }
    let over = AtomicBool::new(false);
    let mut last = 0;
    std::thread::scope(|scope| {
        let over = &over;
        let _over = Over(over);
        for (node, memory) in memories.iter().enumerate() {
            scope.spawn(move || go_round(memory, node, over));
        }
        // Without a hold, pages that are read one after another are of different instants.
        let last_page = page(NODES - 1);
        let a_round_later = |first| {
            eventually("a round later", || load(&memories[1], last_page) > first);
        };
        instant_read(&memories[1], a_round_later).unwrap_err();
        for time in 0..12 {
            let mesh = cluster.mesh(time % NODES);
            let segment = mesh.open("ring", Access::Writable).unwrap();
            let saved = segment.save(&file, SaveOptions::default()).unwrap();
            assert_eq!(saved.consistency, Consistency::Instant);
            assert!(saved.pages >= 200 && saved.pages <= pages, "{saved:?}");
            println!("{saved:?}");
            let options = LoadOptions {
                replace: true,
                ..LoadOptions::default()
            };
            mesh.load("copy", &file, options).unwrap();
            let round = check_copy(&opened(&mesh, "copy"), time % NODES);
            assert!(round >= last, "{round} after {last}");
            last = round;
            eventually("programs go on", || load(&memories[0], 0) > last);
        }
    });
    drop(memories);
    drop(cluster);
    let Some(cluster) = Cluster::start(NODES) else {
        return;
    };
    let file = file.to_str().unwrap();
    let loaded = run(&cluster, 2, &["load", "ring", file, "-o", "json"]);
    assert!(loaded.status.success(), "{}", text(&loaded));
    let document: serde_json::Value = serde_json::from_slice(&loaded.stdout).unwrap();
    assert_eq!(document["consistency"], "instant");
    assert_eq!(document["segment"]["home"], 3);
    for node in 0..NODES {
        let memory = opened(&cluster.mesh(node), "ring");
        assert_eq!(check_copy(&memory, node), last);
    }
    assert_eq!(folder.names(), ["ring"]);
}

/// Every class of byte changed, and files that are too short, too long or no snapshots; with what
/// the command says.
fn damages(bytes: &[u8]) -> Vec<(&'static str, Vec<u8>, String)> {
    let header = u32::from_le_bytes(*bytes[12..].first_chunk().unwrap()) as usize;
    let piece = 16 + header + 4;
    let end = bytes.len() - 17;
    let changed = |at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 0x40;
        bytes
    };
    let cases = [
        ("magic", changed(3), 0, "this is no snapshot"),
        (
            "version",
            changed(8),
            8,
            "this snapshot has format version 66",
        ),
        ("length", changed(14), 12, "the file is damaged"),
        ("header", changed(20), 0, "the file is damaged"),
        (
            "header's sum",
            changed(16 + header),
            0,
            "the file is damaged",
        ),
        ("kind", changed(piece), piece, "the file is damaged"),
        (
            "first page",
            changed(piece + 2),
            piece,
            "the file is damaged",
        ),
        (
            "contents",
            changed(piece + 999),
            piece,
            "the file is damaged",
        ),
        ("end", changed(end + 1), end, "the file is damaged"),
        (
            "last sum",
            changed(bytes.len() - 1),
            end,
            "the file is damaged",
        ),
        (
            "truncated",
            bytes[..5000].to_vec(),
            5000,
            "the file ends here",
        ),
        ("empty", Vec::new(), 0, "this is no snapshot"),
        (
            "longer",
            [bytes, b"x"].concat(),
            bytes.len(),
            "the file is damaged",
        ),
        ("foreign", b"#!/bin/sh".to_vec(), 0, "this is no snapshot"),
    ];
    let cases = cases.into_iter();
    cases
        .map(|(class, bytes, at, says)| (class, bytes, format!("at byte {at}: {says}")))
        .collect()
}

#[test]
fn damaged_files_are_refused_with_their_place_and_leave_nothing() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let folder = Folder::new("damaged");
    let memory = &cluster.share("a", 100)[1];
    (0..100)
        .step_by(2)
        .for_each(|number| store(memory, page(number), 9));
    let whole = folder.file("whole");
    let saved = run(&cluster, 0, &["save", "a", whole.to_str().unwrap()]);
    assert!(saved.status.success(), "{}", text(&saved));
    let bytes = std::fs::read(&whole).unwrap();
    for (class, bytes, says) in damages(&bytes) {
        let file = folder.file("damaged");
        std::fs::write(&file, bytes).unwrap();
        let path = file.to_str().unwrap();
        let refused = run(&cluster, 1, &["load", "b", path]);
        let said = text(&refused);
        assert_eq!(refused.status.code(), Some(1), "{class}: {said}");
        assert!(
            said.contains(&says) && said.contains(path),
            "{class}: {said}"
        );
        let over = run(&cluster, 1, &["load", "a", path, "--replace"]);
        assert_eq!(over.status.code(), Some(1), "{class}");
    }
    let names: Vec<_> = cluster.mesh(0).list().unwrap();
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(
        load(&cluster.map(0, "a"), page(2)),
        9,
        "and it is as it was"
    );
}

#[test]
fn a_name_that_is_taken_is_replaced_only_if_asked() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let folder = Folder::new("replace");
    let path = folder.file("a");
    let file = path.to_str().unwrap();
    let old = cluster.share("a", 3);
    store(&old[1], page(1), 5);
    let saved = run(&cluster, 1, &["save", "a", file, "--compress"]);
    assert!(saved.status.success(), "{}", text(&saved));
    store(&old[0], page(1), 6);
    let refused = run(&cluster, 0, &["load", "a", file]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused).contains("--replace"), "{}", text(&refused));
    let replaced = run(&cluster, 0, &["load", "a", file, "--replace"]);
    assert!(replaced.status.success(), "{}", text(&replaced));
    assert_eq!(load(&cluster.map(1, "a"), page(1)), 5);
    assert_eq!(load(&old[1], page(1)), 6, "who has the old one keeps it");
    let missing = run(&cluster, 0, &["load", "b", "/nonexistent/file"]);
    assert!(
        text(&missing).contains("/nonexistent/file"),
        "{}",
        text(&missing)
    );
    let nowhere = run(&cluster, 0, &["save", "a", "/nonexistent/file"]);
    assert!(
        text(&nowhere).contains("/nonexistent/"),
        "{}",
        text(&nowhere)
    );
}

#[test]
fn a_release_segment_is_saved_under_its_lock() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let folder = Folder::new("release");
    let path = folder.file("r");
    let file = path.to_str().unwrap();
    let policy: Policy = "release".parse().unwrap();
    let options = Options {
        policy,
        ..Options::default()
    };
    let memories = cluster.share_with("r", 8, options);
    let refused = run(&cluster, 0, &["save", "r", file]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    assert!(text(&refused).contains("--lock"), "{}", text(&refused));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        for memory in &memories[..2] {
            let over = &over;
            scope.spawn(move || {
                let lock = memory.segment().lock(5);
                while !over.load(Acquire) {
                    let guard = lock.lock().unwrap();
                    let next = load(memory, 0) + 1;
                    (0..8).for_each(|number| store(memory, page(number), next));
                    drop(guard);
                }
            });
        }
        let mut last = 0;
        for time in 0..5 {
            let saved = run(&cluster, 2, &["save", "r", file, "--lock", "5"]);
            assert!(saved.status.success(), "{}", text(&saved));
            let name = format!("copy{time}");
            let loaded = run(&cluster, 2, &["load", &name, file]);
            assert!(loaded.status.success(), "{}", text(&loaded));
            let copy = cluster.map(time % 3, &name);
            let guard = copy.segment().lock(0).lock().unwrap();
            let values: Vec<_> = (0..8).map(|number| load(&copy, page(number))).collect();
            drop(guard);
            assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
            assert!(values[0] >= last, "{values:?} after {last}");
            last = values[0];
        }
        assert!(last > 0);
    });
}

#[test]
fn a_board_is_saved_in_whole_states() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let folder = Folder::new("board");
    let file = folder.file("b");
    let options = BoardOptions {
        history: 3,
        ..BoardOptions::default()
    };
    let mut board = Board::create(&cluster.mesh(0), "b", 9000, options).unwrap();
    let over = AtomicBool::new(false);
    let state = |number: u64| (number as u8).to_le_bytes().repeat(9000);
    std::thread::scope(|scope| {
        let over = &over;
        let _over = Over(over);
        board.publish(&state(1)).unwrap();
        scope.spawn(move || {
            let mut next = 2;
            while !over.load(Acquire) {
                next = board.publish(&state(next)).unwrap() + 1;
            }
        });
        let mesh = cluster.mesh(1);
        for time in 0..5 {
            let segment = mesh.open("b", Access::ReadOnly).unwrap();
            let saved = segment.save(&file, SaveOptions::default()).unwrap();
            assert_eq!(saved.consistency, Consistency::Published);
            let name = format!("copy{time}");
            mesh.load(&name, &file, LoadOptions::default()).unwrap();
            let mut copy = Board::open(&cluster.mesh(0), &name, Access::ReadOnly).unwrap();
            let found = copy.read().unwrap().expect("a state");
            assert_eq!(found.bytes, state(found.number));
        }
    });
}

#[test]
fn private_memory_and_views_are_saved_as_they_are() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let folder = Folder::new("others");
    for policy in ["private", "views"] {
        let options = Options {
            policy: policy.parse().unwrap(),
            ..Options::default()
        };
        let segment = cluster.make_on(1, policy, 40, options);
        let memory = segment.map().unwrap();
        (0..40).for_each(|number| store(&memory, page(number) + 16, number as u64));
        let path = folder.file(policy);
        let file = path.to_str().unwrap();
        let refused = run(&cluster, 1, &["save", policy, file]);
        assert!(text(&refused).contains("--unordered"), "{}", text(&refused));
        let saved = run(
            &cluster,
            1,
            &["save", policy, file, "--unordered", "-o", "json"],
        );
        assert!(saved.status.success(), "{}", text(&saved));
        let document: serde_json::Value = serde_json::from_slice(&saved.stdout).unwrap();
        assert_eq!(document["consistency"], "unordered");
        assert_eq!(document["pages"], 39);
        let mesh = cluster.mesh(1);
        let name = format!("{policy}-copy");
        mesh.load(&name, file, LoadOptions::default()).unwrap();
        let copy = opened(&mesh, &name);
        (0..40).for_each(|number| assert_eq!(load(&copy, page(number) + 16), number as u64));
    }
}

#[test]
fn saving_again_and_again_ends_with_ctrl_c_and_leaves_whole_files() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let folder = Folder::new("every");
    let path = folder.file("a");
    let file = path.to_str().unwrap();
    let memory = &cluster.share("a", 2000)[1];
    (0..2000).for_each(|number| store(memory, page(number), 1));
    let mut every = command(&cluster, 0, &["save", "a", file, "--every", "50ms"]);
    let child = every.stdout(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + PATIENCE;
    let value = |copy: &str| load(&opened(&cluster.mesh(1), copy), page(1999));
    for round in 2..5 {
        store(memory, page(1999), round);
        let name = format!("copy{round}");
        // The file is whole whenever it is read.
        loop {
            assert!(Instant::now() < end);
            match cluster.mesh(1).load(&name, &path, LoadOptions::default()) {
                Ok(_) if value(&name) == round => break,
                Ok(_) => cluster.mesh(1).remove(&name).unwrap(),
                Err(SnapshotError::File { .. }) if !path.exists() => {}
                Err(error) => panic!("{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(
        text(&output).contains("of one instant"),
        "{}",
        text(&output)
    );
    assert_eq!(folder.names(), ["a"]);
    assert!(load(memory, page(3)) == 1 && cluster.mesh(0).stat("a").is_ok());
}

#[test]
fn a_save_that_is_stopped_leaves_the_older_file() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let folder = Folder::new("stopped");
    let path = folder.file("a");
    let memory = &cluster.share("a", 9000)[1];
    (0..9000).for_each(|number| store(memory, page(number), 1));
    std::fs::write(&path, "older").unwrap();
    let segment = cluster.mesh(0).open("a", Access::Writable).unwrap();
    let mut stop = |progress: pagemesh::snapshot::Progress| match progress.done {
        0 => std::ops::ControlFlow::Continue(()),
        _ => std::ops::ControlFlow::Break(()),
    };
    let options = SaveOptions {
        observer: Some(&mut stop),
        ..SaveOptions::default()
    };
    let stopped = segment.save(&path, options).unwrap_err();
    assert!(matches!(stopped, SnapshotError::Stopped), "{stopped}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "older");
    assert_eq!(folder.names(), ["a"]);
    let read_only = cluster.mesh(0).open("a", Access::ReadOnly).unwrap();
    let refused = read_only.save(&path, SaveOptions::default()).unwrap_err();
    assert!(
        matches!(refused, SnapshotError::Mesh(Error::Invalid(_))),
        "{refused}"
    );
    let writes = Instant::now();
    store(memory, page(8000), 2);
    let longest = pagemesh_core::limits::HOLD_LEASE;
    assert!(
        writes.elapsed() < longest,
        "no hold is left, which would last {longest:?}"
    );
    assert!(Path::new(&path).exists());
}
