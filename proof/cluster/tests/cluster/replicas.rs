//! Segments of policy `views` with a replica: what was published outlives the node that has it.

use crate::coordinators::say;
use crate::support::views::{CONSISTENT, options};
use crate::support::{Cluster, eventually, load, store};
use pagemesh::{Access, Board, BoardOptions, Error, Options, PAGE_SIZE, Policy, Refusal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn with_replica() -> Options {
    Options {
        replicas: 1,
        ..options()
    }
}

/// Waits until all that a node has of a segment is on a second node.
pub(crate) fn is_kept(cluster: &Cluster, node: usize, name: &str) {
    eventually("all is on a second node", || {
        let report = cluster.mesh(node).inspect(name, 0, 0);
        report.is_ok_and(|report| report.unreplicated == 0)
    });
}

/// No process of another node has the segment open when its node dies. The next holder's node dies,
/// too, when all is on two nodes again.
#[test]
fn published_pages_outlive_one_node_after_the_other() {
    let Some(cluster) = Cluster::start(4) else {
        return;
    };
    let made = cluster.make_on(1, "kept", 4, with_replica());
    let memory = made.map().unwrap();
    let page = PAGE_SIZE as u64;
    store(&memory, 0, 7);
    made.purge(CONSISTENT, 0..page).unwrap();
    store(&memory, PAGE_SIZE, 8);
    made.publish(false, page..page + 8).unwrap();
    store(&memory, 2 * PAGE_SIZE, 9);
    is_kept(&cluster, 1, "kept");
    cluster.kill(1).unwrap();

    let mut program = cluster.scripted_node(2, "kept");
    assert_eq!(program.ask("load 0"), "7");
    assert_eq!(program.ask(&format!("load {PAGE_SIZE}")), "8");
    let unpublished = program.ask(&format!("load {}", 2 * PAGE_SIZE));
    assert!(["0", "9"].contains(&&*unpublished), "{unpublished}");
    assert_eq!(
        program.ask(&format!("load {}", 3 * PAGE_SIZE)),
        "0",
        "untouched"
    );
    program.ask("store 0 70");
    let segment = cluster.mesh(2).open("kept", Access::Writable).unwrap();
    segment.purge(CONSISTENT, 0..page).unwrap();
    for node in [0, 2] {
        is_kept(&cluster, node, "kept");
    }
    drop(program);
    cluster.kill(2).unwrap();

    let mut program = cluster.scripted_node(3, "kept");
    assert_eq!(program.ask("load 0"), "70");
    assert_eq!(program.ask(&format!("load {PAGE_SIZE}")), "8");
    assert_eq!(program.ask(&format!("load {}", 2 * PAGE_SIZE)), unpublished);
    assert_eq!(
        program.ask(&format!("load {}", 3 * PAGE_SIZE)),
        "0",
        "untouched"
    );
}

/// A node dies while its program publishes as fast as it can: the last value that a purge
/// acknowledged is there, or a newer one.
#[test]
fn acknowledged_purges_survive_a_death_under_load() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let made = cluster.make_on(1, "loaded", 1, with_replica());
    let memory = made.map().unwrap();
    let kept = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 1.. {
                store(&memory, 0, value);
                if made.purge(CONSISTENT, 0..8).is_err() {
                    return;
                }
                kept.store(value, Ordering::Release);
            }
        });
        eventually("many are kept", || kept.load(Ordering::Acquire) > 500);
        cluster.kill(1).unwrap();
    });
    let kept = kept.into_inner();
    let mut program = cluster.scripted_node(0, "loaded");
    let found: u64 = program.ask("load 0").parse().unwrap();
    assert!(found >= kept, "{found} is left, {kept} was kept");
}

/// The node of a board's writer dies before any process has read the board.
#[test]
fn a_board_with_a_replica_outlives_its_writer() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let size = 20_000;
    let options = BoardOptions {
        replicas: 1,
        ..BoardOptions::default()
    };
    let mut writer = Board::create(&cluster.mesh(1), "board", size, options).unwrap();
    for number in 1..=20_u8 {
        writer.publish(&vec![number; size]).unwrap();
    }
    is_kept(&cluster, 1, "board");
    cluster.kill(1).unwrap();
    let mut heir = Board::open(&cluster.mesh(2), "board", Access::Writable).unwrap();
    let found = heir.read().unwrap().unwrap();
    assert_eq!((found.number, found.went_back), (20, false));
    assert!(found.bytes == [20; 20_000], "it is whole");
    assert_eq!(heir.publish(&[21; 100]).unwrap(), 21);
    let reader = Board::open(&cluster.mesh(0), "board", Access::ReadOnly).unwrap();
    reader.wait(20, Some(Duration::from_secs(20))).unwrap();
    is_kept(&cluster, 2, "board");
}

/// The consistent copy moves between programs; whoever of them dies, what it stored before it gave
/// the page away is there.
#[test]
fn pages_that_moved_outlive_the_node_that_got_them() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let made = cluster.make_on(0, "moved", 1, with_replica());
    let other = cluster.mesh(1).open("moved", Access::Writable).unwrap();
    let (here, there) = (made.map().unwrap(), other.map().unwrap());
    for value in 1..=50 {
        store(&here, 0, 2 * value);
        assert_eq!(load(&there, 0), 2 * value);
        store(&there, 0, 2 * value + 1);
    }
    // The last store was neither published nor passed on.
    cluster.kill(1).unwrap();
    let mut program = cluster.scripted_node(2, "moved");
    let found: u64 = program.ask("load 0").parse().unwrap();
    assert!((100..=101).contains(&found), "{found}");
}

#[test]
fn other_policies_and_more_replicas_are_refused() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let mesh = cluster.mesh(0);
    let refused = |policy: Policy, replicas: u8| {
        let options = Options {
            policy,
            replicas,
            ..Options::default()
        };
        match mesh.create("refused", 4096, options) {
            Err(Error::Refused(Refusal::Invalid(why))) => why,
            other => panic!("{other:?}"),
        }
    };
    let local = Default::default();
    let backing = pagemesh::Backing::Copies;
    let private = refused(Policy::Private { local, backing }, 1);
    assert!(private.contains("no replicas"), "{private}");
    let many = refused(Policy::Views { prefix: 32 }, 2);
    assert!(many.contains("1 at most"), "{many}");
    // Alone, a node says what it lacks, and goes on.
    let made = cluster.make_on(0, "alone", 3, with_replica());
    let memory = made.map().unwrap();
    store(&memory, 0, 1);
    made.purge(CONSISTENT, 0..8).unwrap();
    assert_eq!(mesh.status().unwrap().unreplicated, 3);
    let (code, said) = say(&cluster, 0, "status");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("problem: no-second-node: 3 pages"), "{said}");
}
