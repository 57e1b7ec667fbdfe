//! How recorded accesses get from the processes to the test.

use pagemesh_history::Access;

/// Pages they share.
pub const PAGES: usize = 3;

/// Words they share: two on each page.
pub const PLACES: usize = 2 * PAGES;

/// One line of text.
#[must_use]
pub fn write(history: &[Access<usize>]) -> String {
    let fields = |access: &Access<usize>| {
        let Access {
            place,
            store,
            value,
            began,
            ended,
        } = *access;
        (place, store, value, began, ended)
    };
    let rows: Vec<_> = history.iter().map(fields).collect();
    serde_json::to_string(&rows).unwrap_or_default()
}

/// Back from the line.
///
/// # Panics
/// If the line is of another kind.
#[must_use]
pub fn read(line: &str) -> Vec<Access<usize>> {
    type Row = (usize, bool, u64, u64, Option<u64>);
    let rows: Vec<Row> = serde_json::from_str(line).expect("a line of `write`");
    let access = |(place, store, value, began, ended): Row| Access {
        place,
        store,
        value,
        began,
        ended,
    };
    rows.into_iter().map(access).collect()
}
