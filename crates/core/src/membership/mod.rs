//! Membership of the cluster. The first node is the coordinator: it admits members, watches them,
//! declares them dead, and tells all others; the data path never waits for it (decision 9).

mod coordinator;

pub(crate) use coordinator::{Coordinator, Verdict};

use crate::backoff::Backoff;
use crate::config::Start;
use crate::effect::Effect;
use crate::event::Event;
use crate::limits::{FORSAKEN, JOIN_RETRY};
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use core::net::SocketAddr;
use core::time::Duration;
use pagemesh_wire::peer::{Health, Join, Member, MemberView, Message, Refusal, Welcome};
use pagemesh_wire::{NodeId, NodeSet, PAGE_SIZE};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// This node's own state of membership.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Standing {
    /// The node has not started.
    Unborn,
    /// The node has asked for admission.
    Joining(Backoff),
    /// The node is a member.
    Member,
    /// The node was refused, was expelled or has left, for this reason.
    Out(Refusal),
}

/// The coordinator has been silent for so long that requests which depend on it alone are refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoordinatorSilent {
    /// The length of that silence.
    pub(crate) patience: Duration,
    /// The coordinator and all other nodes that do not answer.
    pub(crate) silent: NodeSet,
}

/// A member's side of membership.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Membership {
    pub(crate) standing: Standing,
    /// When the coordinator was last heard.
    pub(crate) coordinator_heard: Time,
    /// While the coordinator is silent: when each other node last answered, or was first asked.
    echoes: BTreeMap<NodeId, Time>,
    /// The address to ask for admission, if not the one that was configured.
    ask: Option<SocketAddr>,
}

impl Membership {
    pub(crate) fn new() -> Self {
        Self {
            standing: Standing::Unborn,
            coordinator_heard: Time::ZERO,
            echoes: BTreeMap::new(),
            ask: None,
        }
    }

    /// Starts the node. Returns a coordinator if the node founds a cluster.
    pub(crate) fn start(&mut self, cx: &mut Cx<'_>) -> Option<Coordinator> {
        if self.standing != Standing::Unborn {
            return None;
        }
        match cx.shell.config.start {
            Start::Found(cluster) => {
                let me = NodeId::COORDINATOR;
                let founder = Member {
                    id: me,
                    name: cx.shell.config.name.clone(),
                    address: cx.shell.config.address,
                    incarnation: cx.shell.config.incarnation,
                    key: cx.shell.config.key,
                    health: Health::Alive,
                };
                let view = MemberView {
                    epoch: 1,
                    members: vec![founder],
                };
                let incarnation = cx.shell.config.incarnation;
                self.admitted(
                    cx,
                    Welcome {
                        incarnation,
                        node: me,
                        cluster,
                        view,
                    },
                );
                Some(Coordinator::default())
            }
            Start::Join(address) => {
                self.standing = Standing::Joining(cx.backoff(Timer::Join));
                say_join(cx, address);
                None
            }
        }
    }

    /// Asks for admission again.
    pub(crate) fn join_due(&mut self, cx: &mut Cx<'_>) {
        let (Standing::Joining(_), Start::Join(address)) = (&self.standing, &cx.shell.config.start)
        else {
            return;
        };
        let address = self.ask.unwrap_or(*address);
        cx.arm(cx.now + JOIN_RETRY, Timer::Join);
        say_join(cx, address);
    }

    /// The asked node tells the coordinator's address.
    pub(crate) fn redirected(&mut self, cx: &mut Cx<'_>, to: SocketAddr) {
        if matches!(self.standing, Standing::Joining(_)) && self.ask != Some(to) {
            self.ask = Some(to);
            say_join(cx, to);
        }
    }

    /// The coordinator's address as told by the node that was asked first.
    pub(crate) fn redirected_to(&self) -> Option<SocketAddr> {
        self.ask
    }

