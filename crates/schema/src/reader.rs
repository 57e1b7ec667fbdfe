//! A decoder of MessagePack that goes by what the type asks for.
//!
//! `rmp_serde` asks the document what comes next, and hands that to the type, so each type's code
//! has a branch for everything that MessagePack knows: a quarter of the program was that. A state
//! is written by the same types that read it, so nothing is asked here. A type gets its fields in
//! the order in which it names them, whatever order they have in a document, so that the code that
//! takes them is the same for both [`Form`]s.

mod parts;
mod variant;

use crate::Form;
use crate::writer::{NONE, SOME};
use parts::{Parts, Rest, Whole};
use rmp::Marker;
use rmp::decode;
use serde::de::{self, Deserialize, Visitor};
use std::fmt;
use variant::Variant;

/// Contents that the type does not know may be nested so deep.
const DEPTH: u32 = 64;

/// Reads one value from the front of the bytes, and leaves the rest.
///
/// # Errors
/// If the bytes are no value of the type, or cut off.
pub fn read<'de, T: Deserialize<'de>>(bytes: &mut &'de [u8], form: Form) -> Result<T, Misfit> {
    let mut reader = Reader {
        bytes,
        form,
        misfit: None,
        rests: Vec::new(),
    };
    let value = T::deserialize(&mut reader);
    *bytes = reader.bytes;
    match reader.misfit {
        Some(misfit) => Err(misfit),
        None => value,
    }
}

/// The bytes are not what the type asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit(Box<str>);

impl Misfit {
    /// So much was not taken.
    pub(crate) fn more(left: impl fmt::Display) -> Self {
        Self(format!("{left} more than the type has").into())
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misfit {}

impl de::Error for Misfit {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Self(what.to_string().into())
    }
}

type Read<T> = Result<T, Misfit>;

/// The names of a type's fields, or of its variants, in their order there.
type Names = &'static [&'static str];

/// The bytes that are still to be read. Once they are not what a type asks for, there are no more,
/// and types get zeros: so the code of a type does not ask after each part whether it was there.
struct Reader<'de> {
    bytes: &'de [u8],
    form: Form,
    /// What was found first that does not fit.
    misfit: Option<Misfit>,
    /// Of the documents' structures whose fields have another order than their type's, the inmost
    /// last.
    rests: Vec<Rest<'de>>,
}

impl<'de> Reader<'de> {
    #[cold]
    fn refuse(&mut self, why: Misfit) {
        self.misfit.get_or_insert(why);
        self.bytes = &[];
    }

    /// What was decoded; nothing if something else is there.
    fn decoded<T: Default, E: fmt::Display>(
        &mut self,
        wanted: &'static str,
        decoded: Result<T, E>,
    ) -> T {
        decoded.unwrap_or_else(|why| {
            self.refuse(Misfit(format!("{wanted} is expected: {why}").into()));
            T::default()
        })
    }

    fn marker(&mut self) -> Marker {
        match self.bytes.first() {
            Some(first) => Marker::from_u8(*first),
            None => {
                self.refuse(cut_off());
                Marker::Null
            }
        }
    }

