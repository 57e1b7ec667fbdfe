//! A map in sorted vectors.

mod iter;

use crate::entry::Slots;
use crate::read::Entries;
use crate::{Entry, OccupiedEntry, VacantEntry};
pub use iter::{LongIter, LongIterMut};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::Flatten;
use std::ops::{Bound, Index, RangeBounds};

/// An ordered map of many entries, with the methods of `BTreeMap`: a tree of two levels.
///
/// Searching takes time with the logarithm of the entries. Inserting and removing move entries of one
/// leaf, which has some kilobytes; once for many times, the list of leaves, too.
#[derive(Clone)]
pub struct LongMap<K, V> {
    /// None is empty. By ascending keys, no two of which are equal.
    leaves: Vec<Leaf<K, V>>,
    length: usize,
}

type Leaf<K, V> = Vec<(K, V)>;

/// A leaf, and a place in it.
type Place = (usize, usize);

impl<K, V> LongMap<K, V> {
    /// Entries that a leaf has at most: some 16 KiB of them.
    const MOST: usize = {
        let fit = (16 << 10) / (size_of::<(K, V)>() + 1);
        match fit {
            0..16 => 16,
            512.. => 512,
            _ => fit,
        }
    };

    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            leaves: Vec::new(),
            length: 0,
        }
    }

    /// How many entries there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// All entries.
    pub fn iter(&self) -> LongIter<'_, K, V> {
        LongIter {
            front: [].iter(),
            leaves: self.leaves.iter(),
            back: [].iter(),
        }
    }

    /// All entries, whose values may be changed.
    pub fn iter_mut(&mut self) -> LongIterMut<'_, K, V> {
        LongIterMut {
            front: [].iter_mut(),
            leaves: self.leaves.iter_mut(),
            back: [].iter_mut(),
        }
    }

    /// All keys.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + Clone {
        self.iter().map(|(key, _)| key)
    }

    /// All values.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + Clone {
        self.iter().map(|(_, value)| value)
    }

    /// All values, which may be changed.
    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }

    /// The keys alone.
    pub fn into_keys(self) -> impl DoubleEndedIterator<Item = K> {
        self.into_iter().map(|(key, _)| key)
    }

    /// The values alone.
    pub fn into_values(self) -> impl DoubleEndedIterator<Item = V> {
        self.into_iter().map(|(_, value)| value)
    }

    /// The entry of the least key.
    #[must_use]
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next()
    }

    /// The entry of the greatest key.
    #[must_use]
    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next_back()
    }

    /// The place of the least key.
    pub fn first_entry(&mut self) -> Option<OccupiedEntry<'_, Self>> {
        let at = (0, 0);
        (!self.is_empty()).then_some(OccupiedEntry { map: self, at })
    }

    /// Takes out the entry of the least key.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        (!self.is_empty()).then(|| self.take((0, 0)))
    }

    /// Takes out the entry of the greatest key.
    pub fn pop_last(&mut self) -> Option<(K, V)> {
        let leaf = self.leaves.len().checked_sub(1)?;
        let last = self.leaves[leaf].len() - 1;
        Some(self.take((leaf, last)))
    }

    /// Keeps what `keep` says.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        for leaf in &mut self.leaves {
            leaf.retain_mut(|(key, value)| keep(key, value));
        }
        self.pack();
    }

    /// Joins leaves that have become small, and counts.
    fn pack(&mut self) {
        let leaves = std::mem::take(&mut self.leaves);
        self.length = leaves.iter().map(Vec::len).sum();
        for mut leaf in leaves {
            match self.leaves.last_mut() {
                Some(last) if last.len() + leaf.len() <= Self::MOST / 2 => last.append(&mut leaf),
                _ if leaf.is_empty() => {}
                _ => self.leaves.push(leaf),
            }
        }
    }

    /// Puts an entry at the place of its key; where that is then.
    fn put(&mut self, (mut leaf, mut at): Place, entry: (K, V)) -> Place {
        if self.leaves.is_empty() {
            self.leaves.push(Vec::new());
        }
        if self.leaves[leaf].len() >= Self::MOST {
            // Keys often come in ascending order, and leaves are full then.
            let ascends = leaf + 1 == self.leaves.len() && at == self.leaves[leaf].len();
            let middle = if ascends { at } else { Self::MOST / 2 };
            let right = self.leaves[leaf].split_off(middle);
            self.leaves.insert(leaf + 1, right);
            if at > middle || ascends {
                (leaf, at) = (leaf + 1, at - middle);
            }
        }
        self.leaves[leaf].insert(at, entry);
        self.length += 1;
        (leaf, at)
    }

    /// Takes an entry out.
    fn take(&mut self, (leaf, at): Place) -> (K, V) {
        let entry = self.leaves[leaf].remove(at);
        self.length -= 1;
        let left = self.leaves[leaf].len();
        if left < Self::MOST / 4 {
            let next = self.leaves.get(leaf + 1).map_or(Self::MOST, Vec::len);
            if left == 0 {
                self.leaves.remove(leaf);
            } else if left + next <= Self::MOST / 2 {
                let mut next = self.leaves.remove(leaf + 1);
                self.leaves[leaf].append(&mut next);
            }
        }
        entry
    }
}

