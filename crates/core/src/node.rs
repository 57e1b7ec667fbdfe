//! A node: every room of the core, and the corridor between them.

use crate::directory::Usage;
use crate::effect::Effects;
use crate::input::Input;
use crate::membership::Standing;
use crate::policies::Inspection;
use crate::rooms::Rooms;
use crate::shell::{Cx, Shell};
use crate::time::Time;
use core::net::SocketAddr;
use core::time::Duration;
use pagemesh_wire::peer::{MemberView, Refusal, SegmentInfo};
use pagemesh_wire::{
    ByteLen, ClientId, ClusterId, Incarnation, NodeId, PageIndex, PublicKey, SegmentId,
};
use serde::{Deserialize, Serialize};

/// What a node is told at its start.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Config {
    /// Its name, by default the host name.
    pub name: String,
    /// Where its own datagrams come from, as peers see it.
    pub address: SocketAddr,
    /// Drawn at random for this life.
    pub incarnation: Incarnation,
    /// What its datagrams are sealed by; none where nothing is sealed.
    pub key: PublicKey,
    /// Join the cluster of a daemon here, or be the first node of a new one.
    pub start: Start,
    /// Resend, suspicion and use-guard times; the simulator shortens them.
    pub pace: Pace,
    /// Look, in segments of policy `release`, for bytes that two nodes wrote without
    /// knowing of each other.
    pub check_races: bool,
    /// What one user may have; the first node's count.
    pub quotas: Quotas,
}

/// What one user may have in the whole cluster. The superuser has no quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Quotas {
    /// See [`crate::limits::SEGMENTS_OF_USER`].
    pub segments: u32,
    /// See [`crate::limits::BYTES_OF_USER`].
    pub bytes: ByteLen,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            segments: crate::limits::SEGMENTS_OF_USER,
            bytes: crate::limits::BYTES_OF_USER,
        }
    }
}

/// How a node begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Start {
    /// Found a cluster and be its coordinator.
    Found(ClusterId),
    /// Ask the daemon at this address for admission.
    Join(SocketAddr),
}

/// Times that depend on the network, not on the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pace {
    /// See [`crate::limits::RESEND_FIRST`].
    pub resend_first: Duration,
    /// See [`crate::limits::RESEND_SOONEST`]; not below the first wait: all waits are alike.
    pub resend_soonest: Duration,
    /// See [`crate::limits::RESEND_CEILING`].
    pub resend_ceiling: Duration,
    /// See [`crate::limits::HEARTBEAT`].
    pub heartbeat: Duration,
    /// See [`crate::limits::DEAD_AFTER`].
    pub dead_after: Duration,
    /// See [`crate::limits::AHEAD`]; zero to ask for nothing ahead.
    pub ahead: u32,
    /// See [`crate::limits::NOTICES_KEPT`].
    pub notices: u32,
    /// See [`crate::limits::TWINS_KEPT`].
    pub twins: u32,
}

impl Default for Pace {
    fn default() -> Self {
        use crate::limits;
        Self {
            resend_first: limits::RESEND_FIRST,
            resend_soonest: limits::RESEND_SOONEST,
            resend_ceiling: limits::RESEND_CEILING,
            heartbeat: limits::HEARTBEAT,
            dead_after: limits::DEAD_AFTER,
            ahead: limits::AHEAD,
            notices: limits::NOTICES_KEPT,
            twins: limits::TWINS_KEPT,
        }
    }
}

/// One node of the cluster.
///
/// # The caller's law
/// Inputs come one at a time; the effects of each are carried out in order and
/// completely before the next (see the module of [`crate::Effect`]). The first
/// input is [`Input::Deadline`]. `now` never goes back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    shell: Shell,
    rooms: Rooms,
}

