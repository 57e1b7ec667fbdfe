//! Ownership of subjects: pages and lock tokens move from node to node, one owner at a time.
//!
//! Every subject has exactly one owner, or is on its way in exactly one [`Pass`] (*INV-one-owner*).
//! Every other node holds an owner *hint* together with the version since which that node owned the
//! subject. Versions only rise along the chain of owners, so each node that forwards an [`Ask`]
//! sends it to a node that knows more (*INV-hint-nearer*): hints cannot form a circle.
//!
//! A request that is not served at once waits in the owner's queue, first come first served, and
//! the queue travels with ownership (*INV-queue-travels*).

use crate::backoff::Backoff;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::peer::{Access, Ask, Contents, Message, Pass, PassAck, Subject, Waiter};
use pagemesh_wire::{NodeId, NodeSet, RequestId, Version};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use crate::time::Time;

mod search;

pub(crate) use search::{Found, Search};

/// State that a kind of subject adds to operations under way.
pub(crate) trait Extra: Default + PartialEq {
    /// Whether nothing is under way.
    fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// The message that carries a request to another node.
    fn say(&self, ask: Ask) -> Message {
        Message::Ask(ask)
    }
}

/// One node's knowledge of who owns a subject.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Ownership<X> {
    /// The newest version this node knows.
    pub(crate) version: Version,
    /// The probable owner since that version; this node itself if it is the owner.
    pub(crate) hint: NodeId,
    /// The operations under way; `None` for most subjects.
    busy: Option<Box<Busy<X>>>,
}

/// The operations under way on one subject at one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Busy<X> {
    /// Requests that wait here. On a node that awaits ownership: requests that it will serve then.
    pub(crate) queue: VecDeque<Waiter>,
    /// This node's own request.
    pub(crate) want: Option<PendingRequest>,
    /// Ownership that was given away and is not acknowledged yet.
    pub(crate) passing: Option<Passing>,
    /// At the home: the search for the owner.
    pub(crate) search: Option<Search>,
    /// State that the policy or the lock adds.
    pub(crate) more: X,
}

impl<X: Default> Default for Busy<X> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            want: None,
            passing: None,
            search: None,
            more: X::default(),
        }
    }
}

impl<X: Extra> Busy<X> {
    fn is_idle(&self) -> bool {
        self.want.is_none()
            && self.queue.is_empty()
            && self.passing.is_none()
            && self.search.is_none()
            && self.more.is_idle()
    }
}

/// This node's own request for a subject.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct PendingRequest {
    pub(crate) waiter: Waiter,
    pub(crate) since: Time,
    pub(crate) backoff: Backoff,
    /// The version of a grant that has not arrived yet, and the readers that have already
    /// acknowledged its invalidations.
    pub(crate) early: Option<(Version, NodeSet)>,
}

/// A grant under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Passing {
    pub(crate) to: NodeId,
    pub(crate) pass: Pass,
    pub(crate) backoff: Backoff,
}

/// Hop count of an [`Ask`] for which no node knows the way to the owner: the home must search.
pub(crate) const NO_ROUTE: u8 = u8::MAX;

/// The treatment of an [`Ask`] that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// It is in the queue here, perhaps since before: the caller checks whether it can be served.
    Queued,
    /// The requesting node is the receiver of a grant that may have been lost: repeat the grant.
    PassAgain,
    /// It was forwarded to a node that knows more, or needs no answer.
    Gone,
    /// The owner hint names a node that is gone; the home must search.
    Unknown,
}

impl<X: Extra> Ownership<X> {
    /// The initial state: the home owns the subject.
    pub(crate) fn new(home: NodeId) -> Self {
        Self {
            version: Version(0),
            hint: home,
            busy: None,
        }
    }

    pub(crate) fn busy(&self) -> Option<&Busy<X>> {
        self.busy.as_deref()
    }

    pub(crate) fn busy_if_any(&mut self) -> Option<&mut Busy<X>> {
        self.busy.as_deref_mut()
    }

    pub(crate) fn busy_mut(&mut self) -> &mut Busy<X> {
        self.busy.get_or_insert_default()
    }

    /// Frees the state of operations under way if there are none.
    pub(crate) fn settle(&mut self) {
        if self.busy.as_ref().is_some_and(|busy| busy.is_idle()) {
            self.busy = None;
        }
    }

    pub(crate) fn want(&self) -> Option<&PendingRequest> {
        self.busy.as_ref()?.want.as_ref()
    }

    /// Whether `request` is this node's open request.
    pub(crate) fn wants(&self, request: RequestId) -> bool {
        self.want()
            .is_some_and(|want| want.waiter.request == request)
    }

