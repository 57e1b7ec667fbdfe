//! Every host state and datagram there ever was, each kept once; and the reactions of hosts, each
//! computed once.

use super::setting::{Op, Setting};
use super::site::{Outcome, Packet, Seat, Site, Stimulus};
use super::timeless::digest;
use crate::check::Violation;
use pagemesh_core::limits::{LARGE_DIFF, LARGE_DIFFS_SHOWN};
use pagemesh_core::{Config, Input, Pace, Start};
use pagemesh_wire::{ClusterId, Incarnation, NodeId, SegmentId};
use std::collections::HashMap;
use std::hash::Hash;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

pub(crate) const CLUSTER: ClusterId = ClusterId(1);

/// Stands for a host state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SiteId(u32);

/// Stands for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PacketId(u32);

/// An event at a host, by reference to the laboratory's tables.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    Packet(PacketId),
    Local(Input<'static>),
    Thread(Seat, Op, u64),
    Tick,
    GiveUp(NodeId),
}

/// The result: the new state, and the outcomes that others see.
type Reaction = Result<(SiteId, Rc<[Outcome<PacketId>]>), Violation>;

/// Things of one kind, each kept once and known by its number.
struct Store<T> {
    things: Vec<T>,
    numbers: HashMap<u128, u32>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            things: Vec::new(),
            numbers: HashMap::new(),
        }
    }
}

impl<T> Store<T> {
    fn keep(&mut self, digest: u128, thing: T) -> u32 {
        *self.numbers.entry(digest).or_insert_with(|| {
            self.things.push(thing);
            self.things.len() as u32 - 1
        })
    }
}

/// See the module.
pub(super) struct Lab {
    pub(super) setting: Setting,
    /// The segment of the play, once it is open.
    pub(super) segment: SegmentId,
    sites: Store<Site>,
    packets: Store<Packet>,
    reactions: HashMap<(SiteId, Event), Reaction>,
}

impl Lab {
    pub(super) fn new(setting: Setting) -> Self {
        Self {
            setting,
            segment: SegmentId(0),
            sites: Store::default(),
            packets: Store::default(),
            reactions: HashMap::new(),
        }
    }

    /// A host whose daemon has not started.
    pub(super) fn unborn(&mut self, host: usize) -> SiteId {
        let start = if host == 0 {
            Start::Found(CLUSTER)
        } else {
            Start::Join(address(0))
        };
        let config = Config {
            pace: Pace {
                ahead: self.setting.ahead(),
                notices: self.setting.notices,
                ..pace()
            },
            traps_late: self.setting.traps_late,
            ..Config::plain(
                format!("n{}", host + 1),
                address(host),
                Incarnation(host as u64 + 1),
                start,
            )
        };
        let site = Site::new(config, self.setting.canary);
        SiteId(self.sites.keep(site.digest(), site))
    }

    pub(super) fn site(&self, id: SiteId) -> &Site {
        &self.sites.things[id.0 as usize]
    }

    pub(super) fn packet(&self, id: PacketId) -> &Packet {
        &self.packets.things[id.0 as usize]
    }

    /// All packets that were ever sent.
    pub(super) fn packets(&self) -> &[Packet] {
        &self.packets.things
    }

    /// How many different host states have been seen.
    pub(super) fn host_states(&self) -> usize {
        self.sites.things.len()
    }

    /// The reaction of the host `me` in this state to this event.
    pub(super) fn react(&mut self, me: usize, site: SiteId, event: Event) -> Reaction {
        let asked = (site, event);
        if let Some(known) = self.reactions.get(&asked) {
            return known.clone();
        }
        let reaction = self.work_out(me, site, &asked.1);
        self.reactions.insert(asked, reaction.clone());
        reaction
    }

    fn work_out(&mut self, me: usize, site: SiteId, event: &Event) -> Reaction {
        let stimulus = match event {
            Event::Packet(id) => {
                let packet = &self.packets.things[id.0 as usize];
                Stimulus::Datagram(address(packet.from), &packet.bytes)
            }
            Event::Local(input) => Stimulus::Local(input),
            Event::Thread(seat, op, value) => Stimulus::Thread(*seat, *op, *value, self.segment),
            Event::Tick => Stimulus::Tick,
            Event::GiveUp(node) => Stimulus::GiveUp(*node),
        };
        let (after, outcomes) = self.sites.things[site.0 as usize].react(me, &stimulus)?;
        let site = SiteId(self.sites.keep(after.digest(), after));
        let outcomes = outcomes.into_iter().map(|outcome| self.kept(outcome));
        Ok((site, outcomes.collect::<Vec<_>>().into()))
    }

    fn kept(&mut self, outcome: Outcome<Packet>) -> Outcome<PacketId> {
        outcome.map(|packet| PacketId(self.packets.keep(digest(&packet), packet)))
    }
}

/// Repetitions do not slow down, and signs of life never come: time is steps.
fn pace() -> Pace {
    Pace {
        resend_first: super::site::TICK,
        resend_soonest: super::site::TICK,
        resend_ceiling: super::site::TICK,
        heartbeat: Duration::from_secs(1_000_000),
        dead_after: super::site::SILENCE,
        ahead: 0,
        notices: u32::MAX,
        twins: u32::MAX,
        large_diff: LARGE_DIFF,
        shown: LARGE_DIFFS_SHOWN,
        left_to_reader: 2,
        frames_at_once: 1,
    }
}

pub(crate) fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 7300))
}

/// The host at an address. An address that a hostile datagram made up belongs to no host: the
/// number is beyond all hosts.
pub(super) fn host_at(address: SocketAddr) -> usize {
    match address {
        SocketAddr::V4(address) => usize::from(address.ip().octets()[3]).wrapping_sub(1),
        SocketAddr::V6(_) => usize::MAX,
    }
}
