//! The place of a key in a map, taken or free.

use crate::SortedMap;

/// The place of a key.
#[derive(Debug)]
pub enum Entry<'a, K, V> {
    /// The key has a value.
    Occupied(OccupiedEntry<'a, K, V>),
    /// It has none.
    Vacant(VacantEntry<'a, K, V>),
}

/// The place of a key that has a value.
#[derive(Debug)]
pub struct OccupiedEntry<'a, K, V> {
    pub(crate) map: &'a mut SortedMap<K, V>,
    pub(crate) at: usize,
}

/// The place where a key would have a value.
#[derive(Debug)]
pub struct VacantEntry<'a, K, V> {
    pub(crate) map: &'a mut SortedMap<K, V>,
    pub(crate) at: usize,
    pub(crate) key: K,
}

impl<'a, K, V> Entry<'a, K, V> {
    /// The value; this one if there was none.
    pub fn or_insert(self, value: V) -> &'a mut V {
        self.or_insert_with(|| value)
    }

    /// The value; what `make` makes if there was none.
    pub fn or_insert_with(self, make: impl FnOnce() -> V) -> &'a mut V {
        match self {
            Self::Occupied(entry) => entry.into_mut(),
            Self::Vacant(entry) => entry.insert(make()),
        }
    }

    /// The value; the default one if there was none.
    pub fn or_default(self) -> &'a mut V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }

    /// Changes the value, if there is one.
    #[must_use]
    pub fn and_modify(mut self, change: impl FnOnce(&mut V)) -> Self {
        if let Self::Occupied(entry) = &mut self {
            change(entry.get_mut());
        }
        self
    }
}

impl<'a, K, V> OccupiedEntry<'a, K, V> {
    /// The value.
    #[must_use]
    pub fn get(&self) -> &V {
        &self.map.entries[self.at].1
    }

    /// The value, to be changed.
    pub fn get_mut(&mut self) -> &mut V {
        &mut self.map.entries[self.at].1
    }

    /// The value, for as long as the map is borrowed.
    #[must_use]
    pub fn into_mut(self) -> &'a mut V {
        &mut self.map.entries[self.at].1
    }

    /// Replaces the value; the former one.
    pub fn insert(&mut self, value: V) -> V {
        std::mem::replace(self.get_mut(), value)
    }

    /// Takes the value out.
    #[must_use]
    pub fn remove(self) -> V {
        self.map.entries.remove(self.at).1
    }
}

impl<'a, K, V> VacantEntry<'a, K, V> {
    /// Gives the key a value.
    pub fn insert(self, value: V) -> &'a mut V {
        self.map.entries.insert(self.at, (self.key, value));
        &mut self.map.entries[self.at].1
    }
}