    pub(crate) fn passing(&self) -> Option<&Passing> {
        self.busy.as_ref()?.passing.as_ref()
    }

    pub(crate) fn queue_len(&self) -> usize {
        self.busy.as_ref().map_or(0, |busy| busy.queue.len())
    }

    /// Opens this node's request for the subject, of which no other may be open. The request is
    /// repeated as `backoff` says.
    pub(crate) fn request(
        &mut self,
        cx: &mut Cx<'_>,
        subject: Subject,
        backoff: Backoff,
        (access, have): (Access, Option<Version>),
    ) -> Waiter {
        let waiter = Waiter {
            node: cx.me(),
            request: cx.next_request(),
            access,
            have,
        };
        let want = PendingRequest {
            waiter,
            since: cx.now,
            backoff,
            early: None,
        };
        let slot = &mut self.busy_mut().want;
        assert!(slot.is_none(), "one request at a time for {subject:?}");
        *slot = Some(want);
        waiter
    }

    /// Forwards `waiter` towards the owner; if the hint is of no use, to the home, which searches.
    /// Returns false if neither is possible: the home, too, is gone or is this node. A node that
    /// this node does not know yet will become known: the request is repeated anyway.
    pub(crate) fn forward(
        &self,
        cx: &mut Cx<'_>,
        subject: Subject,
        waiter: Waiter,
        hops: u8,
        by_library: bool,
    ) -> bool {
        let home = cx.home(subject.segment());
        // The presumed owner itself asks: its grant is on its way, unless the granting node has
        // died and the grant was lost with it.
        let orphaned = self.hint == waiter.node && !by_library && cx.somebody_died();
        let trail = self.hint != cx.me() && !cx.is_gone(self.hint) && !orphaned;
        let (to, since, hops) = if trail && hops < NO_ROUTE {
            (self.hint, self.version, hops)
        } else if home != cx.me() && !cx.is_gone(home) {
            (home, Version(0), NO_ROUTE)
        } else {
            return false;
        };
        // A request returns to its own node only if the library site says that this node is the
        // owner, or if that node is the home, which must search.
        if to != waiter.node || by_library || hops == NO_ROUTE {
            let ask = Ask {
                subject,
                waiter,
                since,
                hops,
                by_library,
            };
            let said = self.busy().map(|busy| busy.more.say(ask));
            cx.send(to, said.unwrap_or(Message::Ask(ask)));
        }
        true
    }

    /// Puts a waiter into the queue, unless its node is in the queue already; a newer request of
    /// the same node replaces the older one.
    pub(crate) fn enqueue(&mut self, waiter: Waiter) {
        let queue = &mut self.busy_mut().queue;
        match queue.iter_mut().find(|other| other.node == waiter.node) {
            Some(other) if other.request < waiter.request => *other = waiter,
            Some(_) => {}
            None => queue.push_back(waiter),
        }
    }

    /// Handles an [`Ask`] of another node.
    pub(crate) fn route(&mut self, cx: &mut Cx<'_>, ask: &Ask) -> Route {
        let waiter = ask.waiter;
        if !cx.is_alive(waiter.node) {
            // The requesting node is dead for this node; the forwarding node does not know that
            // yet. Or it is so new that this node does not know it, and could send it nothing: it
            // repeats its request.
            return Route::Gone;
        }
        if let Some(passing) = self.passing()
            && passing.to == waiter.node
            && passing.pass.request <= waiter.request
        {
            return Route::PassAgain;
        }
        if self.hint == cx.me() {
            self.enqueue(waiter);
            return Route::Queued;
        }
        if ask.hops == NO_ROUTE {
            return Route::Unknown;
        }
        let awaits_ownership = self
            .want()
            .is_some_and(|want| want.waiter.access == Access::Write);
        // If the sender names a newer version than this node knows, a grant to this node is on its
        // way. If this node did not ask for ownership, its own hint leads back to where that grant
        // comes from, so only the home can help.
        let grant_comes = ask.since > self.version;
        if grant_comes && awaits_ownership {
            self.enqueue(waiter);
            return Route::Gone;
        }
        let hops = if grant_comes { NO_ROUTE } else { ask.hops + 1 };
        if self.forward(cx, ask.subject, waiter, hops, ask.by_library) {
            Route::Gone
        } else {
            Route::Unknown
        }
    }

    /// Passes ownership and the queue to `to`.
    pub(crate) fn pass(&mut self, cx: &mut Cx<'_>, to: NodeId, pass: Pass) {
        assert_eq!(
            self.hint,
            cx.me(),
            "INV-one-owner: only the owner passes {:?}",
            pass.subject
        );
        let backoff = cx.backoff(Timer::Subject(pass.subject));
        self.version = pass.version;
        self.hint = to;
        let busy = self.busy_mut();
        assert!(
            busy.passing.is_none(),
            "one grant at a time of {:?}",
            pass.subject
        );
        busy.passing = Some(Passing { to, pass, backoff });
    }

