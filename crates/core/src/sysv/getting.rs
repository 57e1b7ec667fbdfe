//! How a get finds its object: an object with the key, on whichever node that is, or a new one
//! here.
//!
//! A node finds its own objects by itself, and decides alone upon keys it was lent. For other keys
//! it asks the register and offers an object that it has made already but has not published: if no
//! object has the key, the offered one gets it; otherwise the offer is discarded and the home of
//! the other object is asked. While a node and the register negotiate about a key, all other gets
//! for it on this node wait.

use super::Sysv;
use super::get::Get;
use crate::caller::Caller;
use crate::on_reply::OnReply;
use crate::shell::Cx;
use crate::steps::Step;
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

    /// Asks the register about a key.
    fn negotiate(&mut self, cx: &Cx<'_>, name: Name, request: KeyRequest, then: OnReply) -> Step {
        self.busy.insert(name);
        let call = Call::SysvKey {
            family: name.0,
            key: name.1,
            request,
        };
        Step::Call(cx.coordinator(), call, then)
    }

    /// An object of this node has lost its key or is gone: tells the register.
    pub(super) fn strike(&mut self, cx: &Cx<'_>, name: Name, id: Id) -> Option<Step> {
        let request = KeyRequest::Drop { id };
        (!self.decides(name.1)).then(|| self.negotiate(cx, name, request, OnReply::Struck(name)))
    }

    /// The negotiation about a key has ended. Returns the gets that waited for that.
    fn free(&mut self, name: Name) -> Vec<Waiting> {
        self.busy.remove(&name);
        let of_name = |one: &mut Waiting| one.name == name;
        self.waiting.extract_if(.., of_name).collect()
    }

    /// The coordinator lends buckets to this node. Buckets with busy keys are not taken: the
    /// register must go on deciding about those.
    pub(super) fn take(&mut self, buckets: Buckets) -> Reply {
        let busy: Buckets = self.busy.iter().map(|(_, key)| Bucket::of(*key)).collect();
        let taken = buckets.iter().filter(|bucket| !busy.contains(*bucket));
        let taken: Buckets = taken.collect();
        taken.iter().for_each(|bucket| self.lent.insert(bucket));
        Reply::SysvLent(taken)
    }
}

impl Sysv {
    /// A process asks for the object of a key.
    pub(super) fn find(
        &mut self,
        cx: &Cx<'_>,
        client: (Ticket, ClientId),
        ask: Box<Ask>,
    ) -> Option<Step> {
        let name = name_of(&ask.op)?;
        let (ticket, client) = client;
        if self.keys.is_busy(name) {
            let of = Of::Process(ticket, client);
            self.keys.waiting.push(Waiting { name, of, ask });
            return None;
        }
        if self.keys.decides(name.1) || self.table(name.0).has(name.1) {
            let then = OnReply::Tell(ticket, client);
            return Some(Step::Call(cx.me(), Call::Sysv(ask), then));
        }
        let offer = self.offer(cx.me(), &ask);
        let request = KeyRequest::Find { offer: offer.ok() };
        let get = Get {
            client: Some((ticket, client)),
            ask,
            offer: offer.ok(),
            why: offer.err().unwrap_or(Errno::ENOENT),
        };
        let then = OnReply::Register(Box::new(get));
        Some(self.keys.negotiate(cx, name, request, then))
    }

    /// The register has answered.
    pub(super) fn registered(
        &mut self,
        cx: &mut Cx<'_>,
        get: Box<Get>,
        reply: &Reply,
        is_member: bool,
    ) -> Vec<Step> {
        let Some(name) = name_of(&get.ask.op) else {
            return Vec::new();
        };
        let mut steps = Vec::new();
        match (reply, get.offer) {
            (Reply::SysvKey(Word::Yours), Some(id)) => {
                self.table_mut(name.0).show(id);
                if name.0 == Family::Shm {
                    steps.extend(self.made(id));
                }
            }
            (_, Some(id)) => self.table_mut(name.0).discard(id),
            (_, None) => {}
        }
        let outcome = match (reply, get.offer) {
            (Reply::SysvKey(Word::Yours), Some(id)) => Ok(Outcome::Number(id.0)),
            (Reply::SysvKey(Word::Nobodys), _) => Ok(Outcome::Failed(get.why)),
            (Reply::SysvKey(Word::Theirs(id)), _) => match id.home() {
                Some(home) if home != cx.me() => {
                    steps.extend(self.free(cx, name, is_member));
                    steps.extend(self.visit(cx, home, get));
                    return steps;
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
        steps.extend(self.free(cx, name, is_member));
        steps
    }

    /// Asks the home of the object that has the key, which is another node.
    fn visit(&mut self, cx: &Cx<'_>, home: NodeId, get: Box<Get>) -> Option<Step> {
        if cx.is_gone(home) {
            return self.find_again(cx, *get);
        }
        let call = Call::Sysv(get.ask.clone());
        Some(Step::Call(home, call, OnReply::Visit(get)))
    }

    /// The home of an object has answered, or is gone with the object.
    pub(super) fn visited(&mut self, cx: &mut Cx<'_>, get: Get, reply: Reply) -> Option<Step> {
        match (reply, get.client) {
            (Reply::Sysv(NOT_HERE), _) => return self.find_again(cx, get),
            (Reply::Refused(Refusal::NodeGone(home)), _) if cx.is_gone(home) => {
                return self.find_again(cx, get);
            }
            (Reply::Sysv(outcome), Some((ticket, _))) => {
                cx.reply(ticket, crate::effect::Reply::Sysv(outcome));
            }
            (Reply::Refused(why), Some((ticket, _))) => cx.refuse(ticket, why),
            (_, Some((ticket, _))) => cx.refuse(ticket, odd()),
            (_, None) => {}
        }
        None
    }

    fn find_again(&mut self, cx: &Cx<'_>, get: Get) -> Option<Step> {
        self.find(cx, get.client?, get.ask)
    }

    /// The negotiation about a key has ended: gets that waited for that go on.
    pub(super) fn free(&mut self, cx: &mut Cx<'_>, name: Name, is_member: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        for Waiting { of, ask, .. } in self.keys.free(name) {
            match of {
                Of::Process(ticket, client) if is_member => {
                    steps.extend(self.find(cx, (ticket, client), ask));
                }
                Of::Process(ticket, _) => cx.refuse(ticket, Refusal::NotMember),
                Of::Node(caller) => steps.extend(self.called(cx, caller, &ask)),
            }
        }
        steps
    }

    /// The coordinator has been silent for too long: refuses gets that wait for its answer.
    pub(crate) fn despair(&mut self, cx: &mut Cx<'_>) -> Vec<Step> {
        let why = Refusal::NodeGone(cx.coordinator());
        let mut steps = Vec::new();
        for Waiting { of, .. } in core::mem::take(&mut self.keys.waiting) {
            match of {
                Of::Process(ticket, _) => cx.refuse(ticket, why.clone()),
                Of::Node(caller) => steps.push(Step::Answer(caller, Reply::Refused(why.clone()))),
            }
        }
        steps
    }

    /// Ends the loan of some buckets. Returns the keys of objects here that are in them.
    pub(super) fn tell_keys(&mut self, buckets: Buckets, after: Option<Name>) -> Reply {
        let lent = &mut self.keys.lent;
        buckets.iter().for_each(|bucket| lent.remove(bucket));
        let families = [Family::Shm, Family::Sem, Family::Msg].into_iter();
        let entries = families.flat_map(|family| {
            let keys = self.table(family).keys(buckets).into_iter();
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
