//! Reductions: in declared ranges of a page a diff carries the *operand* of each changed element,
//! which is combined with the operands of other nodes; elsewhere it carries bytes as usual.
//!
//! An operand is a whole element: the difference for a sum, otherwise the new value. It travels as
//! an ordinary diff ([`pagemesh_diff`]), which contains all bytes of a changed element; an element
//! with only some of its bytes is ignored.

#![forbid(unsafe_code)]

mod element;
mod store;

pub use store::{capture, merge, update_twin};

use element::{combine, done};
use pagemesh_diff::{Diff, PAGE, Page, encode};
use pagemesh_wire::peer::Rule;

/// Appends to `out` the diff from `before` to `now` under these rules.
pub fn encode_with(rules: &[Rule], before: &Page, now: &Page, out: &mut Vec<u8>) {
    let (mut from, mut to) = (Box::new(*before), Box::new(*now));
    for rule in rules {
        for place in elements(rule) {
            let (old, new) = (&before[place.clone()], &now[place.clone()]);
            if old == new {
                continue;
            }
            let operand = done(rule, old, new);
            let size = place.len();
            // Make every byte differ, so that the diff contains all of them.
            from[place.clone()].copy_from_slice(&operand.map(|byte| !byte)[..size]);
            to[place].copy_from_slice(&operand[..size]);
        }
    }
    encode(&from, &to, out);
}

/// Applies a diff that was made under the same rules to a page. Bytes in a declared range that are
/// not a whole element change nothing.
pub fn apply_with(rules: &[Rule], diff: &Diff<'_>, page: &mut Page) {
    let mut given = [0; PAGE];
    let mut masks = [0; PAGE / 8];
    diff.apply(&mut given);
    for change in diff.changes() {
        masks[change.offset / 8] = change.mask;
    }
    for rule in rules {
        for place in elements(rule) {
            if take(&mut masks, place.clone()) {
                let made = combine(rule, &page[place.clone()], &given[place.clone()]);
                page[place.clone()].copy_from_slice(&made[..place.len()]);
            }
        }
    }
    for (word, mask) in masks.iter().enumerate().filter(|(_, mask)| **mask != 0) {
        for at in (word * 8..word * 8 + 8).filter(|at| mask & (1 << (at % 8)) != 0) {
            page[at] = given[at];
        }
    }
}

/// True if a diff has all bytes of an element; clears their mask bits, so that they are not applied
/// as bytes.
fn take(masks: &mut [u8; PAGE / 8], place: core::ops::Range<usize>) -> bool {
    let (word, end) = (place.start / 8, place.end);
    if end <= word * 8 + 8 {
        let bits = (((1_u16 << place.len()) - 1) << (place.start % 8)) as u8;
        let all = masks[word] & bits == bits;
        masks[word] &= !bits;
        return all;
    }
    let mut all = true;
    for at in place {
        all &= masks[at / 8] & (1 << (at % 8)) != 0;
        masks[at / 8] &= !(1 << (at % 8));
    }
    all
}

/// The byte ranges of a rule's elements. A rule that does not fit the page has no elements beyond
/// its end.
fn elements(rule: &Rule) -> impl Iterator<Item = core::ops::Range<usize>> + use<> {
    let size = rule.kind.size();
    let end = usize::from(rule.end).min(PAGE);
    (usize::from(rule.start)..end)
        .step_by(size)
        .map(move |at| at..at + size)
        .filter(move |place| place.end <= end)
}
