//! The counterpart of the [`reader`](crate::reader): one encoder of MessagePack for all that a daemon
//! keeps, in both [`Form`]s, so that the code of each type is compiled once.

use crate::Form;
use rmp::{Marker, encode};
use serde::ser::{self, Serialize, Serializer};
use std::fmt;

/// Bytes gathered before they are passed on.
const PORTION: usize = 4096;

/// Precedes a value that may be absent, in the positional form; and stands for one that is.
pub(crate) const SOME: u8 = 1;
pub(crate) const NONE: u8 = 0;

/// Where portions go; it refuses one for which it has no room.
pub type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), NoRoom>;

/// There is no room for what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// Appends a part to a buffer.
///
/// # Panics
/// If the part cannot be written at all, which its tests exclude.
pub fn append<T: Serialize + ?Sized>(part: &T, form: Form, gathered: Vec<u8>) -> Vec<u8> {
    let mut writer = Writer {
        form,
        gathered,
        sink: None,
        result: Ok(()),
    };
    let Ok(()) = part.serialize(&mut writer);
    writer.gathered
}

/// Passes a part without names, and bytes behind it, on in portions of 4,096 bytes; the last one may be
/// shorter.
///
/// # Panics
/// As [`append`].
pub(crate) fn pass<T: Serialize>(part: &T, bytes: &[u8], sink: Sink<'_>) -> Result<(), NoRoom> {
    let mut writer = Writer {
        form: Form::Positional,
        gathered: Vec::with_capacity(2 * PORTION),
        sink: Some(sink),
        result: Ok(()),
    };
    let Ok(()) = part.serialize(&mut writer);
    let Ok(()) = writer.serialize_bytes(bytes);
    writer.finish()
}

/// Nothing goes wrong while a part is written: what the encoding lacks is a fault of the program,
/// and want of room is told at the end.
#[derive(Debug)]
enum Never {}

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl std::error::Error for Never {}

impl ser::Error for Never {
    fn custom<T: fmt::Display>(why: T) -> Self {
        panic!("a part cannot be written: {why}")
    }
}

type Done = Result<(), Never>;

struct Writer<'a> {
    form: Form,
    gathered: Vec<u8>,
    /// None if all is gathered.
    sink: Option<Sink<'a>>,
    /// Whether the sink has taken everything so far.
    result: Result<(), NoRoom>,
}

impl Writer<'_> {
    /// Passes whole portions on.
    fn pass(&mut self) {
        let Some(sink) = &mut self.sink else {
            return;
        };
        let whole = self.gathered.len() / PORTION * PORTION;
        for portion in self.gathered[..whole].chunks_exact(PORTION) {
            self.result = self.result.and_then(|()| sink(portion));
        }
        self.gathered.drain(..whole);
    }

    /// Passes the rest on.
    fn finish(mut self) -> Result<(), NoRoom> {
        self.pass();
        self.result?;
        match self.sink {
            Some(sink) => sink(&self.gathered),
            None => Ok(()),
        }
    }

    #[inline(always)]
    fn byte(&mut self, byte: u8) -> Done {
        self.gathered.push(byte);
        Ok(())
    }

    #[inline(always)]
    fn unsigned(&mut self, value: u64) -> Done {
        match u8::try_from(value) {
            // Most numbers are small, and are themselves.
            Ok(small @ 0..128) => self.byte(small),
            _ => self.large(value),
        }
    }

    fn large(&mut self, value: u64) -> Done {
        written(encode::write_uint(&mut self.gathered, value))
    }

    fn signed(&mut self, value: i64) -> Done {
        written(encode::write_sint(&mut self.gathered, value))
    }

    fn text(&mut self, value: &str) -> Done {
        written(encode::write_str(&mut self.gathered, value))
    }

    fn array(&mut self, length: usize) -> Done {
        self.begin();
        written(encode::write_array_len(&mut self.gathered, count(length)))
    }

    fn map(&mut self, length: usize) -> Done {
        self.begin();
        written(encode::write_map_len(&mut self.gathered, count(length)))
    }

    /// Something of several parts follows: what was gathered may be enough.
    fn begin(&mut self) {
        if self.gathered.len() >= PORTION {
            self.pass();
        }
    }

    /// The parts of a structure follow, without names.
    fn parts(&mut self, length: usize) -> Done {
        match self.form {
            Form::Named => self.array(length),
            Form::Positional => {
                self.begin();
                Ok(())
            }
        }
    }

    /// The fields of a structure follow.
    fn fields(&mut self, length: usize) -> Done {
        match self.form {
            Form::Named => self.map(length),
            Form::Positional => {
                self.begin();
                Ok(())
            }
        }
    }

    #[inline(always)]
    fn field(&mut self, name: &'static str) -> Done {
        match self.form {
            Form::Named => self.text(name),
            Form::Positional => Ok(()),
        }
    }

    /// What a variant has follows.
    fn variant(&mut self, index: u32, name: &'static str) -> Done {
        match self.form {
            Form::Named => {
                self.map(1)?;
                self.text(name)
            }
            Form::Positional => self.unsigned(index.into()),
        }
    }
}

