//! A standby takes over from a coordinator that is silent. A person says so, since only a person can
//! know that the coordinator is dead and not only out of reach; or a shared store has elected the
//! node (`election.rs`).

use super::Services;
use crate::control::{DecisionCopy, Due, Promotion, not_standby};
use crate::directory::forget_everywhere;
use crate::effect::Reply;
use crate::event::Event;
use crate::membership::{Coordinator, Standing, with_known_programs};
use crate::shell::Cx;
use pagemesh_wire::peer::{self, Call, Health, MemberView, Refusal};
use pagemesh_wire::{NodeId, NodeSet, Term, Ticket};

impl Services {
    /// A person asks this node to coordinate.
    pub(super) fn promote(&mut self, cx: &mut Cx<'_>, ticket: Ticket) {
        if self.coordinator.is_some() {
            return cx.reply(ticket, Reply::Done);
        }
        if cx.shell.config.elected {
            let why = "etcd elects the coordinator of this cluster, and nobody has to promote one";
            return cx.refuse(ticket, Refusal::Invalid(why.into()));
        }
        if cx.shell.view.standby != cx.me() {
            return cx.refuse(ticket, Refusal::Invalid(not_standby(&cx.shell.view)));
        }
        if let Some(under_way) = &mut self.promotion {
            if under_way.ticket.is_some() {
                let why = "this node is being promoted already";
                return cx.refuse(ticket, Refusal::Invalid(why.into()));
            }
            under_way.ticket = Some(ticket);
            return;
        }
        self.promotion = Some(Promotion::by(ticket, cx.now));
        self.promotion_due(cx);
    }

    /// Goes on with a promotion; called with each heartbeat.
    pub(super) fn promotion_due(&mut self, cx: &mut Cx<'_>) {
        let Some(promotion) = &mut self.promotion else {
            return;
        };
        let membership = &self.membership;
        let silent = membership.coordinator_silent(cx);
        let coordinator = (membership.coordinator_heard, silent);
        match promotion.due(cx, coordinator, membership.fence(cx)) {
            Due::Wait => {}
            Due::Ask(term) => self.ask_for_promises(cx, term),
            Due::TakeOver => self.take_over_if_known(cx),
            Due::End(why) => self.end_promotion(cx, Err(why)),
        }
    }

    /// Asks all members but the silent coordinator to believe no older coordinator than this term's.
    pub(super) fn ask_for_promises(&mut self, cx: &mut Cx<'_>, term: Term) {
        self.membership.promise(cx, term);
        if let Some(promotion) = &mut self.promotion {
            let steps = promotion.ask(cx, term);
            self.follow(cx, steps);
        }
        self.take_over_if_known(cx);
    }

    /// A member has answered, or is gone.
    pub(super) fn promised(
        &mut self,
        cx: &mut Cx<'_>,
        (from, term): (NodeId, Term),
        reply: peer::Reply,
    ) {
        let promotion = self.promotion.as_mut();
        let Some(asking) = promotion.and_then(|promotion| promotion.asking_in(term)) else {
            return;
        };
        match reply {
            peer::Reply::Members(view) => asking.answered(from, view),
            peer::Reply::Refused(Refusal::NodeGone(_)) => {}
            peer::Reply::Refused(why) => return self.end_promotion(cx, Err(why.to_string())),
            _ => {}
        }
        self.take_over_if_known(cx);
    }

    /// The store knows these members to live, though they may not be reached from here.
    pub(super) fn asking(&mut self, cx: &mut Cx<'_>, term: Term, nodes: NodeSet) {
        let promotion = self.promotion.as_mut();
        match promotion.and_then(|promotion| promotion.asking_in(term)) {
            Some(asking) if asking.is_overdue(cx) => asking.give_up_others(nodes),
            _ => return cx.emit(Event::Stale {}),
        }
        self.take_over_if_known(cx);
    }

    pub(super) fn end_promotion(&mut self, cx: &mut Cx<'_>, result: Result<(), String>) {
        if let Some(promotion) = self.promotion.take() {
            promotion.tell(cx, result);
        }
    }

