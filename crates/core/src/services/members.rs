//! Changes of membership, and what each service must know of them.

use super::Services;
use crate::effect::{Effect, Reply};
use crate::event::Event;
use crate::link::Sender;
use crate::membership::{Standing, Verdict};
use crate::on_reply::OnReply;
use crate::policies::Gone;
use crate::shell::Cx;
use pagemesh_wire::peer::{self, Call, Health, Member, MemberView, Numbered, Refusal, ViewChange};
use pagemesh_wire::sysv;
use pagemesh_wire::{NodeId, SegmentId};

impl Services {
    pub(crate) fn join(&mut self, cx: &mut Cx<'_>, from: Sender, version: u8, join: &peer::Join) {
        if self.membership.standing == Standing::Resuming {
            // It asks again, and will be admitted by then.
            return;
        }
        let Some(coordinator) = &mut self.coordinator else {
            return self.redirect(cx, (from.0, version), join);
        };
        if let Verdict::Changed(view) = coordinator.join(cx, from, version, join) {
            self.spread_view(cx, view);
        }
        self.check_names(cx);
    }

    /// This node does not admit hosts: it tells the host the coordinator's address.
    fn redirect(
        &mut self,
        cx: &mut Cx<'_>,
        (source, version): (core::net::SocketAddr, u8),
        join: &peer::Join,
    ) {
        let coordinator = cx.shell.view.member(cx.coordinator());
        let Some(to) = coordinator.map(|member| member.address) else {
            return;
        };
        let message = peer::Message::Redirect {
            incarnation: join.incarnation,
            to,
        };
        let mut header = cx.header(NodeId::NONE);
        header.version = version;
        cx.push(Effect::Send {
            address: source,
            header,
            message: Box::new(message),
            page: None,
        });
    }

    pub(super) fn suspect(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        if cx.is_alive(node) && coordinator.suspect(cx, node) {
            self.declare_dead(cx, node, Health::Dead);
        }
    }

    /// Ends a node's membership for good. That is possible for dead nodes, too, so that they cannot
    /// come back.
    pub(super) fn revoke(&mut self, cx: &mut Cx<'_>, node: NodeId) -> peer::Reply {
        let no = |why: &str| peer::Reply::Refused(Refusal::Invalid(why.into()));
        let known = cx
            .shell
            .view
            .members
            .iter()
            .find(|member| member.id == node);
        match known.map(|member| member.health) {
            _ if self.coordinator.is_none() => no("only the coordinator can put a node out"),
            None => no("there never was a node of this number"),
            Some(_) if node == cx.me() => no(
                "the coordinator cannot be put out; stop its daemon, and promote the standby \
                 (`pagemesh promote` there)",
            ),
            Some(Health::Revoked) => peer::Reply::Done,
            Some(_) => {
                cx.send(node, peer::Message::Expelled);
                self.declare_dead(cx, node, Health::Revoked);
                peer::Reply::Done
            }
        }
    }

    /// Marks a dead node as forgotten: its loss has been dealt with.
    pub(super) fn forget_member(&mut self, cx: &mut Cx<'_>, node: NodeId) -> peer::Reply {
        let no = |why: &str| peer::Reply::Refused(Refusal::Invalid(why.into()));
        let mut members = cx.shell.view.members.iter();
        let known = members.find(|member| member.id == node);
        match known.map(|member| member.health) {
            _ if self.coordinator.is_none() => no("only the coordinator can forget a node"),
            None => no("there never was a node of this number"),
            Some(Health::Alive) => no(
                "the node is alive: let it leave (`pagemesh leave` there), or put it out \
                    (`pagemesh key revoke`)",
            ),
            Some(Health::Dead) => {
                self.declare_dead(cx, node, Health::Forgotten);
                peer::Reply::Done
            }
            Some(Health::Left | Health::Revoked | Health::Forgotten) => peer::Reply::Done,
        }
    }

    pub(super) fn declare_dead(&mut self, cx: &mut Cx<'_>, node: NodeId, health: Health) {
        let Some(coordinator) = &mut self.coordinator else {
            return;
        };
        let view = coordinator.without(cx, node, health);
        self.spread_view(cx, view);
    }

