//! Pages of files that several nodes cache (G1, shared pages): their names, and their contents on
//! the way.

use crate::{PageIndex, RequestId};
use serde::{Deserialize, Serialize};

/// A version of a file, as all mounts of one user name it. A file that is changed gets another key,
/// so that pages of an older version never answer.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct FileKey {
    /// The user whose mounts share the pages. The daemon sets it, not the program: a user cannot
    /// give pages to another user's mounts, nor ask for theirs.
    pub user: u32,
    /// A hash of the cached directory, the file and its attributes, made by the program (G14).
    pub hash: [u64; 2],
}

/// Some pages of a file, within one chunk of [`FilePart::PAGES`]. A chunk is the unit of the
/// directory.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct FilePart {
    /// The file.
    pub file: FileKey,
    /// The chunk: its first page is `chunk * FilePart::PAGES`.
    pub chunk: u32,
    /// A bit for each page of the chunk, the first page in the lowest bit.
    pub pages: u64,
}

impl FilePart {
    /// Pages of a chunk.
    pub const PAGES: u32 = u64::BITS;

    /// One page.
    #[must_use]
    pub fn of_page(file: FileKey, page: PageIndex) -> Self {
        Self {
            file,
            chunk: page.0 / Self::PAGES,
            pages: 1 << (page.0 % Self::PAGES),
        }
    }

    /// Other pages of the same chunk.
    #[must_use]
    pub fn with(self, pages: u64) -> Self {
        Self { pages, ..self }
    }

    /// Whether it names at least one page, and none beyond the largest number of a page.
    #[must_use]
    pub fn is_possible(self) -> bool {
        self.pages != 0 && self.chunk <= u32::MAX / Self::PAGES
    }

    /// The pages by number, in order.
    pub fn each(self) -> impl Iterator<Item = PageIndex> {
        let first = self.chunk.saturating_mul(Self::PAGES);
        let bits = (0..Self::PAGES).filter(move |bit| self.pages >> bit & 1 == 1);
        bits.map(move |bit| PageIndex(first + bit))
    }
}

/// A page of a file, whose contents follow: the answer of a node that caches it (G4 case 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SharedPage {
    /// The request of the receiver.
    pub request: RequestId,
    /// The file.
    pub file: FileKey,
    /// The page.
    pub page: PageIndex,
}

/// putpage of a page of a file, whose contents follow (G3, G24): its last node has no room for it, and
/// the receiver is to keep it for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SharedPut {
    /// The file.
    pub file: FileKey,
    /// The page.
    pub page: PageIndex,
    /// Milliseconds since the page was last used.
    pub age: u32,
    /// Nodes that may still keep it, the receiver included (G26).
    pub rounds: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_names_its_pages() {
        let file = FileKey::default();
        let part = FilePart::of_page(file, PageIndex(130));
        assert_eq!((part.chunk, part.pages), (2, 4));
        let all: Vec<_> = part.with(0b1001).each().collect();
        assert_eq!(all, [PageIndex(128), PageIndex(131)]);
        let last = FilePart::of_page(file, PageIndex(u32::MAX));
        assert!(last.is_possible() && !last.with(0).is_possible());
        assert_eq!(last.each().last(), Some(PageIndex(u32::MAX)));
        let beyond = FilePart {
            chunk: u32::MAX,
            ..last
        };
        assert!(!beyond.is_possible());
    }
}
