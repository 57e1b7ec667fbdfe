//! Where a walk goes, and the numbers of the places on its way.

use serde::{Deserialize, Serialize};

/// Runs of `width` neighbours, each of which begins `stride` pages after the one before. Places are
/// numbered from `first`, in the order in which a walk comes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Rows {
    pub(super) first: i64,
    pub(super) stride: i64,
    pub(super) width: i64,
}

impl Rows {
    /// The number of the place at a page, if the walk comes there.
    pub(super) fn place(self, page: i64) -> Option<i64> {
        let away = page - self.first;
        let column = away.rem_euclid(self.stride.abs());
        (column < self.width).then(|| (away - column) / self.stride * self.width + column)
    }

    pub(super) fn page(self, place: i64) -> i64 {
        let (row, column) = (place.div_euclid(self.width), place.rem_euclid(self.width));
        self.first + row * self.stride + column
    }

    /// The number of the last place in a segment of `pages` pages.
    pub(super) fn last_place(self, pages: i64) -> i64 {
        if self.stride < 0 {
            return self.first / -self.stride * self.width + self.width - 1;
        }
        let away = pages - 1 - self.first;
        let column = away.rem_euclid(self.stride).min(self.width - 1);
        away.div_euclid(self.stride) * self.width + column
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_numbered_in_the_order_of_the_walk() {
        for (stride, width) in [(1, 1), (-1, 1), (7, 1), (64, 2), (-16, 3)] {
            let first = 500;
            let rows = Rows {
                first,
                stride,
                width,
            };
            for place in -40..40 {
                assert_eq!(rows.place(rows.page(place)), Some(place));
            }
            let last = rows.last_place(1000);
            let (inside, next) = (rows.page(last), rows.page(last + 1));
            assert!((0..1000).contains(&inside), "{inside}");
            assert!(!(0..1000).contains(&next), "{next}");
        }
        let rows = Rows {
            first: 0,
            stride: 8,
            width: 2,
        };
        assert_eq!(rows.place(2), None);
    }
}
