//! All segments of a node, and what concerns one of them, or each.

mod calls;
mod messages;
mod opening;

pub(crate) use calls::Untouched;
pub(crate) use messages::answer_unknown;
pub(crate) use opening::{close, open};

use crate::effect::{PageRange, Reply};
use crate::event::Event;
use crate::policies::{Due, Found, ProgramRequest};
use crate::segment::Segment;
use crate::shell::Cx;
use crate::time::Time;
use core::fmt;
use core::ops::{Deref, DerefMut};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::local::Advice;
use pagemesh_wire::peer::{self, AgeSummary, Message, Refusal};
use pagemesh_wire::sysv;
use pagemesh_wire::{
    ClientId, MappingId, NodeId, NodeSet, PageCount, PageIndex, RequestId, SegmentId, Ticket,
    Version,
};
use serde::{Deserialize, Serialize};

/// The mappings of this node's processes: of which segment, and whose.
pub(crate) type Mappings = SortedMap<MappingId, (SegmentId, ClientId)>;

/// The last of so many pages.
pub(crate) fn last_of(first: PageIndex, count: PageCount) -> PageIndex {
    PageIndex(first.0.saturating_add(count.0.saturating_sub(1)))
}

/// All segments of a node.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Segments(SortedMap<SegmentId, Segment>);

