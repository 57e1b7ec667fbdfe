//! A set of nodes, small enough to travel and to sit in every page.

use crate::NodeId;
use core::fmt;
use core::num::NonZeroU64;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeTuple, Serializer};
use std::sync::Arc;

/// A set of nodes: a copyset, the acknowledgements still missing.
///
/// As long as all its nodes have numbers below [`NodeId::NEAR`], it is 16 bytes and owns nothing.
/// With greater numbers, its size grows with who is in it, and clones share it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct NodeSet(Form);

/// There is one form for each set: nodes with great numbers make it [`Form::Far`].
#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    /// Bits of the numbers 0 to 63, of which the lowest is always set since no node has number 0, so
    /// that this form and the other one share 16 bytes; bits of the numbers 64 to 127.
    Near(NonZeroU64, u64),
    Far(Arc<Vec<Word>>),
}

/// Sixty-four neighbouring numbers of which at least one is in the set.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Word {
    /// The least of them, divided by 64.
    place: u16,
    bits: u64,
}

/// The bit that stands for no node.
const NOBODY: NonZeroU64 = NonZeroU64::MIN;

/// Words of all numbers that a node can have.
const PLACES: u16 = NodeId::LIMIT.div_ceil(64);

/// Words of the numbers below [`NodeId::NEAR`].
const NEAR_PLACES: u16 = NodeId::NEAR / 64;

const _: () = assert!(size_of::<NodeSet>() == 16, "it sits in every page");

/// The word of a node, and its bit there.
fn place_of(node: NodeId) -> (u16, u64) {
    assert!(node.0 < NodeId::LIMIT, "{node} is no node");
    (node.0 / 64, 1 << (node.0 % 64))
}

impl NodeSet {
    /// The empty set.
    pub const EMPTY: Self = Self(Form::Near(NOBODY, 0));

    /// The set of one node.
    #[must_use]
    pub fn only(node: NodeId) -> Self {
        let mut set = Self::EMPTY;
        set.insert(node);
        set
    }

    /// The bits of 64 numbers.
    fn bits(&self, place: u16) -> u64 {
        match (&self.0, place) {
            (Form::Near(low, _), 0) => low.get() & !NOBODY.get(),
            (Form::Near(_, high), 1) => *high,
            (Form::Near(..), _) => 0,
            (Form::Far(words), _) => {
                let found = words.binary_search_by_key(&place, |word| word.place);
                found.map_or(0, |at| words[at].bits)
            }
        }
    }

    /// The set with these bits of each 64 numbers.
    fn of(bits: impl Fn(u16) -> u64) -> Self {
        let bits = |place| match place {
            0 => bits(0) & !NOBODY.get(),
            _ => bits(place),
        };
        let word = |place| Word {
            place,
            bits: bits(place),
        };
        let words: Vec<_> = (0..PLACES)
            .map(word)
            .filter(|word| word.bits != 0)
            .collect();
        if words.last().is_some_and(|last| last.place >= NEAR_PLACES) {
            Self(Form::Far(Arc::new(words)))
        } else {
            Self(Form::Near(NOBODY | bits(0), bits(1)))
        }
    }

    /// The set whose bits are made of those of two sets.
    fn combine(&self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        match (&self.0, &other.0) {
            (Form::Near(low, high), Form::Near(other_low, other_high)) => {
                let low = of(low.get(), other_low.get());
                Self(Form::Near(NOBODY | low, of(*high, *other_high)))
            }
            _ => Self::of(|place| of(self.bits(place), other.bits(place))),
        }
    }

    /// Adds a node; [`NodeId::NONE`] is in no set.
    ///
    /// # Panics
    /// If no node can have this number.
    pub fn insert(&mut self, node: NodeId) {
        let (place, bit) = place_of(node);
        match (&mut self.0, place) {
            (Form::Near(low, _), 0) => *low |= bit,
            (Form::Near(_, high), 1) => *high |= bit,
            _ => *self = self.changed(place, |bits| bits | bit),
        }
    }

    /// Removes a node; true if it was there.
    pub fn remove(&mut self, node: NodeId) -> bool {
        if !self.contains(node) {
            return false;
        }
        let (place, bit) = place_of(node);
        match (&mut self.0, place) {
            (Form::Near(low, _), 0) => *low = NOBODY | low.get() & !bit,
            (Form::Near(_, high), 1) => *high &= !bit,
            _ => *self = self.changed(place, |bits| bits & !bit),
        }
        true
    }

    /// This set with other bits of 64 numbers.
    fn changed(&self, place: u16, change: impl Fn(u64) -> u64) -> Self {
        Self::of(|other| {
            let bits = self.bits(other);
            if other == place { change(bits) } else { bits }
        })
    }