impl Node {
    /// A node about to start; its first input should be [`Input::Deadline`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            shell: Shell::new(config),
            rooms: Rooms::new(),
        }
    }

    /// Something happened at `now`. What is to be done about it is appended to
    /// `effects`, in the order in which it must be done.
    pub fn handle(&mut self, now: Time, input: Input<'_>, effects: &mut Effects) {
        let before = effects.len();
        let mut cx = Cx {
            now,
            shell: &mut self.shell,
            effects,
        };
        self.rooms.handle(&mut cx, input);
        effects.answer_last(before);
        effects.depart_first(before);
    }

    /// When [`Input::Deadline`] is due next, if nothing happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        if self.rooms.membership.standing == Standing::Unborn {
            return Some(Time::ZERO);
        }
        self.shell.timers.next()
    }

    /// This node's number, once it was admitted.
    #[must_use]
    pub fn id(&self) -> Option<NodeId> {
        (self.shell.me != NodeId::NONE).then_some(self.shell.me)
    }

    /// All members as far as this node knows.
    #[must_use]
    pub fn view(&self) -> &MemberView {
        &self.shell.view
    }

    /// What a member's datagrams are sealed by.
    #[must_use]
    pub fn key_of(&self, node: NodeId) -> Option<PublicKey> {
        let members = &self.shell.view.members;
        let member = members.iter().find(|member| member.id == node)?;
        Some(member.key)
    }

    /// The process of this client, if something is to be undone when it ends
    /// (`SEM_UNDO`).
    #[must_use]
    pub fn to_undo(&self, client: ClientId) -> Option<i32> {
        self.rooms.sysv.to_undo(client)
    }

    /// Why this node is no member, if it was refused, expelled or has left.
    #[must_use]
    pub fn out(&self) -> Option<&Refusal> {
        match &self.rooms.membership.standing {
            Standing::Out(why) => Some(why),
            _ => None,
        }
    }

    /// Where the node that was asked for admission says that the coordinator is.
    #[must_use]
    pub fn redirected_to(&self) -> Option<SocketAddr> {
        self.rooms.membership.redirected_to()
    }

    /// How long ago the coordinator was heard; zero on the coordinator itself.
    #[must_use]
    pub fn coordinator_silent(&self, now: Time) -> Duration {
        if self.rooms.coordinator.is_some() {
            return Duration::ZERO;
        }
        now - self.rooms.membership.coordinator_heard
    }

    /// Users who have most of what their quotas allow, each with that; only the coordinator
    /// counts.
    #[must_use]
    pub fn near_quota(&self) -> Vec<(u32, Usage)> {
        let coordinator = self.rooms.coordinator.as_ref();
        let quotas = self.shell.config.quotas;
        coordinator.map_or_else(Vec::new, |coordinator| {
            coordinator.directory.near_quota(quotas)
        })
    }

    /// Segments this node takes part in.
    pub fn segments(&self) -> impl Iterator<Item = &SegmentInfo> {
        self.rooms.segments.values().map(|segment| &segment.info)
    }

    /// The segment of this name, if this node takes part in it.
    #[must_use]
    pub fn segment_named(&self, name: &str) -> Option<&SegmentInfo> {
        self.segments().find(|info| info.name == name)
    }

    /// Pages of a segment of policy `release` that stayed writable and are perhaps not
    /// written in every interval. A driver that looks at them before it hands over a
    /// request for a barrier, and says so by
    /// [`Input::Untouched`](crate::Input::Untouched), spares others to hear of those that have not changed.
    #[must_use]
    pub fn resting(&self, id: SegmentId) -> Vec<PageIndex> {
        let segment = self.rooms.segments.get(&id);
        segment.map_or_else(Vec::new, |segment| segment.policy.resting())
    }

    /// What this node knows of the pages of a segment.
    #[must_use]
    pub fn inspect(&self, id: SegmentId, first: PageIndex, limit: usize) -> Option<Inspection> {
        let segment = self.rooms.segments.get(&id)?;
        Some(segment.policy.inspect(self.shell.me, first, limit))
    }
}
