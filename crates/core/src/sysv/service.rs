//! Dispatch of System V calls: from a process of this node to the home of the object, and back.

use super::getting::name_of;
use super::{Answers, Held, Unused};
use crate::caller::Caller;
use crate::effect::Reply;
use crate::limits::GROUPS;
use crate::membership::Standing;
use crate::on_reply::OnReply;
use crate::services::Services;
use crate::shell::Cx;
use pagemesh_wire::peer::{self, Call, Refusal};
use pagemesh_wire::sysv::{
    self, Ask, Errno, Id, MESSAGE, News, OPERATIONS, Op, Outcome, Pick, SEMAPHORES,
};
use pagemesh_wire::{ClientId, NodeId, SegmentId, Ticket};

impl Services {
    /// A process of this node makes a System V call.
    pub(crate) fn sysv(
        &mut self,
        cx: &mut Cx<'_>,
        ticket: Ticket,
        client: ClientId,
        ask: Box<Ask>,
    ) {
        if ask.who.credentials.groups.len() > GROUPS {
            let many =
                format!("a process in more than {GROUPS} groups cannot be judged by its groups");
            return cx.refuse(ticket, Refusal::Limit(many));
        }
        let failed = |errno| Reply::Sysv(Outcome::Failed(errno));
        if let Some(errno) = too_large(&ask.op) {
            return cx.reply(ticket, failed(errno));
        }
        if name_of(&ask.op).is_some() {
            return self.sysv_get(cx, (ticket, client), ask);
        }
        if let Op::Info { .. } = ask.op {
            if cx.shell.alive.iter().any(|home| self.calls.tells(home)) {
                let held = Held {
                    ticket,
                    client,
                    ask,
                };
                return self.sysv.held.push(held);
            }
            return self.sysv_survey(cx, (ticket, client), &ask);
        }
        let home = match home(&ask.op, cx.me()) {
            Some(home) if cx.is_alive(home) => home,
            // The object is gone with its node, or never existed.
            _ => return cx.reply(ticket, failed(Errno::EINVAL)),
        };
        if home != cx.me() && self.calls.tells(home) {
            let held = Held {
                ticket,
                client,
                ask,
            };
            return self.sysv.held.push(held);
        }
        self.sysv.begins(home, &ask);
        let then = match &ask.op {
            Op::ShmAttach { id, .. } => OnReply::Open {
                client: Some((ticket, client)),
                name: sysv::segment_name(*id),
            },
            _ => OnReply::Tell(ticket, client),
        };
        self.call(cx, home, Call::Sysv(ask), then);
    }

    /// A home has acknowledged news: calls that were held back for that go on.
    pub(crate) fn sysv_told(&mut self, cx: &mut Cx<'_>) {
        let member = self.membership.standing == Standing::Member;
        for held in core::mem::take(&mut self.sysv.held) {
            let Held {
                ticket,
                client,
                ask,
            } = held;
            if member {
                self.sysv(cx, ticket, client, ask);
            } else {
                cx.refuse(ticket, Refusal::NotMember);
            }
        }
    }

    /// A call about System V objects, of another node or of this one.
    pub(crate) fn sysv_call(&mut self, cx: &mut Cx<'_>, caller: Caller, call: Call) {
        let lends = caller.node == cx.coordinator();
        let reply = match call {
            Call::Sysv(ask) => return self.sysv_serve(cx, caller, &ask),
            Call::SysvKey {
                family,
                key,
                request,
            } => {
                return self.sysv_key(cx, caller, (family, key), request);
            }
            Call::SysvNews(news) => {
                self.sysv_news(cx, caller, news);
                peer::Reply::Done
            }
            Call::SysvLend { buckets } if lends => self.sysv_take(buckets),
            Call::SysvRecall { bucket, after } if lends => self.sysv_give_back(bucket, after),
            Call::SysvGather { after } if lends => self.sysv_tell_keys(after),
            _ => {
                let why = "only the coordinator lends keys and wants them back";
                peer::Reply::Refused(Refusal::Invalid(why.into()))
            }
        };
        self.answer(cx, caller, reply);
    }

    /// A System V call has reached the home of its object.
    pub(super) fn sysv_serve(&mut self, cx: &mut Cx<'_>, caller: Caller, ask: &Ask) {
        if let Some(name) = name_of(&ask.op)
            && caller.node != cx.me()
            && self.sysv.keys.is_busy(name)
        {
            return self.sysv.keys.wait(name, caller, ask);
        }
        let answers = self.sysv.serve(cx.now, cx.me(), caller, ask);
        self.sysv_answer(cx, answers);
    }

    /// A node sends news of its processes.
    fn sysv_news(&mut self, cx: &mut Cx<'_>, caller: Caller, news: News) {
        let answers = self.sysv.told(cx.now, caller, news);
        self.sysv_answer(cx, answers);
    }

    pub(crate) fn sysv_answer(&mut self, cx: &mut Cx<'_>, answers: Answers) {
        for id in answers.made {
            self.sysv_made(cx, id);
        }
        for (name, id) in answers.struck {
            self.sysv_strike(cx, name, id);
        }
        for (caller, reply) in answers.replies {
            self.answer(cx, caller, reply);
        }
        for unused in answers.unused {
            self.sysv_forget(cx, unused);
        }
    }

