//! Ranges of a segment of policy `release` in which nodes accumulate: their stores are combined,
//! not overwritten.

use crate::{PAGE_SIZE, PageIndex};
use serde::{Deserialize, Serialize};

/// How the stores of several nodes to an element are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Merge {
    /// The sum of all additions; integers wrap around.
    Sum,
    /// The least value. Storing a greater value than was there has no effect.
    Min,
    /// The greatest.
    Max,
    /// Bits that anybody set; only for integers.
    Or,
    /// The whole element, as its last writer left it, never a mixture of bytes.
    Replace,
}

impl Merge {
    /// All of them, in the order of their numbers in C.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Min, Self::Max, Self::Or, Self::Replace];
}

/// The type of an element. Numbers are little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// An unsigned integer of 8 bits.
    U8,
    /// Of 16.
    U16,
    /// Of 32.
    U32,
    /// Of 64.
    U64,
    /// A signed integer of 8 bits.
    I8,
    /// Of 16.
    I16,
    /// Of 32.
    I32,
    /// Of 64.
    I64,
    /// A floating point number of 32 bits.
    F32,
    /// Of 64.
    F64,
}

impl Kind {
    /// All of them, in the order of their numbers in C.
    pub const ALL: [Self; 10] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F32,
        Self::F64,
    ];

    /// Bytes of one element.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Whether its first bit is a sign.
    #[must_use]
    pub fn is_signed(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }

    /// Whether it has a fraction.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}

/// A declared range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reduction {
    /// Its first byte in the segment, a multiple of the size of an element.
    pub offset: u64,
    /// Its length in bytes, a multiple of the size of an element.
    pub length: u64,
    /// How elements are combined.
    pub merge: Merge,
    /// Type of the elements.
    pub kind: Kind,
}

/// The part of a declared range that lies in one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// Its first byte in the page.
    pub start: u16,
    /// Behind its last byte.
    pub end: u16,
    /// How elements are combined.
    pub merge: Merge,
    /// Type of the elements.
    pub kind: Kind,
}

impl Reduction {
    /// Declared ranges of one segment at most.
    pub const LIMIT: usize = 64;

    /// Checks a range against a segment of `size` bytes.
    ///
    /// # Errors
    /// The error names the fault, and a correct value.
    pub fn check(&self, size: u64) -> Result<(), String> {
        let element = self.kind.size() as u64;
        let end = self.offset.checked_add(self.length);
        if self.length == 0 || end.is_none_or(|end| end > size) {
            return Err(format!(
                "the range of {} bytes from {} is empty or ends beyond the segment of {size} bytes",
                self.length, self.offset
            ));
        }
        if !self.offset.is_multiple_of(element) || !self.length.is_multiple_of(element) {
            return Err(format!(
                "a range of elements of {element} bytes begins and ends at a multiple of {element}"
            ));
        }
        if self.merge == Merge::Or && self.kind.is_float() {
            return Err("bits of floating point numbers are not combined; declare integers".into());
        }
        Ok(())
    }

    /// Whether two ranges have a byte in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let end = |range: &Self| range.offset.saturating_add(range.length);
        self.offset < end(other) && other.offset < end(self)
    }

    /// The part of the range that lies in a page.
    #[must_use]
    pub fn rule(&self, page: PageIndex) -> Option<Rule> {
        let size = PAGE_SIZE as u64;
        let base = u64::from(page.0) * size;
        let start = self.offset.max(base);
        let end = self.offset.saturating_add(self.length).min(base + size);
        (start < end).then(|| Rule {
            start: (start - base) as u16,
            end: (end - base) as u16,
            merge: self.merge,
            kind: self.kind,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(offset: u64, length: u64) -> Reduction {
        let (merge, kind) = (Merge::Sum, Kind::U64);
        Reduction {
            offset,
            length,
            merge,
            kind,
        }
    }

    #[test]
    fn hostile_ranges_are_refused() {
        let good = sum(8, 16);
        assert_eq!(good.check(24), Ok(()));
        for (offset, length) in [(8, 24), (4, 16), (8, 12), (8, 0), (u64::MAX - 7, 16)] {
            assert!(sum(offset, length).check(24).is_err(), "{offset} {length}");
        }
        let (merge, kind) = (Merge::Or, Kind::F64);
        let bits = Reduction {
            merge,
            kind,
            ..good
        };
        assert!(bits.check(24).unwrap_err().contains("declare integers"));
    }

    #[test]
    fn a_range_is_cut_at_pages() {
        let range = sum(4088, 4096 + 16);
        assert_eq!(range.rule(PageIndex(0)).unwrap().start, 4088);
        let whole = range.rule(PageIndex(1)).unwrap();
        assert_eq!((whole.start, whole.end), (0, 4096));
        assert_eq!(range.rule(PageIndex(2)).unwrap().end, 8);
        assert!(range.rule(PageIndex(3)).is_none());
        assert!(range.overlaps(&sum(8192, 8)) && !range.overlaps(&sum(8200, 8)));
    }
}
