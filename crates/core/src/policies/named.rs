//! Names pages that were lost.

use core::fmt::Write as _;
use pagemesh_wire::PageIndex;

/// Pages that a message names; of the others it tells the number.
const NAMED: usize = 8;

/// Pages that were lost because only this node had them, for people.
pub(super) fn named(pages: &[PageIndex]) -> String {
    let mut text = String::from(if pages.len() == 1 { "page " } else { "pages " });
    for (at, page) in pages.iter().take(NAMED).enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}{}", page.0);
    }
    if pages.len() > NAMED {
        let _ = write!(text, " and {} more", pages.len() - NAMED);
    }
    text + ", which only this node had"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_pages_are_named_and_many_are_counted() {
        let pages = |count: u32| (0..count).map(PageIndex).collect::<Vec<_>>();
        assert_eq!(named(&pages(1)), "page 0, which only this node had");
        assert_eq!(named(&pages(3)), "pages 0, 1, 2, which only this node had");
        assert!(named(&pages(11)).contains(", 7 and 3 more, which"));
    }
}