    /// A grant arrived. Returns true if it is new: this node is the owner now, and its queue has
    /// the requests that waited at the previous owner before those that arrived here. The caller
    /// must then [`acknowledge`] it, after it has served the threads that wait here. If it is not
    /// new, it is acknowledged here.
    pub(crate) fn accept(&mut self, cx: &mut Cx<'_>, from: NodeId, pass: &Pass) -> bool {
        if self.hint == cx.me() && pass.version > self.version {
            // Two owners: only a faulty or hostile peer says so.
            return false;
        }
        if pass.version <= self.version {
            acknowledge(cx, from, pass);
            return false;
        }
        let me = cx.me();
        self.version = pass.version;
        self.hint = me;
        let busy = self.busy_mut();
        // Ownership came back, so the receiver of the last grant from here has got that grant.
        busy.passing = None;
        busy.search = None;
        let early = core::mem::take(&mut busy.queue);
        for waiter in pass.queue.iter().copied().chain(early) {
            if waiter.node != me && !cx.is_gone(waiter.node) {
                self.enqueue(waiter);
            }
        }
        true
    }

    /// The receiver of a grant acknowledged it. Returns true if the grant was still unacknowledged.
    pub(crate) fn passed(&mut self, cx: &mut Cx<'_>, from: NodeId, version: Version) -> bool {
        let passing = self.busy_if_any().and_then(|busy| {
            busy.passing
                .take_if(|passing| passing.to == from && passing.pass.version == version)
        });
        if let Some(passing) = &passing {
            cx.end(&passing.backoff, Timer::Subject(passing.pass.subject));
        }
        passing.is_some()
    }

    /// This node awaits ownership no longer: forwards the requests that waited for that to the
    /// owner.
    pub(crate) fn send_on(&mut self, cx: &mut Cx<'_>, subject: Subject) {
        if self.hint == cx.me() {
            return;
        }
        let Some(busy) = self.busy_if_any() else {
            return;
        };
        for waiter in core::mem::take(&mut busy.queue) {
            self.forward(cx, subject, waiter, 1, false);
        }
    }

    /// A member is gone: removes its request from the queue, and restarts a search.
    pub(crate) fn forget_node(&mut self, node: NodeId) {
        if let Some(busy) = self.busy_if_any() {
            busy.queue.retain(|waiter| waiter.node != node);
            // Answers that the search has received may depend on that node.
            if let Some(search) = &mut busy.search {
                search.begin_anew();
            }
        }
    }

    /// Lives are over, and their numbers are to be forgotten: where one of them is the last owner that
    /// this node knows, it remembers that the last owner is gone, and not which node that was. The
    /// home is named by the subject itself, and stays.
    pub(crate) fn forget_names(&mut self, home: NodeId, over: &NodeSet) {
        if over.contains(self.hint) && self.hint != home {
            self.hint = NodeId::NONE;
        }
        if let Some(search) = self.busy_if_any().and_then(|busy| busy.search.as_mut()) {
            search.forget_names(over);
        }
    }

    /// Takes over a leaving home's knowledge of the owner, if it is newer.
    pub(crate) fn learn(&mut self, cx: &Cx<'_>, node: NodeId, version: Version) {
        if version > self.version && self.hint != cx.me() && node != cx.me() {
            self.version = version;
            self.hint = node;
        }
    }

    /// True if ownership never left the home, and the home left gracefully and handed its directory
    /// over to its successor: the page is in its initial state.
    pub(crate) fn is_untouched(&self, cx: &Cx<'_>, last: NodeId, version: Version) -> bool {
        version == Version(0) && self.version == Version(0) && cx.has_left(last)
    }

    /// The home made this node the owner again.
    pub(crate) fn regain(&mut self, cx: &Cx<'_>, version: Version) {
        self.version = version;
        self.hint = cx.me();
        self.busy_mut().passing = None;
    }
}

/// Tells the granting node that the grant has arrived.
pub(crate) fn acknowledge(cx: &mut Cx<'_>, from: NodeId, pass: &Pass) {
    let (subject, version) = (pass.subject, pass.version);
    cx.send(from, Message::PassAck(PassAck { subject, version }));
}

/// A grant with neither contents nor readers nor a queue, for the caller to complete.
pub(crate) fn grant(subject: Subject, request: RequestId, version: Version) -> Pass {
    Pass {
        subject,
        request,
        version,
        contents: Contents::None,
        pristine: false,
        recovered: false,
        awaiting: NodeSet::EMPTY,
        queue: Vec::new(),
    }
}
