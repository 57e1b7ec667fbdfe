//! Lazy release consistency (TreadMarks): what a node wrote before a release becomes visible to the
//! node that acquires after it. Decision 0019 says how.
//!
//! [`Release`] joins parts that own their state. [`intervals`] is what the node knows of all nodes'
//! intervals: its [`history`], what other nodes have said that they know ([`heard`]), and what this
//! node asks for ([`inquiries`]). [`memory`] is what it has of the pages: the page table ([`pages`])
//! with the pages that are kept writable from interval to interval ([`kept_writable`]), the diffs
//! that the driver keeps ([`diff_store`]), and where nodes accumulate ([`reductions`]); [`page`] is
//! one page, [`notices`] its write notices, [`races`] finds bytes that two nodes wrote concurrently.
//! [`push_credit`] is to whom diffs are pushed, [`diff_sizes`] whose diffs are large, [`collector`]
//! the node's part in the garbage collection, [`round`] the home's, [`replicas`] how a second node
//! has what other nodes hear of. [`messages`] are the messages of the policy, [`rules`] what is
//! settled when a segment is opened, and [`stored`] is how it is written down.
//!
//! What takes several parts opens them as a context for the length of one input: [`miss`] a page, which
//! is made whole from [`copies`] and with [`diff_requests`]; [`serve`] what other nodes get because they
//! request it, where [`feeds`] leaves some requests to other readers, or by [`push`]; [`ahead`] a walk,
//! whose pages are made whole before they are touched and writable before they are stored to
//! ([`store_ahead`], [`untrapped`]); [`lead`] the collection; `replicas::backup` what the backup is
//! to keep.
//!
//! The other files have what happens to the whole: [`hooks`] what the node asks of the policy,
//! [`arrivals`] which messages arrive, [`accesses`] what accesses and notices do to pages,
//! [`requests`] how requests leave together, [`synchronization`] what locks and barriers do, [`learn`]
//! how a node learns of intervals, [`collect`] the garbage collection on each node, [`leave`] how a node
//! leaves, [`death`] what becomes of copies when a node is gone, [`wards`] what a backup does, [`repair`]
//! how there is a second node again when one is gone, and [`pressure`] empties the frames of a full node.

mod accesses;
mod ahead;
mod arrivals;
mod collect;
mod collector;
mod copies;
mod death;
mod diff_requests;
mod diff_sizes;
mod diff_store;
mod feeds;
mod heard;
mod history;
mod hooks;
mod inquiries;
mod intervals;
mod kept_writable;
mod lead;
mod learn;
mod leave;
mod memory;
pub mod messages;
mod miss;
mod notices;
mod page;
mod pages;
mod pressure;
mod push;
mod push_credit;
mod races;
mod reductions;
mod repair;
mod replicas;
mod requests;
mod round;
mod rules;
mod serve;
mod store_ahead;
mod stored;
mod synchronization;
mod untrapped;
mod wards;

use super::clock::Clock;
use super::hooks::Open;
use crate::prefetch::Prefetch;
use crate::shell::Cx;
use collector::Collector;
use diff_sizes::DiffSizes;
use feeds::Feeds;
use intervals::Intervals;
use memory::Memory;
use messages::Body;
use pagemesh_wire::peer::{Message, Payload, Policy, PolicyMessage, Refusal};
use pagemesh_wire::{NodeId, SegmentId};
use push_credit::PushCredit;
use replicas::Replicas;
use round::Leader;
use rules::Rules;
use serde::{Deserialize, Serialize};
use stored::Stored;

/// The pages of one segment as this node knows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "Stored<'_>")]
pub(crate) struct Release {
    rules: Rules,
    intervals: Intervals,
    memory: Memory,
    sizes: DiffSizes,
    /// Releases at locks since the last one at a barrier. At locks nobody looks which pages have changed.
    releases_at_locks: u32,
    push: PushCredit,
    collector: Collector,
    round: Leader,
    /// Requests for pages that were not touched yet.
    prefetch: Prefetch,
    replicas: Replicas,
    feeds: Feeds,
    clock: Clock,
}

impl Release {
    fn new(rules: Rules) -> Self {
        let segment = rules.segment;
        Self {
            rules,
            intervals: Intervals::new(segment),
            memory: Memory::new(segment),
            sizes: DiffSizes::default(),
            releases_at_locks: 0,
            push: PushCredit::new(rules.spread),
            collector: Collector::new(segment),
            round: Leader::default(),
            prefetch: Prefetch::default(),
            replicas: Replicas::default(),
            feeds: Feeds::default(),
            clock: Clock::default(),
        }
    }
}

impl Open for Release {
    fn open(segment: SegmentId, size: u32, chosen: Policy) -> Option<Result<Self, Refusal>> {
        match chosen {
            Policy::Release { spread } => Some(Ok(Self::new(Rules {
                segment,
                size,
                spread,
            }))),
            _ => None,
        }
    }
}

/// Sends a message to this policy on another node.
fn say(cx: &mut Cx<'_>, segment: SegmentId, to: NodeId, body: &Body) {
    cx.send(to, Message::Policy(envelope(segment, body)));
}

fn envelope<T: Serialize>(segment: SegmentId, said: &T) -> PolicyMessage {
    PolicyMessage {
        segment,
        body: Payload::of(said),
    }
}

#[cfg(test)]
mod tests;
