//! A recorded trace: the pages of a program's heap in the order in which it touched them.

use anyhow::{Context, Result, ensure};
use std::path::Path;

/// One touch of a page that was not among the last few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    pub(super) page: u32,
    pub(super) store: bool,
}

/// A trace. Pages are numbered without gaps, but for one wherever neighbours were not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    pub(super) pages: u32,
    pub(super) touches: Vec<Touch>,
}

impl Trace {
    /// Reads what the recorder wrote.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        let (words, rest) = bytes.as_chunks::<4>();
        ensure!(rest.is_empty(), "{}: it is cut off", path.display());
        let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        ensure!(
            !words.is_empty(),
            "{}: the program touched nothing",
            path.display()
        );
        Ok(Self::of(&words))
    }

    /// Words are twice a page, and one for a store.
    fn of(words: &[u32]) -> Self {
        let mut there: Vec<u32> = words.iter().map(|word| word / 2).collect();
        there.sort_unstable();
        there.dedup();
        let mut numbers = Vec::with_capacity(there.len());
        for (index, page) in there.iter().enumerate() {
            let before = index
                .checked_sub(1)
                .map(|before| (there[before], numbers[before]));
            let number = match before {
                Some((neighbour, number)) if neighbour + 1 == *page => number + 1,
                Some((_, number)) => number + 2,
                None => 0,
            };
            numbers.push(number);
        }
        let touch = |word: &u32| Touch {
            page: numbers[there.partition_point(|page| *page < word / 2)],
            store: word % 2 == 1,
        };
        Self {
            pages: numbers.last().map_or(0, |last| last + 1),
            touches: words.iter().map(touch).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_stay_neighbours_and_others_do_not_become_any() {
        let pages = [7, 8, 500, 9, 7].map(|page| page * 2);
        let trace = Trace::of(&[pages[0] + 1, pages[1], pages[2], pages[3], pages[4]]);
        let found: Vec<_> = trace.touches.iter().map(|touch| touch.page).collect();
        assert_eq!(found, [0, 1, 4, 2, 0]);
        assert_eq!(trace.pages, 5);
        let stores = trace.touches.iter().filter(|touch| touch.store).count();
        assert_eq!(stores, 1);
    }
}
