//! The pages that this node keeps for a holder that is gone. Every segment has them: where it has no
//! replicas, a node keeps what it gave away until that has arrived.

use super::page::Page;
use super::replicas::FLIGHT;
use crate::shell::Cx;
use pagemesh_sorted::LongMap;
use pagemesh_wire::{NodeId, PageIndex};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Pages of which this node wants to be the next holder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Orphans(BTreeSet<PageIndex>);

impl Orphans {
    /// A node is gone: the page is an orphan if it was kept for that one.
    pub(super) fn holder_gone(&mut self, index: PageIndex, page: &Page, node: NodeId) {
        if page.keeps == Some(node) && !page.holds {
            self.0.insert(index);
        }
    }

    /// The next page that is to be asked for, after so many that were: some are at a time.
    pub(super) fn next(
        &mut self,
        cx: &Cx<'_>,
        pages: &mut LongMap<PageIndex, Page>,
        asked: &mut usize,
    ) -> Option<PageIndex> {
        while let Some(index) = self.0.iter().nth(*asked).copied() {
            let gone = |page: &Page| page.keeps.is_some_and(|holder| cx.is_gone(holder));
            let page = pages.get_mut(&index);
            let Some(page) = page.filter(|page| !page.holds && gone(page)) else {
                self.0.remove(&index);
                continue;
            };
            if *asked == FLIGHT {
                return None;
            }
            *asked += 1;
            if !core::mem::replace(&mut page.orphaned, true) {
                return Some(index);
            }
        }
        None
    }

    /// The page has another holder. Returns whether it was an orphan.
    pub(super) fn adopted(&mut self, index: PageIndex) -> bool {
        self.0.remove(&index)
    }

    pub(super) fn contains(&self, index: PageIndex) -> bool {
        self.0.contains(&index)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use crate::time::Time;
    use pagemesh_wire::peer::Health;

    const HOME: NodeId = NodeId(1);
    const GONE: NodeId = NodeId(3);

    /// So many pages that are kept for a node that is gone, and the first that are to be asked for.
    fn asked(of: &mut Orphans, pages: &mut LongMap<PageIndex, Page>) -> Vec<u32> {
        let mut shell = Shell::of_four(NodeId(2));
        let mut view = shell.view.clone();
        view.members[2].health = Health::Dead;
        shell.set_view(view);
        let cx = Cx {
            now: Time(0),
            shell: &mut shell,
            effects: &mut Effects::default(),
        };
        let (mut next, mut so_many) = (Vec::new(), 0);
        while let Some(index) = of.next(&cx, pages, &mut so_many) {
            next.push(index.0);
        }
        next
    }

    fn given(pages: u32) -> (Orphans, LongMap<PageIndex, Page>) {
        let (mut of, mut all) = (Orphans::default(), LongMap::new());
        for index in (0..pages).map(PageIndex) {
            let mut page = Page::new(HOME, false);
            page.keeps = Some(GONE);
            of.holder_gone(index, &page, GONE);
            all.insert(index, page);
        }
        (of, all)
    }

    #[test]
    fn what_is_kept_for_a_living_node_or_held_is_no_orphan() {
        let mut of = Orphans::default();
        let mut page = Page::new(HOME, false);
        page.keeps = Some(NodeId(4));
        of.holder_gone(PageIndex(0), &page, GONE);
        (page.keeps, page.holds) = (Some(GONE), true);
        of.holder_gone(PageIndex(1), &page, GONE);
        assert!(of.is_empty());
    }

    #[test]
    fn orphans_are_asked_for_once_and_some_at_a_time() {
        let (mut of, mut pages) = given(FLIGHT as u32 + 2);
        assert_eq!(asked(&mut of, &mut pages).len(), FLIGHT);
        assert_eq!(asked(&mut of, &mut pages), []);
        assert!(of.adopted(PageIndex(0)) && !of.adopted(PageIndex(0)));
        assert_eq!(asked(&mut of, &mut pages), [FLIGHT as u32]);
    }

    #[test]
    fn an_orphan_that_is_held_again_or_has_another_holder_is_none_any_more() {
        let (mut of, mut pages) = given(3);
        pages.get_mut(&PageIndex(0)).unwrap().holds = true;
        pages.get_mut(&PageIndex(1)).unwrap().keeps = Some(NodeId(4));
        assert_eq!(asked(&mut of, &mut pages), [2]);
        assert_eq!((of.len(), of.contains(PageIndex(2))), (1, true));
    }
}
