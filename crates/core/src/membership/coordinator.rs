//! The coordinator's side of membership: admission, heartbeats, declaring members dead.

use super::name_check::NameChecks;
use crate::control::{HeldAnswer, StandbyLog, next_number};
use crate::directory::Directory;
use crate::event::Event;
use crate::limits::REJOINS;
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use core::net::SocketAddr;
use core::time::Duration;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{
    Decision, Health, Join, Member, MemberView, Message, Refusal, Welcome, version_4,
};
use pagemesh_wire::{Incarnation, NodeId, NodeSet, PAGE_SIZE, PublicKey};
use serde::{Deserialize, Serialize};

/// State that only the coordinator has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Coordinator {
    pub(crate) directory: Directory,
    /// When each member was last heard.
    heard: SortedMap<NodeId, Time>,
    /// The log that is streamed to the standby, or to the node that is to be it.
    pub(crate) log: Option<StandbyLog>,
    /// Calls that the present input has answered.
    pub(crate) answered: Vec<Decision>,
    /// Answers of the present input that wait for the standby.
    pub(crate) held: Vec<HeldAnswer>,
    /// Admissions that wait until the standby, or the disk, knows of them.
    pub(crate) welcomes: Vec<HeldWelcome>,
    /// The newest epoch of which the standby knows.
    pub(crate) standby_knows: u64,
    /// Finds out which numbers may be given again.
    pub(crate) checks: NameChecks,
}

/// An admission of which the host has not been told.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct HeldWelcome {
    address: SocketAddr,
    incarnation: Incarnation,
    node: NodeId,
    epoch: u64,
}

impl HeldWelcome {
    /// Tells the host.
    pub(crate) fn send(self, cx: &mut Cx<'_>) {
        let view = cx.shell.view.clone();
        welcome(cx, self.address, self.incarnation, self.node, view);
    }
}

/// The result of a request to join.
pub(crate) enum Verdict {
    /// The view has a new member; all members must be told.
    Changed(MemberView),
    /// The host was answered, or will ask again; nothing changed.
    Same,
}

impl Coordinator {
    /// A new coordinator, with the directory of its predecessor.
    pub(crate) fn of(directory: Directory) -> Self {
        Self {
            directory,
            ..Self::default()
        }
    }

    /// A member is gone: nothing has to be told to it.
    pub(crate) fn member_gone(&mut self, node: NodeId) {
        self.welcomes.retain(|one| one.node != node);
        self.checks.member_gone(node);
    }

    /// Members whose hosts have not been told of their admission.
    pub(crate) fn unaware(&self) -> NodeSet {
        self.welcomes.iter().map(|one| one.node).collect()
    }

    /// Takes out the admissions up to this epoch. Only now their hosts can be missed.
    pub(crate) fn welcomes_until(&mut self, epoch: u64, now: Time) -> Vec<HeldWelcome> {
        let welcomes = core::mem::take(&mut self.welcomes);
        let (known, unknown): (Vec<_>, _) =
            welcomes.into_iter().partition(|one| one.epoch <= epoch);
        self.welcomes = unknown;
        for welcome in &known {
            self.heard(welcome.node, now);
        }
        known
    }