    /// Whether the node is in the set.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        node.0 < NodeId::LIMIT && {
            let (place, bit) = place_of(node);
            self.bits(place) & bit != 0
        }
    }

    /// Whether the set has no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// How many nodes the set has.
    #[must_use]
    pub fn len(&self) -> usize {
        let ones = |bits: u64| bits.count_ones() as usize;
        match &self.0 {
            Form::Near(low, high) => ones(low.get()) - 1 + ones(*high),
            Form::Far(words) => words.iter().map(|word| ones(word.bits)).sum(),
        }
    }

    /// The nodes, in ascending order. The set may change meanwhile.
    #[must_use]
    pub fn iter(&self) -> Nodes {
        Nodes {
            rest: self.bits(0),
            set: self.clone(),
            place: 0,
        }
    }

    /// The nodes that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |one, other| one & other)
    }

    /// The nodes of this set and of another.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, |one, other| one | other)
    }

    /// This set without the nodes of another.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.combine(other, |one, other| one & !other)
    }

    /// The nodes below [`NodeId::NEAR`] as bytes: a bit for each number, little endian.
    #[must_use]
    pub fn near_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.bits(0).to_le_bytes());
        bytes[8..].copy_from_slice(&self.bits(1).to_le_bytes());
        bytes
    }

    /// The set of these bytes; none if one of its nodes cannot be.
    #[must_use]
    pub fn from_near_bytes(bytes: &[u8; 16]) -> Option<Self> {
        let all = u128::from_le_bytes(*bytes);
        let low = NonZeroU64::new(all as u64 | NOBODY.get())?;
        let nobody = all as u64 & NOBODY.get() != 0;
        (!nobody).then_some(Self(Form::Near(low, (all >> 64) as u64)))
    }
}

impl NodeSet {
    /// The bits of all numbers, 64 in a word, up to the last word that has any.
    #[must_use]
    pub fn words(&self) -> Vec<u64> {
        (0..=self.last_place())
            .map(|place| self.bits(place))
            .collect()
    }

    /// The set of these words; none if one of its nodes cannot be.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let word = |place: u16| words.get(usize::from(place)).copied().unwrap_or(0);
        let possible = words.len() <= usize::from(PLACES) && word(0) & NOBODY.get() == 0;
        possible.then(|| Self::of(word))
    }

    /// Whether all nodes of the set can have real daemons.
    #[must_use]
    pub fn is_near(&self) -> bool {
        matches!(self.0, Form::Near(..))
    }
}

impl Default for NodeSet {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// The nodes of a set, in ascending order.
#[derive(Clone, Debug)]
pub struct Nodes {
    set: NodeSet,
    place: u16,
    /// The bits of the word at `place` that are still to come.
    rest: u64,
}

impl Iterator for Nodes {
    type Item = NodeId;

    fn next(&mut self) -> Option<NodeId> {
        while self.rest == 0 {
            if self.place >= self.set.last_place() {
                return None;
            }
            self.place += 1;
            self.rest = self.set.bits(self.place);
        }
        let bit = self.rest.trailing_zeros() as u16;
        self.rest &= self.rest - 1;
        Some(NodeId(self.place * 64 + bit))
    }
}

impl NodeSet {
    /// The place of the last word that may have bits.
    fn last_place(&self) -> u16 {
        match &self.0 {
            Form::Near(..) => NEAR_PLACES - 1,
            Form::Far(words) => words.last().map_or(0, |word| word.place),
        }
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        let mut bits = [0; PLACES as usize];
        for node in nodes {
            let (place, bit) = place_of(node);
            bits[usize::from(place)] |= bit;
        }
        Self::of(|place| bits[usize::from(place)])
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Two words, as before there were greater numbers. If the lowest bit is set, which stands for no
/// node, a list of the words that follow is behind them.
impl Serialize for NodeSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct("NodeSet", &Words(self))
    }
}

struct Words<'a>(&'a NodeSet);

impl Serialize for Words<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let set = self.0;
        let far: Vec<u64> = match &set.0 {
            Form::Near(..) => Vec::new(),
            Form::Far(_) => (NEAR_PLACES..=set.last_place())
                .map(|place| set.bits(place))
                .collect(),
        };
        let mark = if far.is_empty() { 0 } else { NOBODY.get() };
        let mut tuple = serializer.serialize_tuple(if far.is_empty() { 2 } else { 3 })?;
        tuple.serialize_element(&(set.bits(0) | mark))?;
        tuple.serialize_element(&set.bits(1))?;
        if !far.is_empty() {
            tuple.serialize_element(&far)?;
        }
        tuple.end()
    }
}

impl<'de> Deserialize<'de> for NodeSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct("NodeSet", AnySet)
    }
}

/// Reads what [`Words`] writes, with or without the name around it.
struct AnySet;

impl<'de> Visitor<'de> for AnySet {
    type Value = NodeSet;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("words of a set of nodes")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<NodeSet, D::Error> {
        inner.deserialize_tuple(3, self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<NodeSet, A::Error> {
        let mut next = |place| {
            let word = words.next_element::<u64>()?;
            word.ok_or_else(|| A::Error::invalid_length(place, &self))
        };
        let (low, high) = (next(0)?, next(1)?);
        let near = NodeSet(Form::Near(NOBODY | low, high));
        if low & NOBODY.get() == 0 {
            return Ok(near);
        }
        let far: Option<Vec<u64>> = words.next_element()?;
        let far = far.ok_or_else(|| A::Error::invalid_length(2, &self))?;
        let last = far.last().is_some_and(|last| *last != 0);
        if !last || far.len() > usize::from(PLACES - NEAR_PLACES) {
            return Err(A::Error::custom("no words of a set of nodes"));
        }
        Ok(NodeSet::of(|place| {
            let at = place.checked_sub(NEAR_PLACES);
            at.map_or_else(
                || near.bits(place),
                |at| far.get(usize::from(at)).copied().unwrap_or(0),
            )
        }))
    }
}

#[cfg(test)]
mod tests;
