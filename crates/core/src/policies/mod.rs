//! The policies a segment can have. Only this file knows which there are; the
//! rest of the core speaks to a [`Policy`].

mod release;
mod sequential;

use crate::calls::{Caller, Then};
use crate::prefetch::Errands as _;
use crate::shell::Cx;
use core::time::Duration;
use pagemesh_wire::local::{Advice, PageLine};
use pagemesh_wire::peer::{
    self, Access, Ask, Locate, Located, Lost, Pass, PassAck, Regain, Served,
};
use pagemesh_wire::{
    ClientId, MappingId, NodeId, PageCount, PageIndex, SegmentId, SyncKey, Ticket, VectorTime,
    Version,
};

pub(crate) use release::Release;
use sequential::Sequential;
use serde::{Deserialize, Serialize};

/// What this node knows of the pages of one segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(
    clippy::large_enum_variant,
    reason = "one a segment, and every fault goes through it: room costs less than a way"
)]
pub(crate) enum Policy {
    Sequential(Sequential),
    Release(Release),
}

/// What waits until a node knows enough.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum After {
    /// A token that is here may be lent and given.
    Lend(SyncKey),
    /// Somebody arrives at a barrier of which this node is the home.
    Arrive {
        caller: Caller,
        key: SyncKey,
        parties: u32,
        /// What the caller knows.
        time: VectorTime,
    },
    /// A barrier is left.
    Depart(Then),
    /// A call is done.
    Answer(Caller, peer::Reply),
    /// A call is to be made.
    Collect {
        to: NodeId,
        segment: SegmentId,
        step: peer::Collect,
        round: u64,
    },
}

/// A mapping in which a thread stopped, and what it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub(crate) mapping: MappingId,
    pub(crate) client: ClientId,
    /// Pages of the segment.
    pub(crate) pages: u32,
}

/// How many pages a node knows, reads, writes and owns; and some of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Pages ever touched here.
    pub known: u64,
    /// Pages readable here.
    pub readable: u64,
    /// Pages writable here.
    pub writable: u64,
    /// Pages owned here.
    pub owned: u64,
    /// The pages asked for.
    pub pages: Vec<PageLine>,
}

/// What arrived about a page.
#[derive(Clone, Debug)]
pub(crate) enum Letter {
    Ask(Ask),
    Data(peer::Data),
    Pass(Pass),
    PassAck(PassAck),
    Invalidate(peer::Invalidate),
    InvalidateAck(peer::InvalidateAck),
    Served(Served),
    Locate(Locate),
    Located(Located),
    Lost(Lost),
    Regain(Regain),
}

macro_rules! each {
    ($self:expr, $policy:ident => $call:expr) => {
        match $self {
            Policy::Sequential($policy) => $call,
            Policy::Release($policy) => $call,
        }
    };
}

impl Policy {
    /// Nothing is known of any page yet.
    pub(crate) fn new(segment: SegmentId, pages: u32, chosen: peer::Policy) -> Self {
        match chosen {
            peer::Policy::Sequential { manager, window } => {
                Self::Sequential(Sequential::new(segment, manager, window))
            }
            peer::Policy::Release { spread } => Self::Release(Release::new(segment, pages, spread)),
        }
    }

    /// A thread stopped at a page.
    pub(crate) fn fault(&mut self, cx: &mut Cx<'_>, who: Who, page: PageIndex, access: Access) {
        each!(self, policy => policy.fault(cx, who, page, access));
    }

    /// A process says how it will use pages.
    pub(crate) fn advise(
        &mut self,
        cx: &mut Cx<'_>,
        who: (ClientId, Option<MappingId>),
        range: (PageIndex, PageCount),
        advice: Advice,
    ) {
        each!(self, policy => policy.advise(cx, who, range, advice));
    }

    /// A look at what was asked for ahead may be due.
    pub(crate) fn look_ahead(&mut self, cx: &mut Cx<'_>) {
        each!(self, policy => policy.look_ahead(cx));
    }

    /// A peer said something about a page.
    pub(crate) fn letter(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        page: PageIndex,
        letter: Letter,
    ) {
        each!(self, policy => policy.letter(cx, from, page, letter));
    }

    /// Something about a page may be due.
    pub(crate) fn due(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        each!(self, policy => policy.due(cx, page));
    }

