//! How much and where: pages and bytes are different types.

use core::fmt;
use serde::{Deserialize, Serialize};

/// Bytes of one page. The kernel's page size must equal it; joining checks.
pub const PAGE_SIZE: usize = 4096;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

unit! {
    /// A length in bytes.
    ByteLen(u64)
}
unit! {
    /// A distance in bytes from the start of a segment.
    ByteOffset(u64)
}
unit! {
    /// Which page of a segment.
    PageIndex(u32)
}
unit! {
    /// How many pages.
    PageCount(u32)
}

impl ByteLen {
    /// Pages needed to hold this many bytes; `None` beyond 16 TiB.
    #[must_use]
    pub fn pages(self) -> Option<PageCount> {
        let pages = self.0.div_ceil(PAGE_SIZE as u64);
        u32::try_from(pages).ok().map(PageCount)
    }
}

impl ByteOffset {
    /// The page this byte lies in; `None` beyond 16 TiB.
    #[must_use]
    pub fn page(self) -> Option<PageIndex> {
        u32::try_from(self.0 / PAGE_SIZE as u64).ok().map(PageIndex)
    }
}

impl PageIndex {
    /// Where the page starts.
    #[must_use]
    pub fn offset(self) -> ByteOffset {
        ByteOffset(u64::from(self.0) * PAGE_SIZE as u64)
    }
}

impl PageCount {
    /// Bytes in that many pages.
    #[must_use]
    pub fn bytes(self) -> ByteLen {
        ByteLen(u64::from(self.0) * PAGE_SIZE as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_round_up_to_pages() {
        assert_eq!(ByteLen(0).pages(), Some(PageCount(0)));
        assert_eq!(ByteLen(1).pages(), Some(PageCount(1)));
        assert_eq!(ByteLen(4096).pages(), Some(PageCount(1)));
        assert_eq!(ByteLen(4097).pages(), Some(PageCount(2)));
        assert_eq!(ByteLen(u64::MAX).pages(), None);
        assert_eq!(ByteOffset(8192).page(), Some(PageIndex(2)));
        assert_eq!(PageIndex(3).offset(), ByteOffset(12288));
    }
}
