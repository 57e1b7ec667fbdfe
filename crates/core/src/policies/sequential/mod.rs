//! Sequential consistency by write-invalidate: many readers or one writer (M5, M6, F15). Every load
//! sees the latest store made anywhere.
//!
//! [`Sequential`] joins parts that own their state. [`memory`] is what this node has of the pages, and
//! what waits for them: the page [`table`], [`hold`] that keeps a whole segment from changing,
//! [`library`] the order where the manager is fixed, [`pins`] of ranges for explicit write locks,
//! [`replicas`], [`wards`] and [`book`] contents on a second node. [`pressure`] empties the frames of a
//! full node, [`feeds`] has readers of the same pages serve each other. [`rules`] are settled when a
//! segment is opened, [`messages`] are those between a node and its backup, and [`stored`] is how the
//! segment is written down.
//!
//! [`page`] is what a node knows of one page, with [`pins_here`] that keep it. For the length of one
//! input it is open: [`page_here`] is its frame and its ownership on this node, and how they leave, with
//! the notes of [`replicas`] on it; a [`context::PageContext`] is that and the requests of this node.
//! [`owner`] serves the queue, [`copies`] handles what arrives, [`request`] asks for the page and
//! [`search`] for its owner, [`loss`] is when it will not come, [`window`] decides how long it stays,
//! [`predictor`] is the read-modify-write predictor.
//!
//! The other files have what happens to the whole: [`hooks`] what the node asks of the policy,
//! [`arrivals`] which messages arrive, [`ahead`] pages that are asked for before they are touched,
//! [`untrapped`] pages that were used before that, [`leave`] how a node leaves, [`left_behind`] what is
//! lost when it is declared dead, [`inspection`] what is told of pages.

mod ahead;
mod arrivals;
mod book;
mod context;
mod copies;
mod feeds;
mod hold;
mod hooks;
mod inspection;
mod leave;
mod left_behind;
mod library;
mod loss;
mod memory;
pub mod messages;
mod owner;
mod page;
mod page_here;
mod pins;
mod pins_here;
mod predictor;
mod pressure;
mod replicas;
mod request;
mod rules;
mod search;
mod stored;
mod table;
mod untrapped;
mod wards;
mod window;

use super::hooks::Open;
use crate::limits::WINDOW_LIMIT;
use feeds::Feeds;
use memory::Memory;
use pagemesh_wire::SegmentId;
use pagemesh_wire::peer::{Policy, Refusal, Window};
use pressure::Pressure;
use rules::Rules;
use serde::Deserialize;
use stored::Stored;

/// The pages of one segment as this node knows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "Stored<'_>")]
pub(crate) struct Sequential {
    memory: Memory,
    pressure: Pressure,
    feeds: Feeds,
}

impl Open for Sequential {
    fn open(segment: SegmentId, pages: u32, chosen: Policy) -> Option<Result<Self, Refusal>> {
        let (manager, window) = chosen.sequential()?;
        let longest = WINDOW_LIMIT.as_nanos();
        if matches!(window, Window::Nanos(nanos) if u128::from(nanos) > longest) {
            let why =
                format!("a window lasts {WINDOW_LIMIT:?} at most: everybody else waits for it");
            return Some(Err(Refusal::Invalid(why)));
        }
        let rules = Rules {
            segment,
            manager,
            window,
        };
        Some(Ok(Self {
            memory: Memory::new(rules, pages),
            pressure: Pressure::default(),
            feeds: Feeds::default(),
        }))
    }
}

#[cfg(test)]
mod tests;