impl<K: Ord, V> LongMap<K, V> {
    /// Where the key is, or where it would be.
    fn place<Q: Ord + ?Sized>(&self, key: &Q) -> Result<Place, Place>
    where
        K: Borrow<Q>,
    {
        let ends_before = |leaf: &Leaf<K, V>| match leaf.last() {
            Some((last, _)) => last.borrow() < key,
            None => false,
        };
        let leaf = self.leaves.partition_point(ends_before);
        let Some(entries) = self.leaves.get(leaf) else {
            let last = leaf.saturating_sub(1);
            return Err((last, self.leaves.get(last).map_or(0, Vec::len)));
        };
        match entries.binary_search_by(|(other, _)| other.borrow().cmp(key)) {
            Ok(at) => Ok((leaf, at)),
            Err(at) => Err((leaf, at)),
        }
    }

    /// The value of a key.
    #[must_use]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let (leaf, at) = self.place(key).ok()?;
        Some(&self.leaves[leaf][at].1)
    }

    /// The value of a key, to be changed.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let (leaf, at) = self.place(key).ok()?;
        Some(&mut self.leaves[leaf][at].1)
    }

    /// Whether the key has a value.
    #[must_use]
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.place(key).is_ok()
    }

    /// Gives the key a value; the former one, if any.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.place(&key) {
            Ok((leaf, at)) => Some(std::mem::replace(&mut self.leaves[leaf][at].1, value)),
            Err(place) => {
                self.put(place, (key, value));
                None
            }
        }
    }

    /// Takes the value of a key out.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let place = self.place(key).ok()?;
        Some(self.take(place).1)
    }

    /// The place of a key.
    pub fn entry(&mut self, key: K) -> Entry<'_, Self> {
        match self.place(&key) {
            Ok(at) => Entry::Occupied(OccupiedEntry { map: self, at }),
            Err(at) => Entry::Vacant(VacantEntry { map: self, at, key }),
        }
    }

    /// Where a range of keys begins, and the place behind it.
    fn places<Q: Ord + ?Sized, R: RangeBounds<Q>>(&self, range: &R) -> (Place, Place)
    where
        K: Borrow<Q>,
    {
        let at = |key| self.place(key).unwrap_or_else(|at| at);
        let behind = |key| match self.place(key) {
            Ok((leaf, at)) => (leaf, at + 1),
            Err(place) => place,
        };
        let start = match range.start_bound() {
            Bound::Unbounded => (0, 0),
            Bound::Included(key) => at(key),
            Bound::Excluded(key) => behind(key),
        };
        let end = match range.end_bound() {
            Bound::Unbounded => (self.leaves.len(), 0),
            Bound::Included(key) => behind(key),
            Bound::Excluded(key) => at(key),
        };
        (start, end.max(start))
    }

    /// The entries of a range of keys.
    pub fn range<Q: Ord + ?Sized, R>(&self, range: R) -> LongIter<'_, K, V>
    where
        K: Borrow<Q>,
        R: RangeBounds<Q>,
    {
        let ((first, from), (last, to)) = self.places(&range);
        let leaf = |at: usize| self.leaves.get(at).map_or(&[][..], Vec::as_slice);
        if first == last {
            return LongIter {
                front: leaf(first)[from..to].iter(),
                leaves: [].iter(),
                back: [].iter(),
            };
        }
        LongIter {
            front: leaf(first)[from..].iter(),
            leaves: self.leaves[first + 1..last].iter(),
            back: leaf(last)[..to].iter(),
        }
    }

    /// The entries of a range of keys, whose values may be changed.
    pub fn range_mut<Q: Ord + ?Sized, R>(&mut self, range: R) -> LongIterMut<'_, K, V>
    where
        K: Borrow<Q>,
        R: RangeBounds<Q>,
    {
        let ((first, from), (last, to)) = self.places(&range);
        let (before, back) = self.leaves.split_at_mut(last);
        let back = back.first_mut().map_or(&mut [][..], Vec::as_mut_slice);
        if first == last {
            return LongIterMut {
                front: back[from..to].iter_mut(),
                leaves: [].iter_mut(),
                back: [].iter_mut(),
            };
        }
        let (front, between) = before[first..].split_at_mut(1);
        LongIterMut {
            front: front[0][from..].iter_mut(),
            leaves: between.iter_mut(),
            back: back[..to].iter_mut(),
        }
    }

    /// Takes out what is at this key and after it.
    #[must_use]
    pub fn split_off<Q: Ord + ?Sized>(&mut self, key: &Q) -> Self
    where
        K: Borrow<Q>,
    {
        let (leaf, at) = self.place(key).unwrap_or_else(|at| at);
        let mut right = Self::new();
        if leaf < self.leaves.len() {
            right.leaves = self.leaves.split_off(leaf + 1);
            right.leaves.insert(0, self.leaves[leaf].split_off(at));
        }
        self.pack();
        right.pack();
        right
    }
}