    fn take(&mut self, length: u32) -> &'de [u8] {
        match self.bytes.split_at_checked(length as usize) {
            Some((taken, rest)) => {
                self.bytes = rest;
                taken
            }
            None => {
                self.refuse(cut_off());
                &[]
            }
        }
    }

    fn string(&mut self) -> &'de str {
        let length = decode::read_str_len(&mut self.bytes);
        let length = self.decoded("a text", length);
        let text = str::from_utf8(self.take(length));
        self.decoded("a text", text)
    }

    fn binary(&mut self) -> &'de [u8] {
        let length = decode::read_bin_len(&mut self.bytes);
        let length = self.decoded("bytes", length);
        self.take(length)
    }

    fn boolean(&mut self) -> bool {
        let read = decode::read_bool(&mut self.bytes);
        self.decoded("true or false", read)
    }

    fn byte(&mut self) -> u64 {
        match self.form {
            Form::Named => self.unsigned(),
            Form::Positional => self.take(1).first().copied().unwrap_or(0).into(),
        }
    }

    fn unsigned(&mut self) -> u64 {
        // Most numbers are small, and are themselves.
        if let [small @ 0..128, rest @ ..] = self.bytes {
            self.bytes = rest;
            return (*small).into();
        }
        let read = decode::read_int(&mut self.bytes);
        self.decoded("a natural number", read)
    }

    fn signed(&mut self) -> i64 {
        let read = decode::read_int(&mut self.bytes);
        self.decoded("an integer", read)
    }

    fn fraction(&mut self) -> f64 {
        let read = decode::read_f64(&mut self.bytes);
        self.decoded("a fraction", read)
    }

    fn array(&mut self) -> u32 {
        let read = decode::read_array_len(&mut self.bytes);
        self.decoded("a list", read)
    }

    fn map(&mut self) -> u32 {
        let read = decode::read_map_len(&mut self.bytes);
        self.decoded("a map", read)
    }

    fn nil(&mut self) {
        let read = decode::read_nil(&mut self.bytes);
        self.decoded("nothing", read);
    }

    /// Whether a value that may be absent is; takes what says so.
    fn is_none(&mut self) -> bool {
        if self.form == Form::Named {
            let is_none = self.marker() == Marker::Null;
            if is_none {
                self.nil();
            }
            return is_none;
        }
        let said = self.take(1).first().copied().unwrap_or(NONE);
        if said > SOME {
            self.refuse(Misfit("neither something nor nothing".into()));
        }
        said != SOME
    }

    /// Parts of a type, whole.
    fn parts<V: Visitor<'de>>(&mut self, whole: Whole, visitor: V) -> Read<V::Value> {
        let mut parts = Parts::new(self, whole);
        let value = visitor.visit_seq(&mut parts);
        parts.end(value.is_ok());
        value
    }

    /// Leaves out a value of any kind.
    fn skip(&mut self, depth: u32) {
        if depth == 0 {
            return self.refuse(Misfit("it is nested too deep".into()));
        }
        let parts = match self.marker() {
            Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => u64::from(self.array()),
            Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => 2 * u64::from(self.map()),
            Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
                self.string();
                0
            }
            Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => {
                self.binary();
                0
            }
            marker => {
                match scalar(marker) {
                    Some(length) => drop(self.take(1 + length)),
                    None => self.refuse(Misfit("it has a value of no known kind".into())),
                }
                0
            }
        };
        for _ in 0..parts {
            self.skip(depth - 1);
            if self.misfit.is_some() {
                return;
            }
        }
    }
}

/// The bytes behind the marker of a value without length.
fn scalar(marker: Marker) -> Option<u32> {
    match marker {
        Marker::Null | Marker::True | Marker::False => Some(0),
        Marker::FixPos(_) | Marker::FixNeg(_) => Some(0),
        Marker::U8 | Marker::I8 => Some(1),
        Marker::U16 | Marker::I16 => Some(2),
        Marker::U32 | Marker::I32 | Marker::F32 => Some(4),
        Marker::U64 | Marker::I64 | Marker::F64 => Some(8),
        _ => None,
    }
}

fn cut_off() -> Misfit {
    Misfit("it is cut off".into())
}

impl<'de> de::Deserializer<'de> for &mut Reader<'de> {
    type Error = Misfit;

    fn is_human_readable(&self) -> bool {
        self.form.is_for_people()
    }

    /// For types that ask the document what comes next; a state has none.
    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Read<V::Value> {
        Err(Misfit("a type of the state does not say what it is".into()))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_bool(self.boolean())
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_u64(self.byte())
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_u64(self.unsigned())
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_u64(self.unsigned())
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_u64(self.unsigned())
    }

    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_i64(self.signed())
    }

    fn deserialize_i16<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_i64(self.signed())
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_i64(self.signed())
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_i64(self.signed())
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_f64(self.fraction())
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_str(self.string())
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_str(self.string())
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_str(self.string())
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_borrowed_bytes(self.binary())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_borrowed_bytes(self.binary())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        if self.is_none() {
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.nil();
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Read<V::Value> {
        if self.array() != 0 {
            self.refuse(Misfit("an empty list is expected".into()));
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
        self.parts(Whole::List, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Read<V::Value> {
        self.parts(Whole::Tuple(length), visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Read<V::Value> {
        self.parts(Whole::Tuple(length), visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        let mut parts = Parts::new(self, Whole::Map);
        let value = visitor.visit_map(&mut parts);
        parts.end(value.is_ok());
        value
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: Names,
        visitor: V,
    ) -> Read<V::Value> {
        self.parts(Whole::Fields(names), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: Names,
        visitor: V,
    ) -> Read<V::Value> {
        visitor.visit_enum(Variant::new(self, names))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.skip(DEPTH);
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! { i128 u128 f32 char }
}
