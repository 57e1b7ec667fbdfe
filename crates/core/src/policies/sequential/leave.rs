//! This node leaves: its pages go to the node that succeeds it.

use super::memory::Memory;
use super::page::Page;
use crate::effect::Rights;
use crate::shell::Cx;
use pagemesh_wire::NodeId;

impl Memory {
    /// Hands over some pages, so many at a time. Returns how many things are left to do.
    pub(super) fn hand_over(&mut self, cx: &mut Cx<'_>, to: NodeId, burst: usize) -> usize {
        let me = cx.me();
        self.pins.refuse(cx);
        if let Some(client) = self.hold.client() {
            self.end_hold(cx, client);
        }
        self.prefetch.willneed_ranges.clear();
        // After this node has left, it cannot acknowledge invalidations: it drops its copies first.
        let is_copy = |page: &Page| page.own.hint != me && page.rights > Rights::None;
        let copies = self.pages.those(is_copy);
        self.each(cx, copies, |context| context.here.evict(false));
        let owned = self.pages.those(|page| page.own.hint == me);
        let passing = self.pages.those(|page| page.own.passing().is_some()).len();
        // Pages that this node has requested still arrive, and requests of others may wait for them
        // here.
        let comes = |page: &Page| page.own.hint != me && page.own.want().is_some();
        let coming = self.pages.those(comes).len();
        let next = owned.iter().take(burst.saturating_sub(passing)).copied();
        self.each(cx, next, |context| context.here.hand_over(to));
        let (replicas, mut segment) = self.replicas(cx);
        let wards = replicas.leave_wards(&mut segment);
        self.pump(cx);
        owned.len() + passing + coming + wards
    }
}
