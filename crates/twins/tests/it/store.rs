//! One store: what it keeps, refuses and forgets.

use crate::narrow::Narrow;
use pagemesh_diff::{PAGE, encode};
use pagemesh_twins::{At, DiffKey, Error, Keep, Store};
use pagemesh_wire::{NodeId, PageIndex, SegmentId};

const SEGMENT: SegmentId = SegmentId(7);
const PAGE_0: At = (SEGMENT, PageIndex(0));

fn key(page: u32, node: u16, interval: u64) -> DiffKey {
    DiffKey {
        segment: SEGMENT,
        page: PageIndex(page),
        node: NodeId(node),
        interval,
    }
}

fn diff_of(changes: &[(usize, u8)]) -> Vec<u8> {
    let mut now = [0; PAGE];
    for (offset, byte) in changes {
        now[*offset] = *byte;
    }
    let mut diff = Vec::new();
    encode(&[0; PAGE], &now, &mut diff);
    diff
}

#[test]
fn a_diff_is_what_changed_since_the_twin() {
    let mut store: Store = Store::default();
    let mut page = [1; PAGE];
    store.twin(PAGE_0, &page).unwrap();
    (page[0], page[4095]) = (2, 3);
    let changed = store.capture(key(0, 1, 1), &page, Keep::Nothing);
    assert_eq!((changed, store.counts()), (Ok(2), (0, 1)));

    let mut other = [9; PAGE];
    store.merge([key(0, 1, 1)].into_iter(), &mut other).unwrap();
    assert_eq!((other[0], other[1], other[4095]), (2, 9, 3));
}

#[test]
fn a_page_that_stays_writable_is_compared_with_what_it_was_last() {
    let mut store: Store = Store::default();
    let mut page = [0; PAGE];
    store.twin(PAGE_0, &page).unwrap();
    for interval in 1..=3 {
        page[interval as usize] = 1;
        let changed = store.capture(key(0, 1, interval), &page, Keep::Twin);
        assert_eq!(changed, Ok(1), "interval {interval}");
        assert_eq!(store.twin_of(PAGE_0), Some(page.as_slice()));
    }
}

#[test]
fn everything_may_be_done_again() {
    let mut store: Store = Store::default();
    let mut page = [0; PAGE];
    store.twin(PAGE_0, &page).unwrap();
    store.twin(PAGE_0, &page).unwrap();
    page[3] = 1;
    assert_eq!(store.capture(key(0, 1, 1), &page, Keep::Twin), Ok(1));
    let before = store.clone();
    // A store since then belongs to the next interval.
    page[4] = 1;
    assert_eq!(store.capture(key(0, 1, 1), &page, Keep::Twin), Ok(1));
    assert_eq!(store, before);
    assert_eq!(store.capture(key(0, 1, 2), &page, Keep::Nothing), Ok(1));
    assert_eq!(store.capture(key(0, 1, 2), &page, Keep::Nothing), Ok(1));
    store.drop_twin(PAGE_0);
    store.insert(key(0, 2, 1), &diff_of(&[(0, 1)])).unwrap();
    store.insert(key(0, 2, 1), &diff_of(&[(0, 2)])).unwrap();
    assert_eq!(store.diff(key(0, 2, 1)), Ok(diff_of(&[(0, 1)]).as_slice()));
}

#[test]
fn what_others_changed_is_no_change_of_ours() {
    let mut store: Store = Store::default();
    let mut page = [0; PAGE];
    store.twin(PAGE_0, &page).unwrap();
    page[8] = 1;
    store.insert(key(0, 2, 1), &diff_of(&[(9, 5)])).unwrap();
    store.merge([key(0, 2, 1)].into_iter(), &mut page).unwrap();
    store.update_twin(key(0, 2, 1)).unwrap();
    assert_eq!((page[8], page[9]), (1, 5));
    store.capture(key(0, 1, 1), &page, Keep::Nothing).unwrap();
    assert_eq!(store.diff(key(0, 1, 1)), Ok(diff_of(&[(8, 1)]).as_slice()));
}

#[test]
fn of_several_diffs_the_last_one_wins() {
    let mut store: Store = Store::default();
    for (node, byte) in [(1, 10), (2, 20)] {
        store
            .insert(key(0, node, 1), &diff_of(&[(0, byte)]))
            .unwrap();
    }
    let (first, second) = (key(0, 1, 1), key(0, 2, 1));
    for (order, last) in [([first, second], 20), ([second, first], 10)] {
        let mut page = [0; PAGE];
        store.merge(order.into_iter(), &mut page).unwrap();
        assert_eq!(page[0], last);
    }
}

