//! A node: all services of the core behind one entry point.

use crate::config::Config;
use crate::control::DecisionLog;
use crate::directory::Usage;
use crate::effect::Effects;
use crate::global::MemoryReport;
use crate::input::Input;
use crate::inspection::Inspection;
use crate::kept_writable::KeptWritable;
use crate::limits::STATES;
use crate::membership::Standing;
use crate::rejoin::Rejoined;
use crate::services::Services;
use crate::shell::{Cx, Shell};
use crate::time::Time;
use core::net::SocketAddr;
use core::time::Duration;
use pagemesh_wire::local::{ControlStatus, DiskState, PageState};
use pagemesh_wire::peer::{MemberView, Refusal, SegmentInfo};
use pagemesh_wire::{ClientId, NodeId, PageIndex, Program, PublicKey, SegmentId};
use serde::{Deserialize, Serialize};

/// One node of the cluster.
///
/// # Calling order
/// Inputs come one at a time; the effects of each are carried out in order and completely before
/// the next input (see the module of [`crate::Effect`]). The first input is [`Input::Deadline`].
/// `now` never goes back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    shell: Shell,
    services: Services,
}

impl Node {
    /// A node that has not started; its first input should be [`Input::Deadline`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            shell: Shell::new(config),
            services: Services::new(),
        }
    }

    /// Handles an input that happened at `now`, and appends to `effects` the steps to carry out, in
    /// their order.
    pub fn handle(&mut self, now: Time, input: Input<'_>, effects: &mut Effects) {
        let before = effects.len();
        effects.next_input();
        let mut cx = Cx {
            now,
            shell: &mut self.shell,
            effects,
        };
        self.services.handle(&mut cx, input);
        effects.answer_last(before);
        effects.depart_first(before);
    }

    /// When the next [`Input::Deadline`] is due if no other input comes before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        if self.services.membership.standing == Standing::Unborn {
            return Some(Time::ZERO);
        }
        self.shell.timers.next()
    }

    /// This node's number, after it was admitted.
    #[must_use]
    pub fn id(&self) -> Option<NodeId> {
        (self.shell.me != NodeId::NONE).then_some(self.shell.me)
    }

    /// Whether this node waits for a disk when it coordinates.
    #[must_use]
    pub fn keeps(&self) -> bool {
        self.shell.config.keeps
    }

    /// Whether a store that all nodes share elects the coordinator.
    #[must_use]
    pub fn is_elected(&self) -> bool {
        self.shell.config.elected
    }

    /// All members that this node knows of.
    #[must_use]
    pub fn view(&self) -> &MemberView {
        &self.shell.view
    }

    /// Where this node names lives that are over, as paths of fields: their numbers are not given
    /// again before it does so no more.
    #[must_use]
    pub fn names_of_the_gone(&self) -> Vec<(NodeId, String)> {
        let over = self.shell.view.over();
        self.services.places_of(&self.shell.memory, &over)
    }

    /// The program that this node says it is.
    #[must_use]
    pub fn program(&self) -> Program {
        self.shell.config.program
    }

    /// The version of the protocol in which the cluster speaks.
    #[must_use]
    pub fn spoken(&self) -> u8 {
        self.shell.spoken
    }

    /// The public key of a coordinator that goes on from its disk, if this node has promised to
    /// believe it and does not know it as a member yet: its datagrams are taken like a member's, or it
    /// could not say that it is one when the session ends in which it asked.
    #[must_use]
    pub fn awaited(&self) -> Option<PublicKey> {
        self.services.membership.awaited(self.shell.view.term)
    }

    /// The public key of a member's datagrams.
    #[must_use]
    pub fn key_of(&self, node: NodeId) -> Option<PublicKey> {
        let members = &self.shell.view.members;
        let member = members.iter().find(|member| member.id == node)?;
        Some(member.key)
    }

    /// The process number of this client if some home has something to undo when the process ends
    /// (`SEM_UNDO`).
    #[must_use]
    pub fn to_undo(&self, client: ClientId) -> Option<i32> {
        self.services.sysv.to_undo(client)
    }

    /// Why this node is no member: it was refused, expelled or has left.
    #[must_use]
    pub fn out(&self) -> Option<&Refusal> {
        match &self.services.membership.standing {
            Standing::Out(why) => Some(why),
            _ => None,
        }
    }

    /// How this node is joining again, or has, after it was declared dead.
    #[must_use]
    pub fn rejoin(&self) -> Rejoined {
        self.services.rejoin.report()
    }

    /// The coordinator's address, as told by the node that was asked for admission.
    #[must_use]
    pub fn redirected_to(&self) -> Option<SocketAddr> {
        self.services.membership.redirected_to()
    }

    /// Time since the coordinator was last heard; zero on the coordinator itself.
    #[must_use]
    pub fn coordinator_silent(&self, now: Time) -> Duration {
        if self.services.coordinator.is_some() {
            return Duration::ZERO;
        }
        now - self.services.membership.coordinator_heard
    }

    /// On the coordinator: the standby, and the time since it was last heard.
    #[must_use]
    pub fn standby_silent(&self, now: Time) -> Option<(NodeId, Duration)> {
        let standby = self.shell.view.standby;
        let coordinator = self.services.coordinator.as_ref()?;
        Some((standby, coordinator.silent(standby, now)?))
    }

    /// Who coordinates, and who could.
    #[must_use]
    pub fn control(&self, now: Time) -> ControlStatus {
        let view = &self.shell.view;
        let coordinator = self.services.coordinator.as_ref();
        let log = coordinator.and_then(|coordinator| coordinator.log.as_ref());
        let copying = log.filter(|log| !log.named).map(|log| log.node);
        ControlStatus {
            coordinator: view.term.coordinator(),
            term: view.term.count(),
            standby: view.standby,
            copying: copying.unwrap_or(NodeId::NONE),
            behind: log.map_or(0, DecisionLog::behind),
            silent: self.coordinator_silent(now).as_secs_f64(),
            disk: DiskState::None,
        }
    }

    /// Users who have used most of their quotas, each with the usage; only the coordinator knows.
    #[must_use]
    pub fn near_quota(&self) -> Vec<(u32, Usage)> {
        let coordinator = self.services.coordinator.as_ref();
        let quotas = self.shell.config.quotas;
        coordinator.map_or_else(Vec::new, |coordinator| {
            coordinator.directory.near_quota(quotas)
        })
    }

    /// Segments that this node takes part in.
    pub fn segments(&self) -> impl Iterator<Item = &SegmentInfo> {
        self.services.segments.values().map(|segment| &segment.info)
    }

    /// The segment of this name, if this node takes part in it.
    #[must_use]
    pub fn segment_named(&self, name: &str) -> Option<&SegmentInfo> {
        self.segments().find(|info| info.name == name)
    }

    /// Pages of a segment of policy `release` that were kept writable and are perhaps not written
    /// in every interval. A driver that compares them with their twins before it hands over a
    /// request for a barrier, and reports the equal ones by
    /// [`Input::Untouched`](crate::Input::Untouched), spares other nodes the write notices of pages
    /// that have not changed.
    #[must_use]
    pub fn kept_writable(&self, id: SegmentId) -> KeptWritable {
        let segment = self.services.segments.get(&id);
        segment.map_or_else(KeptWritable::default, |segment| {
            segment.policy.kept_writable()
        })
    }

    /// Where the pages of this node are that can leave its memory, and those kept for others.
    #[must_use]
    pub fn memory(&self) -> MemoryReport {
        let budgets = self.shell.memory.budgets;
        self.services.memory(budgets, self.shell.me)
    }

    /// The number of pages that this node keeps for others.
    #[must_use]
    pub fn pages_borrowed(&self) -> u64 {
        let global = &self.services.global;
        (global.donor.len() + global.shared.kept()).into()
    }

    /// The number of frames that segments have.
    #[must_use]
    pub fn frames_used(&self) -> u64 {
        self.shell.memory.used.into()
    }

    /// Whether the driver is to report the faults of a segment's mappings; until it is told to by
    /// [`Effect::Trap`](crate::Effect::Trap), if not.
    #[must_use]
    pub fn is_trapped(&self, id: SegmentId) -> bool {
        let segment = self.services.segments.get(&id);
        segment.is_none_or(|segment| segment.trapped)
    }

    /// Whether a child of a process that has the segment open inherits it.
    #[must_use]
    pub fn is_inherited(&self, id: SegmentId) -> bool {
        let segment = self.services.segments.get(&id);
        segment.is_none_or(|segment| segment.policy.is_inherited())
    }

    /// What this node knows of pages from `first` on, at most [`limits::STATES`](crate::limits) of
    /// them, for a process that saves the segment.
    #[must_use]
    pub fn states(&self, id: SegmentId, first: PageIndex) -> Option<Vec<PageState>> {
        let segment = self.services.segments.get(&id)?;
        let end = segment.info.spec.size.pages()?.0;
        let count = end.saturating_sub(first.0).min(STATES);
        Some(segment.policy.states(self.shell.me, first, count))
    }

    /// Whether a process of this node keeps the segment from changing.
    #[must_use]
    pub fn is_held(&self, id: SegmentId, now: Time) -> bool {
        let segment = self.services.segments.get(&id);
        segment.is_some_and(|segment| segment.policy.is_held(now))
    }

    /// The state of some pages of a segment on this node.
    #[must_use]
    pub fn inspect(&self, id: SegmentId, first: PageIndex, limit: usize) -> Option<Inspection> {
        let segment = self.services.segments.get(&id)?;
        Some(segment.policy.inspect(self.shell.me, first, limit))
    }
}
