//! A standby becomes the coordinator: it waits until the coordinator has been silent for long
//! enough, then asks all living members to believe no older coordinator any more, and to say which
//! members they know. When all have answered, or have been silent themselves, it takes over. A node
//! that a shared store has elected does the same with what the store has.

use super::Kept;
use crate::effect::{Effect, Reply};
use crate::limits::PROMISE;
use crate::on_reply::OnReply;
use crate::shell::Cx;
use crate::steps::Step;
use crate::time::Time;
use core::time::Duration;
use pagemesh_wire::peer::{Call, MemberView, Refusal};
use pagemesh_wire::{NodeId, NodeSet, Term, Ticket};
use serde::{Deserialize, Serialize};

/// A promotion under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Promotion {
    /// The request of the person who promotes; none after it was withdrawn.
    pub(crate) ticket: Option<Ticket>,
    /// When the person asked: a coordinator that is heard later is alive.
    pub(crate) since: Time,
    /// The members are being asked.
    pub(crate) asking: Option<Asking>,
    /// What the store has that elected this node; none if a person promotes the standby.
    #[serde(default)]
    pub(crate) kept: Option<Box<Kept>>,
}

/// The question to all members.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Asking {
    pub(crate) term: Term,
    pub(crate) since: Time,
    /// Members that have not answered.
    pub(crate) missing: NodeSet,
    /// Members that have not answered for so long that they count as dead.
    pub(crate) silent: NodeSet,
    /// The newest view of those that have.
    pub(crate) view: MemberView,
}

/// What a promotion does when it is due.
pub(crate) enum Due {
    Wait,
    /// Ask all members to promise, for this term.
    Ask(Term),
    /// Take over, if all have answered.
    TakeOver,
    /// It has failed.
    End(String),
}

impl Promotion {
    /// A person asks.
    pub(crate) fn by(ticket: Ticket, now: Time) -> Self {
        Self {
            ticket: Some(ticket),
            since: now,
            asking: None,
            kept: None,
        }
    }

    /// A store that has this has elected the node.
    pub(crate) fn elected(kept: Box<Kept>, now: Time) -> Self {
        Self {
            ticket: None,
            since: now,
            asking: None,
            kept: Some(kept),
        }
    }

    /// The person has withdrawn the request. Members that were asked already are not told; the
    /// promotion goes on.
    pub(crate) fn withdraw(this: &mut Option<Self>, ticket: Ticket) -> bool {
        let asked = |promotion: &&mut Self| promotion.ticket == Some(ticket);
        let Some(promotion) = this.as_mut().filter(asked) else {
            return false;
        };
        promotion.ticket = None;
        this.take_if(|promotion| promotion.asking.is_none());
        true
    }

    /// Goes on, with each heartbeat: the coordinator was heard then, and counts as silent or not; no
    /// term up to `fence` may be asked for.
    pub(crate) fn due(
        &mut self,
        cx: &mut Cx<'_>,
        (heard, is_silent): (Time, bool),
        fence: Term,
    ) -> Due {
        match &mut self.asking {
            None if heard > self.since => Due::End(refuse_living(&cx.shell.view, cx.now - heard)),
            None if is_silent => match fence.next(cx.me()) {
                Some(term) => Due::Ask(term),
                None => Due::End(
                    "the cluster has had all coordinators that it can have: start a new one".into(),
                ),
            },
            None => Due::Wait,
            Some(asking) => {
                if cx.now - asking.since > cx.pace().dead_after {
                    asking.give_up();
                } else if cx.shell.config.elected && asking.is_overdue(cx) {
                    cx.push(Effect::ListAsking { term: asking.term });
                }
                Due::TakeOver
            }
        }
    }

    /// Asks all members but the silent coordinator.
    pub(crate) fn ask(&mut self, cx: &Cx<'_>, term: Term) -> Vec<Step> {
        let mut missing = cx.shell.peers();
        missing.remove(cx.coordinator());
        let ask = |node| Step::Call(node, Call::TakeOver { term }, OnReply::Promised(term));
        let steps = missing.iter().map(ask).collect();
        self.asking = Some(Asking {
            term,
            since: cx.now,
            missing,
            silent: NodeSet::EMPTY,
            view: cx.shell.view.clone(),
        });
        steps
    }