    /// This node is admitted.
    pub(crate) fn admitted(&mut self, cx: &mut Cx<'_>, welcome: Welcome) {
        self.standing = Standing::Member;
        self.coordinator_heard = cx.now;
        cx.shell.me = welcome.node;
        cx.shell.cluster = welcome.cluster;
        cx.shell.set_view(welcome.view);
        cx.emit(Event::Admitted { node: welcome.node });
        if welcome.node != NodeId::COORDINATOR {
            cx.arm(cx.now, Timer::Heartbeat);
        }
    }

    /// This node is no member any more.
    pub(crate) fn out(&mut self, cx: &mut Cx<'_>, why: Refusal) {
        self.standing = Standing::Out(why);
        cx.emit(Event::Expelled {});
    }

    /// Whether the coordinator has been silent for so long that any other member would be declared
    /// dead. The coordinator never is, because it may come back.
    pub(crate) fn coordinator_silent(&self, cx: &Cx<'_>) -> bool {
        cx.me() != NodeId::COORDINATOR && cx.now - self.coordinator_heard > cx.pace().dead_after
    }

    /// How long an operation may wait for other nodes, if the coordinator has been silent for as
    /// long: the coordinator, or a node whose death it would have announced, may be gone.
    pub(crate) fn overdue(&self, cx: &Cx<'_>) -> Option<CoordinatorSilent> {
        let patience = patience(cx);
        let silence = cx.now - self.coordinator_heard;
        let silent = self.silent(cx);
        let overdue = CoordinatorSilent { patience, silent };
        (cx.me() != NodeId::COORDINATOR && silence > patience).then_some(overdue)
    }

    /// The nodes that would be declared dead if the coordinator were not silent itself. They are
    /// given more time than usual, because they may not know that it is silent.
    pub(crate) fn silent(&self, cx: &Cx<'_>) -> NodeSet {
        if !self.coordinator_silent(cx) {
            return NodeSet::EMPTY;
        }
        let patience = patience(cx);
        let mut silent = NodeSet::only(NodeId::COORDINATOR);
        for (node, heard) in &self.echoes {
            if cx.is_alive(*node) && cx.now - *heard > patience {
                silent.insert(*node);
            }
        }
        silent
    }

    /// A heartbeat of another node was answered.
    pub(crate) fn heard(&mut self, now: Time, from: NodeId) {
        if from == NodeId::COORDINATOR {
            self.coordinator_heard = now;
            self.echoes.clear();
        } else if let Some(heard) = self.echoes.get_mut(&from) {
            *heard = now;
        }
    }

    /// Sends a heartbeat.
    pub(crate) fn heartbeat(&mut self, cx: &mut Cx<'_>) {
        if self.standing != Standing::Member {
            return;
        }
        let epoch = cx.shell.view.epoch;
        cx.send(NodeId::COORDINATOR, Message::Heartbeat { epoch });
        if self.coordinator_silent(cx) {
            for node in cx
                .shell
                .peers()
                .without(NodeSet::only(NodeId::COORDINATOR))
                .iter()
            {
                self.echoes.entry(node).or_insert(cx.now);
                cx.send(node, Message::Heartbeat { epoch });
            }
        }
        let next = cx.now + cx.pace().heartbeat;
        cx.arm(next, Timer::Heartbeat);
    }
}

fn say_join(cx: &mut Cx<'_>, address: SocketAddr) {
    let config = &cx.shell.config;
    let join = Join {
        name: config.name.clone(),
        incarnation: config.incarnation,
        page_size: PAGE_SIZE as u32,
        advertise: Some(config.address),
    };
    let header = cx.header(NodeId::NONE);
    cx.push(Effect::Send {
        address,
        header,
        message: Box::new(Message::Join(join)),
        page: None,
    });
}

/// How long other nodes may be silent while the coordinator is silent, too.
fn patience(cx: &Cx<'_>) -> Duration {
    cx.pace().dead_after * FORSAKEN
}
