//! The home searches for the owner of a subject to which no owner hint leads.

use super::{Extra, Ownership};
use crate::backoff::Backoff;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::peer::{Locate, Located, Message, Regain, Spare, Subject, Waiter};
use pagemesh_wire::{NodeId, NodeSet, RequestId, Version};
use serde::{Deserialize, Serialize};

/// The home asks all members what they know of a subject, because no owner hint leads to its owner.
/// It decides when all have answered, and all answers come from nodes that know at least the member
/// view of the question: none of them can accept a grant from a gone node any more. Versions rise
/// along the chain of owners, so the newest version in the answers names the last owner that any
/// member knows. If that node is gone, the subject has no owner. It has none either if that node
/// denies that version in two consecutive rounds while no node repeats a grant to it: the grant was
/// lost with its sender.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Search {
    request: RequestId,
    missing: NodeSet,
    /// The newest version known, and its owner.
    best: (Version, NodeId),
    /// Nodes with copies; each could become owner from its copy.
    copies: NodeSet,
    /// The node that could become owner from the stash of the newest grant that was not taken, and
    /// that version.
    stash: Option<(Version, NodeId)>,
    /// What nodes said of replicas, in a segment that has them.
    #[serde(default)]
    replicas: Option<Replicas>,
    /// Nodes that said that they do not own the newest version they know.
    denying: NodeSet,
    /// A grant of the newest version known is being repeated.
    passing: bool,
    /// The newest version known when its owner denied it last, and in how many consecutive rounds
    /// it did. A newer version restarts the count: its owner may have answered just before the
    /// grant arrived.
    denials: (Version, u32),
    backoff: Backoff,
}

/// What the answers say of replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Replicas {
    /// The newest replica, and who has it.
    newest: Option<(Version, NodeId)>,
    /// The newest version that was in any node's memory.
    seen: Version,
    /// No node died before its backup had all that others had seen.
    sure: bool,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The search goes on.
    NotYet,
    /// The owner is known again; all waiting requests were forwarded to it.
    Owner,
    /// The subject has no owner, but this node may become owner with its spare.
    Regain(NodeId, Regain),
    /// The subject has no owner. Nobody has seen anything but zeros, of which no contents are left.
    Zeros(Version),
    /// The subject is lost: this node owned this version last, and no survivor has a copy.
    Nobody(NodeId, Version),
}

impl<X: Extra> Ownership<X> {
    /// The home searches for the owner on behalf of `waiter`.
    pub(crate) fn search_for(
        &mut self,
        cx: &mut Cx<'_>,
        subject: Subject,
        waiter: Waiter,
        spare: Spare,
    ) -> Found {
        assert_eq!(
            cx.home(subject.segment()),
            cx.me(),
            "only the home searches"
        );
        self.enqueue(waiter);
        if self.busy().is_some_and(|busy| busy.search.is_some()) {
            return Found::NotYet;
        }
        let backoff = cx.backoff(Timer::Subject(subject));
        self.busy_mut().search = Some(Search::new(backoff));
        self.search_round(cx, subject, spare)
    }

    /// Starts a round: notes this node's own knowledge, and asks all other members.
    fn search_round(&mut self, cx: &mut Cx<'_>, subject: Subject, spare: Spare) -> Found {
        let request = cx.next_request();
        let here = self.known(subject, request, spare);
        let Some(search) = self.busy_mut().search.as_mut() else {
            return Found::NotYet;
        };
        *search = Search {
            request,
            missing: cx.shell.peers(),
            denials: search.denials,
            ..Search::new(search.backoff.clone())
        };
        search.note(cx.me(), &here);
        let locate = Locate {
            subject,
            request,
            epoch: cx.shell.view.epoch,
        };
        for node in search.missing.iter() {
            cx.send(node, Message::Locate(locate));
        }
        self.conclude(cx, subject, spare == Spare::Copy)
    }

    /// Answers the home's search, unless this node knows an older member view.
    pub(crate) fn answer(&self, cx: &mut Cx<'_>, from: NodeId, locate: &Locate, spare: Spare) {
        if cx.shell.view.epoch < locate.epoch {
            return;
        }
        let located = self.known(locate.subject, locate.request, spare);
        cx.send(from, Message::Located(located));
    }

    /// This node's answer in a round of a search.
    fn known(&self, subject: Subject, request: RequestId, spare: Spare) -> Located {
        Located {
            subject,
            request,
            version: self.version,
            owner: self.hint,
            spare,
            passing: self.passing().is_some(),
        }
    }

    /// Handles a member's answer. `reads`: this node holds a copy, so its version stays that of the
    /// copy, because the invalidation is yet to come.
    pub(crate) fn located(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        located: &Located,
        reads: bool,
    ) -> Found {
        let Some(search) = self.busy_if_any().and_then(|busy| busy.search.as_mut()) else {
            return Found::NotYet;
        };
        if search.request != located.request || !search.missing.remove(from) {
            return Found::NotYet;
        }
        search.note(from, located);
        self.conclude(cx, located.subject, reads)
    }

