//! Copies that no owner counts on.
//!
//! What its owner has on no disk a donor may not drop. A `Drop` that gets lost, or a putpage that the
//! network delivers once more after it, would leave such a copy here for ever. So a donor asks
//! owners which of these copies they count on, some at a time, round after round. Neither side
//! keeps a list of messages that may have been lost.
//!
//! The answer says that at some moment after the question the owner did not count on the copy. A
//! putpage that comes meanwhile may be newer than that moment, so its page is not dropped.

use super::{Donor, Name};
use crate::event::Event;
use crate::limits::{AUDIT_PAUSE, AUDIT_ROUND, AUDIT_SCAN};
use crate::shell::Cx;
use crate::time::Time;
use core::ops::Bound;
use pagemesh_wire::peer::{Global, Message};
use pagemesh_wire::{NodeId, PageIndex, RequestId, SegmentId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How far owners have been asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Audit {
    /// The next question is asked then.
    due: Time,
    /// All pages up to this one have been asked about in this round.
    last: Option<Name>,
    /// The number of the last question.
    question: u64,
    /// The pages of that question that have not come to be kept since.
    open: BTreeSet<Name>,
}

impl Audit {
    /// The owner has sent the page, so it may count on it from now on.
    pub(super) fn came(&mut self, name: Name) {
        self.open.remove(&name);
    }

    /// The life of an owner is over.
    pub(super) fn forget(&mut self, node: NodeId) {
        let of_it = |name: &Name| name.0.home() == node;
        self.open.retain(|name| !of_it(name));
        self.last = self.last.filter(|name| !of_it(name));
    }
}

impl Donor {
    /// Asks an owner about copies that may not be dropped here, if it is time to.
    pub(crate) fn audit(&mut self, cx: &mut Cx<'_>) {
        if cx.now < self.audit.due || self.only_copies() == 0 {
            return;
        }
        let after = self.audit.last.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.pages.range((after, Bound::Unbounded));
        let (mut about, mut pages, mut last) = (None, Vec::new(), None);
        for (name, held) in rest.take(AUDIT_SCAN) {
            let other = about.is_some_and(|segment| segment != name.0);
            if other || pages.len() == Global::PAGES {
                break;
            }
            last = Some(*name);
            if !held.on_disk {
                about = Some(name.0);
                pages.push((name.1, held.version));
            }
        }
        // Nothing came after the last one: a round is over.
        let pause = last.map_or(AUDIT_ROUND, |_| AUDIT_PAUSE);
        self.audit.due = cx.now + pause;
        self.audit.last = last;
        let Some(segment) = about else { return };
        self.audit.question += 1;
        self.audit.open = pages.iter().map(|(page, _)| (segment, *page)).collect();
        let question = RequestId(self.audit.question);
        let wanted = Global::Wanted {
            question,
            segment,
            pages,
        };
        cx.send(segment.home(), Message::Global(wanted));
    }

    /// The owner does not count on these copies of the ones that it was asked about.
    pub(crate) fn unwanted(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        question: RequestId,
        (segment, pages): (SegmentId, &[PageIndex]),
    ) {
        if segment.home() != from || pages.len() > Global::PAGES {
            return cx.emit(Event::Malformed {});
        }
        if question.0 != self.audit.question {
            return cx.emit(Event::Stale {});
        }
        for page in pages {
            let name = (segment, *page);
            if self.audit.open.remove(&name) && self.pages.contains_key(&name) {
                self.drop_page(cx, name);
            }
        }
    }
}
