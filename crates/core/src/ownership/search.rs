//! The home looks for the owner of a subject whose trail is cold.

use super::{Extra, Ownership};
use crate::backoff::Backoff;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::peer::{Locate, Located, Message, Regain, Spare, Subject, Waiter};
use pagemesh_wire::{NodeId, NodeSet, RequestId, Version};
use serde::{Deserialize, Serialize};

/// The home asks everyone what they know of a subject, since the trail to its
/// owner is cold. It decides when all have answered, and all answers come from
/// nodes that know at least the member view of the question: nobody can accept
/// a grant from a gone node any more. Versions rise along the chain of owners,
/// so the newest version anybody knows names the last owner anybody can name.
/// If that one is gone, nobody owns the subject; nor if that one denies that version in two
/// rounds running while nobody repeats a grant to it: the grant was lost with
/// its sender.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Search {
    request: RequestId,
    missing: NodeSet,
    /// The newest version known, and its owner.
    best: (Version, NodeId),
    /// Who holds copies, and could start again from one.
    copies: NodeSet,
    /// Who could start again from the newest grant that nobody took.
    stash: Option<(Version, NodeId)>,
    /// Who said it does not own the newest version it knows.
    denying: NodeSet,
    /// A grant of the newest version known is being repeated.
    passing: bool,
    /// The newest version known when its owner denied it last, and in how many rounds
    /// running that was so. Another version has another owner, who may have answered
    /// just before it came.
    denials: (Version, u32),
    backoff: Backoff,
}

/// What became of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Go on waiting.
    NotYet,
    /// The owner is known again; everyone who waited was sent there.
    Owner,
    /// Nobody owns it, but this node may start again from what it has.
    Regain(NodeId, Regain),
    /// Nobody has it: it was lost with this node, which owned this version.
    Nobody(NodeId, Version),
}

impl<X: Extra> Ownership<X> {
    /// The home looks for the owner on behalf of `waiter`.
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

    /// Asks everyone, beginning with what this node itself knows.
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

    /// What this node says in a round of a search.
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

    /// Somebody answered the search. `reads`: this node holds a copy, so its
    /// version stays that of the copy; the invalidation is yet to come.
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

    /// Decides, once everyone has answered.
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
            // Since this round began it has heard of a newer owner, which it must not
            // forget: a copy that the others' answers allow may be outdated.
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
            // Its grant is on its way, or may have arrived just after it answered.
            return Found::NotYet;
        }
        if owner == me && !denied {
            // A grant to this very node is on its way.
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
            let mut copies = search.copies;
            copies.remove(node);
            // The next round will find the new owner, or repeat this.
            return Found::Regain(
                node,
                Regain {
                    subject,
                    version: version.next(),
                    copies,
                },
            );
        }
        self.busy_mut().search = None;
        Found::Nobody(owner, version)
    }

    /// Looks at the search when its time has come.
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

impl Search {
    fn new(backoff: Backoff) -> Self {
        Self {
            request: RequestId::NONE,
            missing: NodeSet::EMPTY,
            best: (Version(0), NodeId::NONE),
            copies: NodeSet::EMPTY,
            stash: None,
            denying: NodeSet::EMPTY,
            passing: false,
            denials: (Version(0), 0),
            backoff,
        }
    }

    /// Asks again: what it heard does not hold any more.
    pub(super) fn begin_anew(&mut self) {
        self.request = RequestId::NONE;
    }

    /// Who can start again. A copy that nobody invalidated is current; a grant is,
    /// if nobody knows of a newer owner: else it was taken and passed on.
    fn start(&self) -> Option<NodeId> {
        let copy = self.copies.iter().last();
        let stash = self.stash.filter(|(version, _)| *version == self.best.0);
        copy.or(stash.map(|(_, node)| node))
    }

    fn note(&mut self, node: NodeId, located: &Located) {
        if located.spare == Spare::Copy {
            self.copies.insert(node);
        }
        if located.spare == Spare::Stash {
            self.stash = self.stash.max(Some((located.version, node)));
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
