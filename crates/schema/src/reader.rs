//! A decoder of MessagePack that goes by what the type asks for.
//!
//! `rmp_serde` asks the document what comes next, and hands that to the type, so each type's code
//! has a branch for everything that MessagePack knows: a quarter of the program was that. A state
//! is written by the same types that read it, so nothing is asked here. A type gets its fields in
//! the order in which it names them, whatever order they have in a document, so that the code that
//! takes them is the same for both [`Form`]s.

use crate::Form;
use crate::writer::{NONE, SOME};
use rmp::Marker;
use rmp::decode;
use serde::de::value::StrDeserializer;
use serde::de::{
    self, Deserialize, DeserializeSeed, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use std::fmt;

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

/// The names of a type's fields, or of its variants, in their order there.
type Names = &'static [&'static str];

/// Something of several parts.
#[derive(Clone, Copy)]
enum Whole {
    List,
    Map,
    /// Of so many parts without names.
    Tuple(usize),
    /// Of parts with these names.
    Fields(Names),
}

/// The rest of something that is being read.
struct Parts<'a, 'de> {
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
struct Rest<'de> {
    fields: Vec<(&'de str, &'de [u8])>,
    behind: &'de [u8],
}

impl<'a, 'de> Parts<'a, 'de> {
    fn new(reader: &'a mut Reader<'de>, whole: Whole) -> Self {
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
    fn end(&mut self, taken: bool) {
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

/// What is not there.
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

/// A variant of an enumeration: its name, and whether it has nothing else, if the bytes say so.
struct Variant<'a, 'de> {
    reader: &'a mut Reader<'de>,
    name: &'de str,
    bare: Option<bool>,
}

impl<'a, 'de> Variant<'a, 'de> {
    fn new(reader: &'a mut Reader<'de>, names: Names) -> Self {
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
