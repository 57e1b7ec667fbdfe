//! A standby takes over from a coordinator that is silent. A person says so, since only a person can
//! know that the coordinator is dead and not only out of reach; or a shared store has elected the
//! node (`election.rs`).

use super::Services;
use crate::control::{Asking, DecisionCopy, Promotion};
use crate::effect::{Effect, Reply};
use crate::event::Event;
use crate::limits::PROMISE;
use crate::membership::{Coordinator, Standing, with_known_programs};
use crate::on_reply::OnReply;
use crate::shell::Cx;
use core::time::Duration;
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
        self.promotion = Some(Promotion {
            ticket: Some(ticket),
            since: cx.now,
            asking: None,
            kept: None,
        });
        self.promotion_due(cx);
    }

    /// The person has withdrawn the request. Members that were asked already are not told; the
    /// promotion goes on.
    pub(super) fn withdraw_promotion(&mut self, ticket: Ticket) -> bool {
        let asked = |promotion: &&mut Promotion| promotion.ticket == Some(ticket);
        let Some(promotion) = self.promotion.as_mut().filter(asked) else {
            return false;
        };
        promotion.ticket = None;
        self.promotion
            .take_if(|promotion| promotion.asking.is_none());
        true
    }

    /// Goes on with a promotion; called with each heartbeat.
    pub(super) fn promotion_due(&mut self, cx: &mut Cx<'_>) {
        let Some(promotion) = &mut self.promotion else {
            return;
        };
        let heard = self.membership.coordinator_heard;
        match &mut promotion.asking {
            None if heard > promotion.since => {
                let why = refuse_living(&cx.shell.view, cx.now - heard);
                self.end_promotion(cx, Err(why));
            }
            None if self.membership.coordinator_silent(cx) => self.ask_members(cx),
            None => {}
            Some(asking) => {
                let waited = cx.now - asking.since;
                if waited > cx.pace().dead_after {
                    asking.give_up();
                } else if cx.shell.config.elected && waited > promise_time(cx) {
                    cx.push(Effect::ListAsking { term: asking.term });
                }
                self.take_over_if_known(cx);
            }
        }
    }

    /// Asks all members but the silent coordinator to believe no older coordinator any more.
    fn ask_members(&mut self, cx: &mut Cx<'_>) {
        let me = cx.me();
        match self.membership.fence(cx).next(me) {
            Some(term) => self.ask_for_promises(cx, term),
            None => {
                let why = "the cluster has had all coordinators that it can have: start a new one";
                self.end_promotion(cx, Err(why.into()));
            }
        }
    }

    /// Asks the same for this term.
    pub(super) fn ask_for_promises(&mut self, cx: &mut Cx<'_>, term: Term) {
        let mut missing = cx.shell.peers();
        missing.remove(cx.coordinator());
        self.membership.promise(cx, term);
        if let Some(promotion) = &mut self.promotion {
            promotion.asking = Some(Asking {
                term,
                since: cx.now,
                missing: missing.clone(),
                silent: NodeSet::EMPTY,
                view: cx.shell.view.clone(),
            });
        }
        for node in missing.iter() {
            self.call(cx, node, Call::TakeOver { term }, OnReply::Promised(term));
        }
        self.take_over_if_known(cx);
    }

    /// The standby asks this node to believe no older coordinator.
    pub(super) fn asked_to_promise(
        &mut self,
        cx: &Cx<'_>,
        from: NodeId,
        term: Term,
    ) -> peer::Reply {
        let view = &cx.shell.view;
        let no = |why: String| peer::Reply::Refused(Refusal::Invalid(why));
        // A store that elects has fenced this coordinator off already.
        if self.coordinator.is_some() && !cx.shell.config.elected {
            return no(format!("{} coordinates, and is alive", cx.me()));
        }
        if term.coordinator() != from || term <= self.membership.fence(cx) {
            return no("another node has been asked to coordinate meanwhile".into());
        }
        if view.standby != from && view.standby != NodeId::NONE {
            return no(not_standby(view));
        }
        self.membership.promise(cx, term);
        peer::Reply::Members(view.clone())
    }

    /// A member has answered, or is gone.
    pub(super) fn promised(
        &mut self,
        cx: &mut Cx<'_>,
        (from, term): (NodeId, Term),
        reply: peer::Reply,
    ) {
        let asking = self.promotion.as_mut();
        let asking = asking.and_then(|promotion| promotion.asking.as_mut());
        let Some(asking) = asking.filter(|asking| asking.term == term) else {
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
        let patience = promise_time(cx);
        let asking = self.promotion.as_mut();
        let asking = asking.and_then(|promotion| promotion.asking.as_mut());
        let overdue =
            |asking: &&mut Asking| asking.term == term && cx.now - asking.since > patience;
        match asking.filter(overdue) {
            Some(asking) => asking.give_up_others(nodes),
            None => return cx.emit(Event::Stale {}),
        }
        self.take_over_if_known(cx);
    }

    pub(super) fn end_promotion(&mut self, cx: &mut Cx<'_>, result: Result<(), String>) {
        if let Some(promotion) = self.promotion.take() {
            tell_promoter(cx, &promotion, result);
        }
    }

    /// Takes over if all members have answered. The promotion ends first: the deaths that the new
    /// view tells of end the questions that were not answered.
    fn take_over_if_known(&mut self, cx: &mut Cx<'_>) {
        let is_known = |asking: &Asking| asking.missing.is_empty();
        let asked = |promotion: &mut Promotion| promotion.asking.as_ref().is_some_and(is_known);
        let Some(mut promotion) = self.promotion.take_if(asked) else {
            return;
        };
        let Some(asking) = promotion.asking.take() else {
            return;
        };
        let view = asking.view;
        if view.living().all(|member| member.id != cx.me()) {
            // The others know that this node was declared dead.
            tell_promoter(cx, &promotion, Err(Refusal::NotMember.to_string()));
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
        tell_promoter(cx, &promotion, Ok(()));
    }
}

/// How long an elected node waits for all promises.
fn promise_time(cx: &Cx<'_>) -> Duration {
    cx.pace().heartbeat * PROMISE
}

/// Answers the person who asked for a promotion.
fn tell_promoter(cx: &mut Cx<'_>, promotion: &Promotion, result: Result<(), String>) {
    let Some(ticket) = promotion.ticket else {
        return;
    };
    match result {
        Ok(()) => cx.reply(ticket, Reply::Done),
        Err(why) => cx.refuse(ticket, Refusal::Invalid(why)),
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
        for segment in unused {
            self.spread_forget(cx, segment);
        }
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

fn not_standby(view: &MemberView) -> String {
    match view.member(view.standby) {
        Some(standby) => format!(
            "this node is not the standby: {} is; run `pagemesh promote` on its host, {} ({})",
            standby.id, standby.name, standby.address
        ),
        None => "the cluster has no standby: no node has a whole copy of what the coordinator \
                 knows; let the coordinator go on, or end all daemons and start anew"
            .into(),
    }
}

fn refuse_living(view: &MemberView, ago: Duration) -> String {
    let coordinator = view.term.coordinator();
    let address = view.member(coordinator).map(|member| member.address);
    let at = address.map_or_else(String::new, |address| format!(" at {address}"));
    format!(
        "{coordinator}{at} coordinates and was heard {ago:.1?} ago; only a coordinator that is \
         silent can be replaced: end its daemon first"
    )
}
