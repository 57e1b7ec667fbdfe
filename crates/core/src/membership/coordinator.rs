//! The coordinator's side of membership: admission, heartbeats, declaring members dead.

use crate::directory::Directory;
use crate::effect::Effect;
use crate::event::Event;
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use core::net::SocketAddr;
use pagemesh_wire::peer::{Health, Join, Member, MemberView, Message, Refusal, Welcome};
use pagemesh_wire::{NodeId, PAGE_SIZE, PublicKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// State that only the first node has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Coordinator {
    pub(crate) directory: Directory,
    /// When each member was last heard.
    heard: BTreeMap<NodeId, Time>,
}

/// The result of a request to join.
pub(crate) enum Verdict {
    /// The view has a new member; all members must be told.
    Changed(MemberView),
    /// The host was answered; nothing changed.
    Same,
}

impl Coordinator {
    /// A host asks for admission, perhaps not for the first time.
    pub(crate) fn join(
        &mut self,
        cx: &mut Cx<'_>,
        (source, key): (SocketAddr, PublicKey),
        join: &Join,
    ) -> Verdict {
        let revoked = |member: &Member| {
            member.health == Health::Revoked && member.key == key && key != PublicKey::NONE
        };
        if cx.shell.view.members.iter().any(revoked) {
            unwelcome(cx, source, join, Refusal::NotMember);
            return Verdict::Same;
        }
        let known = cx
            .shell
            .view
            .members
            .iter()
            .find(|member| member.incarnation == join.incarnation && member.key == key)
            .map(|member| (member.id, member.health));
        match known {
            Some((node, Health::Alive)) => {
                welcome(cx, source, join, node, cx.shell.view.clone());
                return Verdict::Same;
            }
            Some(_) => {
                unwelcome(cx, source, join, Refusal::NotMember);
                return Verdict::Same;
            }
            None => {}
        }
        if join.page_size != PAGE_SIZE as u32 {
            unwelcome(
                cx,
                source,
                join,
                Refusal::PageSize {
                    theirs: join.page_size,
                },
            );
            return Verdict::Same;
        }
        let next = cx
            .shell
            .view
            .members
            .iter()
            .map(|member| member.id.0)
            .max()
            .unwrap_or(0)
            + 1;
        if next >= NodeId::LIMIT {
            unwelcome(cx, source, join, Refusal::ClusterFull);
            return Verdict::Same;
        }
        let node = NodeId(next);
        let mut view = cx.shell.view.clone();
        view.epoch += 1;
        view.members.push(Member {
            id: node,
            name: shorten(&join.name),
            address: join.advertise.unwrap_or(source),
            incarnation: join.incarnation,
            key,
            health: Health::Alive,
        });
        self.watch(cx, node);
        welcome(cx, source, join, node, view.clone());
        Verdict::Changed(view)
    }

    fn watch(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        self.heard.insert(node, cx.now);
        let suspect = cx.now + cx.pace().dead_after;
        cx.arm(suspect, Timer::Suspect(node));
    }

    /// A message from a member shows that it is alive.
    pub(crate) fn heard(&mut self, node: NodeId, now: Time) {
        if let Some(heard) = self.heard.get_mut(&node) {
            *heard = now;
        }
    }

    /// Whether the member must be declared dead. If not, arms the timer for the next check.
    pub(crate) fn suspect(&mut self, cx: &mut Cx<'_>, node: NodeId) -> bool {
        let Some(heard) = self.heard.get(&node) else {
            return false;
        };
        let limit = *heard + cx.pace().dead_after;
        if cx.now < limit {
            cx.arm(limit, Timer::Suspect(node));
            return false;
        }
        self.heard.remove(&node);
        true
    }

    /// The view in which this member has the state `health`.
    pub(crate) fn without(&mut self, cx: &Cx<'_>, node: NodeId, health: Health) -> MemberView {
        self.heard.remove(&node);
        let mut view = cx.shell.view.clone();
        view.epoch += 1;
        for member in &mut view.members {
            if member.id == node {
                member.health = health;
            }
        }
        view
    }
}

/// Bytes of the longest node name: the names of all nodes must fit into one datagram.
const NAME: usize = 32;

fn shorten(name: &str) -> String {
    let end = (0..=NAME.min(name.len()))
        .rev()
        .find(|at| name.is_char_boundary(*at));
    name[..end.unwrap_or(0)].to_owned()
}

fn welcome(cx: &mut Cx<'_>, address: SocketAddr, join: &Join, node: NodeId, view: MemberView) {
    let cluster = cx.shell.cluster;
    let welcome = Welcome {
        incarnation: join.incarnation,
        node,
        cluster,
        view,
    };
    let header = cx.header(NodeId::NONE);
    cx.push(Effect::Send {
        address,
        header,
        message: Box::new(Message::Welcome(welcome)),
        page: None,
    });
}

fn unwelcome(cx: &mut Cx<'_>, address: SocketAddr, join: &Join, why: Refusal) {
    cx.emit(Event::JoinRefused {});
    let message = Message::Unwelcome {
        incarnation: join.incarnation,
        why,
    };
    let header = cx.header(NodeId::NONE);
    cx.push(Effect::Send {
        address,
        header,
        message: Box::new(message),
        page: None,
    });
}
