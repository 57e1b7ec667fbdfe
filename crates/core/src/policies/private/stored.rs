//! A segment as it is written into the journal, and into the document for a daemon of another
//! version: its fields are those of the schema, whichever part of [`Private`] has them.

use super::fetch::Fetch;
use super::memory::{Memory, Rules};
use super::outgoing::Outgoing;
use super::page::Page;
use super::scan::Frames;
use super::stores::Stores;
use super::{Blocked, Private};
use crate::global::Ages;
use crate::prefetch::Prefetch;
use crate::time::Time;
use pagemesh_sorted::LongMap;
use pagemesh_wire::peer::Backing;
use pagemesh_wire::{PageIndex, SegmentId};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::VecDeque;

/// The fields of [`Private`], in the order in which they are written.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Private")]
pub(super) struct Stored<'a> {
    segment: SegmentId,
    local: u32,
    backing: Backing,
    pages: Cow<'a, LongMap<PageIndex, Page>>,
    mapped: Cow<'a, Ages<PageIndex>>,
    #[serde(default)]
    walked: Cow<'a, Ages<PageIndex>>,
    #[serde(default)]
    turn: u8,
    #[serde(default)]
    stores: Cow<'a, Stores>,
    staged: Cow<'a, Ages<PageIndex>>,
    held: u32,
    storing: u32,
    fetches: Cow<'a, LongMap<PageIndex, Fetch>>,
    blocked: Cow<'a, VecDeque<Blocked>>,
    outgoing: Cow<'a, Outgoing>,
    full: Option<Time>,
    prefetch: Cow<'a, Prefetch>,
}

impl Serialize for Private {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let memory = &self.memory;
        let stored = Stored {
            segment: memory.rules.segment,
            local: memory.rules.local,
            backing: memory.rules.backing,
            pages: Cow::Borrowed(&memory.pages),
            mapped: Cow::Borrowed(&memory.frames.mapped),
            walked: Cow::Borrowed(&memory.frames.walked),
            turn: memory.frames.turn,
            stores: Cow::Borrowed(&memory.stores),
            staged: Cow::Borrowed(&memory.staged),
            held: memory.held,
            storing: memory.storing,
            fetches: Cow::Borrowed(&self.fetches),
            blocked: Cow::Borrowed(&self.blocked),
            outgoing: Cow::Borrowed(&self.outgoing),
            full: self.full,
            prefetch: Cow::Borrowed(&self.prefetch),
        };
        stored.serialize(serializer)
    }
}

impl From<Stored<'_>> for Private {
    fn from(stored: Stored<'_>) -> Self {
        let rules = Rules {
            segment: stored.segment,
            local: stored.local,
            backing: stored.backing,
        };
        Self {
            memory: Memory {
                rules,
                pages: stored.pages.into_owned(),
                frames: Frames {
                    mapped: stored.mapped.into_owned(),
                    walked: stored.walked.into_owned(),
                    turn: stored.turn,
                },
                stores: stored.stores.into_owned(),
                staged: stored.staged.into_owned(),
                held: stored.held,
                storing: stored.storing,
            },
            fetches: stored.fetches.into_owned(),
            blocked: stored.blocked.into_owned(),
            outgoing: stored.outgoing.into_owned(),
            full: stored.full,
            prefetch: stored.prefetch.into_owned(),
        }
    }
}