    /// Tells the nodes that attached a segment, and this node, which answers for its pages, to drop
    /// it.
    fn sysv_forget(&mut self, cx: &mut Cx<'_>, unused: Unused) {
        let Unused { segment, mut there } = unused;
        there.insert(cx.me());
        for node in cx.shell.alive.iter().filter(|node| there.contains(*node)) {
            self.call(cx, node, Call::Forget { segment }, OnReply::Nothing);
        }
    }

    /// This node leaves: the objects whose home it is are removed.
    pub(crate) fn sysv_leave(&mut self, cx: &mut Cx<'_>) {
        for unused in self.sysv.shm.all() {
            self.sysv_forget(cx, unused);
        }
    }

    /// Tells the home how many attachments of a segment this node has or will have.
    pub(crate) fn sysv_attached(&mut self, cx: &mut Cx<'_>, segment: SegmentId, why: Why) {
        let (Some(keeper), Some(known)) = (sysv::keeper(segment), self.segments.get(&segment))
        else {
            return;
        };
        let Some(id) = id_of(&known.info.name) else {
            return;
        };
        let count = known.openings() + self.calls.openings(&known.info.name);
        let pid = why.client.map_or(0, |client| self.sysv.pid_of(client));
        let news = News::Attached {
            id,
            count,
            pid,
            detached: why.detached,
        };
        if cx.is_alive(keeper) {
            self.call(cx, keeper, Call::SysvNews(news), OnReply::Told);
        }
    }

    /// A process of this node has ended. When none of its calls is under way any more, tells the
    /// homes to undo what it left to be undone.
    pub(crate) fn sysv_exit(&mut self, cx: &mut Cx<'_>, client: ClientId) {
        self.sysv.held.retain(|held| held.client != client);
        self.sysv.keys.client_gone(client);
        self.sysv.end_surveys_of(client);
        if self.calls.mourns(client) {
            return;
        }
        let Some(here) = self.sysv.here.remove(&client) else {
            return;
        };
        let pid = here.pid;
        for home in here.undo {
            let news = News::Exit { client, pid };
            if cx.is_alive(home) {
                self.call(cx, home, Call::SysvNews(news), OnReply::Told);
            }
        }
    }

    /// A node is gone, with its processes and the objects whose home it was.
    pub(crate) fn sysv_member_gone(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let answers = self.sysv.member_gone(cx.now, node);
        self.sysv_answer(cx, answers);
        let kept = |id: &SegmentId| sysv::keeper(*id) == Some(node);
        let lost: Vec<_> = self.segments.keys().copied().filter(kept).collect();
        for id in lost {
            self.forget(cx, id);
        }
    }

    /// Whether this node decides about the end of a segment.
    pub(crate) fn keeps(&self, cx: &Cx<'_>, node: NodeId, segment: SegmentId) -> bool {
        node == sysv::keeper(segment).unwrap_or(cx.coordinator())
    }

    /// Takes part in the segment of a new object, because this node answers for its pages whether
    /// or not any process attaches it here.
    pub(super) fn sysv_made(&mut self, cx: &Cx<'_>, id: Id) {
        if let Some(info) = self.sysv.shm.info(id) {
            debug_assert_eq!(info.id.home(), cx.me());
            let made = self.take_part(&info);
            debug_assert!(made.is_ok(), "its policy is the default one");
        }
    }
}

/// Why the attachments of a segment are counted anew.
#[derive(Clone, Copy)]
pub(crate) struct Why {
    /// The process that attached or detached, if any.
    pub(crate) client: Option<ClientId>,
    /// Whether it was a detachment.
    pub(crate) detached: bool,
}

/// The home of the object that a call is about.
fn home(op: &Op, me: NodeId) -> Option<NodeId> {
    match op {
        Op::ShmGet { .. } | Op::SemGet { .. } | Op::MsgGet { .. } | Op::Info { .. } => None,
        Op::InfoHere { .. } => Some(me),
        Op::Stat { pick, .. } => match pick {
            Pick::Id(id) => id.home(),
            Pick::Index(index) | Pick::IndexAny(index) => Id::home_at(*index),
        },
        Op::ShmAttach { id, .. }
        | Op::ShmLock { id, .. }
        | Op::SemOp { id, .. }
        | Op::SemGetOne { id, .. }
        | Op::SemGetAll { id }
        | Op::SemSetOne { id, .. }
        | Op::SemSetAll { id, .. }
        | Op::MsgSend { id, .. }
        | Op::MsgReceive { id, .. }
        | Op::Set { id, .. }
        | Op::Remove { id, .. } => id.home(),
    }
}

/// The error of a call that would not fit into a datagram.
fn too_large(op: &Op) -> Option<Errno> {
    match op {
        Op::SemOp { ops, .. } if ops.len() > OPERATIONS as usize => Some(Errno::E2BIG),
        Op::SemSetAll { values, .. } if values.len() > 2 * SEMAPHORES as usize => {
            Some(Errno::EINVAL)
        }
        Op::MsgSend { text, .. } if text.len() > MESSAGE as usize => Some(Errno::EINVAL),
        _ => None,
    }
}

/// The object whose segment has this name.
fn id_of(name: &str) -> Option<Id> {
    let number = name.strip_prefix(sysv::SEGMENT_NAME)?;
    number.parse().ok().map(Id)
}
