//! A store that defers diffs beside one that makes each at once.

use crate::narrow::Narrow;
use pagemesh_diff::{PAGE, encode};
use pagemesh_twins::{At, DiffKey, Error, Keep, Store};
use pagemesh_wire::{NodeId, PageIndex, SegmentId};
use proptest::prelude::*;

const AT: At = (SegmentId(1), PageIndex(0));
const ME: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);

fn key(node: NodeId, interval: u64) -> DiffKey {
    DiffKey {
        segment: AT.0,
        page: AT.1,
        node,
        interval,
    }
}

/// What a daemon does with the twins and diffs of a page.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, u8),
    Twin,
    Capture(Keep),
    DropTwin,
    Learn(usize, u8),
    Read(u64),
    Merge(u64),
    Forget(u64),
    SettleAll,
}

fn step() -> impl Strategy<Value = Step> {
    let keep = prop_oneof![Just(Keep::Twin), Just(Keep::Twin), Just(Keep::Nothing)];
    prop_oneof![
        (0..PAGE, any::<u8>()).prop_map(|(at, byte)| Step::Write(at, byte)),
        (0..PAGE, any::<u8>()).prop_map(|(at, byte)| Step::Write(at, byte)),
        Just(Step::Twin),
        keep.prop_map(Step::Capture),
        Just(Step::DropTwin),
        (0..PAGE, any::<u8>()).prop_map(|(at, byte)| Step::Learn(at, byte)),
        (0..20_u64).prop_map(Step::Read),
        (0..20_u64).prop_map(Step::Merge),
        (0..20_u64).prop_map(Step::Forget),
        Just(Step::SettleAll),
    ]
}

struct Node {
    store: Store,
    page: Box<[u8; PAGE]>,
    /// The last interval, and the last diff of the other node.
    intervals: u64,
    learned: u64,
}

impl Node {
    fn new(defer_from: usize) -> Self {
        let mut store = Store::default();
        store.defer_from(defer_from);
        store.twin_of_zeros(AT).unwrap();
        Self {
            store,
            page: Box::new([0; PAGE]),
            intervals: 0,
            learned: 0,
        }
    }

    /// What can be seen of a step.
    fn take(&mut self, step: &Step) -> Result<Vec<u8>, Error> {
        let store = &mut self.store;
        match *step {
            // A page without a twin is not stored to.
            Step::Write(at, byte) => {
                if store.twin_of(AT).is_some() {
                    self.page[at] = byte;
                }
            }
            Step::Twin => store.twin(AT, &*self.page)?,
            Step::Capture(keep) => {
                self.intervals += 1;
                let changed = store.capture(key(ME, self.intervals), &*self.page, keep)?;
                return Ok(vec![u8::from(changed > 0)]);
            }
            Step::DropTwin => store.drop_twin(AT),
            Step::Learn(at, byte) => {
                self.learned += 1;
                let (before, mut now) = (self.page.clone(), self.page.clone());
                now[at] = byte;
                let mut diff = Vec::new();
                encode(&before, &now, &mut diff);
                let key = key(OTHER, self.learned);
                store.insert(key, &diff)?;
                store.merge([key].into_iter(), &mut *self.page)?;
                store.update_twin(key)?;
            }
            Step::Read(interval) => return store.diff(key(ME, interval)).map(<[u8]>::to_vec),
            Step::Merge(interval) => {
                let mut page = [9; PAGE];
                store.merge([key(ME, interval)].into_iter(), &mut page)?;
                return Ok(page.to_vec());
            }
            Step::Forget(upto) => store.forget_through(AT.0, |_| upto),
            Step::SettleAll => store.settle_all()?,
        }
        Ok(store.twin_of(AT).unwrap_or_default().to_vec())
    }
}

proptest! {
    #[test]
    fn a_deferred_diff_is_the_one_made_at_once(steps in prop::collection::vec(step(), 1..60)) {
        let (mut deferring, mut prompt) = (Node::new(0), Node::new(usize::MAX));
        for step in &steps {
            prop_assert_eq!(deferring.take(step), prompt.take(step), "{:?}", step);
            prop_assert_eq!(deferring.store.counts(), prompt.store.counts(), "{:?}", step);
        }
        for interval in 1..=deferring.intervals {
            let read = Step::Read(interval);
            prop_assert_eq!(deferring.take(&read), prompt.take(&read), "{}", interval);
        }
        deferring.store.forget(AT.0);
        prop_assert_eq!((deferring.store.counts(), deferring.store.bytes()), ((0, 0), 0));
    }
}

#[test]
fn the_diff_of_a_rewritten_page_is_deferred_and_that_of_a_word_is_not() {
    let mut store: Store = Store::default();
    store.twin_of_zeros(AT).unwrap();
    let mut page = [7; PAGE];
    store.capture(key(ME, 1), &page, Keep::Twin).unwrap();
    assert_eq!(store.made(key(ME, 1)), Err(Error::NoDiff(key(ME, 1))));
    assert_eq!(store.bytes(), PAGE as u64, "the twin alone");
    page[100] = 8;
    store.capture(key(ME, 2), &page, Keep::Twin).unwrap();
    assert!(store.made(key(ME, 1)).is_ok(), "one of a page at most");
    assert!(store.made(key(ME, 2)).is_ok());
    assert_eq!(store.checked(key(ME, 2)).unwrap().len(), 1);
}

#[test]
fn where_there_is_no_room_for_another_twin_the_former_one_stays() {
    let mut store = Store::new(Narrow::with(1));
    store.twin(AT, &[1; PAGE]).unwrap();
    let full = store.capture(key(ME, 1), &[2; PAGE], Keep::Twin);
    assert_eq!(full, Err(Error::Full));
    assert_eq!(store.twin_of(AT), Some([1; PAGE].as_slice()));
    store.slots_mut().room = 1;
    store.capture(key(ME, 1), &[2; PAGE], Keep::Twin).unwrap();
    assert_eq!(store.diff(key(ME, 1)), Err(Error::Full));
    store.slots_mut().room = 1;
    assert_eq!(store.checked(key(ME, 1)).map(|diff| diff.len()), Ok(PAGE));
}
