//! The allocated parts of a heap: a buddy tree, one byte per node.
//!
//! A node of order *o* stands for 2^o grains. Its byte says by how many orders its largest free
//! part is smaller: 0 if all of it is free, so that fresh memory, which is zero, is a free heap;
//! o + 1 if nothing is free. There are no pointers: overwritten bytes give wrong answers, but
//! never lead out of the tree or into a loop.
//!
//! A family of [`FAMILY`] generations lies on one page, so that a walk from the root to a leaf
//! fetches three or four pages and not forty. The same calls in the same order give the same places
//! everywhere: always the leftmost free part.

use super::error::HeapError;

/// Bytes of a leaf; every place is a multiple of it.
pub const GRAIN: u64 = 16;

/// Generations of the tree on one page.
const FAMILY: u32 = 12;

/// Bytes of a family; the first one is unused.
const PAGE: u64 = 1 << FAMILY;

/// Access to the bytes of the tree.
pub trait Bytes {
    /// Loads the byte at an offset.
    fn load(&self, at: u64) -> Result<u8, HeapError>;
    /// Stores the byte at an offset.
    fn store(&self, at: u64, byte: u8) -> Result<(), HeapError>;
}

/// A node: 2^order grains, the index-th node of its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub order: u32,
    pub index: u64,
}

/// The tree of a heap of 2^height grains.
#[derive(Clone, Copy, Debug)]
pub struct Tree<B> {
    bytes: B,
    height: u32,
}

impl Place {
    /// Its offset in the heap, in bytes.
    pub fn offset(self) -> u64 {
        (self.index << self.order) * GRAIN
    }

    /// Its length in bytes.
    pub fn length(self) -> u64 {
        GRAIN << self.order
    }

    fn parent(self) -> Self {
        Self {
            order: self.order + 1,
            index: self.index / 2,
        }
    }

    fn child(self, right: bool) -> Self {
        Self {
            order: self.order - 1,
            index: self.index * 2 + u64::from(right),
        }
    }

    /// The value of its byte when nothing of it is free.
    fn full(self) -> u8 {
        self.order as u8 + 1
    }
}

/// The order of the smallest part that has room for `length` bytes.
pub fn order_of(length: u64) -> u32 {
    length.div_ceil(GRAIN).max(1).next_power_of_two().ilog2()
}

/// Bytes that the tree of a heap of 2^height grains takes.
pub fn size(height: u32) -> u64 {
    base(height, 0) + families(height, 0) * PAGE
}

/// Number of families whose oldest node has an order of `FAMILY * level + FAMILY - 1`.
fn families(height: u32, level: u32) -> u64 {
    1 << height.saturating_sub(FAMILY * level + FAMILY - 1)
}

/// Offset of a level's families; the oldest level comes first.
fn base(height: u32, level: u32) -> u64 {
    let older = level + 1..=height / FAMILY;
    older.map(|level| families(height, level) * PAGE).sum()
}

impl<B: Bytes> Tree<B> {
    /// The tree stored in these bytes.
    pub fn new(bytes: B, height: u32) -> Self {
        Self { bytes, height }
    }

    /// Allocates the leftmost free part of this order; `None` if there is none. Calls `note` with
    /// the part before anything changes.
    pub fn take(
        &self,
        order: u32,
        note: impl FnOnce(Place) -> Result<(), HeapError>,
    ) -> Result<Option<Place>, HeapError> {
        let enough = order + 1;
        let mut place = self.root();
        if order > self.height || self.best(place)? < enough {
            return Ok(None);
        }
        while place.order > order {
            let left = place.child(false);
            place = if self.best(left)? >= enough {
                left
            } else {
                place.child(true)
            };
            if self.best(place)? < enough {
                return Err(HeapError::Damaged);
            }
        }
        note(place)?;
        self.store(place, place.full())?;
        self.mend(place)?;
        Ok(Some(place))
    }

    /// The allocated part that begins at `offset`.
    pub fn find(&self, offset: u64) -> Result<Place, HeapError> {
        let part = self.holding(offset)?;
        part.filter(|part| part.offset() == offset)
            .ok_or(HeapError::NotTaken)
    }