    /// The first node has been silent for so long: accesses to the page that have
    /// waited as long fail.
    pub(crate) fn forsake(&mut self, cx: &mut Cx<'_>, page: PageIndex, patience: Duration) {
        each!(self, policy => policy.forsake(cx, page, patience));
    }

    /// Whether the threads that waited for a page have run since.
    pub(crate) fn use_confirmed(&mut self, cx: &mut Cx<'_>, page: PageIndex, used: bool) {
        each!(self, policy => policy.use_confirmed(cx, page, used));
    }

    /// Who keeps the order of accesses by locks and barriers, where loads and stores do not.
    pub(crate) fn order(&mut self) -> Option<&mut Release> {
        match self {
            Self::Sequential(_) => None,
            Self::Release(policy) => Some(policy),
        }
    }

    /// Pages that the driver is to look at before a barrier is reached.
    pub(crate) fn resting(&self) -> Vec<PageIndex> {
        match self {
            Self::Sequential(_) => Vec::new(),
            Self::Release(policy) => policy.resting(),
        }
    }

    /// A page whose twin was refreshed had not changed.
    pub(crate) fn unchanged(&mut self, page: PageIndex) {
        match self {
            Self::Sequential(_) => {}
            Self::Release(policy) => policy.unchanged(page),
        }
    }

    /// A mapping is gone: nobody waits in it.
    pub(crate) fn unmapped(&mut self, mapping: MappingId) {
        each!(self, policy => policy.unmapped(mapping));
    }

    /// A client watches a page (F7).
    pub(crate) fn watch(&mut self, cx: &mut Cx<'_>, ticket: Ticket, page: PageIndex) {
        each!(self, policy => policy.watch(cx, ticket, page));
    }

    /// A client keeps pages here, writable (M14).
    pub(crate) fn pin(
        &mut self,
        cx: &mut Cx<'_>,
        ticket: Ticket,
        client: ClientId,
        first: PageIndex,
        count: PageCount,
    ) {
        each!(self, policy => policy.pin(cx, ticket, client, first, count));
    }

    /// A client lets pages go.
    pub(crate) fn unpin(
        &mut self,
        cx: &mut Cx<'_>,
        client: ClientId,
        first: PageIndex,
        count: PageCount,
    ) {
        each!(self, policy => policy.unpin(cx, client, first, count));
    }

    /// A request of a client is withdrawn. True if it waited here.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> bool {
        each!(self, policy => policy.cancel(ticket))
    }

    /// A client is gone, with its pins.
    pub(crate) fn client_gone(&mut self, cx: &mut Cx<'_>, client: ClientId) {
        each!(self, policy => policy.client_gone(cx, client));
    }

    /// A member is gone.
    pub(crate) fn member_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        each!(self, policy => policy.member_gone(cx, node));
    }

    /// This node is no member any more: nothing of the pages here is true.
    pub(crate) fn expelled(&mut self, cx: &mut Cx<'_>) {
        each!(self, policy => policy.expelled(cx));
    }

    /// This node is about to leave: no process pins pages here any more.
    pub(crate) fn forsake_pins(&mut self, cx: &mut Cx<'_>) {
        each!(self, policy => policy.forsake_pins(cx));
    }

    /// This node leaves: hand over at most `burst` pages to `to`. Returns how
    /// many are still owned here or on their way.
    pub(crate) fn hand_over(&mut self, cx: &mut Cx<'_>, to: NodeId, burst: usize) -> usize {
        match self {
            Self::Sequential(policy) => policy.hand_over(cx, to, burst),
            Self::Release(policy) => policy.hand_over(cx),
        }
    }

    /// Who owns which pages, as far as this home knows, for its heir.
    pub(crate) fn legacy(&self, me: NodeId) -> Vec<(PageIndex, Version, NodeId)> {
        each!(self, policy => policy.legacy(me))
    }

    /// A home that leaves knew who owns a page.
    pub(crate) fn learn(
        &mut self,
        cx: &mut Cx<'_>,
        page: PageIndex,
        owner: NodeId,
        version: Version,
    ) {
        match self {
            Self::Sequential(policy) => policy.learn(cx, page, owner, version),
            Self::Release(policy) => policy.learn(page, owner),
        }
    }

    /// For people who look.
    pub(crate) fn inspect(&self, me: NodeId, first: PageIndex, limit: usize) -> Inspection {
        each!(self, policy => policy.inspect(me, first, limit))
    }
}
