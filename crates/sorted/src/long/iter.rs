//! The entries of a map in leaves, from both ends.

use super::Leaf;

/// Entries, by ascending keys.
#[derive(Debug)]
pub struct LongIter<'a, K, V> {
    pub(super) front: std::slice::Iter<'a, (K, V)>,
    pub(super) leaves: std::slice::Iter<'a, Leaf<K, V>>,
    pub(super) back: std::slice::Iter<'a, (K, V)>,
}

/// Entries whose values may be changed, by ascending keys.
#[derive(Debug)]
pub struct LongIterMut<'a, K, V> {
    pub(super) front: std::slice::IterMut<'a, (K, V)>,
    pub(super) leaves: std::slice::IterMut<'a, Leaf<K, V>>,
    pub(super) back: std::slice::IterMut<'a, (K, V)>,
}

impl<K, V> Clone for LongIter<'_, K, V> {
    fn clone(&self) -> Self {
        Self {
            front: self.front.clone(),
            leaves: self.leaves.clone(),
            back: self.back.clone(),
        }
    }
}

impl<'a, K, V> Iterator for LongIter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.front.next() {
                return Some((key, value));
            }
            match self.leaves.next() {
                Some(leaf) => self.front = leaf.iter(),
                None => return self.back.next().map(|(key, value)| (key, value)),
            }
        }
    }
}

impl<K, V> DoubleEndedIterator for LongIter<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.back.next_back() {
                return Some((key, value));
            }
            match self.leaves.next_back() {
                Some(leaf) => self.back = leaf.iter(),
                None => return self.front.next_back().map(|(key, value)| (key, value)),
            }
        }
    }
}

impl<'a, K, V> Iterator for LongIterMut<'a, K, V> {
    type Item = (&'a K, &'a mut V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.front.next() {
                return Some((key, value));
            }
            match self.leaves.next() {
                Some(leaf) => self.front = leaf.iter_mut(),
                None => return self.back.next().map(|(key, value)| (&*key, value)),
            }
        }
    }
}

impl<K, V> DoubleEndedIterator for LongIterMut<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.back.next_back() {
                return Some((key, value));
            }
            match self.leaves.next_back() {
                Some(leaf) => self.back = leaf.iter_mut(),
                None => return self.front.next_back().map(|(key, value)| (&*key, value)),
            }
        }
    }
}
