//! What a node knows of one page.

use super::census::Census;
use super::messages::{Copied, Stamp, Wish};
use crate::backoff::Backoff;
use crate::time::Time;
use pagemesh_wire::local::View;
use pagemesh_wire::{ClientId, MappingId, NodeId, NodeSet, RequestId};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// How much of a frame is valid.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub(super) enum Valid {
    #[default]
    Nothing,
    Prefix,
    Whole,
}

/// A page on this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Page {
    /// The consistent copy is here.
    pub(super) holds: bool,
    /// The holder's frame has contents; before, the page is zeros and has no frame.
    pub(super) filled: bool,
    pub(super) valid: Valid,
    /// The prefix was purged, though the frame is whole (Fig. 1: supersets are not affected).
    pub(super) prefix_purged: bool,
    /// A process purged the page. Where the consistent copy is, data-driven views wait for the next
    /// publication; elsewhere, only what is newer is of use, and answers to later requests.
    pub(super) purged: bool,
    /// What demand-driven views wait for since a purge elsewhere.
    #[serde(default)]
    pub(super) unanswered: Option<Unanswered>,
    /// Of the newest contents seen.
    pub(super) stamp: Stamp,
    /// The latest move known, and where it led.
    pub(super) version: u64,
    pub(super) hint: NodeId,
    pub(super) passing: Option<Passing>,
    pub(super) want: Option<Wanted>,
    /// Mappings in which threads wait.
    pub(super) faults: Vec<(MappingId, View)>,
    /// At the holder: nodes that want the consistent copy, in order.
    pub(super) queue: VecDeque<(NodeId, RequestId)>,
    /// The holder keeps the page until then, so that the thread that waited can use it.
    pub(super) kept: Option<Time>,
    /// Processes that have locked the page, and until when.
    pub(super) locks: Vec<(ClientId, Time)>,
    /// When the newest contents came.
    pub(super) seen: Time,
    /// Refreshes that did not come.
    pub(super) missed: u64,
    /// At the home: the search for the holder.
    pub(super) census: Option<Census>,
    /// At the home: who was to become the holder.
    pub(super) elected: Option<NodeId>,
    /// At the home: the latest move that was known when a census began in which no node had the copy.
    #[serde(default)]
    pub(super) counted: u64,
    /// At the home: the page is lost with this node; no copy is left.
    #[serde(default)]
    pub(super) lost: Option<NodeId>,
    /// The page is lost, and this node shows zeros in its place ([`Views`](super::Views)'s
    /// `renews`): they are nobody's copy.
    #[serde(default)]
    pub(super) blank: bool,
    /// This holder counts on the copy here: the page is its replica, or was given to it and has perhaps
    /// not arrived.
    #[serde(default)]
    pub(super) keeps: Option<NodeId>,
    /// How often the page had moved when that was so last.
    #[serde(default)]
    pub(super) kept_at: u64,
    /// At the holder: who gave it the page, and keeps it until another node does.
    #[serde(default)]
    pub(super) giver: Option<NodeId>,
    /// Programs have purged the copy here, which stays for the holder's sake: how much of it views
    /// show.
    #[serde(default)]
    pub(super) veiled: Option<Valid>,
    /// The holder is gone, and counted on the copy here: this node wants to be the holder.
    #[serde(default)]
    pub(super) orphaned: bool,
}

/// The consistent copy is on its way; its contents are in the stash.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Passing {
    pub(super) to: NodeId,
    pub(super) stamp: Stamp,
    pub(super) queue: Vec<(NodeId, RequestId)>,
    pub(super) backoff: Backoff,
    /// Nodes that keep the page for this one, until it has arrived.
    #[serde(default)]
    pub(super) keepers: NodeSet,
}

/// A purge on a node without the consistent copy, until an answer has come to a request made after it
/// (INV-purge-finds). Only of such an answer it is certain that it has what was stored before the
/// purge: a publication, the refresh of a move and a second answer to a request that was repeated may
/// have been under way for longer. They fill the frame, and data-driven views show them;
/// demand-driven views wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Unanswered {
    /// Views of the prefix, and of the whole page, wait. A purge of the prefix leaves those of the whole
    /// page alone.
    prefix: bool,
    whole: bool,
    /// The last request of this node before the purge.
    before: RequestId,
    /// Of the newest contents that have come since, and of the newest whole ones: a newer prefix
    /// leaves the rest of the page as old as those.
    newest: Stamp,
    newest_whole: Stamp,
}

impl Unanswered {
    /// After a purge of a page or of its prefix. What has not been answered since an earlier one, waits
    /// for an answer to a request after this one.
    pub(super) fn since(before: RequestId, short: bool, earlier: Option<&Self>) -> Self {
        Self {
            prefix: true,
            whole: !short || earlier.is_some_and(|earlier| earlier.whole),
            before,
            newest: Stamp::default(),
            newest_whole: Stamp::default(),
        }
    }

