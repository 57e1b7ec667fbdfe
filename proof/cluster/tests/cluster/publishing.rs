//! One writes, others only look: what they see is never torn.

use crate::support::{Cluster, load, store};
use pagemesh::{Access, Mapping};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Words of a message, from one end of the page to the other.
const WORDS: usize = 64;
const STRIDE: usize = 64;
const MESSAGES: u64 = 400;

/// The number is odd while the text is being written.
fn publish(board: &Mapping) {
    for message in 1..=MESSAGES {
        store(board, 0, 2 * message - 1);
        for word in 1..WORDS {
            store(board, word * STRIDE, message);
        }
        store(board, 0, 2 * message);
        std::thread::sleep(std::time::Duration::from_micros(300));
    }
}

/// Returns how many whole messages were seen.
fn follow(board: &Mapping, asleep: bool, over: &AtomicBool) -> u64 {
    let mut seen = 0;
    while !over.load(Acquire) {
        let before = load(board, 0);
        let words: Vec<_> = (1..WORDS).map(|word| load(board, word * STRIDE)).collect();
        let after = load(board, 0);
        if before == after && before.is_multiple_of(2) {
            let whole = words.iter().all(|word| *word == before / 2);
            assert!(whole, "message {} is torn: {words:?}", before / 2);
            seen += 1;
        }
        if asleep {
            let short = std::time::Duration::from_millis(20);
            let _ = board.wait_change(0, after.to_le_bytes()[0], Some(short));
        }
    }
    seen
}

fn publish_to(access: Access, asleep: bool) {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let board = &cluster.share("board", 1)[0];
    let readers = [1, 1, 0].map(|node| {
        let segment = cluster.mesh(node).open("board", access).unwrap();
        segment.map().unwrap()
    });
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        let followers = readers
            .each_ref()
            .map(|reader| scope.spawn(move || follow(reader, asleep, over)));
        publish(board);
        over.store(true, Release);
        for follower in followers {
            assert!(follower.join().unwrap() > 0, "it saw nothing whole");
        }
    });
    for reader in &readers {
        assert_eq!(load(reader, 0), 2 * MESSAGES, "the last one is seen");
    }
}

#[test]
fn to_readers_that_look_again_and_again() {
    publish_to(Access::ReadOnly, false);
}

#[test]
fn to_readers_that_sleep_between_messages() {
    publish_to(Access::ReadOnly, true);
}

#[test]
fn to_processes_that_could_write_but_look_again_and_again() {
    publish_to(Access::Writable, false);
}

#[test]
fn to_processes_that_could_write_but_sleep_between_messages() {
    publish_to(Access::Writable, true);
}
