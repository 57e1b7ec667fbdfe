//! Pages asked for before they are touched: how many datagrams, and what is mapped.

use crate::common::{Cluster, MAPPING};
use core::time::Duration;
use pagemesh_core::release::Body;
use pagemesh_core::{DiffWork, Effect, Input, PageRange, Reply, Request, Rights, Source};
use pagemesh_wire::local::Advice;
use pagemesh_wire::peer::{Access, Call, Manager, Message, Policy, Spread, Window};
use pagemesh_wire::{NodeId, PageCount, PageIndex, RequestId, SegmentId, SyncKey};

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);

/// Node 1 has written all 16 pages.
fn written(manager: Manager) -> (Cluster, SegmentId) {
    let mut cluster = Cluster::new(2);
    let segment = cluster.segment(manager, Window::Nanos(0)).id;
    for page in 0..16 {
        cluster.touch(N1, page, Access::Write);
    }
    cluster.forget();
    (cluster, segment)
}

fn kinds(cluster: &Cluster) -> Vec<(usize, &'static str)> {
    let mut kinds: Vec<(usize, &'static str)> = Vec::new();
    for (_, _, message) in &cluster.sent {
        let kind = match message {
            Message::Ask(_) => "ask",
            Message::AskMany(many) => match many.requests.len() {
                4 => "ask for 4",
                _ => "ask for more",
            },
            Message::Data(_) => "data",
            Message::Pass(_) => "pass",
            Message::PassAck(_) => "ack",
            Message::Policy(said) | Message::PolicyPage(said) => match Body::read(&said.body) {
                Some(Body::CopyRequest(_)) => "fetch",
                Some(Body::CopyRequests(many)) => match many.copies.len() {
                    4 => "fetch 4",
                    _ => "fetch more",
                },
                Some(Body::CopyReply(_)) => "base",
                _ => continue,
            },
            // Signs of life.
            _ => continue,
        };
        match kinds.last_mut() {
            Some((count, last)) if *last == kind => *count += 1,
            _ => kinds.push((1, kind)),
        }
    }
    kinds
}

fn mapped(cluster: &Cluster, node: NodeId) -> Vec<u32> {
    let maps = cluster.done.iter().filter_map(|(of, effect)| match effect {
        Effect::Map {
            mappings, pages, ..
        } if *of == node && mappings.contains(MAPPING) => Some(*pages),
        _ => None,
    });
    let pages = maps.flat_map(PageRange::iter);
    pages.map(|(_, page)| page.0).collect()
}

fn advise(cluster: &mut Cluster, segment: SegmentId, range: (u32, u32), advice: Advice) {
    cluster.advise(N2, segment, range, advice);
    cluster.settle();
}

#[test]
fn who_walks_asks_for_four_pages_with_one_datagram() {
    let (mut cluster, _) = written(Manager::Dynamic);
    for page in 0..3 {
        cluster.touch(N2, page, Access::Read);
    }
    let expected = [
        (1, "ask"),
        (1, "data"),
        (1, "ask"),
        (1, "data"),
        (1, "ask"),
        (1, "ask for 4"),
        (5, "data"),
    ];
    assert_eq!(kinds(&cluster), expected);
    // Page 3 is there, and touching it asks for more.
    assert_eq!(mapped(&cluster, N2), [0, 1, 2, 4, 5, 6]);
    cluster.forget();
    cluster.touch(N2, 3, Access::Read);
    assert_eq!(kinds(&cluster), [(1, "ask for more"), (8, "data")]);
    assert_eq!(mapped(&cluster, N2), [3, 8, 9, 10, 11, 12, 13, 14]);
}

#[test]
fn threads_that_stop_together_ask_with_one_datagram() {
    let (mut cluster, _) = written(Manager::Dynamic);
    let faults = [9, 2, 13, 2, 6];
    cluster.input(
        N2,
        pagemesh_core::Input::Faults {
            mapping: MAPPING,
            faults: faults.map(|page| (PageIndex(page), Access::Read)).into(),
        },
    );
    cluster.settle();
    assert_eq!(kinds(&cluster), [(1, "ask for 4"), (4, "data")]);
    assert_eq!(mapped(&cluster, N2), [9, 2, 13, 6]);
}

#[test]
fn ownership_comes_ahead_of_who_writes() {
    for manager in [Manager::Dynamic, Manager::Fixed] {
        let (mut cluster, _) = written(manager);
        for page in 0..3 {
            cluster.touch(N2, page, Access::Write);
        }
        assert_eq!(mapped(&cluster, N2), [0, 1, 2, 4, 5, 6], "{manager:?}");
        cluster.forget();
        // The owner has it back without waiting, for nobody used it.
        cluster.touch(N1, 5, Access::Write);
        assert_eq!(mapped(&cluster, N1), [5], "{manager:?}");
    }
}

#[test]
fn a_lost_page_is_asked_for_again_before_its_request_is_repeated() {
    let (mut cluster, _) = written(Manager::Dynamic);
    for page in 0..2 {
        cluster.touch(N2, page, Access::Read);
    }
    let fault = pagemesh_core::Input::Fault {
        mapping: MAPPING,
        page: PageIndex(2),
        access: Access::Read,
    };
    cluster.input(N2, fault);
    cluster.deliver(|_, message| !matches!(message, Message::Data(data) if data.page.0 == 4));
    assert!(!mapped(&cluster, N2).contains(&4));
    cluster.forget();
    // As long as no page asked for ahead has come, nothing is known of how long they take.
    cluster.pass(Duration::from_millis(15));
    assert_eq!(kinds(&cluster), [(1, "ask"), (1, "data")]);
    assert_eq!(mapped(&cluster, N2), [4]);
}

#[test]
fn what_does_not_come_is_given_up_and_requested_for_anew() {
    let (mut cluster, segment) = written(Manager::Dynamic);
    cluster.advise(N2, segment, (3, 4), Advice::WillNeed);
    cluster.deliver(|to, _| to == N2);
    let mut asked = 0;
    for _ in 0..40 {
        cluster.pass(Duration::ZERO);
        cluster.now = cluster.now + Duration::from_millis(5);
        cluster.input(N2, pagemesh_core::Input::Deadline);
        asked += cluster.sent.iter().filter(|(from, ..)| *from == N2).count();
        cluster.sent.clear();
        cluster.deliver(|to, _| to == N2);
    }
    assert!(asked <= 8, "{asked} datagrams for what one would have done");
    cluster.forget();
    cluster.touch(N2, 3, Access::Read);
    assert_eq!(mapped(&cluster, N2), [3]);
}

#[test]
fn advice_is_taken() {
    let (mut cluster, segment) = written(Manager::Dynamic);
    advise(&mut cluster, segment, (3, 10), Advice::WillNeed);
    assert_eq!(mapped(&cluster, N2), (3..13).collect::<Vec<_>>());
    advise(&mut cluster, segment, (3, 4), Advice::DontNeed);
    let evicted = cluster.done.iter().filter_map(|(_, effect)| match effect {
        Effect::Evict { pages, .. } => Some((pages.first.0, pages.count)),
        _ => None,
    });
    assert_eq!(evicted.collect::<Vec<_>>(), [(3, 4)], "one effect for all");
    cluster.forget();
    advise(&mut cluster, segment, (0, 16), Advice::Random);
    for page in 3..7 {
        cluster.touch(N2, page, Access::Read);
    }
    assert_eq!(mapped(&cluster, N2), [3, 4, 5, 6]);
}

/// Node 2 announces these pages by one request.
fn announce(cluster: &mut Cluster, segment: SegmentId, ranges: &[(u32, u32)]) {
    let ranges = ranges.iter();
    let ranges = ranges.map(|(first, count)| (PageIndex(*first), PageCount(*count)));
    let ranges = ranges.collect();
    cluster.ask(N2, Request::WillNeed { segment, ranges });
    cluster.settle();
}

#[test]
fn pages_here_and_there_are_announced_and_requested_together() {
    let (mut cluster, segment) = written(Manager::Dynamic);
    announce(&mut cluster, segment, &[(1, 1), (4, 2), (9, 1)]);
    assert_eq!(mapped(&cluster, N2), [1, 4, 5, 9]);
    assert_eq!(kinds(&cluster), [(1, "ask for 4"), (4, "data")]);
    let (mut cluster, segment) = released();
    cluster.touch(N2, 0, Access::Read);
    cluster.forget();
    announce(&mut cluster, segment, &[(1, 1), (4, 2), (9, 1)]);
    assert_eq!(mapped(&cluster, N2), [1, 4, 5, 9]);
    assert_eq!(kinds(&cluster), [(1, "fetch 4"), (4, "base")]);
}

#[test]
fn announcements_beyond_the_end_are_refused() {
    let (mut cluster, segment) = written(Manager::Dynamic);
    let ranges = vec![(PageIndex(3), PageCount(1)), (PageIndex(15), PageCount(2))];
    let ticket = cluster.ask(N2, Request::WillNeed { segment, ranges });
    assert!(matches!(cluster.reply(ticket), Some(Reply::Refused(_))));
    cluster.settle();
    assert_eq!(mapped(&cluster, N2), [], "none of them is asked for");
}

/// Node 1 has written all 16 pages of a segment of policy `release`, and both know.
fn released() -> (Cluster, SegmentId) {
    released_pages(16)
}

/// The same with so many pages.
fn released_pages(pages: u32) -> (Cluster, SegmentId) {
    let mut cluster = Cluster::new(2);
    let policy = Policy::Release {
        spread: Spread::Lazy,
    };
    let segment = cluster.segment_of_pages(policy, pages.into()).id;
    for page in 0..pages {
        cluster.touch(N1, page, Access::Write);
    }
    meet(&mut cluster, segment);
    cluster.forget();
    (cluster, segment)
}

/// Both come to a barrier.
fn meet(cluster: &mut Cluster, segment: SegmentId) {
    let number = 1;
    for node in [N1, N2] {
        let call = Call::barrier(SyncKey { segment, number }, 2);
        cluster.look(node, segment);
        cluster.ask(node, Request::Call { to: None, call });
    }
    cluster.settle();
}

#[test]
fn a_walk_over_pages_of_one_writer_gets_them_ahead_under_release() {
    let (mut cluster, _) = released();
    for page in 0..3 {
        cluster.touch(N2, page, Access::Read);
    }
    let alone = [(1, "fetch"), (1, "base")].repeat(2);
    let with_four_ahead = [(1, "fetch"), (1, "fetch 4"), (5, "base")];
    assert_eq!(kinds(&cluster), [&alone[..], &with_four_ahead].concat());
    // The first page ahead is not mapped: its fault shows that the walk goes on.
    assert_eq!(mapped(&cluster, N2), [0, 1, 2, 4, 5, 6]);
}

#[test]
fn a_walk_under_release_ends_where_its_writer_ended() {
    let mut cluster = Cluster::new(2);
    let spread = Spread::Lazy;
    let segment = cluster.segment_of_pages(Policy::Release { spread }, 16).id;
    for page in 0..4 {
        cluster.touch(N1, page, Access::Write);
    }
    meet(&mut cluster, segment);
    cluster.forget();
    for page in 0..4 {
        cluster.touch(N2, page, Access::Read);
    }
    let alone = [(1, "fetch"), (1, "base")].repeat(2);
    let with_the_last_page = [(2, "fetch"), (2, "base")];
    assert_eq!(kinds(&cluster), [&alone[..], &with_the_last_page].concat());
}

#[test]
fn who_goes_from_front_to_back_under_release_gets_whole_pages_ahead() {
    let (mut cluster, segment) = released();
    advise(&mut cluster, segment, (0, 16), Advice::Sequential);
    for page in 0..2 {
        cluster.touch(N2, page, Access::Read);
    }
    let together = [(1, "fetch"), (1, "fetch more"), (15, "base")];
    let expected = [&[(1, "fetch"), (1, "base")][..], &together].concat();
    assert_eq!(kinds(&cluster), expected);
    // Page 2 is there, and touching it would ask for more.
    let all_but = [&[0, 1][..], &(3..16).collect::<Vec<_>>()].concat();
    assert_eq!(mapped(&cluster, N2), all_but);
}

#[test]
fn who_stores_on_the_way_stops_at_each_page_for_a_twin() {
    let (mut cluster, segment) = released();
    advise(&mut cluster, segment, (0, 16), Advice::Sequential);
    for page in 0..2 {
        cluster.touch(N2, page, Access::Write);
    }
    cluster.forget();
    for page in 2..7 {
        cluster.touch(N2, page, Access::Write);
    }
    let here = (vec![], (2..7).collect());
    assert_eq!((kinds(&cluster), mapped(&cluster, N2)), here);
}

#[test]
fn advice_is_taken_under_release() {
    let (mut cluster, segment) = released();
    advise(&mut cluster, segment, (3, 10), Advice::WillNeed);
    assert_eq!(mapped(&cluster, N2), (3..13).collect::<Vec<_>>());
    // The node has inquired first, and then goes on with each of them.
    assert_eq!(kinds(&cluster), [(10, "fetch"), (10, "base")]);
    cluster.forget();
    advise(&mut cluster, segment, (3, 10), Advice::WillNeed);
    advise(&mut cluster, segment, (3, 10), Advice::DontNeed);
    assert_eq!((kinds(&cluster), cluster.done.len()), (vec![], 0));
    advise(&mut cluster, segment, (0, 16), Advice::Random);
    for page in 0..3 {
        cluster.touch(N2, page, Access::Read);
    }
    assert_eq!(mapped(&cluster, N2), [0, 1, 2]);
}

#[test]
fn what_is_lost_ahead_under_release_comes_again_and_is_not_asked_for_twice() {
    let (mut cluster, segment) = released();
    cluster.advise(N2, segment, (3, 4), Advice::WillNeed);
    cluster.deliver(|_, message| {
        let Message::PolicyPage(said) = message else {
            return true;
        };
        !matches!(Body::read(&said.body), Some(Body::CopyReply(base)) if base.page.0 == 4)
    });
    assert_eq!(mapped(&cluster, N2), [3, 5, 6]);
    cluster.forget();
    cluster.touch(N2, 4, Access::Read);
    assert_eq!(kinds(&cluster), [], "it is under way");
    cluster.pass(Duration::from_millis(15));
    assert_eq!(mapped(&cluster, N2), [4]);
}

/// How many diffs were asked for, and how many were sent unasked.
fn diffs(cluster: &Cluster) -> (usize, usize) {
    let count = |message: &Message| match message {
        Message::Policy(said) => match Body::read(&said.body) {
            Some(Body::DiffRequest(want)) if want.request != RequestId(0) => (want.diffs.len(), 0),
            _ => (0, 0),
        },
        Message::Diffs(sent) if sent.request == RequestId(0) => (0, sent.diffs.len()),
        _ => (0, 0),
    };
    let counts = cluster.sent.iter().map(|(_, _, message)| count(message));
    counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Node 1 writes four pages, and both meet.
fn next_phase(cluster: &mut Cluster, segment: SegmentId) {
    for page in 0..4 {
        cluster.touch(N1, page, Access::Write);
    }
    cluster.forget();
    meet(cluster, segment);
}

#[test]
fn who_fetched_pages_gets_their_changes_unasked_and_shows_at_the_first_that_it_uses_all() {
    let (mut cluster, segment) = released();
    for page in 0..4 {
        cluster.touch(N2, page, Access::Read);
    }
    next_phase(&mut cluster, segment);
    assert_eq!(diffs(&cluster), (0, 4));
    cluster.forget();
    cluster.touch(N2, 0, Access::Read);
    assert_eq!(
        (diffs(&cluster), mapped(&cluster, N2)),
        ((0, 0), vec![0, 1, 2, 3])
    );
    for phase in 0..6 {
        next_phase(&mut cluster, segment);
        assert_eq!((diffs(&cluster), phase), ((0, 4), phase), "in place");
    }
    // Pages 1 to 3 were believed, and have to be touched now.
    next_phase(&mut cluster, segment);
    cluster.forget();
    for page in 0..4 {
        cluster.touch(N2, page, Access::Read);
        assert_eq!(mapped(&cluster, N2), (0..=page).collect::<Vec<_>>());
    }
    assert_eq!(diffs(&cluster), (0, 0));
}

#[test]
fn who_announces_pages_need_not_show_that_it_uses_them() {
    let (mut cluster, segment) = released();
    advise(&mut cluster, segment, (0, 4), Advice::WillNeed);
    next_phase(&mut cluster, segment);
    cluster.forget();
    advise(&mut cluster, segment, (0, 4), Advice::WillNeed);
    let here = ((0, 0), vec![0, 1, 2, 3]);
    assert_eq!((diffs(&cluster), mapped(&cluster, N2)), here);
    next_phase(&mut cluster, segment);
    assert_eq!(diffs(&cluster), (0, 4), "in place");
}

#[test]
fn who_does_not_come_back_gets_two_changes_and_no_more() {
    let (mut cluster, segment) = released();
    for page in 0..4 {
        cluster.touch(N2, page, Access::Read);
    }
    let unasked = (0..4).map(|_| {
        next_phase(&mut cluster, segment);
        diffs(&cluster).1
    });
    assert_eq!(unasked.collect::<Vec<_>>(), [4, 4, 0, 0]);
}

/// Pages that are looked at in one turn, of those that were announced.
const TURN: u32 = 128;

/// Node 2 announces as many pages as are looked at in one turn, then one more.
fn announces_a_turn((mut cluster, segment): (Cluster, SegmentId)) {
    let announce = |cluster: &mut Cluster, count| {
        // Whatever else is due has been done before.
        cluster.pass(Duration::from_millis(1));
        cluster.forget();
        cluster.advise(N2, segment, (0, count), Advice::WillNeed);
    };
    announce(&mut cluster, TURN);
    assert!(!cluster.is_due(N2), "answers bring it back");
    cluster.settle();
    assert_eq!(mapped(&cluster, N2), (0..TURN).collect::<Vec<_>>());
    announce(&mut cluster, TURN);
    assert!(!cluster.is_due(N2), "all is here, and that was all");
    announce(&mut cluster, TURN + 1);
    assert!(cluster.is_due(N2), "all is here but for one");
    cluster.forget();
    cluster.pass(Duration::from_micros(50));
    assert_eq!(mapped(&cluster, N2), [TURN]);
}

#[test]
fn who_announces_as_much_as_a_turn_takes_has_no_second_look() {
    let mut cluster = Cluster::new(2);
    let policy = Policy::Sequential {
        manager: Manager::Dynamic,
        window: Window::Nanos(0),
    };
    let segment = cluster.segment_of_pages(policy, u64::from(TURN) + 1).id;
    for page in 0..=TURN {
        cluster.touch(N1, page, Access::Write);
    }
    cluster.forget();
    announces_a_turn((cluster, segment));
}

#[test]
fn nor_has_who_does_so_under_release() {
    announces_a_turn(released_pages(TURN + 1));
}

/// Pages that node 2 stops at when it goes through all pages, and has to request then.
fn stops(cluster: &mut Cluster, pages: u32, access: Access) -> Vec<u32> {
    let mut stops = Vec::new();
    cluster.forget();
    for page in 0..pages {
        if !mapped(cluster, N2).contains(&page) {
            stops.push(page);
            cluster.touch(N2, page, access);
        }
    }
    stops
}

#[test]
fn a_long_walk_under_release_stops_at_few_pages() {
    let (mut cluster, segment) = released_pages(1024);
    let first = stops(&mut cluster, 1024, Access::Read);
    assert_eq!(first, [0, 1, 2, 3, 7, 15, 31, 63, 127, 255, 511, 767, 1023]);
    for page in 0..1024 {
        cluster.touch(N1, page, Access::Write);
    }
    meet(&mut cluster, segment);
    // The changes of the first pages were pushed, so they wait to be merged.
    let second = stops(&mut cluster, 1024, Access::Read);
    assert!(second.len() < 24, "{second:?}");
}

/// A program that adds to each page loads from it first: its stores follow pages that are still on
/// their way to its loads.
#[test]
fn pages_on_their_way_to_loads_come_writable_where_stores_follow() {
    let (mut cluster, _) = released_pages(64);
    for page in 0..4 {
        cluster.touch(N2, page, Access::Read);
    }
    // Pages up to 14 are here; at page 7 those from 15 on are requested, and do not come yet.
    let fault = |page, access| Input::Fault {
        mapping: MAPPING,
        page: PageIndex(page),
        access,
    };
    cluster.input(N2, fault(7, Access::Read));
    cluster.forget();
    for page in [12, 13, 14] {
        cluster.input(N2, fault(page, Access::Write));
    }
    cluster.settle();
    let writable = cluster.done.iter().filter_map(|(of, effect)| match effect {
        Effect::Map { pages, rights, .. } if (*of, *rights) == (N2, Rights::Write) => Some(*pages),
        _ => None,
    });
    let writable: Vec<_> = writable.flat_map(PageRange::iter).collect();
    let writable: Vec<u32> = writable.iter().map(|(_, page)| page.0).collect();
    assert_eq!(writable, [12, 13, 14, 16, 17, 18]);
}

/// Pages that a node stops at when it stores to all pages up to this one.
fn store_stops(cluster: &mut Cluster, node: NodeId, pages: u32) -> Vec<u32> {
    let mut stops = Vec::new();
    cluster.forget();
    for page in 0..pages {
        if !mapped(cluster, node).contains(&page) {
            stops.push(page);
            cluster.touch(node, page, Access::Write);
        }
    }
    stops
}

/// A new segment of policy `release`.
fn fresh(pages: u32) -> (Cluster, SegmentId) {
    let mut cluster = Cluster::new(2);
    let spread = Spread::Lazy;
    let policy = Policy::Release { spread };
    let segment = cluster.segment_of_pages(policy, pages.into()).id;
    (cluster, segment)
}

#[test]
fn first_stores_on_a_walk_stop_at_few_pages_and_so_do_the_next_ones() {
    let (mut cluster, segment) = fresh(256);
    let stops = [0, 1, 2, 3, 7, 15, 31, 63, 127, 255];
    assert_eq!(store_stops(&mut cluster, N1, 256), stops);
    let twins = cluster.done.iter().filter_map(|(_, effect)| match effect {
        Effect::Diffs(DiffWork::Twin { pages, source }) => Some((pages.count, *source)),
        _ => None,
    });
    let twins: Vec<_> = twins.collect();
    assert!(twins.iter().all(|(_, source)| *source == Source::Zero));
    assert_eq!(twins.iter().map(|(count, _)| count).sum::<u32>(), 256);
    meet(&mut cluster, segment);
    for page in 0..256 {
        cluster.touch(N2, page, Access::Read);
    }
    // Node 2 has the pages, so each of them is protected.
    assert_eq!(store_stops(&mut cluster, N1, 256).len(), stops.len());
}

#[test]
fn loads_of_zeros_on_a_walk_stop_at_few_pages() {
    let (mut cluster, segment) = fresh(256);
    meet(&mut cluster, segment);
    let loads = stops(&mut cluster, 256, Access::Read);
    assert_eq!(loads, [0, 1, 2, 3, 7, 15, 31, 63, 127, 255]);
    // They are copies like any other: what another node stores is not missed.
    cluster.touch(N1, 200, Access::Write);
    meet(&mut cluster, segment);
    cluster.forget();
    cluster.touch(N2, 200, Access::Read);
    assert_eq!(mapped(&cluster, N2), [200]);
    assert!(diffs(&cluster).0 > 0, "node 1 is asked");
}

/// Places far from each other, at which a program stores in turn, and the pages of each.
const PLACES: u32 = 40;
const PAGES: u32 = 32;
const APART: u32 = 100;

/// The pages of one of these places at which the program stops.
fn stops_in_turn(cluster: &mut Cluster, node: NodeId) -> Vec<u32> {
    let mut stops = Vec::new();
    cluster.forget();
    for (step, place) in (0..PAGES).flat_map(|step| (0..PLACES).map(move |place| (step, place))) {
        let page = place * APART + step;
        if !mapped(cluster, node).contains(&page) {
            stops.extend((place == 7).then_some(step));
            cluster.touch(node, page, Access::Write);
        }
    }
    stops
}

/// The first pages behind those places.
fn behind() -> impl Iterator<Item = u32> {
    (0..PLACES).map(|place| place * APART + PAGES)
}

#[test]
fn stores_to_many_places_in_turn_stop_at_few_pages() {
    let (mut cluster, segment) = fresh(PLACES * APART);
    assert_eq!(stops_in_turn(&mut cluster, N1), [0, 1, 3, 7, 15, 24]);
    cluster.forget();
    meet(&mut cluster, segment);
    // The pages behind each place were guessed in vain: no node is told of them.
    for page in behind() {
        cluster.touch(N2, page, Access::Read);
    }
    assert_eq!(kinds(&cluster), []);
}

#[test]
fn stores_to_many_places_in_turn_take_no_copies_away_ahead() {
    for manager in [Manager::Dynamic, Manager::Fixed] {
        let mut cluster = Cluster::new(2);
        let policy = Policy::Sequential {
            manager,
            window: Window::Nanos(0),
        };
        cluster.segment_of_pages(policy, u64::from(PLACES * APART));
        for page in behind().map(|page| page - 6) {
            cluster.touch(N2, page, Access::Read);
        }
        let stops = stops_in_turn(&mut cluster, N1);
        assert_eq!(stops[..4], [0, 1, 3, 7], "{manager:?}");
        assert!(
            stops.contains(&26),
            "no copy is taken away before a store: {stops:?}"
        );
    }
}

#[test]
fn pages_that_were_guessed_to_be_stored_to_are_not_named_and_have_no_twin() {
    let (mut cluster, segment) = fresh(16);
    for page in 0..4 {
        cluster.touch(N1, page, Access::Write);
    }
    let writable = mapped(&cluster, N1);
    assert!(writable.contains(&6), "{writable:?}");
    cluster.touch(N2, 6, Access::Write);
    cluster.forget();
    meet(&mut cluster, segment);
    let of = |cluster: &Cluster, drops: bool| -> Vec<u32> {
        let pages = cluster.done.iter().filter_map(|(_, effect)| match effect {
            Effect::Protect { pages, .. } if !drops => Some(*pages),
            Effect::Diffs(DiffWork::DropTwin { segment, page }) if drops => {
                Some((*segment, *page).into())
            }
            _ => None,
        });
        let pages = pages.flat_map(PageRange::iter);
        pages.map(|(_, page)| page.0).collect()
    };
    let guessed = of(&cluster, false);
    assert!(guessed.contains(&6) && !guessed.contains(&3), "{guessed:?}");
    assert_eq!(of(&cluster, true), guessed);
    cluster.forget();
    // Node 2 stored to one of them, and has been told of none: all it has is whole, or starts from zeros.
    for page in guessed.iter().copied() {
        cluster.touch(N2, page, Access::Read);
    }
    assert_eq!(kinds(&cluster), []);
}