    /// The question for this term, if it was asked.
    pub(crate) fn asking_in(&mut self, term: Term) -> Option<&mut Asking> {
        self.asking.as_mut().filter(|asking| asking.term == term)
    }

    /// Whether all members have answered, or are given up.
    pub(crate) fn is_known(&self) -> bool {
        let asking = self.asking.as_ref();
        asking.is_some_and(|asking| asking.missing.is_empty())
    }

    /// Answers the person who asked.
    pub(crate) fn tell(&self, cx: &mut Cx<'_>, result: Result<(), String>) {
        let Some(ticket) = self.ticket else {
            return;
        };
        match result {
            Ok(()) => cx.reply(ticket, Reply::Done),
            Err(why) => cx.refuse(ticket, Refusal::Invalid(why)),
        }
    }
}

impl Asking {
    /// Whether an elected node has waited for so long that the store is asked who lives.
    pub(crate) fn is_overdue(&self, cx: &Cx<'_>) -> bool {
        cx.now - self.since > cx.pace().heartbeat * PROMISE
    }

    /// Waits no longer for members that have not answered.
    pub(crate) fn give_up(&mut self) {
        for node in core::mem::take(&mut self.missing).iter() {
            self.silent.insert(node);
        }
    }

    /// Waits on for these members only.
    pub(crate) fn give_up_others(&mut self, nodes: NodeSet) {
        for node in self.missing.without(&nodes).iter() {
            self.missing.remove(node);
            self.silent.insert(node);
        }
    }

    /// A member has answered with the view that it knows.
    pub(crate) fn answered(&mut self, node: NodeId, view: MemberView) {
        self.missing.remove(node);
        if view.age() > self.view.age() {
            self.view = view;
        }
    }
}

pub(crate) fn not_standby(view: &MemberView) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;

    const ASKED: Time = Time(5);
    const NEXT: Term = Term::FIRST;

    fn with<T>(now: Time, work: impl FnOnce(&mut Cx<'_>) -> T) -> T {
        let (mut shell, mut effects) = (Shell::of_four(NodeId(2)), Effects::default());
        work(&mut Cx {
            now,
            shell: &mut shell,
            effects: &mut effects,
        })
    }

    #[test]
    fn only_a_coordinator_that_is_silent_is_replaced() {
        let mut promotion = Promotion::by(Ticket(1), ASKED);
        let mut due = |heard, silent| {
            with(Time(9), |cx| {
                promotion.due(cx, (heard, silent), Term::FIRST)
            })
        };
        assert!(matches!(due(ASKED, false), Due::Wait));
        assert!(matches!(due(Time(6), false), Due::End(_)));
        assert!(matches!(due(ASKED, true), Due::Ask(term) if term > Term::FIRST));
    }

    #[test]
    fn it_is_known_when_all_others_have_answered_or_are_silent() {
        let mut promotion = Promotion::by(Ticket(1), ASKED);
        assert!(!promotion.is_known());
        let steps = with(ASKED, |cx| promotion.ask(cx, NEXT));
        assert_eq!(steps.len(), 2, "neither the coordinator nor this node");
        let asking = promotion.asking_in(NEXT).unwrap();
        asking.answered(NodeId(3), MemberView::default());
        assert!(!promotion.is_known());
        let late = with(Time(u64::MAX), |cx| {
            promotion.due(cx, (Time(0), true), Term::FIRST)
        });
        assert!(matches!(late, Due::TakeOver) && promotion.is_known());
        let silent = &promotion.asking.as_ref().unwrap().silent;
        assert_eq!(*silent, NodeSet::only(NodeId(4)));
    }

    #[test]
    fn what_members_were_asked_already_goes_on_without_the_person() {
        let mut promotion = Some(Promotion::by(Ticket(1), ASKED));
        assert!(!Promotion::withdraw(&mut promotion, Ticket(2)));
        assert!(Promotion::withdraw(&mut promotion, Ticket(1)));
        assert_eq!(promotion, None);
        let mut promotion = Some(Promotion::by(Ticket(1), ASKED));
        with(ASKED, |cx| promotion.as_mut().map(|of| of.ask(cx, NEXT)));
        assert!(Promotion::withdraw(&mut promotion, Ticket(1)));
        assert!(promotion.is_some_and(|of| of.ticket.is_none()));
    }
}