    /// Decides, once all members have answered.
    fn conclude(&mut self, cx: &mut Cx<'_>, subject: Subject, reads: bool) -> Found {
        let (known, hint) = (self.version, self.hint);
        let Some(search) = self.busy_if_any().and_then(|busy| busy.search.as_mut()) else {
            return Found::NotYet;
        };
        if !search.missing.is_empty() {
            return Found::NotYet;
        }
        let (version, owner) = search.best;
        let me = cx.me();
        if known > version && hint != me {
            // Since this round began, this node has heard of a newer owner, which it must not
            // forget: a copy that the answers allow may be outdated.
            if cx.is_gone(hint) {
                search.begin_anew();
                return Found::NotYet;
            }
            self.busy_mut().search = None;
            self.send_on(cx, subject);
            return Found::Owner;
        }
        let denies = search.denying.contains(owner);
        let denied = denies && !search.passing;
        search.denials = match search.denials {
            _ if !denied => (Version(0), 0),
            (before, rounds) if before == version => (version, rounds + 1),
            _ => (version, 1),
        };
        if !cx.is_gone(owner) && denies && search.denials.1 <= 1 {
            // The grant is on its way to the owner, or may have arrived just after it answered.
            return Found::NotYet;
        }
        if owner == me && !denied {
            // A grant to this node is on its way.
            return Found::NotYet;
        }
        if !cx.is_gone(owner) && !denied {
            self.busy_mut().search = None;
            self.hint = owner;
            if !reads {
                self.version = version;
            }
            self.send_on(cx, subject);
            return Found::Owner;
        }
        if let Some(node) = search.start() {
            let mut copies = search.copies.clone();
            copies.remove(node);
            let version = version.max(search.newest_replica());
            // The next round will find the new owner, or repeat this.
            return Found::Regain(
                node,
                Regain {
                    subject,
                    version: version.next(),
                    copies: copies.clone(),
                },
            );
        }
        let zeros = search.is_zeros();
        self.busy_mut().search = None;
        match zeros {
            true => Found::Zeros(version),
            false => Found::Nobody(owner, version),
        }
    }

    /// Ends the search if this node is the owner; starts the next round if that is due.
    pub(crate) fn search_due(&mut self, cx: &mut Cx<'_>, subject: Subject, spare: Spare) -> Found {
        let owner = self.hint == cx.me();
        let Some(busy) = self.busy_if_any() else {
            return Found::NotYet;
        };
        let Some(search) = &mut busy.search else {
            return Found::NotYet;
        };
        if owner {
            busy.search = None;
            return Found::Owner;
        }
        if cx.fire(&mut search.backoff, Timer::Subject(subject)) {
            return self.search_round(cx, subject, spare);
        }
        Found::NotYet
    }
}

impl Replicas {
    const NONE: Self = Self {
        newest: None,
        seen: Version(0),
        sure: true,
    };

    fn current(&self) -> Option<(Version, NodeId)> {
        self.newest.filter(|(version, _)| *version >= self.seen)
    }
}

impl Search {
    fn new(backoff: Backoff) -> Self {
        Self {
            request: RequestId::NONE,
            missing: NodeSet::EMPTY,
            best: (Version(0), NodeId::NONE),
            copies: NodeSet::EMPTY,
            stash: None,
            replicas: None,
            denying: NodeSet::EMPTY,
            passing: false,
            denials: (Version(0), 0),
            backoff,
        }
    }

    /// Lives are over: answers that name them are asked for again.
    pub(super) fn forget_names(&mut self, over: &NodeSet) {
        let newest = self.replicas.as_ref().and_then(|replicas| replicas.newest);
        let keeps = newest.map_or(NodeSet::EMPTY, |(_, node)| NodeSet::only(node));
        let named = NodeSet::only(self.best.1)
            .union(&self.copies)
            .union(&keeps)
            .union(&self.denying);
        if named.without(over) != named {
            *self = Self::new(self.backoff.clone());
        }
    }

    /// Makes the next round ask all members again, because answers received so far no longer hold.
    pub(super) fn begin_anew(&mut self) {
        self.request = RequestId::NONE;
    }

    /// The node that can become owner. A copy that was not invalidated is current. A stashed grant
    /// is current only if no node knows a newer version: otherwise it was taken and passed on. A
    /// replica is current if it is as new as all that nodes have seen: who owned a newer version has
    /// shown it to nobody.
    fn start(&self) -> Option<NodeId> {
        let copy = self.copies.iter().last();
        // A replica of that version, or a newer one, shows as well that the grant was taken.
        let newest = self.best.0.max(self.newest_replica().next());
        let stash = self.stash.filter(|(version, _)| *version == newest);
        let replica = self.replicas.as_ref().and_then(Replicas::current);
        copy.or(stash.or(replica).map(|(_, node)| node))
    }

    /// Its owner may have changed a page more often than anybody but its backup knows.
    fn newest_replica(&self) -> Version {
        let replicas = self.replicas.as_ref();
        let newest = replicas.and_then(|replicas| replicas.newest);
        newest.map_or(Version(0), |(version, _)| version)
    }

    /// Whether nobody ever saw anything but zeros.
    fn is_zeros(&self) -> bool {
        let untouched = |replicas: &Replicas| {
            replicas.newest.is_none() && replicas.seen == Version(0) && replicas.sure
        };
        self.replicas.as_ref().is_some_and(untouched)
    }

    fn note(&mut self, node: NodeId, located: &Located) {
        if located.spare == Spare::Copy {
            self.copies.insert(node);
        }
        if located.spare == Spare::Stash {
            self.stash = self.stash.max(Some((located.version, node)));
        }
        if let Spare::Replica {
            version,
            seen,
            sure,
        } = located.spare
        {
            let replicas = self.replicas.get_or_insert(Replicas::NONE);
            replicas.newest = replicas.newest.max(version.map(|version| (version, node)));
            replicas.seen = replicas.seen.max(seen);
            replicas.sure &= sure;
        }
        if located.owner != node {
            self.denying.insert(node);
        }
        let newest = (located.version, located.owner);
        if newest > self.best {
            self.best = newest;
            self.passing = false;
        }
        if newest == self.best {
            self.passing |= located.passing;
        }
    }
}