impl<K, V> Slots for LongMap<K, V> {
    type Key = K;
    type Value = V;
    type Place = Place;

    fn key_at(&self, (leaf, at): Place) -> &K {
        &self.leaves[leaf][at].0
    }

    fn at(&self, (leaf, at): Place) -> &V {
        &self.leaves[leaf][at].1
    }

    fn at_mut(&mut self, (leaf, at): Place) -> &mut V {
        &mut self.leaves[leaf][at].1
    }

    fn insert_at(&mut self, place: Place, key: K, value: V) -> Place {
        self.put(place, (key, value))
    }

    fn remove_at(&mut self, place: Place) -> V {
        self.take(place).1
    }
}

/// The same entries, however they are spread over leaves.
impl<K: PartialEq, V: PartialEq> PartialEq for LongMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length && self.iter().eq(other)
    }
}

impl<K: Eq, V: Eq> Eq for LongMap<K, V> {}

impl<K: Hash, V: Hash> Hash for LongMap<K, V> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.length.hash(hasher);
        self.iter().for_each(|entry| entry.hash(hasher));
    }
}

impl<K, V> Default for LongMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for LongMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Ord, V> Extend<(K, V)> for LongMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for LongMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for LongMap<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K: Ord + Borrow<Q>, Q: Ord + ?Sized, V> Index<&Q> for LongMap<K, V> {
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("a key that the map has")
    }
}

impl<K, V> IntoIterator for LongMap<K, V> {
    type Item = (K, V);
    type IntoIter = Flatten<std::vec::IntoIter<Leaf<K, V>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.leaves.into_iter().flatten()
    }
}

impl<'a, K, V> IntoIterator for &'a LongMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = LongIter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, K, V> IntoIterator for &'a mut LongMap<K, V> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = LongIterMut<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<K: Serialize, V: Serialize> Serialize for LongMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (key, value) in self {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Deserialize<'de> for LongMap<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries::new())
    }
}

#[cfg(test)]
mod tests;
