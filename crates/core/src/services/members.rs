//! Changes of membership, and what each service must know of them.

use super::Services;
use crate::directory::forget_everywhere;
use crate::event::Event;
use crate::link::Sender;
use crate::membership::{Standing, Verdict, ViewNews, follow_view, without_unheard};
use crate::on_reply::OnReply;
use crate::policies::Gone;
use crate::shell::Cx;
use pagemesh_wire::peer::{self, Call, MemberView, Message, Refusal, ViewChange};
use pagemesh_wire::sysv;
use pagemesh_wire::{NodeId, NodeSet, SegmentId};

impl Services {
    pub(crate) fn join(&mut self, cx: &mut Cx<'_>, from: Sender, version: u8, join: &peer::Join) {
        if self.membership.standing == Standing::Resuming {
            // It asks again, and will be admitted by then.
            return;
        }
        let Some(coordinator) = &mut self.coordinator else {
            return self.membership.redirect(cx, (from.0, version), join);
        };
        if let Verdict::Changed(view) = coordinator.join(cx, from, version, join) {
            self.spread_view(cx, view);
        }
        self.check_names(cx);
    }

    pub(super) fn spread_view(&mut self, cx: &mut Cx<'_>, view: MemberView) {
        let far = cx.shell.config.far_numbers;
        let before = far.then(|| cx.shell.view.clone());
        self.members_changed(cx, view);
        if let Some(before) = before {
            let told = self.membership.tell_changes(cx, &before);
            return self.follow(cx, told);
        }
        // It may have changed more: a standby that is gone is named no longer.
        let view = cx.shell.view.clone();
        for node in cx.shell.peers().iter() {
            let then = OnReply::KnowsView(view.epoch);
            self.call(cx, node, Call::Members(view.clone()), then);
        }
    }

    /// Members have changed, in a cluster with far numbers.
    pub(super) fn told_change(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        change: ViewChange,
    ) -> peer::Reply {
        // Only the last part of what a coordinator tells may have a new generation.
        let asks_names = !change.more && from == cx.coordinator();
        match self.membership.told_change(cx, from, change) {
            Err(why) => return peer::Reply::Refused(why),
            Ok(None) => {}
            Ok(Some(view)) => {
                let before = cx.shell.view.epoch;
                self.members_changed(cx, view);
                let told = self.membership.tell_on(cx, before);
                self.follow(cx, told);
            }
        }
        match asks_names {
            true => self.tell_names(cx),
            false => peer::Reply::Done,
        }
    }

    /// Signs of life of a member and of those whose signs it passes on.
    pub(crate) fn signs_came(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        (epoch, sent): (u64, u64),
        of: &NodeSet,
    ) {
        if !cx.shell.config.far_numbers {
            return cx.emit(Event::Stale {});
        }
        match &mut self.coordinator {
            Some(coordinator) => {
                let of = of.intersection(&cx.shell.alive);
                for node in of.iter() {
                    coordinator.heard(node, cx.now);
                }
                cx.send(from, Message::SignsHeard { sent, of });
            }
            None => self.membership.sign_came(from, sent),
        }
        self.knows_epoch(cx, from, epoch);
    }

    /// A member tells the coordinator, or its relay, which view it knows.
    pub(crate) fn knows_epoch(&mut self, cx: &mut Cx<'_>, node: NodeId, epoch: u64) {
        if cx.shell.config.far_numbers {
            let told = self.membership.knows_epoch(cx, node, epoch);
            self.follow(cx, told);
        }
    }

    pub(super) fn members_changed(&mut self, cx: &mut Cx<'_>, view: MemberView) {
        match self.membership.news(cx, &view) {
            ViewNews::Old => return,
            ViewNews::Superseding => return self.superseded(cx, view.term),
            ViewNews::Next => {}
        }
        if let Some((between, ended)) = without_unheard(&cx.shell.view, &view) {
            cx.shell.set_view(between);
            for node in ended {
                self.member_gone(cx, node);
            }
        }
        let former = cx.coordinator();
        let gone = follow_view(cx, view);
        if cx.coordinator() != former {
            cx.shell.former_coordinator = Some(former);
            self.coordinator_changed(cx, former);
        }
        for node in gone {
            self.member_gone(cx, node);
        }
        cx.shell.former_coordinator = None;
    }

    fn member_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if node == cx.me() {
            if !self.leaving.is_empty() {
                self.expelled(cx);
            }
            return;
        }
        let left = cx.has_left(node);
        cx.emit(if left {
            Event::Left { node }
        } else {
            Event::Died { node }
        });
        if left {
            for call in self.calls.redirect_to_successor(cx, node) {
                self.serve_own(cx, call);
            }
            self.calls.forget_own(cx.me());
        } else {
            self.barriers.home_died(node);
            self.conditions.home_died(node);
        }
        cx.shell.progress.gone(node);
        self.membership.member_gone(node);
        // Its keys are free before anything else is done.
        self.sysv.register.member_gone(node);
        for then in self.calls.member_gone(node) {
            let why = Refusal::NodeGone(node);
            self.carry_on(cx, node, then, peer::Reply::Refused(why));
        }
        self.barriers.member_gone(node);
        self.early.member_gone(node);
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
            let unused = coordinator.directory.member_gone(node).into_iter();
            let steps: Vec<_> = unused.flat_map(|id| forget_everywhere(cx, id)).collect();
            self.follow(cx, steps);
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
        if !self.leaving.end(cx) {
            cx.emit(Event::Expelled {});
        }
        self.membership.upgrade.end(cx);
        let rejoins = self.membership.standing == Standing::Member
            && self.coordinator.is_none()
            && !self.leaving.has_begun()
            && self.rejoin.may_begin(cx);
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
        self.rejoin.end(cx, &self.mappings);
    }

    /// Takes part in a segment whose home is gone, because this node answers for it now.
    pub(crate) fn adopt(&mut self, id: SegmentId) {
        let Some(coordinator) = &self.coordinator else {
            return;
        };
        if let Some(info) = coordinator.directory.get(id).cloned()
            && let lost = self.rejoin.lost(id)
            && self.segments.take_part(lost, &info).is_ok()
        {
            self.reductions.inform(&mut self.segments, id);
        }
    }
}