    /// The allocated part that contains `offset`, if there is one.
    pub fn holding(&self, offset: u64) -> Result<Option<Place>, HeapError> {
        let leaf = offset / GRAIN;
        let mut place = self.root();
        if leaf >> self.height != 0 {
            return Err(HeapError::NotTaken);
        }
        loop {
            let byte = self.load(place)?;
            if byte == 0 {
                return Ok(None);
            }
            if byte == place.full() && self.is_whole(place)? {
                return Ok(Some(place));
            }
            if place.order == 0 {
                return Ok(None);
            }
            place = place.child(leaf >> (place.order - 1) & 1 == 1);
        }
    }

    /// Frees a part that [`Tree::find`] found.
    pub fn give_back(&self, place: Place) -> Result<(), HeapError> {
        self.store(place, 0)?;
        self.mend(place)
    }

    /// Makes the ancestors of a node agree with it again. Also used after a process died in the
    /// middle of a change.
    pub fn mend(&self, changed: Place) -> Result<(), HeapError> {
        if changed.order > self.height || changed.index >> (self.height - changed.order) != 0 {
            return Err(HeapError::Damaged);
        }
        let mut place = changed;
        while place.order < self.height {
            place = place.parent();
            let children = [place.child(false), place.child(true)];
            let [left, right] = [self.load(children[0])?, self.load(children[1])?];
            let byte = if left == 0 && right == 0 {
                0
            } else {
                let best = self.best(children[0])?.max(self.best(children[1])?);
                place.full() - best as u8
            };
            self.store(place, byte)?;
        }
        Ok(())
    }

    fn root(&self) -> Place {
        Place {
            order: self.height,
            index: 0,
        }
    }

    /// True if a full node was allocated as one part, not as several.
    fn is_whole(&self, place: Place) -> Result<bool, HeapError> {
        Ok(place.order == 0 || self.load(place.child(false))? == 0)
    }

    /// One more than the order of its largest free part; 0 if there is none.
    fn best(&self, place: Place) -> Result<u32, HeapError> {
        Ok(u32::from(place.full().saturating_sub(self.load(place)?)))
    }

    fn load(&self, place: Place) -> Result<u8, HeapError> {
        self.bytes.load(self.at(place))
    }

    fn store(&self, place: Place, byte: u8) -> Result<(), HeapError> {
        self.bytes.store(self.at(place), byte)
    }

    /// Offset of a node's byte.
    fn at(&self, place: Place) -> u64 {
        let level = place.order / FAMILY;
        let depth = FAMILY - 1 - place.order % FAMILY;
        let family = place.index >> depth;
        let member = 1 << depth | place.index & ((1 << depth) - 1);
        base(self.height, level) + family * PAGE + member
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::{BTreeMap, HashSet};

    impl Bytes for &RefCell<Vec<u8>> {
        fn load(&self, at: u64) -> Result<u8, HeapError> {
            let bytes = self.borrow();
            bytes.get(at as usize).copied().ok_or(HeapError::Damaged)
        }

        fn store(&self, at: u64, byte: u8) -> Result<(), HeapError> {
            let mut bytes = self.borrow_mut();
            *bytes.get_mut(at as usize).ok_or(HeapError::Damaged)? = byte;
            Ok(())
        }
    }

    fn bytes(height: u32) -> RefCell<Vec<u8>> {
        RefCell::new(vec![0; size(height) as usize])
    }

    fn take(tree: &Tree<&RefCell<Vec<u8>>>, length: u64) -> Option<u64> {
        let taken = tree.take(order_of(length), |_| Ok(())).unwrap();
        taken.map(Place::offset)
    }

    /// Deterministic pseudo-random numbers.
    fn numbers(mut seed: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        }
    }

    #[test]
    fn every_node_has_a_byte_of_its_own() {
        for height in [0, 3, 11, 12, 13] {
            let bytes = bytes(height);
            let tree = Tree::new(&bytes, height);
            let mut places = HashSet::new();
            for order in 0..=height {
                for index in 0..1 << (height - order) {
                    let at = tree.at(Place { order, index });
                    assert!(at < size(height) && places.insert(at), "{order} {index}");
                }
            }
        }
        // Three pages from the root of 256 GiB to a leaf.
        assert_eq!(size(34), (1 << 35) + (1 << 23) + 4096);
    }