impl Deref for Segments {
    type Target = SortedMap<SegmentId, Segment>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Segments {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Segments {
    pub(crate) fn is_open_by(&self, segment: SegmentId, client: ClientId) -> bool {
        let segment = self.0.get(&segment);
        segment.is_some_and(|segment| segment.is_open_by(client))
    }

    /// Segments of System V objects that a process has attached.
    pub(crate) fn of_sysv(&self, client: ClientId) -> Vec<SegmentId> {
        let ids = self.0.keys().copied();
        ids.filter(|id| sysv::keeper(*id).is_some() && self.is_open_by(*id, client))
            .collect()
    }

    /// A process has a child, which has the same segments open, but for those that belong to one
    /// process.
    pub(crate) fn forked(&mut self, parent: ClientId, child: ClientId) {
        let inherited = |segment: &&mut Segment| segment.policy.is_inherited();
        for segment in self.0.values_mut().filter(inherited) {
            segment.inherit(parent, child);
        }
    }

    /// A process opens a segment by a capability. Those of System V count who is attached to them,
    /// and frames of files belong to one process.
    pub(crate) fn redeem(
        &mut self,
        cx: &mut Cx<'_>,
        (ticket, client): (Ticket, ClientId),
        id: SegmentId,
    ) {
        let shared = |segment: &&mut Segment| segment.is_open() && segment.policy.is_inherited();
        let named = sysv::keeper(id).is_none();
        match self.0.get_mut(&id).filter(shared) {
            Some(segment) if named => {
                segment.open(client);
                let info = segment.info.clone();
                cx.reply(ticket, Reply::Segment(info));
            }
            _ => cx.refuse(ticket, Refusal::NotFound),
        }
    }

    /// A request about pages of a segment that the process has open; `last` is the last of the pages.
    pub(crate) fn request(
        &mut self,
        cx: &mut Cx<'_>,
        who: (Ticket, ClientId),
        id: SegmentId,
        last: PageIndex,
        request: ProgramRequest,
    ) {
        let (ticket, client) = who;
        let open = |segment: &&mut Segment| segment.is_open_by(client);
        match self.0.get_mut(&id).filter(open) {
            None => cx.refuse(ticket, Refusal::NotFound),
            Some(segment) if !segment.has(last) => {
                let why = "beyond the end of the segment";
                cx.refuse(ticket, Refusal::Invalid(why.into()));
            }
            Some(segment) => segment.policy.request(cx, who, request),
        }
    }

    /// A process announces how it will use pages.
    pub(crate) fn advise(
        &mut self,
        cx: &mut Cx<'_>,
        mappings: &Mappings,
        (who, id): ((Ticket, ClientId), SegmentId),
        ranges: Vec<(PageIndex, PageCount)>,
        advice: Advice,
    ) {
        let known = self.0.get(&id);
        if known.is_some_and(|segment| !segment.trapped && segment.is_open_by(who.1)) {
            // All pages are here, and at no other node.
            return cx.reply(who.0, Reply::Done);
        }
        let lasts = ranges.iter().map(|(first, count)| last_of(*first, *count));
        let last = lasts.max().unwrap_or(PageIndex(0));
        let mut mappings = mappings.iter();
        let mapping = mappings.find(|(_, of)| **of == (id, who.1));
        let mapping = mapping.map(|(mapping, _)| *mapping);
        let request = ProgramRequest::Advise(ranges, advice, mapping);
        self.request(cx, who, id, last, request);
    }

    /// Withdraws a request. Returns false if none of them waits for it.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> bool {
        let segments = self.0.values_mut();
        let cancelled = segments.map(|segment| segment.policy.cancel(ticket));
        cancelled.fold(false, |had, has| had | has)
    }

    /// A timer of a segment, or of one of its pages, is due.
    pub(crate) fn due(&mut self, cx: &mut Cx<'_>, segment: SegmentId, due: Due) {
        if let Some(segment) = self.0.get_mut(&segment) {
            segment.policy.due(cx, due);
        }
    }

    /// The driver has found something out about a page.
    pub(crate) fn found(
        &mut self,
        cx: &mut Cx<'_>,
        (segment, page): (SegmentId, PageIndex),
        found: Found,
    ) {
        if let Some(segment) = self.0.get_mut(&segment) {
            segment.policy.found(cx, page, found);
        }
    }

    /// The driver has written pages to the disk, or could not.
    pub(crate) fn stored(&mut self, cx: &mut Cx<'_>, pages: PageRange, done: bool) {
        if let Some(segment) = self.0.get_mut(&pages.segment) {
            segment.policy.stored(cx, pages, done);
        }
    }

    /// A donor asks which of these copies this node counts on.
    pub(crate) fn wanted(
        &mut self,
        cx: &mut Cx<'_>,
        donor: NodeId,
        question: RequestId,
        (segment, pages): (SegmentId, &[(PageIndex, Version)]),
    ) {
        if segment.home() != cx.me() || pages.len() > peer::Global::PAGES {
            return cx.emit(Event::Malformed {});
        }
        let unwanted = match self.0.get_mut(&segment) {
            Some(known) => known.policy.unwanted(cx, donor, pages),
            None => pages.iter().map(|(page, _)| *page).collect(),
        };
        if unwanted.is_empty() {
            return;
        }
        let pages = unwanted;
        let unwanted = peer::Global::Unwanted {
            question,
            segment,
            pages,
        };
        cx.send(donor, Message::Global(unwanted));
    }

    /// A donor leaves and gives back pages.
    pub(crate) fn take_back(
        &mut self,
        cx: &mut Cx<'_>,
        donor: NodeId,
        segment: SegmentId,
        pages: Vec<(PageIndex, Version)>,
    ) {
        if segment.home() != cx.me() || pages.len() > peer::Global::PAGES {
            return cx.emit(Event::Malformed {});
        }
        cx.shell.memory.leaves(donor);
        match self.0.get_mut(&segment) {
            Some(known) => known.policy.take_back(cx, donor, &pages),
            // The segment ended, and the message that said so was lost.
            None => cx.send(
                donor,
                Message::Global(peer::Global::Drop { segment, pages }),
            ),
        }
    }

    /// Lives are over, and their numbers are to be forgotten.
    pub(crate) fn forget_names(&mut self, over: &NodeSet) {
        for segment in self.0.values_mut() {
            segment.policy.forget_names(over);
        }
    }

    /// The ages of the pages in frames.
    pub(crate) fn ages(&self, now: Time) -> AgeSummary {
        let mut ages = AgeSummary::default();
        for segment in self.0.values() {
            segment.policy.summarize(now, &mut ages);
        }
        ages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{Effect, Effects};
    use crate::shell::Shell;
    use pagemesh_wire::ByteLen;
    use pagemesh_wire::peer::{SegmentInfo, SegmentSpec};

    const HERE: ClientId = ClientId(1);
    const STRANGER: ClientId = ClientId(2);

    fn id() -> SegmentId {
        SegmentId::new(NodeId(1), 1)
    }

    /// One segment of two pages, which one process has open.
    fn segments() -> Segments {
        let mut segment = Segment::new(SegmentInfo {
            id: id(),
            name: "s".into(),
            spec: SegmentSpec {
                size: ByteLen(8192),
                mode: 0o600,
                policy: peer::Policy::default(),
                replicas: 0,
            },
            owner: (0, 0),
            removed: false,
            attached: NodeSet::default(),
        })
        .unwrap();
        segment.open(HERE);
        let mut segments = Segments::default();
        segments.insert(id(), segment);
        segments
    }

    /// The answer to a request.
    fn reply(work: impl FnOnce(&mut Segments, &mut Cx<'_>)) -> Option<Reply> {
        let (mut shell, mut effects) = (Shell::of_four(NodeId(1)), Effects::default());
        let mut cx = Cx {
            now: Time(0),
            shell: &mut shell,
            effects: &mut effects,
        };
        work(&mut segments(), &mut cx);
        effects.drain().find_map(|effect| match effect {
            Effect::Reply { reply, .. } => Some(*reply),
            _ => None,
        })
    }

    #[test]
    fn a_process_uses_the_pages_of_what_it_has_open() {
        let watch = |client, page| {
            let request = ProgramRequest::Watch(PageIndex(page));
            let who = (Ticket(1), client);
            reply(|of, cx| of.request(cx, who, id(), PageIndex(page), request))
        };
        assert_eq!(watch(HERE, 1), Some(Reply::Changed));
        assert!(matches!(
            watch(HERE, 2),
            Some(Reply::Refused(Refusal::Invalid(_)))
        ));
        assert_eq!(watch(STRANGER, 1), Some(Reply::Refused(Refusal::NotFound)));
    }

    #[test]
    fn a_capability_opens_what_is_open_here() {
        let redeem = |id| reply(|of, cx| of.redeem(cx, (Ticket(1), STRANGER), id));
        assert!(matches!(redeem(id()), Some(Reply::Segment(_))));
        let other = SegmentId::new(NodeId(1), 2);
        assert_eq!(redeem(other), Some(Reply::Refused(Refusal::NotFound)));
    }
}
