//! What people are told of this node.

mod admission;
mod pages;
mod problems;
mod troubles;
mod wall_clock;

use crate::driver::About;
use crate::executor::DaemonExecutor;
use pagemesh_core::{Node, Time};
use pagemesh_os::clock;
use pagemesh_os::udp::headers;
use pagemesh_wire::NodeId;
use pagemesh_wire::local::{ControlStatus, DiskState, NodeStatus, PathInfo};
use pagemesh_wire::peer::Health;
pub(crate) use troubles::Troubles;
pub(crate) use wall_clock::WallClock;

/// This node, to look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status<'a> {
    pub(crate) about: &'a About,
    pub(crate) node: &'a Node,
    pub(crate) executor: &'a DaemonExecutor,
}

impl Status<'_> {
    /// In brief.
    pub(crate) fn report(&self) -> NodeStatus {
        let count = |health: Health| {
            let members = self.node.view().members.iter();
            members.filter(|member| member.health == health).count() as u32
        };
        let now = clock::monotonic();
        let keeper = self.executor.keeper.process();
        let (fault_p50, fault_p99) = self.executor.counters.remote_faults();
        NodeStatus {
            node: self.node.id().unwrap_or(NodeId::NONE),
            name: self.about.name.clone(),
            address: self.about.address.to_string(),
            alive: if self.out().is_some() {
                0
            } else {
                count(Health::Alive)
            },
            dead: count(Health::Dead),
            clients: self.executor.sessions.len() as u32,
            segments: self.executor.pages.segments.len() as u32,
            pages: self.known(),
            uptime: now.saturating_sub(self.about.started) as f64 / 1e9,
            fault_p50,
            fault_p99,
            problems: self.problems(Time(now)),
            keeper: keeper.and_then(|id| u32::try_from(id).ok()).unwrap_or(0),
            takeovers: self.executor.life.takeovers,
            unreplicated: self.unreplicated(),
            control: ControlStatus {
                disk: self.disk(),
                ..self.node.control(Time(now))
            },
        }
    }

    fn disk(&self) -> DiskState {
        match &self.executor.ledger {
            None => DiskState::None,
            Some(ledger) if ledger.problem().is_none() => DiskState::Good,
            Some(_) => DiskState::Failing,
        }
    }

    /// How large datagrams to each node may be.
    pub(crate) fn paths(&self) -> Vec<PathInfo> {
        let ways = self.executor.network.ways().into_iter();
        ways.map(|way| PathInfo {
            node: way.node,
            mtu: (way.size + headers(way.address.ip())) as u32,
            found: way.found,
        })
        .collect()
    }
}
