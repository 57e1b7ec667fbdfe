//! What moves from node to node, one owner at a time: pages and lock tokens.
//!
//! Every subject has exactly one owner, or is on its way in exactly one
//! [`Pass`] (*INV-one-owner*). Everyone else holds an owner *hint* together with
//! the version since which that node owned it. Versions only rise along the
//! chain of owners, so each hop of a forwarded [`Ask`] knows more than the one
//! before (*INV-hint-nearer*): hints cannot form a circle.
//!
//! Whoever is not served at once waits in the owner's queue, first come first
//! served, and the queue travels with ownership (*INV-queue-travels*).

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

/// What a subject adds to what is under way about it.
pub(crate) trait Extra: Default + PartialEq {
    /// Whether nothing is under way.
    fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// How a wish is said to others.
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
    /// Everything under way; most subjects have nothing under way.
    busy: Option<Box<Busy<X>>>,
}

/// What is under way about a subject on one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Busy<X> {
    /// Who waits here; on a node that awaits ownership, who will wait then.
    pub(crate) queue: VecDeque<Waiter>,
    /// This node's own wish.
    pub(crate) want: Option<Want>,
    /// Given away, not acknowledged yet.
    pub(crate) passing: Option<Passing>,
    /// At the home: the owner is being looked for.
    pub(crate) search: Option<Search>,
    /// What the policy or the lock adds.
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

/// This node's wish for a subject.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Want {
    pub(crate) waiter: Waiter,
    pub(crate) since: Time,
    pub(crate) backoff: Backoff,
    /// Invalidations already acknowledged for a version whose grant is still on its way.
    pub(crate) early: Option<(Version, NodeSet)>,
}

/// A grant under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Passing {
    pub(crate) to: NodeId,
    pub(crate) pass: Pass,
    pub(crate) backoff: Backoff,
}

/// Hop count of an [`Ask`] whose trail went cold: the home must search.
pub(crate) const ASTRAY: u8 = u8::MAX;

/// What became of an [`Ask`] that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// It waits here now (or did before): see whether it can be served.
    Queued,
    /// Its sender is the receiver of a grant that may have been lost: repeat it.
    PassAgain,
    /// It went on to a node that knows more, or need not be answered.
    Gone,
    /// The trail ends at a node that is gone; the home must search.
    Astray,
}

impl<X: Extra> Ownership<X> {
    /// Before anything happened, the home owns the subject.
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

    /// Frees what nothing needs any more.
    pub(crate) fn settle(&mut self) {
        if self.busy.as_ref().is_some_and(|busy| busy.is_idle()) {
            self.busy = None;
        }
    }

    pub(crate) fn want(&self) -> Option<&Want> {
        self.busy.as_ref()?.want.as_ref()
    }

    /// Whether this is the wish of this node that is open.
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

    /// This node wishes for the subject; it has no other wish open. The wish is repeated
    /// as `backoff` says.
    pub(crate) fn wish(
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
        let want = Want {
            waiter,
            since: cx.now,
            backoff,
            early: None,
        };
        let slot = &mut self.busy_mut().want;
        assert!(slot.is_none(), "one wish at a time for {subject:?}");
        *slot = Some(want);
        waiter
    }

