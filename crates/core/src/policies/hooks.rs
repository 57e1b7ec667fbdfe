//! The interface between a policy and the rest of the core: the calls into it, in two groups.
//!
//! Every policy implements [`Hooks`]. A method with a body belongs to a feature that not every
//! policy has; the body is right for the others. A policy whose data travels with locks and
//! barriers implements [`SyncHooks`]. Locks, barriers, calls and links pass on a policy's payloads
//! without decoding them.

use crate::caller::Caller;
use crate::continuation::Continuation;
use crate::effect::PageRange;
use crate::global::MemoryReport;
use crate::inspection::Inspection;
use crate::kept_writable::KeptWritable;
use crate::shell::Cx;
use crate::time::Time;
use core::time::Duration;
use pagemesh_wire::local::{Advice, PageState, View};
use pagemesh_wire::peer::{Access, AgeSummary, Message, Payload, Reduction, Refusal, Reply};
use pagemesh_wire::{
    ClientId, MappingId, NodeId, NodeSet, PageCount, PageIndex, SegmentId, Ticket, Version,
};

/// A mapping in which a thread stopped, its process, and the segment's size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub(crate) mapping: MappingId,
    pub(crate) client: ClientId,
    /// Pages of the segment.
    pub(crate) pages: u32,
}

/// An access that waits: the mapping, the page, and what the thread wants.
pub(crate) type Waiting = (MappingId, PageIndex, Access);

/// A request of a process about pages.
#[derive(Clone, Debug)]
pub(crate) enum ProgramRequest {
    /// Tell the process when a page changes (F7).
    Watch(PageIndex),
    /// Keep pages here, writable (M14).
    Pin(PageIndex, PageCount),
    /// Keep short pages here, and take whole ones out of all views (E12).
    PinShort(PageIndex, PageCount),
    /// Release pinned pages.
    Unpin(PageIndex, PageCount),
    /// The announced use of pages. With one of the process's mappings of the segment, if it has
    /// any.
    Advise(Vec<(PageIndex, PageCount)>, Advice, Option<MappingId>),
    /// Drop copies, so that the next access sees newer contents (E4); of prefixes only, if so.
    Purge(PageIndex, PageCount, bool),
    /// Tell the process when one of the pages changes.
    WatchRange(PageIndex, PageCount),
    /// Send copies of pages to all nodes that use them (E5).
    Publish {
        first: PageIndex,
        count: PageCount,
        /// Of prefixes only.
        short: bool,
        /// Answer when the replica has them, too.
        waits: bool,
    },
    /// Keep the whole segment from changing, for a snapshot.
    Hold,
    /// End of that.
    EndHold,
}

impl ProgramRequest {
    /// Why other policies refuse to purge and to publish.
    pub(crate) const NO_VIEWS: &str = "only segments of policy views have short pages, and are purged, published and watched as a range; \
        create the segment with `--policy views`";

    /// Why other policies refuse to hold a segment.
    pub(crate) const NO_HOLD: &str = "only segments of policy sequential are kept from changing";
}

/// The kinds of timers of a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    /// `Timer::Subject` of a page. With a duration: the coordinator has been silent, and accesses
    /// that have waited as long fail.
    Page(PageIndex, Option<Duration>),
    /// `Timer::Ahead`: a check of the pages asked for ahead.
    Ahead,
    /// `Timer::Segment`: a timer of the whole segment.
    Segment,
}

/// The answer of the driver to an effect of the policy about a page.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// After `Effect::ConfirmUse`: true if the threads that waited for the page have run since.
    Used(bool),
    /// After a diff that refreshed its twin: the page had not changed.
    Unchanged,
}

/// A thing that does not exist any more.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gone {
    /// A mapping: no thread waits in it.
    Mapping(MappingId),
    /// A process, with its requests, pins and watches.
    Client(ClientId),
    /// Another member; the member view says so already.
    Member(NodeId),
    /// This node's membership: its pages may be outdated.
    Membership,
}

/// The constructor of a policy.
pub(crate) trait Open: Hooks + Sized {
    /// The state of a segment of which nothing is known yet; none if `chosen` is another policy.
    ///
    /// # Errors
    /// If the settings in `chosen` are not possible.
    fn open(
        segment: SegmentId,
        pages: u32,
        chosen: pagemesh_wire::peer::Policy,
    ) -> Option<Result<Self, Refusal>>;
}

