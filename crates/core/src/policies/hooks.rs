//! What a policy is to the rest of the core: the calls into it, in two groups.
//!
//! [`Hooks`] every policy has. A method with a body is for policies that use what it belongs to; its
//! body says what holds for all others. [`SyncHooks`] has a policy that lets something ride on locks
//! and barriers. Locks, barriers, calls and links hand over what it says without looking inside.

use crate::caller::Caller;
use crate::continuation::Continuation;
use crate::inspection::Inspection;
use crate::shell::Cx;
use core::time::Duration;
use pagemesh_wire::local::Advice;
use pagemesh_wire::peer::{Access, Message, Payload, Reduction, Refusal, Reply};
use pagemesh_wire::{
    ClientId, MappingId, NodeId, PageCount, PageIndex, SegmentId, Ticket, Version,
};

/// A mapping in which a thread stopped, and what it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub(crate) mapping: MappingId,
    pub(crate) client: ClientId,
    /// Pages of the segment.
    pub(crate) pages: u32,
}

/// What a process wants of pages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProgramRequest {
    /// To know when a page changes (F7).
    Watch(PageIndex),
    /// To keep pages here, writable (M14).
    Pin(PageIndex, PageCount),
    /// To let them go.
    Unpin(PageIndex, PageCount),
    /// It says how it will use pages. One of its mappings of the segment, if it has any.
    Advise(PageIndex, PageCount, Advice, Option<MappingId>),
}

/// What may be due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    /// `Timer::Subject` of a page. With a duration: the coordinator has been silent, and accesses
    /// that have waited as long fail.
    Page(PageIndex, Option<Duration>),
    /// `Timer::Ahead`: a look at what was asked for ahead.
    Ahead,
    /// `Timer::Segment`: something that concerns the whole segment.
    Segment,
}

/// What the driver found out about a page, asked by an effect of the policy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// After `Effect::ConfirmUse`: whether the threads that waited for the page have run since.
    Used(bool),
    /// After a diff that refreshed its twin: the page had not changed.
    Unchanged,
}

/// What is not there any more.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gone {
    /// A mapping: no thread waits in it.
    Mapping(MappingId),
    /// A process, with what it kept here.
    Client(ClientId),
    /// Another member, as the member view says already.
    Member(NodeId),
    /// This node's membership: its pages are not the truth any more.
    Membership,
}

/// A policy makes itself for a segment.
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
    /// A thread stopped at a page. The policy answers with `Effect::Map` or `Effect::Fail`, at once
    /// or later. The page may lie outside the segment.
    fn fault(&mut self, cx: &mut Cx<'_>, who: Who, page: PageIndex, access: Access);

    /// A process wants something of pages. The policy answers the ticket, at once or later.
    fn request(&mut self, cx: &mut Cx<'_>, who: (Ticket, ClientId), request: ProgramRequest);

    /// Another node says something that concerns the segment. What the policy does not understand is
    /// [`Event::Stale`](crate::Event::Stale), what is wrong is
    /// [`Event::Malformed`](crate::Event::Malformed).
    fn message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message);

    /// Something may be due, as the policy has armed it. A timer may come when nothing is due.
    fn due(&mut self, cx: &mut Cx<'_>, due: Due);

    /// Something is gone.
    fn gone(&mut self, cx: &mut Cx<'_>, gone: Gone);

    /// This node leaves, and `successor` is to have what only this node has; the policy hands over some
    /// `burst` pages at a time. Called after every input until nothing is left: it returns how much
    /// is.
    fn hand_over(&mut self, cx: &mut Cx<'_>, successor: NodeId, burst: usize) -> usize;

    /// What people see who look.
    fn inspect(&self, me: NodeId, first: PageIndex, limit: usize) -> Inspection;

    /// What rides on locks and barriers; nothing does, if the policy does not say so.
    fn sync(&mut self) -> Option<&mut dyn SyncHooks> {
        None
    }

    /// The driver found something out. Only policies that ask are answered.
    fn found(&mut self, _: &mut Cx<'_>, _: PageIndex, _: Found) {}

    /// Pages that the driver is to look at before a barrier is reached.
    fn kept_writable(&self) -> Vec<PageIndex> {
        Vec::new()
    }

    /// A request is withdrawn. True if it waited in the policy.
    fn cancel(&mut self, _: Ticket) -> bool {
        false
    }

    /// The policy of another node calls. It is answered by `Continuation::Answer`, at once or later.
    fn called(&mut self, cx: &mut Cx<'_>, caller: Caller, _: &Payload) {
        let why = "this policy answers no calls";
        let reply = Reply::Refused(Refusal::Invalid(why.into()));
        cx.ready(Continuation::Answer(caller, reply));
    }

    /// The answer to `Continuation::Call` with this number: of the policy, or `Done` if the other
    /// node does not know the segment, or a refusal.
    fn answered(&mut self, _: &mut Cx<'_>, _: NodeId, _: u64, _: &Reply) {}

    /// Ranges in which nodes accumulate are declared: all that there are, more than before. The
    /// coordinator asks a policy without pages whether that may be.
    ///
    /// # Errors
    /// If nodes cannot accumulate under this policy.
    fn declare(&mut self, _: &[Reduction]) -> Result<(), Refusal> {
        let why = "nodes accumulate in segments of policy release";
        Err(Refusal::Invalid(why.into()))
    }

    /// This node is the home and leaves: who has which page, for its heir.
    fn handover(&self, _me: NodeId) -> Vec<(PageIndex, Version, NodeId)> {
        Vec::new()
    }

    /// A home that leaves knew this of a page.
    fn learn(&mut self, _: &mut Cx<'_>, _: PageIndex, _owner: NodeId, _: Version) {}
}

/// The calls into a policy whose changes become visible by synchronization.
///
/// An acquire is complete when the policy knows all that the releaser knew. Until then the token is
/// neither lent nor given, the arrival not counted, the departure not told.
pub(crate) trait SyncHooks {
    /// What goes with a request of this node for the token of a lock; at most
    /// `Acquire::PAYLOAD` bytes.
    fn request(&self) -> Payload;

    /// The token of a lock goes to another node, whose request said `request`; empty if that did not
    /// come here. Returns what goes with it.
    fn release(&mut self, cx: &mut Cx<'_>, to: NodeId, request: &Payload) -> Payload;

    /// A process of this node reaches a barrier. Returns what goes to the home. The driver has
    /// looked at pages of [`Hooks::kept_writable`], and these are as they were.
    fn arrive(&mut self, cx: &mut Cx<'_>, untouched: &[PageIndex]) -> Payload;

    /// `payload` came with a token, an arrival or a departure. True if the acquire is complete; else
    /// `then` is made ready when it is.
    fn acquire(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        payload: &Payload,
        then: Continuation,
    ) -> bool;

    /// The node that released is gone, or not known. `then` is made ready when this node knows all
    /// that any member knows.
    fn acquire_from_all(&mut self, cx: &mut Cx<'_>, then: Continuation);

    /// At the home: a barrier is open, and a node that has arrived leaves it. Returns what it is
    /// told.
    fn depart(&mut self, cx: &mut Cx<'_>, to: NodeId) -> Payload;

    /// At the home: all have been told that a barrier is open; these nodes had arrived.
    fn opened(&mut self, _: &mut Cx<'_>, _: pagemesh_wire::NodeSet) {}
}
