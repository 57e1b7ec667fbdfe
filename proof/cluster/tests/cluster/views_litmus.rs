//! Litmus tests of inconsistent views (docs/memory-model.md, "Views"): what a reader may see, what a
//! purge finds, and what a stopped writer and lost pages do to a board.

use crate::support::views::{CONSISTENT, OLD, OLD_SHORT, options, share_views, word};
use crate::support::{Cluster, eventually, store};
use pagemesh::{Access, Board, BoardOptions, Error, PAGE_SIZE, View, Views};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The second word that a page has here: not in its prefix.
const FAR: usize = 2048;

/// CoRR: each word by itself never goes back, whole or short, purged now and then or never.
#[test]
fn inconsistent_copies_never_go_back() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let views = share_views(&cluster, "forward", 1);
    let over = AtomicBool::new(false);
    let follow = |views: &Views, view: View, at: usize, purges: bool| {
        let (mut last, mut seen) = (0, 0_u64);
        while !over.load(Ordering::Acquire) {
            let value = word(views, view, at);
            assert!(value >= last, "{value} after {last}, {view:?}");
            seen += u64::from(value > last);
            last = value;
            if purges && seen.is_multiple_of(3) {
                views.purge(view, 0..8).unwrap();
            }
        }
        seen
    };
    std::thread::scope(|scope| {
        let readers = [
            scope.spawn(|| follow(&views[1], OLD, FAR, false)),
            scope.spawn(|| follow(&views[1], OLD_SHORT, 0, false)),
            scope.spawn(|| follow(&views[2], OLD, 0, true)),
        ];
        let writer = views[0].view(CONSISTENT).unwrap();
        for value in 1..=1500 {
            store(writer, 0, value);
            store(writer, FAR, value);
            views[0].publish(value % 2 == 0, 0..8).unwrap();
            if value % 8 == 0 {
                std::thread::sleep(Duration::from_micros(300));
            }
        }
        over.store(true, Ordering::Release);
        for reader in readers {
            assert!(reader.join().unwrap() > 1, "it saw nothing new");
        }
    });
    eventually("the last publication is everywhere", || {
        [&views[1], &views[2]]
            .iter()
            .all(|views| word(views, OLD_SHORT, 0) == 1500)
    });
}

/// What a purge makes a reader fetch has all stores before the purge, also where a request is repeated
/// and its second answer comes after the next purge (INV-purge-finds).
#[test]
fn a_purge_finds_what_was_stored_before_it() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let views = share_views(&cluster, "purged", 1);
    let writer = views[0].view(CONSISTENT).unwrap();
    for value in 1..=500 {
        store(writer, FAR, value);
        let before = word(&views[1], OLD, FAR);
        assert!(before + 1 >= value, "{before} is older than the last copy");
        views[1].purge(OLD, 0..8).unwrap();
        assert_eq!(word(&views[1], OLD, FAR), value);
    }
}

fn board(cluster: &Cluster, node: usize, name: &str, size: usize) -> Board {
    Board::create(&cluster.mesh(node), name, size, BoardOptions::default()).unwrap()
}

/// A writer that is stopped in its turn has the writers' lock. Others go on after a second, the
/// stopped one goes on where it was, and no state is torn or numbered twice.
#[test]
fn a_stopped_writer_holds_up_the_others_for_a_second() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let mut first = board(&cluster, 0, "stopped", 100);
    let mut second = board(&cluster, 1, "stopped", 100);
    let mut reader = Board::open(&cluster.mesh(2), "stopped", Access::ReadOnly).unwrap();
    for number in 1..=6 {
        assert_eq!(first.publish(&[number; 100]).unwrap(), u64::from(number));
    }
    let segment = cluster.mesh(0).open("stopped", Access::Writable).unwrap();
    // What a writer has that is stopped in its turn.
    let stuck = segment.lock(0).lock().unwrap();
    let began = Instant::now();
    let numbers: Vec<_> = (0..3_u8)
        .map(|round| second.publish(&[50 + round; 100]).unwrap())
        .collect();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(6), "{took:?} for three states");
    assert_eq!(numbers, [8, 9, 12], "the slots of 6 and 7 are left alone");
    reader.wait(11, Some(Duration::from_secs(10))).unwrap();
    assert_eq!(reader.read().unwrap().unwrap().bytes, [52; 100]);
    // Two stopped writers are an error, within two seconds. Locks 1 to 16 show which writers live.
    let bypass = segment.lock(17).lock_timeout(Duration::from_secs(10));
    let stuck_too = bypass.unwrap();
    let began = Instant::now();
    let refused = second.publish(&[1; 100]);
    assert!(matches!(refused, Err(Error::TimedOut)), "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(5));
    drop((stuck_too, stuck));
    assert_eq!(first.publish(&[90; 100]).unwrap(), 13);
    assert_eq!(second.publish(&[91; 100]).unwrap(), 14);
    assert_eq!(first.publish(&[92; 100]).unwrap(), 15);
    reader.wait(14, Some(Duration::from_secs(10))).unwrap();
    let last = reader.read().unwrap().unwrap();
    assert_eq!((last.number, last.went_back), (15, false));
    assert_eq!(last.bytes, [92; 100]);
}

/// The node of a board dies before all slots were used: pages of them are lost. Readers and writers
/// go on; a program that does not know from the contents what a page is would be told.
#[test]
fn a_board_goes_on_with_lost_pages() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let size = 9000;
    let mut writer = board(&cluster, 1, "young", size);
    let mut reader = Board::open(&cluster.mesh(2), "young", Access::ReadOnly).unwrap();
    writer.publish(&[1; 9000]).unwrap();
    reader.wait(0, Some(Duration::from_secs(10))).unwrap();
    assert_eq!(reader.read().unwrap().unwrap().number, 1);
    cluster.kill(1).unwrap();
    let mut other = board(&cluster, 0, "young", size);
    for number in 2..=9 {
        let state = [number as u8; 9000];
        assert_eq!(other.publish(&state).unwrap(), number);
        reader
            .wait(number - 1, Some(Duration::from_secs(30)))
            .unwrap();
        let found = reader.read().unwrap().unwrap();
        // While the newest state is on its way, the one before is read.
        let (seen, went_back) = (found.number, found.went_back);
        assert!(
            seen + 1 >= number && !went_back,
            "{seen} of {number}, {went_back}"
        );
        assert!(found.bytes == [found.number as u8; 9000]);
    }
}

/// A page whose node dies without a copy elsewhere raises SIGBUS, and reads as nothing else.
#[test]
fn a_lost_page_is_told() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let made = cluster.make_on(1, "lost", 2, options());
    let memory = made.map().unwrap();
    store(&memory, 0, 7);
    store(&memory, PAGE_SIZE, 8);
    // The other node has a copy of the first page only.
    let mut program = cluster.scripted_node(2, "lost");
    assert_eq!(program.ask("load 0"), "7");
    cluster.kill(1).unwrap();
    assert_eq!(program.ask("load 0"), "7");
    program.tell(&format!("load {PAGE_SIZE}"));
    assert!(!program.is_well(), "it was told zeros for a lost page");
}
