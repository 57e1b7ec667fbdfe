//! A node leaves gracefully: it hands over every page and token that it owns, then its state as the
//! home of segments, and then ends its membership. From then on the coordinator answers for its
//! segments: `Cx::home` is the acting home.

use crate::calls::Calls;
use crate::effect::Reply;
use crate::limits::{INHERITED, LEAVE_BURST};
use crate::on_reply::OnReply;
use crate::segments::Segments;
use crate::shell::Cx;
use crate::steps::Step;
use crate::sync::{Barriers, Conditions, Locks};
use pagemesh_wire::peer::{Call, Inheritance, Owner, Refusal, Subject};
use pagemesh_wire::{NodeId, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The progress of a node that leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Leaving {
    /// Leaving has begun.
    begun: bool,
    /// The request of the client that waits for the end.
    asked: Option<Ticket>,
    /// All pages and tokens are handed over: this node must not take any more.
    empty: bool,
    /// Pieces of the handover that the coordinator has not been sent yet, in this order.
    #[serde(rename = "will")]
    handover: VecDeque<Inheritance>,
}

/// What a node hands over when it leaves.
pub(crate) struct Estate<'a> {
    pub(crate) segments: &'a mut Segments,
    pub(crate) locks: &'a mut Locks,
    pub(crate) barriers: &'a Barriers,
    pub(crate) conditions: &'a Conditions,
    pub(crate) calls: &'a Calls,
    /// Pages that this node keeps for others, and nobody else has.
    pub(crate) only_copies: usize,
}

impl Leaving {
    /// A client asks this node to leave. If it is `alone`, there is nobody to hand over to.
    pub(crate) fn begin(&mut self, ticket: Ticket, alone: bool) {
        self.begun = true;
        self.asked = Some(ticket);
        self.empty = alone;
    }

    /// Whether this node is leaving or has left.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether all is handed over, so that this node must not take any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.empty
    }

    /// The coordinator went silent while this node leaves: refuses the client's request, so that it
    /// does not wait forever. This node goes on handing over, and leaves if it ever can.
    pub(crate) fn despair(&mut self, cx: &mut Cx<'_>) {
        if let Some(ticket) = self.asked.take() {
            let why = "the coordinator has stopped answering; this node leaves as soon as it does";
            cx.refuse(ticket, Refusal::CannotLeave(why.into()));
        }
    }

    /// This node is no member any more. Returns whether a client had asked for that, and is told.
    pub(crate) fn end(&mut self, cx: &mut Cx<'_>) -> bool {
        let asked = self.asked.take_if(|_| self.empty);
        if let Some(ticket) = asked {
            cx.reply(ticket, Reply::Done);
        }
        asked.is_some()
    }

    /// Hands over more while this node leaves; called after each input.
    pub(crate) fn go_on(&mut self, cx: &mut Cx<'_>, estate: Estate<'_>) -> Option<Step> {
        if !self.begun || self.empty {
            return None;
        }
        let Estate {
            segments, locks, ..
        } = estate;
        let mut left = locks.hand_over(cx, segments) + estate.only_copies;
        for segment in segments.values_mut() {
            let successor = cx.successor(segment.info.id);
            left += segment.policy.hand_over(cx, successor, LEAVE_BURST);
        }
        if left > 0 {
            return None;
        }
        self.empty = true;
        let owners = owners(segments, locks, cx.me());
        // Served calls go before arrivals, because an arrival counts only if its call is known to
        // wait.
        self.handover = pieces(owners, Inheritance::Owners)
            .chain(pieces(estate.calls.handover(), Inheritance::Served))
            .chain(pieces(estate.barriers.handover(), Inheritance::Arrivals))
            .chain(pieces(estate.conditions.handover(), Inheritance::Waiters))
            .collect();
        Some(self.next(cx))
    }

    /// Sends the coordinator the next piece; after the last, ends the membership.
    pub(crate) fn next(&mut self, cx: &Cx<'_>) -> Step {
        let (call, then) = match self.handover.pop_front() {
            Some(piece) => (Call::Inherit(piece), OnReply::HandedOver),
            None => (Call::Leave, OnReply::Left),
        };
        Step::Call(cx.coordinator(), call, then)
    }
}