    /// Takes over if all members have answered. The promotion ends first: the deaths that the new
    /// view tells of end the questions that were not answered.
    fn take_over_if_known(&mut self, cx: &mut Cx<'_>) {
        let is_known = |promotion: &mut Promotion| promotion.is_known();
        let Some(mut promotion) = self.promotion.take_if(is_known) else {
            return;
        };
        let Some(asking) = promotion.asking.take() else {
            return;
        };
        let view = asking.view;
        if view.living().all(|member| member.id != cx.me()) {
            // The others know that this node was declared dead.
            promotion.tell(cx, Err(Refusal::NotMember.to_string()));
            return self.expelled(cx);
        }
        let kept = promotion.kept.take();
        let elected = kept.is_some();
        if let Some(kept) = kept {
            self.copy = kept.copy_in(&view);
        }
        self.take_over(cx, view, asking.term, asking.silent);
        if elected {
            self.keep_anew(cx);
        }
        promotion.tell(cx, Ok(()));
    }
}

impl Services {
    /// This node is the coordinator from now on.
    pub(super) fn take_over(
        &mut self,
        cx: &mut Cx<'_>,
        view: MemberView,
        term: Term,
        silent: NodeSet,
    ) {
        let former = view.term.coordinator();
        let copy = core::mem::take(&mut self.copy);
        let mut dead = silent;
        dead.insert(former);
        dead.insert(cx.coordinator());
        let view = with_known_programs(succeeding(view, term, dead), former);
        let mut coordinator = Coordinator::of(copy.directory);
        let me = cx.me();
        for member in view.living().filter(|member| member.id != me) {
            coordinator.watch(cx, member.id);
        }
        let mut unused: Vec<_> = copy.gone.into();
        for member in &view.members {
            if member.health != Health::Alive {
                unused.extend(coordinator.directory.member_gone(member.id));
            }
        }
        for (segment, reductions) in coordinator.directory.declared() {
            self.reductions.restore(segment, reductions);
        }
        let living: NodeSet = view.living().map(|member| member.id).collect();
        for (node, answered) in copy.answered {
            if living.contains(node) {
                self.calls.restore(node, answered);
            }
        }
        self.coordinator = Some(coordinator);
        cx.emit(Event::Promoted {});
        self.spread_view(cx, view);
        let unused = unused.into_iter();
        let steps: Vec<_> = unused.flat_map(|id| forget_everywhere(cx, id)).collect();
        self.follow(cx, steps);
        let homes = cx.shell.alive.clone();
        let steps = self.sysv.register.gather(cx.me(), homes);
        self.follow(cx, steps);
    }

    /// Another node coordinates now: calls to the former coordinator that are still open go to the
    /// new one, under their old numbers.
    pub(super) fn coordinator_changed(&mut self, cx: &mut Cx<'_>, former: NodeId) {
        let coordinator = cx.coordinator();
        self.membership.follow(cx.now);
        cx.emit(Event::CoordinatorChanged { node: coordinator });
        if coordinator != cx.me() {
            self.copy = DecisionCopy::default();
            self.promotion = None;
        }
        let to_coordinator = Call::is_for_coordinator;
        let open = (former, to_coordinator as fn(&Call) -> bool);
        for call in self.calls.redirect(cx, open, coordinator) {
            self.serve_own(cx, call);
        }
    }

    /// A datagram shows that a newer coordinator does not count this node among the members.
    pub(crate) fn superseded(&mut self, cx: &mut Cx<'_>, term: Term) {
        let coordinated = self.coordinator.is_some();
        self.expelled(cx);
        if coordinated && matches!(self.membership.standing, Standing::Out(_)) {
            self.coordinator = None;
            let by = term.coordinator();
            self.membership.standing = Standing::Out(Refusal::Superseded { by });
            cx.emit(Event::Superseded { node: by });
        }
    }
}

/// The view with which a new coordinator begins: nodes in `silent` are dead. What nodes that left
/// had handed over was known to the former coordinator alone, so they count as dead, too, and as
/// forgotten, because no operator has to care for them.
fn succeeding(mut view: MemberView, term: Term, silent: NodeSet) -> MemberView {
    view.epoch += 1;
    view.term = term;
    view.standby = NodeId::NONE;
    for member in &mut view.members {
        match member.health {
            Health::Alive if silent.contains(member.id) => member.health = Health::Dead,
            Health::Left => member.health = Health::Forgotten,
            _ => {}
        }
    }
    view
}
