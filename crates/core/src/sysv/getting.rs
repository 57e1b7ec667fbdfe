//! How a get finds its object: an object with the key, on whichever node that is, or a new one
//! here.
//!
//! A node finds its own objects by itself, and decides alone upon keys it was lent. For other keys
//! it asks the register and offers an object that it has made already but has not published: if no
//! object has the key, the offered one gets it; otherwise the offer is discarded and the home of
//! the other object is asked. While a node and the register negotiate about a key, all other gets
//! for it on this node wait.

use super::get::Get;
use super::register::Steps;
use crate::caller::Caller;
use crate::membership::Standing;
use crate::on_reply::OnReply;
use crate::services::Services;
use crate::shell::Cx;
use pagemesh_wire::peer::{Call, Refusal, Reply};
use pagemesh_wire::sysv::keys::{Bucket, Buckets, ENTRIES, Entry, KeyRequest, Name, Word};
use pagemesh_wire::sysv::{Ask, Errno, Family, IPC_PRIVATE, Id, Op, Outcome};
use pagemesh_wire::{ClientId, NodeId, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The answer of a home that has no object with the key: the register must be asked again. No get
/// fails with this error.
pub(super) const NOT_HERE: Outcome = Outcome::Failed(Errno::EIDRM);

/// What a node knows of keys besides those of its objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Keys {
    /// Buckets in which this node decides alone.
    lent: Buckets,
    /// Keys about which this node negotiates with the register.
    busy: BTreeSet<Name>,
    /// Gets that wait for the end of such a negotiation, in the order of arrival.
    waiting: Vec<Waiting>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Waiting {
    name: Name,
    of: Of,
    ask: Box<Ask>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Of {
    /// The get of a process of this node.
    Process(Ticket, ClientId),
    /// The get of another node.
    Node(Caller),
}

impl Keys {
    /// Whether this node decides alone which object gets a key.
    pub(super) fn decides(&self, key: i32) -> bool {
        key == IPC_PRIVATE || self.lent.contains(Bucket::of(key))
    }

    /// Whether a get for this key has to wait.
    pub(super) fn is_busy(&self, name: Name) -> bool {
        self.busy.contains(&name)
    }

    /// Another node asks for a busy key: it waits.
    pub(super) fn wait(&mut self, name: Name, caller: Caller, ask: &Ask) {
        self.waiting.push(Waiting {
            name,
            of: Of::Node(caller),
            ask: Box::new(ask.clone()),
        });
    }

    pub(super) fn withdraw(&mut self, ticket: Ticket) {
        let others = |one: &Waiting| !matches!(one.of, Of::Process(of, _) if of == ticket);
        self.waiting.retain(others);
    }

    pub(super) fn client_gone(&mut self, client: ClientId) {
        let others = |one: &Waiting| !matches!(one.of, Of::Process(_, of) if of == client);
        self.waiting.retain(others);
    }

    pub(super) fn cancel(&mut self, caller: Caller) {
        self.waiting.retain(|one| one.of != Of::Node(caller));
    }

    pub(super) fn member_gone(&mut self, node: NodeId) {
        let others = |one: &Waiting| !matches!(one.of, Of::Node(caller) if caller.node == node);
        self.waiting.retain(others);
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl Services {
    /// A process asks for the object of a key.
    pub(super) fn sysv_get(&mut self, cx: &mut Cx<'_>, client: (Ticket, ClientId), ask: Box<Ask>) {
        let Some(name) = name_of(&ask.op) else {
            return;
        };
        let (ticket, client) = client;
        if self.sysv.keys.is_busy(name) {
            let of = Of::Process(ticket, client);
            return self.sysv.keys.waiting.push(Waiting { name, of, ask });
        }
        if self.sysv.keys.decides(name.1) || self.sysv.table(name.0).has(name.1) {
            let here = cx.me();
            return self.call(cx, here, Call::Sysv(ask), OnReply::Tell(ticket, client));
        }
        let offer = self.sysv.offer(cx.me(), &ask);
        let call = Call::SysvKey {
            family: name.0,
            key: name.1,
            request: KeyRequest::Find { offer: offer.ok() },
        };
        let get = Get {
            client: Some((ticket, client)),
            ask,
            offer: offer.ok(),
            why: offer.err().unwrap_or(Errno::ENOENT),
        };
        self.sysv.keys.busy.insert(name);
        let then = OnReply::Register(Box::new(get));
        self.call(cx, cx.coordinator(), call, then);
    }

    /// The register has answered.
    pub(crate) fn sysv_registered(&mut self, cx: &mut Cx<'_>, get: Box<Get>, reply: &Reply) {
        let Some(name) = name_of(&get.ask.op) else {
            return;
        };
        match (reply, get.offer) {
            (Reply::SysvKey(Word::Yours), Some(id)) => self.sysv_show(cx, name.0, id),
            (_, Some(id)) => self.sysv.table_mut(name.0).discard(id),
            (_, None) => {}
        }
        let outcome = match (reply, get.offer) {
            (Reply::SysvKey(Word::Yours), Some(id)) => Ok(Outcome::Number(id.0)),
            (Reply::SysvKey(Word::Nobodys), _) => Ok(Outcome::Failed(get.why)),
            (Reply::SysvKey(Word::Theirs(id)), _) => match id.home() {
                Some(home) if home != cx.me() => {
                    self.sysv_free(cx, name);
                    return self.sysv_visit(cx, home, get);
                }
                _ => Err(odd()),
            },
            (Reply::Refused(why), _) => Err(why.clone()),
            _ => Err(odd()),
        };
        if let Some((ticket, _)) = get.client {
            match outcome {
                Ok(outcome) => cx.reply(ticket, crate::effect::Reply::Sysv(outcome)),
                Err(why) => cx.refuse(ticket, why),
            }
        }
        self.sysv_free(cx, name);
    }

    /// Publishes an object of this node that has got its key.
    pub(super) fn sysv_show(&mut self, cx: &Cx<'_>, family: Family, id: Id) {
        self.sysv.table_mut(family).show(id);
        if family == Family::Shm {
            self.sysv_made(cx, id);
        }
    }

    /// Asks the home of the object that has the key, which is another node.
    fn sysv_visit(&mut self, cx: &mut Cx<'_>, home: NodeId, get: Box<Get>) {
        if cx.is_gone(home) {
            return self.sysv_get_again(cx, *get);
        }
        let call = Call::Sysv(get.ask.clone());
        self.call(cx, home, call, OnReply::Visit(get));
    }

    /// The home of an object has answered, or is gone with the object.
    pub(crate) fn sysv_visited(&mut self, cx: &mut Cx<'_>, get: Get, reply: Reply) {
        match (reply, get.client) {
            (Reply::Sysv(NOT_HERE), _) => self.sysv_get_again(cx, get),
            (Reply::Refused(Refusal::NodeGone(home)), _) if cx.is_gone(home) => {
                self.sysv_get_again(cx, get);
            }
            (Reply::Sysv(outcome), Some((ticket, _))) => {
                cx.reply(ticket, crate::effect::Reply::Sysv(outcome));
            }
            (Reply::Refused(why), Some((ticket, _))) => cx.refuse(ticket, why),
            (_, Some((ticket, _))) => cx.refuse(ticket, odd()),
            (_, None) => {}
        }
    }

    fn sysv_get_again(&mut self, cx: &mut Cx<'_>, get: Get) {
        if let Some(client) = get.client {
            self.sysv_get(cx, client, get.ask);
        }
    }

    /// An object of this node has lost its key or is gone: tells the register.
    pub(super) fn sysv_strike(&mut self, cx: &mut Cx<'_>, name: Name, id: Id) {
        if self.sysv.keys.decides(name.1) {
            return;
        }
        self.sysv.keys.busy.insert(name);
        let call = Call::SysvKey {
            family: name.0,
            key: name.1,
            request: KeyRequest::Drop { id },
        };
        self.call(cx, cx.coordinator(), call, OnReply::Struck(name));
    }

    /// The negotiation about a key has ended: gets that waited for that go on.
    pub(crate) fn sysv_free(&mut self, cx: &mut Cx<'_>, name: Name) {
        self.sysv.keys.busy.remove(&name);
        let member = self.membership.standing == Standing::Member;
        let mut others = Vec::new();
        for one in core::mem::take(&mut self.sysv.keys.waiting) {
            if one.name == name {
                others.push(one);
            } else {
                self.sysv.keys.waiting.push(one);
            }
        }
        for Waiting { of, ask, .. } in others {
            match of {
                Of::Process(ticket, client) if member => self.sysv_get(cx, (ticket, client), ask),
                Of::Process(ticket, _) => cx.refuse(ticket, Refusal::NotMember),
                Of::Node(caller) => self.sysv_serve(cx, caller, &ask),
            }
        }
    }

    /// The coordinator has been silent for too long: refuses gets that wait for its answer.
    pub(crate) fn sysv_despair(&mut self, cx: &mut Cx<'_>) {
        let why = Refusal::NodeGone(cx.coordinator());
        for Waiting { of, .. } in core::mem::take(&mut self.sysv.keys.waiting) {
            match of {
                Of::Process(ticket, _) => cx.refuse(ticket, why.clone()),
                Of::Node(caller) => self.answer(cx, caller, Reply::Refused(why.clone())),
            }
        }
    }

    /// A node asks the register, which only the coordinator has.
    pub(super) fn sysv_key(
        &mut self,
        cx: &mut Cx<'_>,
        caller: Caller,
        name: Name,
        request: KeyRequest,
    ) {
        if self.coordinator.is_none() {
            let why = Refusal::Invalid("this node keeps no keys".into());
            return self.answer(cx, caller, Reply::Refused(why));
        }
        let steps = self.sysv.register.ask(caller, name, request);
        self.sysv_step(cx, steps);
    }

    fn sysv_step(&mut self, cx: &mut Cx<'_>, steps: Steps) {
        for (caller, reply) in steps.replies {
            self.answer(cx, caller, reply);
        }
        for (node, buckets) in steps.lend {
            let call = Call::SysvLend { buckets };
            self.call(cx, node, call, OnReply::Lent(buckets));
        }
        for (node, bucket, after) in steps.recall {
            let call = Call::SysvRecall { bucket, after };
            self.call(cx, node, call, OnReply::Returned(bucket));
        }
    }

    /// A node has answered which of the lent buckets it takes.
    pub(crate) fn sysv_lent(
        &mut self,
        cx: &mut Cx<'_>,
        (node, buckets): (NodeId, Buckets),
        reply: &Reply,
    ) {
        let taken = match reply {
            Reply::SysvLent(taken) => *taken,
            _ => Buckets::NONE,
        };
        let steps = self.sysv.register.lent(node, buckets, taken);
        self.sysv_step(cx, steps);
    }

    /// A node has given a bucket back.
    pub(crate) fn sysv_returned(
        &mut self,
        cx: &mut Cx<'_>,
        (node, bucket): (NodeId, Bucket),
        reply: &Reply,
    ) {
        let said = match reply {
            Reply::SysvEntries { entries, more } => (&entries[..], *more),
            _ => (&[][..], false),
        };
        let steps = self.sysv.register.returned(node, bucket, said);
        self.sysv_step(cx, steps);
    }

    /// At a new coordinator: a home has told keys. Returns after which key it must go on.
    pub(crate) fn sysv_gathered(
        &mut self,
        cx: &mut Cx<'_>,
        node: NodeId,
        reply: &Reply,
    ) -> Option<Name> {
        let said = match reply {
            Reply::SysvEntries { entries, more } => (&entries[..], *more),
            _ => (&[][..], false),
        };
        let (steps, after) = self.sysv.register.gathered(node, said);
        self.sysv_step(cx, steps);
        after
    }

    /// The coordinator lends buckets to this node. Buckets with busy keys are not taken: the
    /// register must go on deciding about those.
    pub(super) fn sysv_take(&mut self, buckets: Buckets) -> Reply {
        let keys = &mut self.sysv.keys;
        let busy: Buckets = keys.busy.iter().map(|(_, key)| Bucket::of(*key)).collect();
        let taken = buckets.iter().filter(|bucket| !busy.contains(*bucket));
        let taken: Buckets = taken.collect();
        taken.iter().for_each(|bucket| keys.lent.insert(bucket));
        Reply::SysvLent(taken)
    }

    /// The coordinator wants a bucket back.
    pub(super) fn sysv_give_back(&mut self, bucket: Bucket, after: Option<Name>) -> Reply {
        let one = [bucket].into_iter().collect();
        self.sysv_keys_of(one, after)
    }

    /// A new coordinator gathers all keys.
    pub(super) fn sysv_tell_keys(&mut self, after: Option<Name>) -> Reply {
        self.sysv_keys_of(Buckets::ALL, after)
    }

    /// Ends the loan of some buckets. Returns the keys of objects here that are in them.
    fn sysv_keys_of(&mut self, buckets: Buckets, after: Option<Name>) -> Reply {
        buckets
            .iter()
            .for_each(|bucket| self.sysv.keys.lent.remove(bucket));
        let families = [Family::Shm, Family::Sem, Family::Msg].into_iter();
        let entries = families.flat_map(|family| {
            let keys = self.sysv.table(family).keys(buckets).into_iter();
            keys.map(move |(key, id)| Entry { family, key, id })
        });
        let next = |entry: &Entry| after.is_none_or(|after| (entry.family, entry.key) > after);
        let mut entries: Vec<_> = entries.filter(next).take(ENTRIES + 1).collect();
        let more = entries.len() > ENTRIES;
        entries.truncate(ENTRIES);
        Reply::SysvEntries { entries, more }
    }
}

/// The key that a get asks for, with its family; none if the call is no get.
pub(super) fn name_of(op: &Op) -> Option<Name> {
    match op {
        Op::ShmGet { key, .. } => Some((Family::Shm, *key)),
        Op::SemGet { key, .. } => Some((Family::Sem, *key)),
        Op::MsgGet { key, .. } => Some((Family::Msg, *key)),
        _ => None,
    }
}

fn odd() -> Refusal {
    let why =
        "the node that was asked about a key answers something else; is it of another version?";
    Refusal::Invalid(why.into())
}
