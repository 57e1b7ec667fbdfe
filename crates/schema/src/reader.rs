//! A decoder of MessagePack that goes by what the type asks for.
//!
//! `rmp_serde` asks the document what comes next, and hands that to the type, so each type's code
//! has a branch for everything that MessagePack knows: a quarter of the program was that. A state
//! is written by the same types that read it, with names, so nothing is asked here.

use rmp::Marker;
use rmp::decode;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, EnumAccess, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};
use std::fmt;

/// Contents that the type does not know may be nested so deep.
const DEPTH: u32 = 64;

/// Reads one value from the front of the bytes, and leaves the rest.
///
/// # Errors
/// If the bytes are no value of the type, or cut off.
pub fn read<T: DeserializeOwned>(bytes: &mut &[u8]) -> Result<T, Misfit> {
    let mut reader = Reader { bytes };
    let value = T::deserialize(&mut reader)?;
    *bytes = reader.bytes;
    Ok(value)
}

/// The bytes are not what the type asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit(String);

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misfit {}

impl de::Error for Misfit {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Self(what.to_string())
    }
}

/// What stands in place of what the type asks for.
fn misfit<E: fmt::Display>(wanted: &'static str) -> impl FnOnce(E) -> Misfit {
    move |why| Misfit(format!("{wanted} is expected: {why}"))
}

type Read<T> = Result<T, Misfit>;

struct Reader<'de> {
    bytes: &'de [u8],
}

impl<'de> Reader<'de> {
    fn marker(&self) -> Read<Marker> {
        let first = self.bytes.first().copied();
        first.map(Marker::from_u8).ok_or_else(cut_off)
    }

    fn take(&mut self, length: u32) -> Read<&'de [u8]> {
        let taken = self.bytes.split_at_checked(length as usize);
        let (taken, rest) = taken.ok_or_else(cut_off)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn string(&mut self) -> Read<&'de str> {
        let length = decode::read_str_len(&mut self.bytes).map_err(misfit("a text"))?;
        std::str::from_utf8(self.take(length)?).map_err(misfit("a text"))
    }

    fn binary(&mut self) -> Read<&'de [u8]> {
        let length = decode::read_bin_len(&mut self.bytes).map_err(misfit("bytes"))?;
        self.take(length)
    }

    fn unsigned(&mut self) -> Read<u64> {
        decode::read_int(&mut self.bytes).map_err(misfit("a natural number"))
    }

    fn signed(&mut self) -> Read<i64> {
        decode::read_int(&mut self.bytes).map_err(misfit("an integer"))
    }

    fn array(&mut self) -> Read<u32> {
        decode::read_array_len(&mut self.bytes).map_err(misfit("a list"))
    }

    fn map(&mut self) -> Read<u32> {
        decode::read_map_len(&mut self.bytes).map_err(misfit("a map"))
    }

    fn nil(&mut self) -> Read<()> {
        decode::read_nil(&mut self.bytes).map_err(misfit("nothing"))
    }

    /// A list of the type, whole.
    fn list<V: Visitor<'de>>(&mut self, visitor: V) -> Read<V::Value> {
        let left = self.array()?;
        let mut parts = Parts { reader: self, left };
        let value = visitor.visit_seq(&mut parts)?;
        parts.end(value)
    }

    /// A map, or a struct with the names of its fields, whole.
    fn fields<V: Visitor<'de>>(&mut self, visitor: V) -> Read<V::Value> {
        let left = self.map()?;
        let mut parts = Parts { reader: self, left };
        let value = visitor.visit_map(&mut parts)?;
        parts.end(value)
    }

    /// Leaves out a value of any kind.
    fn skip(&mut self, depth: u32) -> Read<()> {
        if depth == 0 {
            return Err(Misfit("it is nested too deep".into()));
        }
        let parts = match self.marker()? {
            Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => u64::from(self.array()?),
            Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => 2 * u64::from(self.map()?),
            Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
                self.string()?;
                0
            }
            Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => {
                self.binary()?;
                0
            }
            marker => {
                self.take(1 + scalar(marker)?)?;
                0
            }
        };
        for _ in 0..parts {
            self.skip(depth - 1)?;
        }
        Ok(())
    }
}

