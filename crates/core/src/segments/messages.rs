//! Messages of other nodes about segments.

use super::Segments;
use crate::event::Event;
use crate::shell::Cx;
use pagemesh_wire::peer::{Located, Message, Spare};
use pagemesh_wire::{NodeId, PageIndex, SegmentId, Version};

impl Segments {
    /// A message for the policy of a segment, perhaps about one page. A segment is unknown here if
    /// this node has forgotten it or has not heard of it yet; requests are resent.
    pub(crate) fn message(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        (segment, page): (SegmentId, Option<PageIndex>),
        mut message: Message,
    ) {
        let known = self.get_mut(&segment);
        let known = known.filter(|segment| page.is_none_or(|page| segment.has(page)));
        match known {
            Some(segment) => {
                segment.keep_pages_it_has(&mut message);
                segment.policy.message(cx, from, message);
            }
            None => answer_unknown(cx, from, message),
        }
    }

    /// A home that leaves says which node has a page.
    pub(crate) fn learn(
        &mut self,
        cx: &mut Cx<'_>,
        (segment, page): (SegmentId, PageIndex),
        (node, version): (NodeId, Version),
    ) {
        let known = self.get_mut(&segment);
        if let Some(segment) = known.filter(|segment| segment.has(page)) {
            segment.policy.learn(cx, page, node, version);
        }
    }
}

/// A node answers a search even if it does not know the segment. A message from a policy is
/// returned to its sender, whose policy knows what that means.
pub(crate) fn answer_unknown(cx: &mut Cx<'_>, from: NodeId, message: Message) {
    match message {
        Message::Locate(locate) if cx.shell.view.epoch >= locate.epoch => {
            let located = Located {
                subject: locate.subject,
                request: locate.request,
                version: Version(0),
                owner: locate.subject.segment().home(),
                spare: Spare::None,
                passing: false,
            };
            cx.send(from, Message::Located(located));
        }
        // This node will soon learn that it is the home; until then the sender resends.
        Message::Policy(said) if said.segment.home() != cx.me() => {
            cx.send(from, Message::PolicyUndelivered(said));
        }
        _ => cx.emit(Event::Stale {}),
    }
}