    /// Whether demand-driven views, short or not, must not show what is here.
    fn hides(&self, short: bool) -> bool {
        if short { self.prefix } else { self.whole }
    }
}

/// A request of this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Wanted {
    pub(super) wish: Wish,
    pub(super) request: RequestId,
    pub(super) since: Time,
    pub(super) tries: u8,
    pub(super) backoff: Backoff,
}

impl Page {
    /// A page that was never moved: its home has it, and it is zeros.
    pub(super) fn new(home: NodeId, here: bool) -> Self {
        Self {
            holds: here,
            filled: false,
            valid: Valid::Nothing,
            prefix_purged: false,
            purged: false,
            unanswered: None,
            stamp: Stamp::default(),
            version: 0,
            hint: home,
            passing: None,
            want: None,
            faults: Vec::new(),
            queue: VecDeque::new(),
            kept: None,
            locks: Vec::new(),
            seen: Time::ZERO,
            missed: 0,
            census: None,
            elected: None,
            counted: 0,
            lost: None,
            blank: false,
            keeps: None,
            kept_at: 0,
            giver: None,
            veiled: None,
            orphaned: false,
        }
    }

    /// Lives are over, and their numbers are to be forgotten: where one of them was the last holder
    /// that this node knows, it remembers that the last holder is gone. The home is named by the
    /// segment, and stays.
    pub(super) fn forget_names(&mut self, home: NodeId, over: &NodeSet) {
        if over.contains(self.hint) && self.hint != home {
            self.hint = NodeId::NONE;
        }
        if self.lost.is_some_and(|lost| over.contains(lost)) {
            self.lost = Some(NodeId::NONE);
        }
    }

    /// How much of the frame views show.
    pub(super) fn shown(&self) -> Valid {
        self.veiled.unwrap_or(self.valid)
    }

    /// The frame is that of the consistent copy from now on.
    pub(super) fn unveil(&mut self) {
        (self.keeps, self.veiled, self.orphaned) = (None, None, false);
    }

    /// Whether a view can be served from this node's frame.
    pub(super) fn serves(&self, view: View) -> bool {
        if view.consistent {
            return self.holds;
        }
        if self.holds {
            return !(view.data_driven && self.purged);
        }
        let unanswered = self.unanswered.as_ref();
        if !view.data_driven && unanswered.is_some_and(|purge| purge.hides(view.short)) {
            return false;
        }
        match view.short {
            true => self.shown() >= Valid::Prefix && !self.prefix_purged,
            false => self.shown() == Valid::Whole,
        }
    }

    /// New contents are in the frame.
    pub(super) fn came(&mut self, stamp: Stamp, whole: bool) {
        let Some(purge) = &mut self.unanswered else {
            return;
        };
        purge.newest = stamp;
        if whole {
            purge.newest_whole = stamp;
        }
        // An answer has brought the prefix, and these are newer than that answer.
        if whole && !purge.prefix {
            self.unanswered = None;
        }
    }

    /// An answer to a request has come. Its contents are in the frame now, or newer ones were there, which
    /// have all that it has. Returns whether demand-driven views may show more than before.
    pub(super) fn answered(&mut self, request: RequestId, stamp: Stamp) -> bool {
        let shows_rest = self.shown() == Valid::Whole;
        let Some(purge) = &mut self.unanswered else {
            return false;
        };
        if request <= purge.before || purge.newest < stamp {
            return false;
        }
        purge.prefix = false;
        // The rest of the page is newer than the answer when it comes, if it is not here.
        purge.whole &= shows_rest && purge.newest_whole < stamp;
        if !purge.whole {
            self.unanswered = None;
        }
        true
    }

    /// What threads that wait here want; none if all wait for a refresh to pass.
    pub(super) fn wish(&self, renews: bool) -> Option<Wish> {
        let demands = self.faults.iter().filter(|(_, view)| !view.data_driven);
        let wish = |view: View| match (view.consistent, view.short) {
            (true, _) if renews => Wish::Anew,
            (true, _) => Wish::Move,
            (false, true) => Wish::Prefix,
            (false, false) => Wish::Whole,
        };
        let replica = self.orphaned.then_some(Wish::Move);
        demands.map(|(_, view)| wish(*view)).max().max(replica)
    }

    /// The copy here, if there is one.
    pub(super) fn copy(&self) -> Option<Copied> {
        (self.valid > Valid::Nothing && !self.blank).then_some(Copied {
            stamp: self.stamp,
            whole: self.valid == Valid::Whole,
        })
    }
}