/// The bytes behind the marker of a value without length.
fn scalar(marker: Marker) -> Read<u32> {
    match marker {
        Marker::Null | Marker::True | Marker::False => Ok(0),
        Marker::FixPos(_) | Marker::FixNeg(_) => Ok(0),
        Marker::U8 | Marker::I8 => Ok(1),
        Marker::U16 | Marker::I16 => Ok(2),
        Marker::U32 | Marker::I32 | Marker::F32 => Ok(4),
        Marker::U64 | Marker::I64 | Marker::F64 => Ok(8),
        _ => Err(Misfit("it has a value of no known kind".into())),
    }
}

fn cut_off() -> Misfit {
    Misfit("it is cut off".into())
}

impl<'de> de::Deserializer<'de> for &mut Reader<'de> {
    type Error = Misfit;

    /// For types that ask the document what comes next; a state has none.
    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Read<V::Value> {
        Err(Misfit("a type of the state does not say what it is".into()))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        let read = decode::read_bool(&mut self.bytes);
        visitor.visit_bool(read.map_err(misfit("true or false"))?)
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_u64(self.unsigned()?)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_u64(self.unsigned()?)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_u64(self.unsigned()?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_u64(self.unsigned()?)
    }

    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_i64(self.signed()?)
    }

    fn deserialize_i16<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_i64(self.signed()?)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_i64(self.signed()?)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_i64(self.signed()?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        let read = decode::read_f64(&mut self.bytes);
        visitor.visit_f64(read.map_err(misfit("a fraction"))?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_str(self.string()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_str(self.string()?)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_str(self.string()?)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_bytes(self.binary()?)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_bytes(self.binary()?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        if self.marker()? == Marker::Null {
            self.nil()?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.nil()?;
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Read<V::Value> {
        if self.array()? != 0 {
            return Err(Misfit("an empty list is expected".into()));
        }
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Read<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.list(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Read<V::Value> {
        self.list(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Read<V::Value> {
        self.list(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.fields(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        self.fields(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        let bare = !matches!(
            self.marker()?,
            Marker::FixMap(_) | Marker::Map16 | Marker::Map32
        );
        if !bare && self.map()? != 1 {
            return Err(Misfit("one variant is expected".into()));
        }
        visitor.visit_enum(Variant { reader: self, bare })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.skip(DEPTH)?;
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! { i128 u128 f32 char }
}

/// The rest of a list or map that is being read.
struct Parts<'a, 'de> {
    reader: &'a mut Reader<'de>,
    left: u32,
}

impl Parts<'_, '_> {
    /// The value, if its type has taken everything.
    fn end<T>(&self, value: T) -> Read<T> {
        match self.left {
            0 => Ok(value),
            more => Err(Misfit(format!("{more} more than the type has"))),
        }
    }

    /// Whether there is another one, which is taken now.
    fn next(&mut self) -> bool {
        let more = self.left > 0;
        self.left = self.left.saturating_sub(1);
        more
    }
}

impl<'de> SeqAccess<'de> for Parts<'_, 'de> {
    type Error = Misfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Read<Option<T::Value>> {
        match self.next() {
            true => seed.deserialize(&mut *self.reader).map(Some),
            false => Ok(None),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left as usize)
    }
}

impl<'de> MapAccess<'de> for Parts<'_, 'de> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Read<Option<K::Value>> {
        match self.next() {
            true => seed.deserialize(&mut *self.reader).map(Some),
            false => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Read<V::Value> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left as usize)
    }
}

/// A variant of an enumeration: its name, and what it has unless it is bare.
struct Variant<'a, 'de> {
    reader: &'a mut Reader<'de>,
    bare: bool,
}

impl Variant<'_, '_> {
    fn must_be_bare(&self, bare: bool) -> Read<()> {
        if self.bare == bare {
            return Ok(());
        }
        Err(Misfit(
            "a variant has what it should not, or lacks it".into(),
        ))
    }
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Misfit;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Read<(V::Value, Self)> {
        let variant = seed.deserialize(&mut *self.reader)?;
        Ok((variant, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Misfit;

    fn unit_variant(self) -> Read<()> {
        self.must_be_bare(true)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Read<T::Value> {
        self.must_be_bare(false)?;
        seed.deserialize(self.reader)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Read<V::Value> {
        self.must_be_bare(false)?;
        self.reader.list(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        self.must_be_bare(false)?;
        self.reader.fields(visitor)
    }
}