/// Which nodes have the tokens and pages of this home.
fn owners(segments: &Segments, locks: &Locks, me: NodeId) -> Vec<Owner> {
    let mut owners = locks.handover(me);
    let mine = segments.iter().filter(|(id, _)| id.home() == me);
    for (id, segment) in mine {
        let known = segment.policy.handover(me).into_iter();
        owners.extend(known.map(|(page, version, node)| Owner {
            subject: Subject::Page { segment: *id, page },
            node,
            version,
        }));
    }
    owners
}

/// Parts of a list that fit into one message each.
fn pieces<T: Clone>(
    all: Vec<T>,
    piece: impl Fn(Vec<T>) -> Inheritance,
) -> impl Iterator<Item = Inheritance> {
    let pieces: Vec<_> = all
        .chunks(INHERITED)
        .map(|part| piece(part.to_vec()))
        .collect();
    pieces.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Caller;
    use crate::effect::{Effect, Effects};
    use crate::shell::Shell;
    use crate::time::Time;
    use pagemesh_wire::{CallId, SegmentId, SyncKey};

    const TICKET: Ticket = Ticket(5);

    fn with<T>(work: impl FnOnce(&mut Cx<'_>) -> T) -> (T, Vec<Effect>) {
        let (mut shell, mut effects) = (Shell::of_four(NodeId(2)), Effects::default());
        let result = work(&mut Cx {
            now: Time(0),
            shell: &mut shell,
            effects: &mut effects,
        });
        (result, effects.drain().collect())
    }

    /// Goes on as the home of this many waiters of a condition, and keeps this many pages.
    fn go_on(leaving: &mut Leaving, waiters: usize, only_copies: usize) -> Option<Step> {
        let mut conditions = Conditions::default();
        for call in 0..waiters {
            let caller = Caller {
                node: NodeId(3),
                call: CallId(call as u64),
            };
            let key = SyncKey {
                segment: SegmentId::new(NodeId(2), 1),
                number: 0,
            };
            conditions.wait(caller, key);
        }
        let estate = Estate {
            segments: &mut Segments::default(),
            locks: &mut Locks::default(),
            barriers: &Barriers::default(),
            conditions: &conditions,
            calls: &Calls::default(),
            only_copies,
        };
        with(|cx| leaving.go_on(cx, estate)).0
    }

    #[test]
    fn a_home_hands_over_in_pieces_and_leaves_after_the_last() {
        let mut leaving = Leaving::default();
        assert_eq!(go_on(&mut leaving, INHERITED + 1, 0), None, "nobody asked");
        leaving.begin(TICKET, false);
        assert_eq!(
            go_on(&mut leaving, INHERITED + 1, 1),
            None,
            "one copy is here"
        );
        assert!(!leaving.is_empty());
        let mut next = go_on(&mut leaving, INHERITED + 1, 0);
        assert!(leaving.is_empty());
        let mut sizes = Vec::new();
        while let Some(Step::Call(NodeId(1), Call::Inherit(piece), OnReply::HandedOver)) = next {
            let Inheritance::Waiters(waiters) = piece else {
                panic!("{piece:?}");
            };
            sizes.push(waiters.len());
            next = Some(with(|cx| leaving.next(cx)).0);
        }
        assert_eq!(sizes, [INHERITED, 1]);
        assert_eq!(
            next,
            Some(Step::Call(NodeId(1), Call::Leave, OnReply::Left))
        );
        assert_eq!(go_on(&mut leaving, 0, 0), None, "it is said once");
    }

    #[test]
    fn who_asked_is_told_at_the_end_unless_the_coordinator_was_silent() {
        let mut leaving = Leaving::default();
        leaving.begin(TICKET, false);
        assert!(!with(|cx| leaving.end(cx)).0, "it was expelled before");
        leaving.begin(TICKET, true);
        let (told, effects) = with(|cx| leaving.end(cx));
        assert!(told && matches!(effects[..], [Effect::Reply { ticket: TICKET, .. }]));
        leaving.begin(TICKET, false);
        assert_eq!(with(|cx| leaving.despair(cx)).1.len(), 1);
        leaving.empty = true;
        assert_eq!(with(|cx| leaving.end(cx)), (false, vec![]));
    }
}
