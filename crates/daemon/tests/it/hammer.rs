//! Pages are taken away while many threads store to them.

use crate::common::{Client, Daemon, Segment, permitted};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

const PAGES: usize = 4;
/// Threads of each process, two of which are on each node.
const THREADS: usize = 3;
/// A thread's words are alone in their cache lines.
const APART: usize = 8;

/// Raises counters of its own on every page; how often one was not as it had
/// left it.
fn hammer(memory: &Segment, thread: usize, over: &AtomicBool) -> u64 {
    let (mut counts, mut lost) = ([0; PAGES], 0);
    while !over.load(Relaxed) {
        for (page, count) in counts.iter_mut().enumerate() {
            for _ in 0..50 {
                let word = memory.word(page, thread * APART);
                let seen = word.load(Relaxed);
                lost += u64::from(seen != *count);
                *count = seen + 1;
                word.store(*count, Relaxed);
            }
        }
    }
    for (page, count) in counts.iter().enumerate() {
        lost += u64::from(memory.word(page, thread * APART).load(SeqCst) != *count);
    }
    lost
}

/// Stores lost, and pages taken away, by the time that enough were, or a store
/// was lost.
fn hammer_on_two_nodes(unprotected: bool, enough: u64) -> (u64, u64) {
    let first = Daemon::start(|options| options.unprotected = unprotected);
    let second = Daemon::joining(&first, |options| options.unprotected = unprotected);
    let mut clients = [
        first.client(),
        first.client(),
        second.client(),
        second.client(),
    ];
    let attach = |client: &mut Client| client.attach("hammered", PAGES, true);
    let memories = clients.each_mut().map(attach);
    let over = AtomicBool::new(false);
    let lost = std::thread::scope(|scope| {
        let over = &over;
        let threads: Vec<_> = memories
            .iter()
            .enumerate()
            .flat_map(|(client, memory)| {
                (0..THREADS).map(move |thread| {
                    scope.spawn(move || hammer(memory, client * THREADS + thread, over))
                })
            })
            .collect();
        let end = Instant::now() + Duration::from_secs(30);
        while clients[0].counter("pages_evicted") < enough && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        over.store(true, Relaxed);
        let lost = threads.into_iter().map(|thread| thread.join().unwrap());
        lost.sum()
    });
    let evicted = clients[0].counter("pages_evicted");
    drop(memories);
    (lost, evicted)
}

#[test]
fn no_store_is_lost_when_pages_are_taken_away() {
    if !permitted() {
        return;
    }
    let (lost, evicted) = hammer_on_two_nodes(false, 1500);
    eprintln!("{evicted} pages were taken away");
    assert!(evicted > 100, "{evicted}");
    assert_eq!(lost, 0);
}

#[test]
fn the_hammer_notices_if_stores_are_not_stopped_first() {
    if !permitted() {
        return;
    }
    let (lost, evicted) = hammer_on_two_nodes(true, 1000);
    eprintln!("{lost} stores were lost by {evicted} pages that were taken away");
    assert!(lost > 0);
}
