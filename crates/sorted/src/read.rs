//! How maps are read.

use serde::de::{Deserialize, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Reads the entries of a map, in whatever order they come.
pub(crate) struct Entries<M, K, V>(PhantomData<(M, K, V)>);

impl<M, K, V> Entries<M, K, V> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<'de, M, K, V> Visitor<'de> for Entries<M, K, V>
where
    M: Default + Extend<(K, V)>,
    K: Deserialize<'de>,
    V: Deserialize<'de>,
{
    type Value = M;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<M, A::Error> {
        let mut map = M::default();
        while let Some(entry) = access.next_entry()? {
            map.extend(Some(entry));
        }
        Ok(map)
    }
}
