//! The messages between a node and its backup, in segments with a replica: bodies of
//! [`Message::Policy`](pagemesh_wire::peer::Message::Policy) and
//! [`Message::PolicyPage`](pagemesh_wire::peer::Message::PolicyPage).

use pagemesh_wire::peer::Payload;
use pagemesh_wire::{PageIndex, Version};
use serde::{Deserialize, Serialize};

/// A message of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Body {
    /// To the backup, with the page behind it, or without one: a page of zeros.
    Page(KeepPage),
    /// See [`Keep`].
    Keep(Keep),
    /// See [`Kept`].
    Kept(Kept),
    /// From a backup that leaves: the receiver is to choose another one, and to say when that has
    /// everything.
    Leaving,
    /// To a backup that leaves: the sender needs it no more.
    Free,
    /// From the owner of pages to the node that gave them: they are on a second node, at least at these
    /// versions. At most [`PAGES`].
    Release(Vec<(PageIndex, Version)>),
    /// To the backup: its replicas of these pages, if older than these versions, are needed no more. At
    /// most [`PAGES`].
    Drop(Vec<(PageIndex, Version)>),
}

/// Pages of a part of a commit, and pages that a message names, at most.
pub const PAGES: usize = u64::BITS as usize;

/// A page of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeepPage {
    /// The number of the commit at its node, from one.
    pub commit: u64,
    /// The part of the commit, from zero.
    pub part: u32,
    /// Its place in the part, from zero.
    pub place: u8,
    /// The page.
    pub page: PageIndex,
    /// The version that has these contents.
    pub version: Version,
}

/// Asks the backup to keep a part of a commit. It answers with [`Kept`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Keep {
    /// The number of the commit.
    pub commit: u64,
    /// The part.
    pub part: u32,
    /// Pages in the part.
    pub count: u8,
    /// It is the last part: if the backup has all of it, the commit counts.
    pub last: bool,
    /// With this commit, all that others have seen of the sender's pages is on a second node.
    pub whole: bool,
}

/// What a backup has of a part of a commit. If nothing is lacking of the last part, the whole commit
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Kept {
    /// The number of the commit.
    pub commit: u64,
    /// The part.
    pub part: u32,
    /// The places that are lacking: a bit for each.
    pub lacks: u64,
}

impl Body {
    /// The name of the message, for people and for scenarios.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Page(_) => "Page",
            Self::Keep(_) => "Keep",
            Self::Kept(_) => "Kept",
            Self::Leaving => "Leaving",
            Self::Free => "Free",
            Self::Release(_) => "Release",
            Self::Drop(_) => "Drop",
        }
    }

    /// Reads what a peer sent; `None` if it is no message of this policy.
    #[must_use]
    pub fn read(payload: &Payload) -> Option<Self> {
        payload.read()
    }
}
