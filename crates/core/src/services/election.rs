//! A store that all nodes share, etcd, takes the place of the disk and of the person who promotes.
//!
//! The coordinator renews its claim there with each heartbeat. A member to which it is silent asks
//! its driver to take the claim ([`Effect::Elect`]): that succeeds only if nobody has renewed it for
//! a while, so a cut cable between the two elects nobody. The store takes decisions of the node with
//! the claim alone, so when a node has it, what the store has is all that any node was told of. The
//! rest is a takeover as after a promotion, except that a member that died with the coordinator is
//! given up sooner: those that live and do not hear the elected node go on asking for the claim, so
//! the store knows of them.

use super::Services;
use crate::control::{Kept, Promotion};
use crate::effect::Effect;
use crate::event::Event;
use crate::membership::Standing;
use crate::shell::Cx;
use pagemesh_wire::Term;

impl Services {
    /// Renews this node's claim, or asks for that of a silent coordinator; called with each
    /// heartbeat.
    pub(super) fn claim_due(&mut self, cx: &mut Cx<'_>) {
        if !cx.shell.config.elected || self.membership.standing != Standing::Member {
            return;
        }
        if let Some(term) = self.claimed(cx) {
            return cx.push(Effect::Renew { term });
        }
        // The answer to one heartbeat is missing.
        let silence = cx.now - self.membership.coordinator_heard;
        if silence > cx.pace().heartbeat * 3 / 2 {
            let (node, fence) = (cx.me(), self.membership.fence(cx));
            cx.push(Effect::Elect { node, fence });
        }
    }

    /// The term in which this node coordinates, or is about to.
    fn claimed(&self, cx: &Cx<'_>) -> Option<Term> {
        if self.coordinator.is_some() {
            return Some(cx.shell.view.term);
        }
        let asking = self.promotion.as_ref()?.asking.as_ref()?;
        Some(asking.term)
    }

    /// The store has given the claim to this node: it takes over with what the store has.
    pub(super) fn elected(&mut self, cx: &mut Cx<'_>, term: Term, kept: Box<Kept>) {
        let here = self.membership.standing == Standing::Member
            && cx.shell.config.elected
            && kept.cluster() == cx.shell.cluster;
        if !here || self.coordinator.is_some() || term.coordinator() != cx.me() {
            return cx.emit(Event::Stale {});
        }
        // The former coordinator may have told the store, and no survivor.
        self.members_changed(cx, kept.view().clone());
        let still = self.membership.standing == Standing::Member;
        if !still || term <= self.membership.fence(cx) {
            return cx.emit(Event::Stale {});
        }
        self.promotion = Some(Promotion::elected(kept, cx.now));
        self.ask_for_promises(cx, term);
    }
}
