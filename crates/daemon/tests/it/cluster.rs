//! Real daemons on the loopback device, real faults.

use crate::common::{Client, Daemon, Segment, permitted};
use pagemesh_os::area::LockArea;
use pagemesh_wire::local::{Reply, Request};
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ClientId, NodeId, PageCount, PageIndex, SyncKey};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[test]
fn one_node_serves_its_own_processes() {
    if !permitted() {
        return;
    }
    let daemon = Daemon::start(|_| {});
    let (mut one, mut other) = (daemon.client(), daemon.client());
    let writer = one.attach("shared", 8, true);
    assert_eq!(writer.load(3, 0), 0, "a new page is zeros");
    writer.store(3, 0, 42);
    let reader = other.attach("shared", 8, false);
    assert_eq!(reader.load(3, 0), 42);
    writer.store(3, 0, 43);
    assert_eq!(reader.load(3, 0), 43, "one memory, no message");
    let second = other.attach("shared", 8, true);
    second.store(3, 1, 7);
    assert_eq!(writer.load(3, 1), 7);
    assert_eq!(one.counter("frames_punched"), 0);
    let unmap = Request::Unmap {
        mapping: second.mapping,
    };
    drop(second);
    assert_eq!(other.ask(unmap), Reply::Done);
    daemon.end().unwrap();
}

#[test]
fn two_nodes_see_each_others_stores() {
    if !permitted() {
        return;
    }
    let first = Daemon::start(|_| {});
    let second = Daemon::joining(&first, |_| {});
    let (mut one, mut two) = (first.client(), second.client());
    let here = one.attach("pair", 16, true);
    let there = two.attach("pair", 16, true);
    for round in 0..50 {
        let page = round % 16;
        here.store(page, 0, 1000 + round as u64);
        assert_eq!(there.load(page, 0), 1000 + round as u64);
        there.store(page, 1, 2000 + round as u64);
        assert_eq!(here.load(page, 1), 2000 + round as u64);
    }
    assert_eq!(one.ask(Request::Probe { node: NodeId(2) }), Reply::Done);
    assert!(two.counter("pages_in") > 0);
    drop((here, there));
    second.end().unwrap();
    first.end().unwrap();
}

/// Adds to a word that all nodes share, and to one of its own, for a while; checks that its own is
/// never lost. Returns how often it added.
fn increments(segment: &Segment, node: usize, end: Instant) -> u64 {
    let mut count = 0;
    while Instant::now() < end {
        for page in 0..PAGES {
            assert_eq!(segment.load(page, 8 + node), count, "a store was lost");
            segment.word(page, 0).fetch_add(1, Ordering::SeqCst);
            segment.store(page, 8 + node, count + 1);
        }
        count += 1;
    }
    count
}

const PAGES: usize = 2;