    /// A host asks for admission, perhaps not for the first time.
    pub(crate) fn join(
        &mut self,
        cx: &mut Cx<'_>,
        (source, key): (SocketAddr, PublicKey),
        version: u8,
        join: &Join,
    ) -> Verdict {
        let answer_to = (source, version);
        let revoked = |member: &Member| {
            let same = member.key == key && key != PublicKey::NONE;
            let next = follows(member.incarnation, join.incarnation);
            member.health == Health::Revoked && (same || next)
        };
        if cx.shell.view.members.iter().any(revoked) {
            unwelcome(cx, answer_to, join, Refusal::NotMember);
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
                let waits = self.welcomes.iter().any(|one| one.node == node);
                if !waits {
                    let view = cx.shell.view.clone();
                    welcome(cx, source, join.incarnation, node, view);
                }
                return Verdict::Same;
            }
            Some(_) => {
                unwelcome(cx, answer_to, join, Refusal::NotMember);
                return Verdict::Same;
            }
            None => {}
        }
        if join.page_size != PAGE_SIZE as u32 {
            unwelcome(
                cx,
                answer_to,
                join,
                Refusal::PageSize {
                    theirs: join.page_size,
                },
            );
            return Verdict::Same;
        }
        if let Err(why) = has_version_for_all(cx, version, join) {
            unwelcome(cx, answer_to, join, why);
            return Verdict::Same;
        }
        let config = &cx.shell.config;
        let Some(next) = next_number(&cx.shell.view, config.keeps, config.numbers()) else {
            if self.checks.may_free(&cx.shell.view) {
                return Verdict::Same;
            }
            unwelcome(cx, answer_to, join, Refusal::ClusterFull);
            return Verdict::Same;
        };
        Verdict::Changed(self.admit(cx, (source, key), join, next))
    }

    /// Admits a host as this node. It hears of that when the standby and the disk know it. Returns
    /// the view with the new member.
    fn admit(
        &mut self,
        cx: &mut Cx<'_>,
        (source, key): (SocketAddr, PublicKey),
        join: &Join,
        node: NodeId,
    ) -> MemberView {
        let mut view = cx.shell.view.clone();
        view.epoch += 1;
        view.members.push(Member {
            id: node,
            name: shorten(&join.name),
            address: join.advertise.unwrap_or(source),
            incarnation: join.incarnation,
            key,
            health: Health::Alive,
            program: join.program,
        });
        self.watch(cx, node);
        if view.standby == NodeId::NONE && !cx.shell.config.keeps {
            welcome(cx, source, join.incarnation, node, view.clone());
        } else {
            self.welcomes.push(HeldWelcome {
                address: source,
                incarnation: join.incarnation,
                node,
                epoch: view.epoch,
            });
        }
        view
    }

    /// Watches whether a member is alive.
    pub(crate) fn watch(&mut self, cx: &mut Cx<'_>, node: NodeId) {
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

    /// This node did not run for so long: that is no silence of members, which may not have run
    /// either.
    pub(crate) fn was_away(&mut self, now: Time, away: Duration) {
        for heard in self.heard.values_mut() {
            *heard = now.min(*heard + away);
        }
    }

    /// Time since a member was last heard.
    pub(crate) fn silent(&self, node: NodeId, now: Time) -> Option<Duration> {
        self.heard.get(&node).map(|heard| now - *heard)
    }

    /// Whether the member must be declared dead. If not, arms the timer for the next check.
    pub(super) fn has_died(&mut self, cx: &mut Cx<'_>, node: NodeId) -> bool {
        let Some(heard) = self.heard.get(&node) else {
            return false;
        };
        let mut limit = *heard + cx.pace().dead_after;
        if self.unaware().contains(node) {
            // It waits for the standby, the disk or etcd, and does not know that it is a member.
            limit = cx.now + cx.pace().dead_after;
        }
        if cx.now < limit {
            cx.arm(limit, Timer::Suspect(node));
            return false;
        }
        self.heard.remove(&node);
        true
    }

    /// The view in which this member has the state `health`.
    pub(super) fn without(&mut self, cx: &Cx<'_>, node: NodeId, health: Health) -> MemberView {
        self.heard.remove(&node);
        let mut view = cx.shell.view.clone();
        view.epoch += 1;
        if view.standby == node {
            view.standby = NodeId::NONE;
        }
        for member in &mut view.members {
            if member.id == node {
                member.health = health;
            }
        }
        view
    }
}

/// Whether a daemon that has this incarnation has had that one before: it joins again by itself, and
/// counts its incarnations. Only a host without a key has to be recognized by that.
fn follows(before: Incarnation, now: Incarnation) -> bool {
    let distance = now.0.wrapping_sub(before.0);
    (1..=u64::from(REJOINS)).contains(&distance)
}

/// Bytes of the longest node name: the names of all nodes must fit into one datagram.
const NAME: usize = 32;

fn shorten(name: &str) -> String {
    let end = (0..=NAME.min(name.len()))
        .rev()
        .find(|at| name.is_char_boundary(*at));
    name[..end.unwrap_or(0)].to_owned()
}

fn welcome(
    cx: &mut Cx<'_>,
    address: SocketAddr,
    incarnation: Incarnation,
    node: NodeId,
    view: MemberView,
) {
    let cluster = cx.shell.cluster;
    let here = cx.shell.config.program.speaks;
    let theirs = view.member(node).map(|member| member.program.speaks);
    let both = theirs.and_then(|theirs| theirs.common(here));
    let view = match cx.shell.config.far_numbers {
        true => view.introduction(node),
        false => view,
    };
    let welcome = Welcome {
        incarnation,
        node,
        cluster,
        view,
    };
    let version = both.map_or(cx.shell.spoken, |both| both.newest);
    cx.send_to_host((address, version), Message::Welcome(welcome));
}

/// Whether a host speaks a version of the protocol that all members speak.
fn has_version_for_all(cx: &Cx<'_>, version: u8, join: &Join) -> Result<(), Refusal> {
    let here = join.program.speaks;
    if !here.is_range() {
        return Err(Refusal::Invalid(format!(
            "this host says that it speaks protocol versions {here}, which is no range"
        )));
    }
    let members = cx.shell.view.speaks();
    let cluster = members.unwrap_or(cx.shell.config.program.speaks);
    if cluster.common(here).is_some() {
        return Ok(());
    }
    Err(match version {
        version_4::VERSION => Refusal::Version {
            theirs: cluster.newest,
        },
        _ => Refusal::Versions { cluster, here },
    })
}

/// Refuses a host, in the version in which it asked.
fn unwelcome(cx: &mut Cx<'_>, host: (SocketAddr, u8), join: &Join, why: Refusal) {
    cx.emit(Event::JoinRefused {});
    let message = Message::Unwelcome {
        incarnation: join.incarnation,
        why,
    };
    cx.send_to_host(host, message);
}