    /// Sends `waiter` towards the owner; if the trail is cold, to the home, which
    /// searches. False if nobody can help: the home, too, is gone or is this
    /// node. A node we have not heard of yet will be heard of: the wish is
    /// repeated anyway.
    pub(crate) fn forward(
        &self,
        cx: &mut Cx<'_>,
        subject: Subject,
        waiter: Waiter,
        hops: u8,
        by_library: bool,
    ) -> bool {
        let home = cx.home(subject.segment());
        // Who is said to own it asks for it: the grant is on its way, unless the
        // granter has died and it was lost with him.
        let orphaned = self.hint == waiter.node && !by_library && cx.somebody_died();
        let trail = self.hint != cx.me() && !cx.is_gone(self.hint) && !orphaned;
        let (to, since, hops) = if trail && hops < ASTRAY {
            (self.hint, self.version, hops)
        } else if home != cx.me() && !cx.is_gone(home) {
            (home, Version(0), ASTRAY)
        } else {
            return false;
        };
        // A wish goes back to its own node only to be served there on the word of
        // the library, or to be searched for because that node is the home.
        if to != waiter.node || by_library || hops == ASTRAY {
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

    /// Puts a waiter into the queue, unless its node stands there already; a
    /// newer wish of the same node takes the old one's place.
    pub(crate) fn enqueue(&mut self, waiter: Waiter) {
        let queue = &mut self.busy_mut().queue;
        match queue.iter_mut().find(|other| other.node == waiter.node) {
            Some(other) if other.request < waiter.request => *other = waiter,
            Some(_) => {}
            None => queue.push_back(waiter),
        }
    }

    /// An [`Ask`] of another node arrived.
    pub(crate) fn route(&mut self, cx: &mut Cx<'_>, ask: &Ask) -> Route {
        let waiter = ask.waiter;
        if !cx.is_alive(waiter.node) {
            // Forwarded by one that has not heard of its end, or to one that has not
            // heard of its beginning and could not send it anything: it asks again.
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
        if ask.hops == ASTRAY {
            return Route::Astray;
        }
        let awaits_ownership = self
            .want()
            .is_some_and(|want| want.waiter.access == Access::Write);
        // Whoever names a newer version than this node knows is right: a grant to
        // this node is on its way. If it did not ask for it, its own hint leads
        // back to where that comes from, so that only the home can help.
        let grant_comes = ask.since > self.version;
        if grant_comes && awaits_ownership {
            self.enqueue(waiter);
            return Route::Gone;
        }
        let hops = if grant_comes { ASTRAY } else { ask.hops + 1 };
        if self.forward(cx, ask.subject, waiter, hops, ask.by_library) {
            Route::Gone
        } else {
            Route::Astray
        }
    }

    /// Passes ownership to `to`, with everyone who still waits.
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

    /// A grant arrived. True if it is news: this node is the owner now, and the
    /// queue has those who waited at its predecessor before those who came here. Then
    /// [`acknowledge`] is to follow, behind what threads here wait for; otherwise that
    /// is done.
    pub(crate) fn accept(&mut self, cx: &mut Cx<'_>, from: NodeId, pass: &Pass) -> bool {
        if self.hint == cx.me() && pass.version > self.version {
            // Two owners: only a confused or hostile peer says so.
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
        // Ownership came back, so whoever got the last grant from here has it.
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

    /// The receiver has the grant. True if that was news.
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

    /// This node awaits nothing any more: whoever hoped it would own the
    /// subject is sent on to the owner.
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

    /// A member is gone: it waits for nothing, and a search begins anew.
    pub(crate) fn forget_node(&mut self, node: NodeId) {
        if let Some(busy) = self.busy_if_any() {
            busy.queue.retain(|waiter| waiter.node != node);
            // A search under way asks again: what it heard may rest on this node.
            if let Some(search) = &mut busy.search {
                search.begin_anew();
            }
        }
    }

    /// A home that leaves knew who owns the subject.
    pub(crate) fn learn(&mut self, cx: &Cx<'_>, node: NodeId, version: Version) {
        if version > self.version && self.hint != cx.me() && node != cx.me() {
            self.version = version;
            self.hint = node;
        }
    }

    /// Whether nobody ever had the subject but its home, which has left and has
    /// told its heir all it knew: then it is as it was in the beginning.
    pub(crate) fn is_untouched(&self, cx: &Cx<'_>, last: NodeId, version: Version) -> bool {
        version == Version(0) && self.version == Version(0) && cx.has_left(last)
    }

    /// This node owns the subject again, by the home's word.
    pub(crate) fn regain(&mut self, cx: &Cx<'_>, version: Version) {
        self.version = version;
        self.hint = cx.me();
        self.busy_mut().passing = None;
    }
}

/// Tells who granted that the grant has come.
pub(crate) fn acknowledge(cx: &mut Cx<'_>, from: NodeId, pass: &Pass) {
    let (subject, version) = (pass.subject, pass.version);
    cx.send(from, Message::PassAck(PassAck { subject, version }));
}

/// A grant without contents that nobody asked for, to be filled in.
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