/// The calls into every policy. Pages are inside the segment, unless a method says otherwise.
pub(crate) trait Hooks {
    /// A process has mapped the segment. Only policies with views need to know.
    fn mapped(&mut self, _: &mut Cx<'_>, _: MappingId, _: View) {}

    /// What each mapping here shows, under a policy whose mappings differ in that.
    fn shown(&self) -> Vec<(MappingId, View)> {
        Vec::new()
    }

    /// Contents are to be on so many other nodes, too. Called once, before all else.
    ///
    /// # Errors
    /// If the policy does not do that.
    fn keep_replicas(&mut self, _: u8) -> Result<(), Refusal> {
        let why = "segments of this policy have no replicas: leave them out, or choose sequential, release or views";
        Err(Refusal::Invalid(why.into()))
    }

    /// A thread faulted at a page. The policy answers with `Effect::Map` or `Effect::Fail`, at once
    /// or later. The page may lie outside the segment.
    fn fault(&mut self, cx: &mut Cx<'_>, who: Who, page: PageIndex, access: Access);

    /// A request of a process about pages. The policy answers the ticket, at once or later.
    fn request(&mut self, cx: &mut Cx<'_>, who: (Ticket, ClientId), request: ProgramRequest);

    /// A message of another node for the segment. A message without meaning for the policy is
    /// [`Event::Stale`](crate::Event::Stale), an invalid one
    /// [`Event::Malformed`](crate::Event::Malformed).
    fn message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message);

    /// A timer that the policy has armed is due. It may come when there is nothing to do.
    fn due(&mut self, cx: &mut Cx<'_>, due: Due);

    /// A mapping, process, member or the membership is gone.
    fn gone(&mut self, cx: &mut Cx<'_>, gone: Gone);

    /// Lives are over, and their numbers are to be forgotten (decision 34): drops their names where
    /// they are of no use. A number that is still named after that is not given again.
    fn forget_names(&mut self, _over: &NodeSet) {}

    /// This node's membership has ended, and it joins again as another node. If all that its
    /// processes rely on is known elsewhere, the policy drops everything and returns the accesses
    /// that wait. Otherwise it does what [`Gone::Membership`] asks for, and says what is lost.
    ///
    /// # Errors
    /// The part of the segment that is lost, for people.
    fn leave_behind(&mut self, cx: &mut Cx<'_>) -> Result<Vec<Waiting>, String> {
        self.gone(cx, Gone::Membership);
        Err("what this node knew of a segment that is not of policy sequential".into())
    }

    /// This node leaves, and `successor` is to have the pages that only this node has; the policy
    /// hands over some `burst` pages at a time. Called after every input until no page is left: it
    /// returns how many are.
    fn hand_over(&mut self, cx: &mut Cx<'_>, successor: NodeId, burst: usize) -> usize;

    /// The state of pages, for people.
    fn inspect(&self, me: NodeId, first: PageIndex, limit: usize) -> Inspection;

    /// What this node knows of `count` pages from `first` on, for a process that saves the segment;
    /// nothing under policies whose segments cannot be held.
    fn states(&self, _me: NodeId, _first: PageIndex, _count: u32) -> Vec<PageState> {
        Vec::new()
    }

    /// Whether a process of this node keeps the segment from changing.
    fn is_held(&self, _now: Time) -> bool {
        false
    }

    /// The policy's hooks for locks and barriers; none by default.
    fn sync(&mut self) -> Option<&mut dyn SyncHooks> {
        None
    }

    /// The answer of the driver to an effect. Only policies that use such effects get it.
    fn found(&mut self, _: &mut Cx<'_>, _: PageIndex, _: Found) {}

    /// Pages that the driver is to compare with their twins before a barrier is reached.
    fn kept_writable(&self) -> KeptWritable {
        KeptWritable::default()
    }

    /// A request is withdrawn. True if it waited in the policy.
    fn cancel(&mut self, _: Ticket) -> bool {
        false
    }

    /// A call from the policy on another node. It is answered by `Continuation::Answer`, at once or
    /// later.
    fn called(&mut self, cx: &mut Cx<'_>, caller: Caller, _: &Payload) {
        let why = "this policy answers no calls";
        let reply = Reply::Refused(Refusal::Invalid(why.into()));
        cx.ready(Continuation::Answer(caller, reply));
    }

    /// The answer to `Continuation::Call` with this number: of the policy, or `Done` if the other
    /// node does not know the segment, or a refusal.
    fn answered(&mut self, _: &mut Cx<'_>, _: NodeId, _: u64, _: &Reply) {}

    /// Ranges in which nodes accumulate are declared: the whole list, which only grows. The
    /// coordinator asks a policy without pages whether it allows them.
    ///
    /// # Errors
    /// If nodes cannot accumulate under this policy.
    fn declare(&mut self, _: &[Reduction]) -> Result<(), Refusal> {
        let why = "nodes accumulate in segments of policy release";
        Err(Refusal::Invalid(why.into()))
    }

    /// This node is the home and leaves: the owners of pages, for its successor.
    fn handover(&self, _me: NodeId) -> Vec<(PageIndex, Version, NodeId)> {
        Vec::new()
    }

    /// A leaving home's knowledge of a page.
    fn learn(&mut self, _: &mut Cx<'_>, _: PageIndex, _owner: NodeId, _: Version) {}

    /// Whether a node may open the segment. The coordinator asks a policy without pages.
    ///
    /// # Errors
    /// If it may not.
    fn may_open(&self, _: NodeId) -> Result<(), Refusal> {
        Ok(())
    }

    /// Whether a child of a process that has the segment open has it open, too.
    fn is_inherited(&self) -> bool {
        true
    }

    /// Whether a new segment may do without the node's knowledge of its pages while only this node
    /// uses it ([`crate::trapping`]). The policy is told nothing of pages meanwhile.
    fn may_be_untrapped(&self) -> bool {
        false
    }

    /// From now on the driver reports the faults of the segment, at this node, its home. Threads may
    /// have stored to these pages and may have all rights to them; the others hold zeros.
    fn trapped(&mut self, _: &mut Cx<'_>, _: &[PageRange]) {}

    /// The answer of the driver to `Effect::Store`: whether the disk has the pages now.
    fn stored(&mut self, _: &mut Cx<'_>, _: PageRange, _done: bool) {}

    /// Adds the ages of the pages in memory that could leave it.
    fn summarize(&self, _now: Time, _: &mut AgeSummary) {}

    /// The node's memory for pages that can leave it has become less; the policy sends some away.
    fn pressed(&mut self, _: &mut Cx<'_>) {}

    /// A donor leaves the cluster and has these pages, which are not on this node's disk: others are
    /// to keep them, and then the donor is told to drop them.
    fn take_back(&mut self, _: &mut Cx<'_>, _donor: NodeId, _: &[(PageIndex, Version)]) {}

    /// A donor keeps copies of these pages, which are not on this node's disk. Returns those that
    /// this node does not count on.
    fn unwanted(
        &mut self,
        _: &mut Cx<'_>,
        _donor: NodeId,
        _: &[(PageIndex, Version)],
    ) -> Vec<PageIndex> {
        Vec::new()
    }

    /// Adds where the pages are that can leave the node's memory.
    fn memory(&self, _: &mut MemoryReport) {}

    /// The node forgets the segment.
    fn forgotten(&mut self, _: &mut Cx<'_>) {}
}

/// What makes changes of this node visible to others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outgoing<'a> {
    /// The token of a lock goes to another node, whose request had this payload.
    Token(NodeId, &'a Payload),
    /// A process arrives at a barrier. These pages have not changed.
    Arrival(&'a [PageIndex]),
}

/// The calls into a policy whose changes become visible by synchronization. The bodies here are right
/// for a policy that sends nothing with tokens, arrivals and departures.
///
/// An acquire is complete when the policy knows all that the releaser knew. Until then the token is
/// neither lent nor granted, the arrival not counted, the departure not told.
pub(crate) trait SyncHooks {
    /// The payload of this node's request for the token of a lock; at most `Acquire::PAYLOAD`
    /// bytes.
    fn request(&self) -> Payload {
        Payload::EMPTY
    }

    /// The token of a lock is about to go to another node, or a process to arrive at a barrier. True
    /// if it may now; else `then` is made ready when it may, and until then the token is neither lent
    /// nor granted.
    fn prepare(&mut self, _: &mut Cx<'_>, _: Outgoing<'_>, _then: &Continuation) -> bool {
        true
    }

    /// The token of a lock goes to another node, whose request had the payload `request`; empty if
    /// that did not come here. Returns the payload of the grant.
    fn release(&mut self, _: &mut Cx<'_>, _to: NodeId, _request: &Payload) -> Payload {
        Payload::EMPTY
    }

    /// The driver has compared pages of [`Hooks::kept_writable`] with their twins: these equal them.
    fn looked_at(&mut self, _: &mut Cx<'_>, _untouched: &[PageIndex]) {}

    /// A process of this node reaches a barrier. Returns the payload for the home. The driver has
    /// compared the pages of [`Hooks::kept_writable`] with their twins, and the pages in
    /// `untouched` equal them.
    fn arrive(&mut self, _: &mut Cx<'_>, _untouched: &[PageIndex]) -> Payload {
        Payload::EMPTY
    }

    /// `payload` came with a token, an arrival or a departure. True if the acquire is complete;
    /// else `then` is made ready when it is.
    fn acquire(
        &mut self,
        _: &mut Cx<'_>,
        _from: NodeId,
        _payload: &Payload,
        _then: Continuation,
    ) -> bool {
        true
    }

    /// The node that released is gone, or not known. `then` is made ready when this node knows all
    /// that any member knows.
    fn acquire_from_all(&mut self, cx: &mut Cx<'_>, then: Continuation) {
        cx.ready(then);
    }

    /// At the home: a barrier is open, and a node that has arrived leaves it. Returns the payload
    /// for that node.
    fn depart(&mut self, _: &mut Cx<'_>, _to: NodeId) -> Payload {
        Payload::EMPTY
    }

    /// At the home: all have been told that a barrier is open; these nodes had arrived.
    fn opened(&mut self, _: &mut Cx<'_>, _: NodeSet) {}
}
