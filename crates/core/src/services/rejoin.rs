//! A node that was declared dead joins again as another node (decision 40). Segments of which
//! nothing was lost are opened again for the processes that have them open.

use super::Services;
use crate::control::DecisionCopy;
use crate::global::Global;
use crate::membership::Standing;
use crate::on_reply::OnReply;
use crate::reductions::Reductions;
use crate::rejoin::become_another;
use crate::shell::Cx;
use crate::sync::{Barriers, Conditions, EarlyArrivals, Locks};
use crate::sysv::Sysv;
use crate::timers::Timers;
use pagemesh_wire::NodeId;
use pagemesh_wire::peer::{self, Refusal};

impl Services {
    /// This node's membership has ended: sorts what goes on from what is lost, forgets all else, and
    /// asks for admission as a new node.
    pub(super) fn begin_rejoin(&mut self, cx: &mut Cx<'_>) {
        let calls = self.calls.leave_behind();
        let (losses, ended) = self.rejoin.begin(cx, calls);
        for then in ended.into_iter().filter(waits_for_sysv) {
            let why = peer::Reply::Refused(Refusal::NotMember);
            self.carry_on(cx, cx.me(), then, why);
        }
        let doubtful = self.membership.doubt.is_justified();
        let kept = (&mut self.segments, &mut self.locks, &mut self.trapping);
        self.rejoin.keep(cx, kept, losses, doubtful);
        self.forget_membership(cx);
        let address = self.rejoin.next_to_ask(cx);
        self.membership.ask(cx, address);
    }

    /// Nothing of a membership is true in the next one.
    fn forget_membership(&mut self, cx: &mut Cx<'_>) {
        self.end_promotion(cx, Err(Refusal::NotMember.to_string()));
        self.global.donor.expelled(cx);
        self.global.shared.expelled(cx);
        self.calls.leave_behind();
        self.locks = Locks::default();
        self.barriers = Barriers::default();
        self.conditions = Conditions::default();
        self.sysv = Sysv::default();
        self.global = Global::default();
        self.copy = DecisionCopy::default();
        self.reductions = Reductions::default();
        self.early = EarlyArrivals::default();
        self.untouched = None;
        cx.shell.ready.clear();
        cx.shell.timers = Timers::default();
        become_another(cx);
        cx.shell.me = NodeId::NONE;
    }

    pub(crate) fn join_due(&mut self, cx: &mut Cx<'_>) {
        let address = match self.membership.standing {
            Standing::Joining(_) => self.rejoin.due(cx, &self.mappings),
            _ => None,
        };
        self.membership.ask(cx, address);
    }

    pub(crate) fn finish_rejoin(&mut self, cx: &mut Cx<'_>) {
        let finished = self.rejoin.finish(cx, &self.calls, &mut self.segments);
        let Some(finished) = finished else {
            return;
        };
        self.follow(cx, finished.steps);
        for (ticket, client, request) in finished.requests {
            self.request(cx, ticket, client, request);
        }
        for (mapping, page, access) in finished.faults {
            self.fault(cx, mapping, page, access);
        }
    }
}

/// Whether somebody waits for a System V object or an opening, and must be told.
fn waits_for_sysv(then: &OnReply) -> bool {
    matches!(
        then,
        OnReply::Tell(..)
            | OnReply::Open { .. }
            | OnReply::Orphaned(_)
            | OnReply::Told
            | OnReply::Register(_)
            | OnReply::Visit(_)
            | OnReply::Struck(_)
            | OnReply::Lent(_)
            | OnReply::Returned(_)
            | OnReply::Survey(..)
    )
}
