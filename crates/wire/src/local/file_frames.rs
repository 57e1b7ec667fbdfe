//! Frames for pages of files: the answer to [`Request::FilePages`](super::Request::FilePages).

use crate::PageIndex;
use serde::{Deserialize, Serialize};

/// Frames of the pages of one chunk of a file. Pages in none of the three sets have no frame,
/// because all frames are in use: the process reads them from the file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct FileFrames {
    /// Pages that this node had.
    pub here: u64,
    /// Pages that came from another node.
    pub came: u64,
    /// Pages that no node has: the process reads them from the file into their frames.
    pub missing: u64,
    /// The frames, one for each page of the three sets, in the order of the pages.
    pub frames: Vec<PageIndex>,
}

impl FileFrames {
    /// All pages that have a frame.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.here | self.came | self.missing
    }

    /// The frame of a page of the chunk.
    #[must_use]
    pub fn frame(&self, bit: u32) -> Option<PageIndex> {
        let mask = 1_u64.checked_shl(bit)?;
        let before = (self.all() & (mask - 1)).count_ones() as usize;
        (self.all() & mask != 0)
            .then(|| self.frames.get(before).copied())
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_found_by_the_place_of_its_page() {
        let frames = FileFrames {
            here: 0b1,
            came: 0b100,
            missing: 1 << 63,
            frames: [7, 9, 8].map(PageIndex).to_vec(),
        };
        let found = [0, 1, 2, 63, 64].map(|bit| frames.frame(bit).map(|frame| frame.0));
        assert_eq!(found, [Some(7), None, Some(9), Some(8), None]);
    }
}
