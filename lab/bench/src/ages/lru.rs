//! True LRU, which sees every touch.

use super::trace::Trace;
use std::collections::BTreeMap;

/// Pages that have to be fetched if so many are in memory and the one that was touched longest ago
/// leaves. The first touch of a page fetches nothing.
pub(super) fn fetched(trace: &Trace, memory: u32) -> u64 {
    const NEVER: u64 = u64::MAX;
    let mut touched = vec![NEVER; trace.pages as usize];
    let mut seen = vec![false; trace.pages as usize];
    let mut order: BTreeMap<u64, u32> = BTreeMap::new();
    let mut fetched = 0;
    for (now, touch) in (0..).zip(&trace.touches) {
        let page = touch.page as usize;
        match touched[page] {
            NEVER => fetched += u64::from(seen[page]),
            before => drop(order.remove(&before)),
        }
        (touched[page], seen[page]) = (now, true);
        order.insert(now, touch.page);
        if order.len() > memory as usize
            && let Some((_, oldest)) = order.pop_first()
        {
            touched[oldest as usize] = NEVER;
        }
    }
    fetched
}
