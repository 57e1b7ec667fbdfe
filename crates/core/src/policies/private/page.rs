//! One page of a private segment, and where its contents are.

use crate::effect::Rights;
use crate::time::Time;
use pagemesh_wire::peer::Backing;
use pagemesh_wire::{NodeId, NodeSet, Version};
use serde::{Deserialize, Serialize};

/// A page that was stored to or has a frame. All others are zeros.
///
/// INV-private-kept: contents of a version above zero are in the frame, in the stash, on the disk
/// (`on_disk`), or with every donor in `donors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Page {
    /// The version of the contents when they last left the frame; zero if that never happened: the
    /// contents are zeros, unless the frame may be stored to.
    pub(super) version: Version,
    pub(super) place: Place,
    /// The disk has the contents of `version`.
    pub(super) on_disk: bool,
    /// Donors that have, or may have, the contents of `version`.
    pub(super) donors: Donors,
    /// A donor was told that it need not keep `version`: no donor is sent it again.
    #[serde(default)]
    pub(super) told: bool,
}

/// Where a page is on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Place {
    /// In its frame, used last at `used`. With the right to store its contents are newer than
    /// `version`.
    Frame { rights: Rights, used: Time },
    /// In the stash, without a mapping: it comes back by a fault that costs no message.
    Staged { used: Time },
    /// In the stash; the driver writes it to the disk.
    Storing { used: Time },
    /// In the stash, until donors have said that they keep it.
    Sending { used: Time },
    /// Not on this node, except perhaps on its disk.
    Out,
}

impl Place {
    /// When the page was used last, if it is in the memory of this node.
    pub(super) fn used(self) -> Option<Time> {
        match self {
            Self::Frame { used, .. }
            | Self::Staged { used }
            | Self::Storing { used }
            | Self::Sending { used } => Some(used),
            Self::Out => None,
        }
    }

    /// Whether threads may store to the page.
    pub(super) fn is_writable(self) -> bool {
        matches!(self, Self::Frame { rights, .. } if rights == Rights::Write)
    }
}

/// Up to two donors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Donors([Option<(NodeId, bool)>; 2]);

impl Donors {
    /// No donor.
    pub(super) const NONE: Self = Self([None; 2]);

    /// Adds a donor; `kept` if it has said that it keeps the page.
    pub(super) fn add(&mut self, node: NodeId, kept: bool) {
        self.remove(node);
        if let Some(room) = self.0.iter_mut().find(|donor| donor.is_none()) {
            *room = Some((node, kept));
        }
    }

    /// The contents have changed: the donors have none of them yet.
    pub(super) fn outdate(&mut self) {
        self.0
            .iter_mut()
            .flatten()
            .for_each(|(_, kept)| *kept = false);
    }

    /// Removes the donors that have not said that they keep the page.
    pub(super) fn take_unsure(&mut self) -> Self {
        let mut unsure = Self::NONE;
        for (donor, other) in self.0.iter_mut().zip(&mut unsure.0) {
            if donor.is_some_and(|(_, kept)| !kept) {
                *other = donor.take();
            }
        }
        unsure
    }

    /// A donor has said that it keeps the page. False if it is none.
    pub(super) fn kept(&mut self, node: NodeId) -> bool {
        let mut donors = self.0.iter_mut().flatten();
        let donor = donors.find(|(donor, _)| *donor == node);
        donor.is_some_and(|(_, kept)| {
            *kept = true;
            true
        })
    }

    /// Removes a donor. False if it is none.
    pub(super) fn remove(&mut self, node: NodeId) -> bool {
        let mut donors = self.0.iter_mut();
        let is_it =
            |donor: &&mut Option<(NodeId, bool)>| matches!(donor, Some((it, _)) if *it == node);
        donors
            .find(is_it)
            .is_some_and(|donor| donor.take().is_some())
    }

    /// All of them.
    pub(super) fn all(self) -> NodeSet {
        self.0.iter().flatten().map(|(node, _)| *node).collect()
    }

    /// The donors that have said that they keep the page.
    pub(super) fn sure(self) -> NodeSet {
        let sure = self.0.iter().flatten().filter(|(_, kept)| *kept);
        sure.map(|(node, _)| *node).collect()
    }

    /// The donor to ask first: one that is not late, if there is any.
    pub(super) fn first(self, is_late: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let first = self.after(None)?;
        if is_late(first) {
            return self
                .after(Some(first))
                .filter(|other| !is_late(*other))
                .or(Some(first));
        }
        Some(first)
    }

    /// The donor to ask first, and next after `last`.
    pub(super) fn after(self, last: Option<NodeId>) -> Option<NodeId> {
        let mut others = self.0.iter().flatten().map(|(node, _)| *node);
        others
            .clone()
            .find(|node| Some(*node) != last)
            .or_else(|| others.next())
    }

    /// Whether there is any.
    pub(super) fn is_empty(self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

impl Page {
    /// Whether the contents of `version` are where they would go if the page left this node now.
    pub(super) fn is_elsewhere(&self, backing: Backing) -> bool {
        let sure = self.donors.sure();
        match backing {
            Backing::File => self.on_disk && !sure.is_empty(),
            Backing::Copies => self.on_disk || sure.iter().count() == 2,
        }
    }

    /// A page of zeros in its frame.
    pub(super) fn zeros(rights: Rights, used: Time) -> Self {
        Self {
            version: Version(0),
            place: Place::Frame { rights, used },
            on_disk: false,
            donors: Donors::NONE,
            told: false,
        }
    }
}
