//! The orders in which a consumer comes to the pages of a matrix that a producer has stored: row by
//! row, page after page down its columns, and block after block.

/// Pages of a row of the matrix.
const ROW: u32 = 64;

/// Pages of a block in one row: two, as a block of 32 by 32 numbers has in a matrix of blocks.
const BLOCK: u32 = 2;

/// What each order is called, and how many neighbours it takes in a row.
pub(super) const ORDERS: [(&str, u32); 3] = [("straight", ROW), ("strided", 1), ("blocked", BLOCK)];

/// All of so many pages, `width` of each row, then the next ones of each row.
pub(super) fn pages(pages: u32, width: u32) -> Vec<u32> {
    let columns = (0..ROW / width).map(|column| column * width);
    let runs = columns.flat_map(|column| (0..pages / ROW).map(move |row| row * ROW + column));
    runs.flat_map(|first| first..first + width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_has_each_page_once() {
        for (name, width) in ORDERS {
            let mut order = pages(4 * ROW, width);
            if name == "straight" {
                assert!(order.is_sorted());
            }
            order.sort_unstable();
            assert_eq!(order, (0..4 * ROW).collect::<Vec<_>>(), "{name}");
        }
    }

    #[test]
    fn blocks_go_down_their_column() {
        assert_eq!(pages(2 * ROW, BLOCK)[..6], [0, 1, ROW, ROW + 1, 2, 3]);
    }
}
