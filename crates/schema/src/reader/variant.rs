//! A variant of an enumeration.

use super::{Misfit, Names, Read, Reader, Whole};
use crate::Form;
use rmp::Marker;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, EnumAccess, VariantAccess, Visitor};

/// A variant of an enumeration: its name, and whether it has nothing else, if the bytes say so.
pub(super) struct Variant<'a, 'de> {
    reader: &'a mut Reader<'de>,
    name: &'de str,
    bare: Option<bool>,
}

impl<'a, 'de> Variant<'a, 'de> {
    pub(super) fn new(reader: &'a mut Reader<'de>, names: Names) -> Self {
        if reader.form == Form::Positional {
            let index = usize::try_from(reader.unsigned()).ok();
            let name = index.and_then(|index| names.get(index)).copied();
            if name.is_none() {
                reader.refuse(Misfit("there is no such variant".into()));
            }
            // No variant for bytes that end: the first one may need another value of the same type.
            let name = name.filter(|_| reader.misfit.is_none());
            return Self {
                reader,
                name: name.unwrap_or_default(),
                bare: None,
            };
        }
        let bare = !matches!(
            reader.marker(),
            Marker::FixMap(_) | Marker::Map16 | Marker::Map32
        );
        if !bare && reader.map() != 1 {
            reader.refuse(Misfit("one variant is expected".into()));
        }
        Self {
            name: reader.string(),
            reader,
            bare: Some(bare),
        }
    }

    fn must_be_bare(&mut self, bare: bool) {
        if self.bare.is_some_and(|is| is != bare) {
            let why = "a variant has what it should not, or lacks it";
            self.reader.refuse(Misfit(why.into()));
        }
    }
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Misfit;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Read<(V::Value, Self)> {
        let variant = seed.deserialize(StrDeserializer::<Misfit>::new(self.name))?;
        Ok((variant, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Misfit;

    fn unit_variant(mut self) -> Read<()> {
        self.must_be_bare(true);
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(mut self, seed: T) -> Read<T::Value> {
        self.must_be_bare(false);
        seed.deserialize(self.reader)
    }

    fn tuple_variant<V: Visitor<'de>>(mut self, length: usize, visitor: V) -> Read<V::Value> {
        self.must_be_bare(false);
        self.reader.parts(Whole::Tuple(length), visitor)
    }

    fn struct_variant<V: Visitor<'de>>(mut self, names: Names, visitor: V) -> Read<V::Value> {
        self.must_be_bare(false);
        self.reader.parts(Whole::Fields(names), visitor)
    }
}