#[test]
fn what_is_missing_changes_nothing() {
    let mut store: Store = Store::default();
    store.insert(key(0, 1, 1), &diff_of(&[(0, 1)])).unwrap();
    let order = [key(0, 1, 1), key(0, 1, 2)].into_iter();
    let mut page = [0; PAGE];
    let missing = Error::NoDiff(key(0, 1, 2));
    assert_eq!(store.merge(order, &mut page), Err(missing));
    assert_eq!(page, [0; PAGE]);
    let lost = store.capture(key(0, 3, 1), &page, Keep::Nothing);
    assert_eq!(lost, Err(Error::NoTwin(PAGE_0)));
}

#[test]
fn hostile_bytes_are_no_diff() {
    let mut store: Store = Store::default();
    let mut long = diff_of(&[(0, 1)]);
    long.push(0);
    for bytes in [&[][..], &[1, 0, 0, 0, 0, 0, 0, 0], &long] {
        assert_eq!(store.insert(key(0, 1, 1), bytes), Err(Error::Malformed));
    }
    assert_eq!((store.counts(), store.bytes()), ((0, 0), 0));
}

#[test]
fn a_short_page_ends_where_it_ends() {
    let mut store: Store = Store::default();
    let mut page = [0; 64];
    store.twin(PAGE_0, &page).unwrap();
    page[63] = 1;
    store.capture(key(0, 1, 1), &page, Keep::Nothing).unwrap();
    store.insert(key(0, 2, 1), &diff_of(&[(64, 1)])).unwrap();
    let mut apply = |node| {
        let mut page = [0; 64];
        let order = [key(0, node, 1)].into_iter();
        store.merge(order, &mut page).map(|()| page[63])
    };
    assert_eq!(apply(1), Ok(1));
    assert_eq!(apply(2), Err(Error::Malformed));
}

#[test]
fn forgetting_gives_all_bytes_back() {
    let mut store: Store = Store::default();
    for page in 0..4 {
        store.twin((SEGMENT, PageIndex(page)), &[0; PAGE]).unwrap();
        for node in 1..3 {
            for interval in 1..5 {
                let diff = diff_of(&[(node as usize, 1)]);
                store.insert(key(page, node, interval), &diff).unwrap();
            }
        }
    }
    store.forget_through(SEGMENT, |node| if node == NodeId(1) { 3 } else { 0 });
    assert_eq!(store.counts(), (4, 4 + 16));
    store.forget_through(SegmentId(8), |_| 100);
    store.forget_page((SEGMENT, PageIndex(1)));
    assert_eq!(store.counts(), (4, 3 + 12));
    store.forget(SEGMENT);
    assert_eq!((store.counts(), store.bytes()), ((0, 0), 0));
}

#[test]
fn where_there_is_no_room_the_twin_stays() {
    let mut store = Store::new(Narrow::with(1));
    let mut page = [0; PAGE];
    store.twin(PAGE_0, &page).unwrap();
    page[0] = 1;
    let full = store.capture(key(0, 1, 1), &page, Keep::Nothing);
    assert_eq!(full, Err(Error::Full));
    assert_eq!(store.twin_of(PAGE_0), Some([0; PAGE].as_slice()));
}

#[test]
fn a_twin_of_zeros_takes_no_memory_and_is_compared_like_any_other() {
    let mut store: Store = Store::default();
    let mut page = [0; PAGE];
    store.twin_of_zeros(PAGE_0).unwrap();
    store.twin_of_zeros(PAGE_0).unwrap();
    assert_eq!((store.counts(), store.bytes()), ((1, 0), 0));
    assert_eq!(store.twin_of(PAGE_0), Some(page.as_slice()));
    page[5] = 7;
    assert_eq!(store.capture(key(0, 1, 1), &page, Keep::Twin), Ok(1));
    let before = store.clone();
    page[6] = 8;
    assert_eq!(store.capture(key(0, 1, 1), &page, Keep::Twin), Ok(1));
    assert_eq!(store, before, "what was stored since is not in the twin");
    assert_eq!(store.capture(key(0, 1, 2), &page, Keep::Nothing), Ok(1));

    store.twin_of_zeros(PAGE_0).unwrap();
    store.insert(key(0, 2, 1), &diff_of(&[(9, 5)])).unwrap();
    store.update_twin(key(0, 2, 1)).unwrap();
    let twin = store.twin_of(PAGE_0).unwrap();
    assert_eq!((twin.len(), twin[9]), (PAGE, 5), "changes of others");
}

#[test]
fn a_daemon_that_ended_between_a_twin_of_zeros_and_its_successor_has_the_twin_again() {
    let mut store: Store = Store::default();
    let mut page = [0; PAGE];
    store.twin_of_zeros(PAGE_0).unwrap();
    page[5] = 7;
    store.capture(key(0, 1, 1), &page, Keep::Twin).unwrap();
    let done = store.clone();
    store.drop_twin(PAGE_0);
    page[6] = 8;
    assert_eq!(store.capture(key(0, 1, 1), &page, Keep::Twin), Ok(1));
    assert_eq!(store, done);
}
