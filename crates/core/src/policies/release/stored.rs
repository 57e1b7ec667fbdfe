//! A segment as it is written into the journal, and into the document for a daemon of another
//! version: its fields are those of the schema, whichever part of [`Release`] has them.

use super::Release;
use super::collector::Collector;
use super::diff_sizes::DiffSizes;
use super::diff_store::DiffStore;
use super::feeds::Feeds;
use super::heard::Heard;
use super::history::History;
use super::inquiries::Inquiries;
use super::intervals::Intervals;
use super::memory::Memory;
use super::pages::Pages;
use super::push_credit::PushCredit;
use super::reductions::Reductions;
use super::replicas::Replicas;
use super::round::Leader;
use super::rules::Rules;
use crate::policies::clock::Clock;
use crate::prefetch::Prefetch;
use crate::time::Time;
use pagemesh_wire::peer::Spread;
use pagemesh_wire::{PageIndex, SegmentId};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;

/// The fields of [`Release`], in the order in which they are written.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Release")]
pub(super) struct Stored<'a> {
    segment: SegmentId,
    size: u32,
    spread: Spread,
    history: Cow<'a, History>,
    heard: Cow<'a, Heard>,
    inquiries: Cow<'a, Inquiries>,
    pages: Cow<'a, Pages>,
    diffs: Cow<'a, DiffStore>,
    #[serde(default)]
    sizes: Cow<'a, DiffSizes>,
    #[serde(default)]
    releases_at_locks: u32,
    #[serde(default)]
    missed_round: bool,
    push: Cow<'a, PushCredit>,
    collector: Cow<'a, Collector>,
    round: Cow<'a, Leader>,
    reductions: Cow<'a, Reductions>,
    prefetch: Cow<'a, Prefetch>,
    #[serde(default)]
    replicas: Cow<'a, Replicas>,
    #[serde(default)]
    feeds: Cow<'a, Feeds>,
    #[serde(default)]
    copies: u32,
    #[serde(default)]
    hand: PageIndex,
    #[serde(default)]
    look_again: Option<Time>,
}

impl Serialize for Release {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = Stored {
            segment: self.rules.segment,
            size: self.rules.size,
            spread: self.rules.spread,
            history: Cow::Borrowed(&self.intervals.history),
            heard: Cow::Borrowed(&self.intervals.heard),
            inquiries: Cow::Borrowed(&self.intervals.inquiries),
            pages: Cow::Borrowed(&self.memory.pages),
            diffs: Cow::Borrowed(&self.memory.diffs),
            sizes: Cow::Borrowed(&self.sizes),
            releases_at_locks: self.releases_at_locks,
            missed_round: self.intervals.missed_round,
            push: Cow::Borrowed(&self.push),
            collector: Cow::Borrowed(&self.collector),
            round: Cow::Borrowed(&self.round),
            reductions: Cow::Borrowed(&self.memory.reductions),
            prefetch: Cow::Borrowed(&self.prefetch),
            replicas: Cow::Borrowed(&self.replicas),
            feeds: Cow::Borrowed(&self.feeds),
            copies: self.memory.copies,
            hand: self.clock.hand,
            look_again: self.clock.look_again,
        };
        stored.serialize(serializer)
    }
}

impl From<Stored<'_>> for Release {
    fn from(stored: Stored<'_>) -> Self {
        let Stored {
            segment,
            size,
            spread,
            ..
        } = stored;
        Self {
            rules: Rules {
                segment,
                size,
                spread,
            },
            intervals: Intervals {
                history: stored.history.into_owned(),
                heard: stored.heard.into_owned(),
                inquiries: stored.inquiries.into_owned(),
                missed_round: stored.missed_round,
            },
            memory: Memory {
                segment,
                replicated: stored.replicas.on,
                pages: stored.pages.into_owned(),
                copies: stored.copies,
                diffs: stored.diffs.into_owned(),
                reductions: stored.reductions.into_owned(),
            },
            sizes: stored.sizes.into_owned(),
            releases_at_locks: stored.releases_at_locks,
            push: stored.push.into_owned(),
            collector: stored.collector.into_owned(),
            round: stored.round.into_owned(),
            prefetch: stored.prefetch.into_owned(),
            replicas: stored.replicas.into_owned(),
            feeds: stored.feeds.into_owned(),
            clock: Clock {
                hand: stored.hand,
                look_again: stored.look_again,
            },
        }
    }
}
