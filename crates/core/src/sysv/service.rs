//! Dispatch of System V calls: from a process of this node to the home of the object, and back.

use super::getting::name_of;
use super::{Answers, Held, Here, Sysv, Unused};
use crate::caller::Caller;
use crate::calls::Calls;
use crate::effect::Reply;
use crate::limits::GROUPS;
use crate::on_reply::OnReply;
use crate::segments::Segments;
use crate::shell::Cx;
use crate::steps::Step;
use pagemesh_wire::peer::{self, Call, Refusal};
use pagemesh_wire::sysv::keys::Buckets;
use pagemesh_wire::sysv::{
    self, Ask, Errno, Id, MESSAGE, News, OPERATIONS, Op, Outcome, Pick, SEMAPHORES,
};
use pagemesh_wire::{ClientId, NodeId, SegmentId, Ticket};

/// What the service sees of the others.
#[derive(Clone, Copy)]
pub(crate) struct Others<'a> {
    pub(crate) calls: &'a Calls,
    pub(crate) is_member: bool,
}

impl Sysv {
    /// A process of this node makes a System V call.
    pub(crate) fn request(
        &mut self,
        cx: &mut Cx<'_>,
        calls: &Calls,
        (ticket, client): (Ticket, ClientId),
        ask: Box<Ask>,
    ) -> Vec<Step> {
        let failed = |errno| Reply::Sysv(Outcome::Failed(errno));
        if ask.who.credentials.groups.len() > GROUPS {
            let many =
                format!("a process in more than {GROUPS} groups cannot be judged by its groups");
            cx.refuse(ticket, Refusal::Limit(many));
            return Vec::new();
        }
        if let Some(errno) = too_large(&ask.op) {
            cx.reply(ticket, failed(errno));
            return Vec::new();
        }
        if name_of(&ask.op).is_some() {
            return self.find(cx, (ticket, client), ask).into_iter().collect();
        }
        let is_survey = matches!(ask.op, Op::Info { .. });
        let home = home(&ask.op, cx.me()).filter(|home| cx.is_alive(*home));
        let is_told = match home {
            _ if is_survey => cx.shell.alive.iter().any(|home| calls.tells(home)),
            Some(home) => home != cx.me() && calls.tells(home),
            None => false,
        };
        if is_told {
            self.held.push(Held {
                ticket,
                client,
                ask,
            });
            return Vec::new();
        }
        if is_survey {
            return self.survey(cx, (ticket, client), &ask);
        }
        let Some(home) = home else {
            // The object is gone with its node, or never existed.
            cx.reply(ticket, failed(Errno::EINVAL));
            return Vec::new();
        };
        self.begins(home, &ask);
        let then = match &ask.op {
            Op::ShmAttach { id, .. } => OnReply::Open {
                client: Some((ticket, client)),
                name: sysv::segment_name(*id),
            },
            _ => OnReply::Tell(ticket, client),
        };
        vec![Step::Call(home, Call::Sysv(ask), then)]
    }

    /// A call about System V objects, of another node or of this one. Only the coordinator keeps
    /// keys.
    pub(crate) fn call(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        call: Call,
        coordinates: bool,
    ) -> Vec<Step> {
        let lends = caller.node == cx.coordinator();
        let mut steps = Vec::new();
        let refused = |why: &str| peer::Reply::Refused(Refusal::Invalid(why.into()));
        let reply = match call {
            Call::Sysv(ask) => return self.called(cx, caller, &ask),
            Call::SysvKey { .. } if !coordinates => refused("this node keeps no keys"),
            Call::SysvKey {
                family,
                key,
                request,
            } => return self.register.ask(caller, (family, key), request).into(),
            Call::SysvNews(news) => {
                let answers = self.told(cx.now, caller, news);
                steps = self.settle(cx, answers);
                peer::Reply::Done
            }
            Call::SysvLend { buckets } if lends => self.keys.take(buckets),
            Call::SysvRecall { bucket, after } if lends => {
                self.tell_keys([bucket].into_iter().collect(), after)
            }
            Call::SysvGather { after } if lends => self.tell_keys(Buckets::ALL, after),
            _ => refused("only the coordinator lends keys and wants them back"),
        };
        steps.push(Step::Answer(caller, reply));
        steps
    }

    /// The reply to a call that this service made.
    pub(crate) fn replied(
        &mut self,
        cx: &mut Cx<'_>,
        others: Others<'_>,
        (from, then): (NodeId, OnReply),
        reply: peer::Reply,
    ) -> Vec<Step> {
        let Others { calls, is_member } = others;
        match then {
            OnReply::Orphaned(client) => self.exit(cx, calls, client),
            OnReply::Told => self.news_known(cx, others),
            OnReply::Register(get) => self.registered(cx, get, &reply, is_member),
            OnReply::Visit(get) => self.visited(cx, *get, reply).into_iter().collect(),
            OnReply::Struck(name) => self.free(cx, name, is_member),
            OnReply::Survey(ticket, _) => {
                self.surveyed(cx, ticket, &reply);
                Vec::new()
            }
            then => self.register.replied(from, &then, &reply),
        }
    }