fn contend(impair: Option<&str>, length: Duration) {
    let set = |options: &mut pagemesh_daemon::Options| {
        options.impair = impair.map(|text| text.parse().unwrap());
    };
    let first = Daemon::start(set);
    let others = [Daemon::joining(&first, set), Daemon::joining(&first, set)];
    let mut clients: Vec<_> = std::iter::once(&first)
        .chain(&others)
        .map(Daemon::client)
        .collect();
    let attach = |client: &mut Client| client.attach("contended", PAGES, true);
    let segments: Vec<_> = clients.iter_mut().map(attach).collect();
    let end = Instant::now() + length;
    let total: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = segments
            .iter()
            .enumerate()
            .map(|(node, segment)| scope.spawn(move || increments(segment, node, end)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    for segment in &segments {
        for page in 0..PAGES {
            assert_eq!(segment.load(page, 0), total, "an increment was lost");
        }
    }
    let moves: Vec<_> = clients
        .iter_mut()
        .map(|client| client.counter("ownerships_arrived"))
        .collect();
    eprintln!("{total} increments, pages moved {moves:?} times");
    assert!(
        moves.iter().all(|count| *count > 5),
        "somebody starved: {moves:?}"
    );
    drop((segments, clients));
    for daemon in others {
        daemon.end().unwrap();
    }
    first.end().unwrap();
}

#[test]
fn three_writers_lose_nothing() {
    if permitted() {
        contend(None, Duration::from_secs(2));
    }
}

#[test]
fn a_bad_network_loses_nothing_either() {
    if permitted() {
        contend(
            Some("loss=5%,dup=3%,reorder=5%,seed=7"),
            Duration::from_secs(3),
        );
    }
}

fn key(segment: pagemesh_wire::SegmentId, number: u64) -> SyncKey {
    SyncKey { segment, number }
}

#[test]
fn locks_travel_and_survive_their_holders() {
    if !permitted() {
        return;
    }
    let first = Daemon::start(|_| {});
    let second = Daemon::joining(&first, |_| {});
    let (mut one, mut two) = (first.client(), second.client());
    let (info, _, area) = one.open("locked", 1, true);
    let (_, _, _) = two.open("locked", 1, true);
    let lock = key(info.id, 5);
    let Reply::Slot { index } = one.ask(Request::LockSlot { key: lock }) else {
        panic!("no slot");
    };
    let area = LockArea::map(area.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let word = area.word(index).unwrap();
    assert_eq!(
        one.ask(Request::Lock { key: lock }),
        Reply::Locked { recovered: false }
    );
    let held = |by: ClientId, wanted| LockWord::Held { by, wanted };
    assert_eq!(word.load(), held(one.id, false));
    // Locally released and taken without asking anybody.
    word.compare_exchange(held(one.id, false), LockWord::Free)
        .unwrap();
    word.compare_exchange(LockWord::Free, held(one.id, false))
        .unwrap();
    assert!(matches!(
        two.ask(Request::Unlock { key: lock }),
        Reply::Refused(_)
    ));
    let waiting = two.send(Request::Lock { key: lock }, &[]);
    let end = Instant::now() + Duration::from_secs(5);
    while word.load() != held(one.id, true) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(one.ask(Request::Unlock { key: lock }), Reply::Done);
    let granted = two.receive().unwrap();
    assert_eq!(
        (granted.number, granted.reply),
        (waiting, Reply::Locked { recovered: false })
    );
    // The holder dies; the next one is told.
    let waiting = one.send(Request::Lock { key: lock }, &[]);
    std::thread::sleep(Duration::from_millis(20));
    drop(two);
    let granted = one.receive().unwrap();
    assert_eq!(
        (granted.number, granted.reply),
        (waiting, Reply::Locked { recovered: true })
    );
    drop(one);
    second.end().unwrap();
    first.end().unwrap();
}

#[test]
fn watches_pins_and_cancelled_requests_answer() {
    if !permitted() {
        return;
    }
    let first = Daemon::start(|_| {});
    let second = Daemon::joining(&first, |_| {});
    let (mut one, mut two) = (first.client(), second.client());
    let here = one.attach("watched", 4, true);
    let there = two.attach("watched", 4, true);
    here.store(2, 0, 1);
    assert_eq!(there.load(2, 0), 1);
    let (segment, page) = (here.info.id, PageIndex(2));
    let number = two.send(Request::Watch { segment, page }, &[]);
    let waiting = two.receive().unwrap();
    assert_eq!((waiting.number, waiting.reply), (number, Reply::Waiting));
    here.store(2, 0, 2);
    let changed = two.receive().unwrap();
    assert_eq!((changed.number, changed.reply), (number, Reply::Changed));
    assert_eq!(there.load(2, 0), 2);

    let pin = Request::Pin {
        segment,
        first: page,
        count: PageCount(2),
    };
    assert_eq!(two.ask(pin), Reply::Done);
    let beyond = Request::Watch {
        segment,
        page: PageIndex(4),
    };
    assert!(matches!(
        two.ask(beyond),
        Reply::Refused(Refusal::Invalid(_))
    ));

    let barrier = Request::Barrier {
        key: key(segment, 1),
        parties: 2,
    };
    let number = two.send(barrier, &[]);
    two.send(Request::Cancel { number }, &[]);
    let cancelled = two.receive().unwrap();
    assert_eq!(cancelled.number, number);
    assert_eq!(cancelled.reply, Reply::Refused(Refusal::Cancelled));
    drop((here, there, two));
    second.end().unwrap();
    first.end().unwrap();
}