    pub(super) fn spread_view(&mut self, cx: &mut Cx<'_>, view: MemberView) {
        let far = cx.shell.config.far_numbers;
        let before = far.then(|| cx.shell.view.clone());
        self.members_changed(cx, view);
        if let Some(before) = before {
            return self.spread_change(cx, &before);
        }
        // It may have changed more: a standby that is gone is named no longer.
        let view = cx.shell.view.clone();
        for node in cx.shell.peers().iter() {
            let then = OnReply::KnowsView(view.epoch);
            self.call(cx, node, Call::Members(view.clone()), then);
        }
    }

    /// Tells all members what is new since this view.
    fn spread_change(&mut self, cx: &mut Cx<'_>, before: &MemberView) {
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.changes.note(before, &cx.shell.view);
        }
        for node in cx.shell.peers().iter() {
            let coordinator = self.coordinator.as_mut();
            let told = coordinator.and_then(|of| of.tell_change(cx, node));
            self.follow(cx, told);
        }
    }

    /// The coordinator tells what has changed. A view that lacks what is still to be told is that of
    /// an earlier epoch; only the last part may have a new generation, and is answered with names.
    pub(super) fn told_of_change(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        change: ViewChange,
    ) -> peer::Reply {
        let known = &cx.shell.view;
        let fits = change.view.term == known.term && change.since <= known.epoch;
        if from != change.view.term.coordinator() || !fits {
            let why = "this node does not know the members that this change is about";
            return peer::Reply::Refused(Refusal::Invalid(why.into()));
        }
        let more = change.more;
        if change.view.epoch > known.epoch {
            let view = change.applied_to(known);
            self.members_changed(cx, view);
        }
        if more {
            return peer::Reply::Done;
        }
        self.tell_names(cx)
    }

    pub(super) fn members_changed(&mut self, cx: &mut Cx<'_>, view: MemberView) {
        let known = &cx.shell.view;
        if view.age() <= known.age() || view.term < self.membership.fence(cx) {
            return;
        }
        let (lives, known_lives) = (view.numbered(), known.numbered());
        if view.living().any(|member| is_over_in(&known_lives, member)) {
            // This node went on with a coordinator that another one has replaced, and with deaths
            // that the new one knows nothing of.
            return self.superseded(cx, view.term);
        }
        let here = known.member(cx.me());
        if here.is_some_and(|here| !has_life(&lives, here)) {
            // The others have forgotten this node.
            return self.superseded(cx, view.term);
        }
        self.end_unheard_lives(cx, &view);
        let known = cx.shell.view.numbered();
        let former = cx.coordinator();
        // This includes nodes of which this node had never heard: other nodes have, and grants name
        // them.
        let ended = view
            .members
            .iter()
            .filter(|member| member.health != Health::Alive && !is_over_in(&known, member));
        let gone: Vec<_> = ended.map(|member| member.id).collect();
        let is_new = |member: &&Member| !has_life(&known, member);
        let joined: Vec<_> = view
            .members
            .iter()
            .filter(is_new)
            .map(|member| member.id)
            .collect();
        for node in joined {
            cx.emit(Event::Joined { node });
        }
        let spoken = cx.shell.spoken;
        cx.shell.set_view(view);
        let version = cx.shell.spoken;
        if version != spoken {
            cx.emit(Event::Speaks { version });
        }
        if cx.coordinator() != former {
            cx.shell.former_coordinator = Some(former);
            self.coordinator_changed(cx, former);
        }
        for node in gone {
            self.member_gone(cx, node);
        }
        cx.shell.former_coordinator = None;
    }

    /// Lives that this node takes for alive, and whose numbers are free or have other lives in this
    /// view: they end before anything else happens. A coordinator gives a number again only after
    /// all members know the end of its last life, so that happens only if it is faulty.
    fn end_unheard_lives(&mut self, cx: &mut Cx<'_>, view: &MemberView) {
        let lives = view.numbered();
        let known = &cx.shell.view;
        if known.living().all(|member| has_life(&lives, member)) {
            return;
        }
        let mut between = known.clone();
        let mut ended = Vec::new();
        for member in &mut between.members {
            if member.health == Health::Alive && !has_life(&lives, member) {
                member.health = Health::Dead;
                ended.push(member.id);
            }
        }
        cx.shell.set_view(between);
        for node in ended {
            self.member_gone(cx, node);
        }
    }

    fn member_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if node == cx.me() {
            if !self.leaving.empty {
                self.expelled(cx);
            }
            return;
        }
        let left = cx
            .shell
            .view
            .members
            .iter()
            .any(|member| member.id == node && member.health == Health::Left);
        cx.emit(if left {
            Event::Left { node }
        } else {
            Event::Died { node }
        });
        if left {
            self.ask_successor(cx, node);
        } else {
            self.barriers.home_died(node);
            self.conditions.home_died(node);
        }
        cx.shell.progress.gone(node);
        // Its keys are free before anything else is done.
        self.sysv.register.member_gone(node);
        for then in self.calls.member_gone(node) {
            let why = Refusal::NodeGone(node);
            self.carry_on(cx, node, then, peer::Reply::Refused(why));
        }
        self.barriers.member_gone(node);
        self.early.retain(|early| early.caller.node != node);
        self.conditions.member_gone(node);
        self.locks.member_gone(cx, &mut self.segments, node);
        let steps = self.sysv.member_gone(cx, node);
        self.follow(cx, steps);
        let kept = |id: &SegmentId| sysv::keeper(*id) == Some(node);
        let lost: Vec<_> = self.segments.keys().copied().filter(kept).collect();
        for id in lost {
            self.forget(cx, id);
        }
        self.global.donor.owner_gone(cx, node);
        for segment in self.segments.values_mut() {
            segment.policy.gone(cx, Gone::Member(node));
        }
        self.copy.member_gone(node);
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.member_gone(node);
            for segment in coordinator.directory.member_gone(node) {
                self.spread_forget(cx, segment);
            }
        }
        let coordinator = self.coordinator.as_mut();
        let steps = coordinator.map(|of| of.standby_gone(cx, node));
        self.follow(cx, steps.unwrap_or_default());
    }

    /// This node is no member any more. If it was leaving, that answers its leave request. Its
    /// state may be out of date: local processes must not go on with it, and no request may wait
    /// for an answer that never comes.
    pub(crate) fn expelled(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.membership.standing, Standing::Out(_)) {
            return;
        }
        if self.leaving.empty
            && let Some(ticket) = self.leaving.asked.take()
        {
            cx.reply(ticket, Reply::Done);
        } else {
            cx.emit(Event::Expelled {});
        }
        self.membership.upgrade.end(cx);
        let rejoins = self.rejoins(cx);
        self.membership.standing = Standing::Out(Refusal::NotMember);
        if rejoins {
            return self.begin_rejoin(cx);
        }
        for then in self.calls.expelled() {
            if !matches!(then, OnReply::Left | OnReply::HandedOver) {
                let why = Refusal::NotMember;
                self.carry_on(cx, cx.me(), then, peer::Reply::Refused(why));
            }
        }
        self.end_promotion(cx, Err(Refusal::NotMember.to_string()));
        self.locks.expelled(cx);
        self.global.donor.expelled(cx);
        self.global.shared.expelled(cx);
        for segment in self.segments.values_mut() {
            self.trapping.begin(cx, segment);
            segment.policy.gone(cx, Gone::Membership);
        }
        self.end_rejoin(cx);
    }

    /// Whether all is handed over, so that this node must not take any more.
    pub(crate) fn has_left(&self) -> bool {
        self.leaving.empty
    }

    /// Takes part in a segment whose home is gone, because this node answers for it now.
    pub(crate) fn adopt(&mut self, id: SegmentId) {
        let Some(coordinator) = &self.coordinator else {
            return;
        };
        if let Some(info) = coordinator.directory.get(id).cloned()
            && self.take_part(&info).is_ok()
        {
            self.inform_of_reductions(id);
        }
    }
}

/// Whether this life is in the view, alive or not.
fn has_life(view: &Numbered<'_>, member: &Member) -> bool {
    let known = view.member(member.id);
    known.is_some_and(|known| known.incarnation == member.incarnation)
}

/// Whether this life is over in the view.
fn is_over_in(view: &Numbered<'_>, member: &Member) -> bool {
    let known = view.member(member.id);
    known.is_some_and(|known| {
        known.incarnation == member.incarnation && known.health != Health::Alive
    })
}