fn written<E: fmt::Debug>(written: Result<impl Sized, E>) -> Done {
    written.expect("memory takes everything");
    Ok(())
}

fn count(length: usize) -> u32 {
    u32::try_from(length).expect("a part has fewer parts of its own")
}

/// The length of a list or map, which precedes it.
fn known(length: Option<usize>) -> usize {
    length.expect("a list that is kept knows its length")
}

impl Serializer for &mut Writer<'_> {
    type Ok = ();
    type Error = Never;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    fn is_human_readable(&self) -> bool {
        self.form.is_for_people()
    }

    fn serialize_bool(self, value: bool) -> Done {
        self.byte(match value {
            true => Marker::True.to_u8(),
            false => Marker::False.to_u8(),
        })
    }

    fn serialize_u8(self, value: u8) -> Done {
        match self.form {
            Form::Named => self.unsigned(value.into()),
            Form::Positional => self.byte(value),
        }
    }

    fn serialize_u16(self, value: u16) -> Done {
        self.unsigned(value.into())
    }

    fn serialize_u32(self, value: u32) -> Done {
        self.unsigned(value.into())
    }

    fn serialize_u64(self, value: u64) -> Done {
        self.unsigned(value)
    }

    fn serialize_i8(self, value: i8) -> Done {
        self.signed(value.into())
    }

    fn serialize_i16(self, value: i16) -> Done {
        self.signed(value.into())
    }

    fn serialize_i32(self, value: i32) -> Done {
        self.signed(value.into())
    }

    fn serialize_i64(self, value: i64) -> Done {
        self.signed(value)
    }

    fn serialize_f32(self, _: f32) -> Done {
        panic!("no part that is kept has a short fraction")
    }

    fn serialize_f64(self, value: f64) -> Done {
        written(encode::write_f64(&mut self.gathered, value))
    }

    fn serialize_char(self, _: char) -> Done {
        panic!("no part that is kept has a single character")
    }

    fn serialize_str(self, value: &str) -> Done {
        self.text(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Done {
        written(encode::write_bin(&mut self.gathered, value))
    }

    fn serialize_none(self) -> Done {
        match self.form {
            Form::Named => self.serialize_unit(),
            Form::Positional => self.byte(NONE),
        }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done {
        if self.form == Form::Positional {
            // A value without its kind could begin as nothing does.
            self.byte(SOME)?;
        }
        value.serialize(self)
    }

    fn serialize_unit(self) -> Done {
        self.byte(Marker::Null.to_u8())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done {
        self.array(0)
    }

    fn serialize_unit_variant(self, _: &'static str, index: u32, name: &'static str) -> Done {
        match self.form {
            Form::Named => self.text(name),
            Form::Positional => self.unsigned(index.into()),
        }
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        name: &'static str,
        value: &T,
    ) -> Done {
        self.variant(index, name)?;
        value.serialize(self)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self, Never> {
        self.array(known(length))?;
        Ok(self)
    }

    fn serialize_tuple(self, length: usize) -> Result<Self, Never> {
        self.parts(length)?;
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, length: usize) -> Result<Self, Never> {
        self.parts(length)?;
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        name: &'static str,
        length: usize,
    ) -> Result<Self, Never> {
        self.variant(index, name)?;
        self.parts(length)?;
        Ok(self)
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Self, Never> {
        self.map(known(length))?;
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<Self, Never> {
        self.fields(length)?;
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        name: &'static str,
        length: usize,
    ) -> Result<Self, Never> {
        self.variant(index, name)?;
        self.fields(length)?;
        Ok(self)
    }
}

/// The parts of something that has no names for them.
macro_rules! unnamed_parts {
    ($($parts:ident, $write:ident;)*) => {$(
        impl ser::$parts for &mut Writer<'_> {
            type Ok = ();
            type Error = Never;

            fn $write<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
                value.serialize(&mut **self)
            }

            fn end(self) -> Done {
                Ok(())
            }
        }
    )*};
}

unnamed_parts! {
    SerializeSeq, serialize_element;
    SerializeTuple, serialize_element;
    SerializeTupleStruct, serialize_field;
    SerializeTupleVariant, serialize_field;
}

/// The fields of a structure.
macro_rules! fields {
    ($($fields:ident)*) => {$(
        impl ser::$fields for &mut Writer<'_> {
            type Ok = ();
            type Error = Never;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Done {
                self.field(name)?;
                value.serialize(&mut **self)
            }

            fn end(self) -> Done {
                Ok(())
            }
        }
    )*};
}

fields! { SerializeStruct SerializeStructVariant }

impl ser::SerializeMap for &mut Writer<'_> {
    type Ok = ();
    type Error = Never;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Done {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        value.serialize(&mut **self)
    }

    fn end(self) -> Done {
        Ok(())
    }
}