    #[test]
    fn parts_never_overlap_and_all_come_back() {
        let height = 13;
        let bytes = bytes(height);
        let tree = Tree::new(&bytes, height);
        let mut number = numbers(7);
        let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..5000 {
            if number(2) == 0 || taken.is_empty() {
                let length = 1 << number(14);
                let Some(offset) = take(&tree, length) else {
                    continue;
                };
                assert_eq!(offset % length.next_power_of_two().max(GRAIN), 0);
                let before = taken.range(..=offset).next_back();
                assert!(before.is_none_or(|(at, length)| at + length <= offset));
                let after = taken.range(offset..).next();
                assert!(after.is_none_or(|(at, _)| offset + length <= *at));
                assert!(offset + length <= GRAIN << height);
                taken.insert(offset, length);
            } else {
                let nth = number(taken.len() as u64) as usize;
                let offset = *taken.keys().nth(nth).unwrap();
                let length = taken.remove(&offset).unwrap();
                let place = tree.find(offset).unwrap();
                assert_eq!(place.length(), length.max(GRAIN));
                tree.give_back(place).unwrap();
                assert_eq!(tree.find(offset), Err(HeapError::NotTaken));
            }
        }
        for offset in taken.into_keys() {
            tree.give_back(tree.find(offset).unwrap()).unwrap();
        }
        assert!(bytes.borrow().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_heap_is_used_to_its_last_grain() {
        let bytes = bytes(6);
        let tree = Tree::new(&bytes, 6);
        for grain in 0..64 {
            assert_eq!(take(&tree, 1), Some(grain * GRAIN));
        }
        assert_eq!(take(&tree, 1), None);
        assert_eq!(tree.find(8), Err(HeapError::NotTaken));
        tree.give_back(tree.find(5 * GRAIN).unwrap()).unwrap();
        assert_eq!(take(&tree, 17), None);
        assert_eq!(take(&tree, 16), Some(5 * GRAIN));
        assert_eq!(take(&tree, GRAIN << 7), None);
    }

    #[test]
    fn only_beginnings_of_taken_parts_are_found() {
        let bytes = bytes(8);
        let tree = Tree::new(&bytes, 8);
        assert_eq!(take(&tree, 64), Some(0));
        assert_eq!(take(&tree, 16), Some(64));
        for wrong in [16, 32, 80, 128, 1, GRAIN << 8, u64::MAX] {
            assert_eq!(tree.find(wrong), Err(HeapError::NotTaken), "{wrong}");
        }
        assert_eq!(tree.find(0).unwrap().length(), 64);
    }

    #[test]
    fn a_change_cut_short_is_mended() {
        let bytes = bytes(8);
        let tree = Tree::new(&bytes, 8);
        let mut noted = None;
        // Simulates a death between the change of the node and of its ancestors.
        tree.take(2, |place| {
            noted = Some(place);
            Ok(())
        })
        .unwrap();
        let place = noted.unwrap();
        let above = tree.at(place.parent());
        bytes.borrow_mut()[above as usize] = 0;
        tree.mend(place).unwrap();
        assert_eq!(take(&tree, 64), Some(64));
        tree.give_back(tree.find(0).unwrap()).unwrap();
    }

    #[test]
    fn nonsense_in_the_tree_leads_nowhere() {
        let mut number = numbers(3);
        for _ in 0..200 {
            let bytes = bytes(10);
            bytes.borrow_mut().fill_with(|| number(256) as u8);
            let tree = Tree::new(&bytes, 10);
            for _ in 0..20 {
                let _ = tree.take(number(12) as u32, |_| Ok(()));
                if let Ok(place) = tree.find(number(1 << 15)) {
                    let _ = tree.give_back(place);
                }
                let _ = tree.mend(Place {
                    order: number(64) as u32,
                    index: number(1 << 30),
                });
            }
        }
    }
}
