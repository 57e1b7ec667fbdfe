//! The place of a key in a map, taken or free.

/// A map by places of its keys.
pub trait Slots {
    /// Its keys.
    type Key;
    /// Its values.
    type Value;
    /// Where a key is, or would be.
    type Place: Copy;

    /// The key at a place.
    fn key_at(&self, place: Self::Place) -> &Self::Key;
    /// The value at a place.
    fn at(&self, place: Self::Place) -> &Self::Value;
    /// The value at a place, to be changed.
    fn at_mut(&mut self, place: Self::Place) -> &mut Self::Value;
    /// Puts an entry where its key would be; where it is then.
    fn insert_at(&mut self, place: Self::Place, key: Self::Key, value: Self::Value) -> Self::Place;
    /// Takes an entry out.
    fn remove_at(&mut self, place: Self::Place) -> Self::Value;
}

/// The place of a key.
pub enum Entry<'a, M: Slots> {
    /// The key has a value.
    Occupied(OccupiedEntry<'a, M>),
    /// It has none.
    Vacant(VacantEntry<'a, M>),
}

/// The place of a key that has a value.
pub struct OccupiedEntry<'a, M: Slots> {
    pub(crate) map: &'a mut M,
    pub(crate) at: M::Place,
}

/// The place where a key would have a value.
pub struct VacantEntry<'a, M: Slots> {
    pub(crate) map: &'a mut M,
    pub(crate) at: M::Place,
    pub(crate) key: M::Key,
}

impl<'a, M: Slots> Entry<'a, M> {
    /// The value; this one if there was none.
    pub fn or_insert(self, value: M::Value) -> &'a mut M::Value {
        self.or_insert_with(|| value)
    }

    /// The value; what `make` makes if there was none.
    pub fn or_insert_with(self, make: impl FnOnce() -> M::Value) -> &'a mut M::Value {
        match self {
            Self::Occupied(entry) => entry.into_mut(),
            Self::Vacant(entry) => entry.insert(make()),
        }
    }

    /// The value; the default one if there was none.
    pub fn or_default(self) -> &'a mut M::Value
    where
        M::Value: Default,
    {
        self.or_insert_with(M::Value::default)
    }

    /// Changes the value, if there is one.
    pub fn and_modify(mut self, change: impl FnOnce(&mut M::Value)) -> Self {
        if let Self::Occupied(entry) = &mut self {
            change(entry.get_mut());
        }
        self
    }
}

impl<'a, M: Slots> OccupiedEntry<'a, M> {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &M::Key {
        self.map.key_at(self.at)
    }

    /// The value.
    #[must_use]
    pub fn get(&self) -> &M::Value {
        self.map.at(self.at)
    }

    /// The value, to be changed.
    pub fn get_mut(&mut self) -> &mut M::Value {
        self.map.at_mut(self.at)
    }

    /// The value, for as long as the map is borrowed.
    #[must_use]
    pub fn into_mut(self) -> &'a mut M::Value {
        self.map.at_mut(self.at)
    }

    /// Replaces the value; the former one.
    pub fn insert(&mut self, value: M::Value) -> M::Value {
        std::mem::replace(self.get_mut(), value)
    }

    /// Takes the value out.
    pub fn remove(self) -> M::Value {
        self.map.remove_at(self.at)
    }
}

impl<'a, M: Slots> VacantEntry<'a, M> {
    /// Gives the key a value.
    pub fn insert(self, value: M::Value) -> &'a mut M::Value {
        let at = self.map.insert_at(self.at, self.key, value);
        self.map.at_mut(at)
    }
}
