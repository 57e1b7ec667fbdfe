//! The parts of a list, a map or a structure, one after the other.

use super::{DEPTH, Misfit, Names, Read, Reader, cut_off};
use crate::Form;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};

/// Something of several parts.
#[derive(Clone, Copy)]
pub(super) enum Whole {
    List,
    Map,
    /// Of so many parts without names.
    Tuple(usize),
    /// Of parts with these names.
    Fields(Names),
}

/// The rest of something that is being read.
pub(super) struct Parts<'a, 'de> {
    reader: &'a mut Reader<'de>,
    /// Parts that the bytes have still.
    left: usize,
    /// Nothing in the bytes says how many those are: a type takes as many as it wrote.
    untold: bool,
    /// Fields that the type wants still; none if it takes what comes.
    names: Option<Names>,
    /// The bytes had another field than the one that was wanted: the reader's last rest is of these
    /// parts.
    walked: bool,
    /// The field that was wanted last, if the bytes lack it.
    lacking: Option<&'static str>,
}

/// Fields of a document, with their names, and the bytes behind the last one.
pub(super) struct Rest<'de> {
    fields: Vec<(&'de str, &'de [u8])>,
    behind: &'de [u8],
}

impl<'a, 'de> Parts<'a, 'de> {
    pub(super) fn new(reader: &'a mut Reader<'de>, whole: Whole) -> Self {
        let named = reader.form == Form::Named;
        let (left, names) = match whole {
            Whole::List => (reader.array() as usize, None),
            Whole::Map => (reader.map() as usize, None),
            Whole::Tuple(_) if named => (reader.array() as usize, None),
            Whole::Tuple(length) => (length, None),
            Whole::Fields(names) if named => (reader.map() as usize, Some(names)),
            Whole::Fields(names) => (names.len(), None),
        };
        Self {
            reader,
            left,
            untold: !named && matches!(whole, Whole::Tuple(_) | Whole::Fields(_)),
            names,
            walked: false,
            lacking: None,
        }
    }

    /// Goes to the next part, if there is one.
    #[inline(always)]
    fn next(&mut self) -> bool {
        match self.names {
            Some(names) => self.next_field(names),
            None => self.reader.misfit.is_none() && self.count_down(),
        }
    }

    /// Goes to the first field of these, if there is one.
    fn next_field(&mut self, names: Names) -> bool {
        let Some((name, others)) = names.split_first() else {
            return false;
        };
        self.names = Some(others);
        let found = self.find(name) && self.reader.misfit.is_none();
        self.lacking = (!found).then_some(name);
        found
    }

    fn count_down(&mut self) -> bool {
        let more = self.left > 0;
        self.left = self.left.saturating_sub(1);
        more
    }

    /// Goes to the contents of a field, which in most cases is the next one.
    fn find(&mut self, name: &str) -> bool {
        if !self.walked {
            let here = self.reader.bytes;
            if self.left > 0 && self.reader.string() == name {
                return self.count_down();
            }
            self.reader.bytes = here;
            self.walk();
        }
        let rest = self
            .reader
            .rests
            .last()
            .map_or(&[][..], |rest| &rest.fields);
        let found = rest.iter().find(|field| field.0 == name);
        if let Some((_, contents)) = found {
            self.reader.bytes = contents;
        }
        found.is_some()
    }

    /// Goes over the fields that are left.
    fn walk(&mut self) {
        let mut fields = Vec::new();
        while self.reader.misfit.is_none() && self.count_down() {
            let name = self.reader.string();
            fields.push((name, self.reader.bytes));
            self.reader.skip(DEPTH);
        }
        let behind = self.reader.bytes;
        self.reader.rests.push(Rest { fields, behind });
        self.walked = true;
    }

    /// Goes behind the last part, after the type has taken all but for fields that it does not know,
    /// or refused them.
    pub(super) fn end(&mut self, taken: bool) {
        if let Some(lacking) = self.lacking.filter(|_| !taken) {
            let why = format!("missing field `{lacking}`");
            return self.reader.refuse(Misfit(why.into()));
        }
        if self.names.is_some() && self.left > 0 {
            self.walk();
        }
        if self.walked
            && let Some(rest) = self.reader.rests.pop()
        {
            self.reader.bytes = rest.behind;
        }
        if taken && self.left > 0 && !self.untold {
            self.reader.refuse(Misfit::more(self.left));
        }
    }
}

impl<'de> SeqAccess<'de> for Parts<'_, 'de> {
    type Error = Misfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Read<Option<T::Value>> {
        if !self.next() {
            if self.lacking.is_none() {
                return Ok(None);
            }
            // A field that may be nothing is nothing, if it is not there.
            return Ok(seed.deserialize(Absent).ok());
        }
        Ok(Some(seed.deserialize(&mut *self.reader)?))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Parts<'_, 'de> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Read<Option<K::Value>> {
        if !self.next() {
            return Ok(None);
        }
        Ok(Some(seed.deserialize(&mut *self.reader)?))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Read<V::Value> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// Stands in for the bytes of a field that a document lacks: only an `Option` can be read from it.
struct Absent;

impl<'de> de::Deserializer<'de> for Absent {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Read<V::Value> {
        Err(cut_off())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_none()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
