//! A segment as it is written into the journal, and into the document for a daemon of another
//! version: its fields are those of the schema, whichever part of [`Sequential`] has them.

use super::Sequential;
use super::feeds::Feeds;
use super::hold::Hold;
use super::library::Libraries;
use super::memory::Memory;
use super::pins::Pins;
use super::pressure::Pressure;
use super::replicas::Replicas;
use super::rules::Rules;
use super::table::Table;
use crate::policies::clock::Clock;
use crate::prefetch::Prefetch;
use crate::time::Time;
use pagemesh_wire::{NodeSet, PageIndex};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;

/// The fields of [`Sequential`], in the order in which they are written.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Sequential")]
pub(super) struct Stored<'a> {
    rules: Rules,
    pages: Cow<'a, Table>,
    libraries: Cow<'a, Libraries>,
    pin_jobs: Cow<'a, Pins>,
    prefetch: Cow<'a, Prefetch>,
    #[serde(default)]
    hold: Hold,
    #[serde(default)]
    frames: u32,
    #[serde(default)]
    hand: PageIndex,
    #[serde(default)]
    look_again: Option<Time>,
    #[serde(default)]
    met: Cow<'a, NodeSet>,
    #[serde(default)]
    feeds: Cow<'a, Feeds>,
    #[serde(default)]
    replicas: Cow<'a, Replicas>,
}

impl Serialize for Sequential {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = Stored {
            rules: self.memory.rules,
            pages: Cow::Borrowed(&self.memory.pages),
            libraries: Cow::Borrowed(&self.memory.libraries),
            pin_jobs: Cow::Borrowed(&self.memory.pins),
            prefetch: Cow::Borrowed(&self.memory.prefetch),
            hold: self.memory.hold,
            frames: self.memory.frames,
            hand: self.pressure.clock.hand,
            look_again: self.pressure.clock.look_again,
            met: Cow::Borrowed(&self.pressure.met),
            feeds: Cow::Borrowed(&self.feeds),
            replicas: Cow::Borrowed(&self.memory.replicas),
        };
        stored.serialize(serializer)
    }
}

impl From<Stored<'_>> for Sequential {
    fn from(stored: Stored<'_>) -> Self {
        Self {
            memory: Memory {
                rules: stored.rules,
                pages: stored.pages.into_owned(),
                libraries: stored.libraries.into_owned(),
                pins: stored.pin_jobs.into_owned(),
                prefetch: stored.prefetch.into_owned(),
                hold: stored.hold,
                frames: stored.frames,
                replicas: stored.replicas.into_owned(),
            },
            pressure: Pressure {
                clock: Clock {
                    hand: stored.hand,
                    look_again: stored.look_again,
                },
                met: stored.met.into_owned(),
            },
            feeds: stored.feeds.into_owned(),
        }
    }
}
