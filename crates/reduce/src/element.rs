//! One element of a reduction: its operand, and how it is combined.

use pagemesh_wire::peer::{Kind, Merge, Rule};

/// The bytes of an element, padded with zeros.
pub(crate) type Element = [u8; 8];

macro_rules! of_kind {
    ($kind:expr, $type:ident => $then:expr) => {
        match $kind {
            Kind::U8 => {
                type $type = u8;
                $then
            }
            Kind::U16 => {
                type $type = u16;
                $then
            }
            Kind::U32 => {
                type $type = u32;
                $then
            }
            Kind::U64 => {
                type $type = u64;
                $then
            }
            Kind::I8 => {
                type $type = i8;
                $then
            }
            Kind::I16 => {
                type $type = i16;
                $then
            }
            Kind::I32 => {
                type $type = i32;
                $then
            }
            Kind::I64 => {
                type $type = i64;
                $then
            }
            Kind::F32 => {
                type $type = f32;
                $then
            }
            Kind::F64 => {
                type $type = f64;
                $then
            }
        }
    };
}

/// A number type of elements.
trait Number: Copy {
    fn read(bytes: &[u8]) -> Self;
    fn write(self) -> Element;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn least(self, other: Self) -> Self;
    fn greatest(self, other: Self) -> Self;
    fn bits(self, other: Self) -> Self;
}

fn padded(bytes: &[u8]) -> Element {
    let mut element = [0; 8];
    element[..bytes.len()].copy_from_slice(bytes);
    element
}

macro_rules! number {
    ($type:ident, $plus:expr, $minus:expr, $bits:expr) => {
        impl Number for $type {
            fn read(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<Self>()];
                own.copy_from_slice(bytes);
                Self::from_le_bytes(own)
            }
            fn write(self) -> Element {
                padded(&self.to_le_bytes())
            }
            fn plus(self, other: Self) -> Self {
                $plus(self, other)
            }
            fn minus(self, other: Self) -> Self {
                $minus(self, other)
            }
            fn least(self, other: Self) -> Self {
                self.min(other)
            }
            fn greatest(self, other: Self) -> Self {
                self.max(other)
            }
            fn bits(self, other: Self) -> Self {
                $bits(self, other)
            }
        }
    };
}

macro_rules! integers {
    ($($type:ident)*) => {
        $(number!($type, $type::wrapping_add, $type::wrapping_sub, |a: $type, b: $type| a | b);)*
    };
}

macro_rules! floats {
    ($($type:ident)*) => {
        // Declarations of bit operations on these types are refused; if one is made anyway, the
        // element does not change.
        $(number!($type, |a: $type, b| a + b, |a: $type, b| a - b, |a: $type, _| a);)*
    };
}

integers!(u8 u16 u32 u64 i8 i16 i32 i64);
floats!(f32 f64);

/// The operand of a change: the difference for a sum, otherwise the new value.
pub(crate) fn done(rule: &Rule, old: &[u8], new: &[u8]) -> Element {
    if rule.merge != Merge::Sum {
        return padded(new);
    }
    of_kind!(rule.kind, T => T::read(new).minus(T::read(old)).write())
}

/// The element after an operand was combined with it.
pub(crate) fn combine(rule: &Rule, page: &[u8], given: &[u8]) -> Element {
    fn pick<T: Number>(merge: Merge, page: T, given: T) -> T {
        match merge {
            Merge::Sum => page.plus(given),
            Merge::Min => page.least(given),
            Merge::Max => page.greatest(given),
            Merge::Or => page.bits(given),
            Merge::Replace => given,
        }
    }
    of_kind!(rule.kind, T => pick(rule.merge, T::read(page), T::read(given)).write())
}