    /// A home has acknowledged news: calls that were held back for that go on.
    fn news_known(&mut self, cx: &mut Cx<'_>, others: Others<'_>) -> Vec<Step> {
        let mut steps = Vec::new();
        for held in core::mem::take(&mut self.held) {
            let who = (held.ticket, held.client);
            if others.is_member {
                steps.extend(self.request(cx, others.calls, who, held.ask));
            } else {
                cx.refuse(held.ticket, Refusal::NotMember);
            }
        }
        steps
    }

    /// A System V call has reached the home of its object.
    pub(super) fn called(&mut self, cx: &Cx<'_>, caller: Caller, ask: &Ask) -> Vec<Step> {
        if let Some(name) = name_of(&ask.op)
            && caller.node != cx.me()
            && self.keys.is_busy(name)
        {
            self.keys.wait(name, caller, ask);
            return Vec::new();
        }
        let answers = self.serve(cx.now, cx.me(), caller, ask);
        self.settle(cx, answers)
    }

    /// What follows from a call or news.
    pub(super) fn settle(&mut self, cx: &Cx<'_>, answers: Answers) -> Vec<Step> {
        let made = answers.made.into_iter().filter_map(|id| self.made(id));
        let mut steps: Vec<_> = made.collect();
        for (name, id) in answers.struck {
            steps.extend(self.keys.strike(cx, name, id));
        }
        let replies = answers.replies.into_iter();
        steps.extend(replies.map(|(caller, reply)| Step::Answer(caller, reply)));
        steps.extend(answers.unused.into_iter().flat_map(|of| of.forget(cx)));
        steps
    }

    /// Takes part in the segment of a new object, because this node answers for its pages whether
    /// or not any process attaches it here.
    pub(super) fn made(&self, id: Id) -> Option<Step> {
        self.shm.info(id).map(Step::TakePart)
    }

    /// This node leaves: the objects whose home it is are removed.
    pub(crate) fn leave(&mut self, cx: &Cx<'_>) -> Vec<Step> {
        let all = self.shm.all().into_iter();
        all.flat_map(|of| of.forget(cx)).collect()
    }

    /// Tells the home how many attachments of a segment this node has or will have.
    pub(crate) fn attached(
        &self,
        cx: &Cx<'_>,
        calls: &Calls,
        segments: &Segments,
        id: SegmentId,
        why: Why,
    ) -> Option<Step> {
        let keeper = sysv::keeper(id)?;
        let segment = segments.get(&id)?;
        let name = &segment.info.name;
        let news = News::Attached {
            id: id_of(name)?,
            count: segment.openings() + calls.openings(name),
            pid: why.client.map_or(0, |client| self.pid_of(client)),
            detached: why.detached,
        };
        cx.is_alive(keeper).then(|| tell(keeper, news))
    }

    /// A process of this node has ended. When none of its calls is under way any more, tells the
    /// homes to undo what it left to be undone.
    pub(crate) fn exit(&mut self, cx: &Cx<'_>, calls: &Calls, client: ClientId) -> Vec<Step> {
        self.held.retain(|held| held.client != client);
        self.keys.client_gone(client);
        self.end_surveys_of(client);
        if calls.mourns(client) {
            return Vec::new();
        }
        let Some(Here { pid, undo }) = self.here.remove(&client) else {
            return Vec::new();
        };
        let homes = undo.into_iter().filter(|home| cx.is_alive(*home));
        homes
            .map(|home| tell(home, News::Exit { client, pid }))
            .collect()
    }
}

impl Unused {
    /// Tells the nodes that attached a segment, and this node, which answers for its pages, to drop
    /// it.
    fn forget(self, cx: &Cx<'_>) -> impl Iterator<Item = Step> {
        let Self { segment, mut there } = self;
        there.insert(cx.me());
        let alive = cx.shell.alive.clone();
        let told: Vec<_> = alive.iter().filter(|node| there.contains(*node)).collect();
        told.into_iter()
            .map(move |node| Step::Call(node, Call::Forget { segment }, OnReply::Nothing))
    }
}

fn tell(home: NodeId, news: News) -> Step {
    Step::Call(home, Call::SysvNews(news), OnReply::Told)
}

/// Why the attachments of a segment are counted anew.
#[derive(Clone, Copy)]
pub(crate) struct Why {
    /// The process that attached or detached, if any.
    pub(crate) client: Option<ClientId>,
    /// Whether it was a detachment.
    pub(crate) detached: bool,
}

impl Why {
    pub(crate) fn attached(client: ClientId) -> Self {
        Self {
            client: Some(client),
            detached: false,
        }
    }

    pub(crate) fn detached(client: ClientId) -> Self {
        Self {
            client: Some(client),
            detached: true,
        }
    }
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

pub(crate) fn is_sysv(call: &Call) -> bool {
    matches!(
        call,
        Call::Sysv(_)
            | Call::SysvKey { .. }
            | Call::SysvNews(_)
            | Call::SysvLend { .. }
            | Call::SysvGather { .. }
            | Call::SysvRecall { .. }
    )
}
