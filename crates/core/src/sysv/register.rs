//! The register of keys, which the coordinator keeps: which object of the cluster has which key.
//! Only the home of an object knows the rest of it.
//!
//! A key is entered before its object is published, and struck out after the object is gone or has
//! lost the key. So if the register says that no object has a key, that is true; if it names an
//! object, the home must confirm it.
//!
//! Keys fall into buckets. A bucket whose objects all have the same home is lent to that node, in
//! calls: it is lent when the node has acknowledged it, and back when the node has told which
//! objects have its keys. Questions about the bucket in between wait.

use crate::caller::Caller;
use crate::on_reply::OnReply;
use crate::steps::Step;
use pagemesh_sorted::{LongMap, SortedMap};
use pagemesh_wire::peer::{Call, Refusal, Reply};
use pagemesh_wire::sysv::keys::{Bucket, Buckets, Entry, KeyRequest, Name, Word};
use pagemesh_wire::sysv::{IPC_PRIVATE, Id, OBJECTS};
use pagemesh_wire::{NodeId, NodeSet};
use serde::{Deserialize, Serialize};

/// Most keys of one node in the register; a node has no more objects.
const KEYS: usize = 3 * OBJECTS as usize;

/// Which object has which key, and which node decides about which bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Register {
    /// Keys in buckets about which the register decides.
    names: LongMap<Name, Id>,
    /// Buckets that are lent, or being lent or returned.
    away: SortedMap<Bucket, Away>,
    /// Questions about buckets that are being lent or returned, in the order of arrival.
    waiting: Vec<Waiting>,
    /// The coordinator, which needs no loan.
    me: NodeId,
    /// At a new coordinator: homes that have not told the keys of their objects.
    missing: NodeSet,
}

impl Default for Register {
    fn default() -> Self {
        Self {
            names: LongMap::new(),
            away: SortedMap::new(),
            waiting: Vec::new(),
            me: NodeId::FIRST,
            missing: NodeSet::EMPTY,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Away {
    /// The node has not yet acknowledged the loan.
    Leaving(NodeId),
    /// The node decides.
    Lent(NodeId),
    /// The node has not yet told all keys of the bucket.
    Returning(NodeId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Waiting {
    caller: Caller,
    name: Name,
    request: KeyRequest,
}

/// Replies and calls that follow.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) replies: Vec<(Caller, Reply)>,
    pub(super) lend: Vec<(NodeId, Buckets)>,
    pub(super) recall: Vec<(NodeId, Bucket, Option<Name>)>,
}

impl From<Steps> for Vec<Step> {
    fn from(steps: Steps) -> Self {
        let replies = steps.replies.into_iter();
        let replies = replies.map(|(caller, reply)| Step::Answer(caller, reply));
        let lend = steps.lend.into_iter().map(|(node, buckets)| {
            let call = Call::SysvLend { buckets };
            Step::Call(node, call, OnReply::Lent(buckets))
        });
        let recall = steps.recall.into_iter().map(|(node, bucket, after)| {
            let call = Call::SysvRecall { bucket, after };
            Step::Call(node, call, OnReply::Returned(bucket))
        });
        replies.chain(lend).chain(recall).collect()
    }
}

/// The keys that a node has told, and whether it has more.
fn told(reply: &Reply) -> (&[Entry], bool) {
    match reply {
        Reply::SysvEntries { entries, more } => (entries, *more),
        _ => (&[], false),
    }
}

impl Register {
    /// The reply to a call that lent buckets, wanted one back, or asked for all keys.
    pub(super) fn replied(&mut self, from: NodeId, then: &OnReply, reply: &Reply) -> Vec<Step> {
        match (then, reply) {
            (OnReply::Lent(buckets), Reply::SysvLent(taken)) => {
                self.lent(from, *buckets, *taken).into()
            }
            (OnReply::Lent(buckets), _) => self.lent(from, *buckets, Buckets::NONE).into(),
            (OnReply::Returned(bucket), _) => self.returned(from, *bucket, told(reply)).into(),
            _ => {
                let (steps, after) = self.gathered(from, told(reply));
                let mut steps = Vec::from(steps);
                steps.extend(after.map(|after| ask_for_keys(from, Some(after))));
                steps
            }
        }
    }

    /// A node asks about a key.
    pub(super) fn ask(&mut self, caller: Caller, name: Name, request: KeyRequest) -> Steps {
        let mut steps = Steps::default();
        let one = Waiting {
            caller,
            name,
            request,
        };
        self.take(one, &mut steps);
        steps
    }

    fn take(&mut self, one: Waiting, steps: &mut Steps) {
        let bucket = Bucket::of(one.name.1);
        if !self.missing.is_empty() {
            return self.waiting.push(one);
        }
        match self.away.get(&bucket) {
            None => {
                let reply = self.decide(&one);
                let yours = reply == Reply::SysvKey(Word::Yours);
                steps.replies.push((one.caller, reply));
                if yours {
                    self.lend(one.caller.node, bucket, steps);
                }
            }
            Some(Away::Lent(node)) => {
                steps.recall.push((*node, bucket, None));
                self.away.insert(bucket, Away::Returning(*node));
                self.waiting.push(one);
            }
            Some(Away::Leaving(_) | Away::Returning(_)) => self.waiting.push(one),
        }
    }

    fn decide(&mut self, one: &Waiting) -> Reply {
        let here = |id: Id| id.home() == Some(one.caller.node);
        let known = self.names.get(&one.name).copied();
        let word = match (one.request, known) {
            (KeyRequest::Drop { id }, _) => {
                if known == Some(id) && here(id) {
                    self.names.remove(&one.name);
                }
                return Reply::Done;
            }
            (KeyRequest::Find { .. }, Some(id)) => Word::Theirs(id),
            (KeyRequest::Find { offer: None }, None) => Word::Nobodys,
            (KeyRequest::Find { offer: Some(id) }, None) => {
                if !here(id) || one.name.1 == IPC_PRIVATE {
                    let why = "no object of this node can have this key".to_owned();
                    return Reply::Refused(Refusal::Invalid(why));
                }
                if self.names.len() >= KEYS && self.count(one.caller.node) >= KEYS {
                    let why = format!("{KEYS} System V keys of one node");
                    return Reply::Refused(Refusal::Limit(why));
                }
                self.names.insert(one.name, id);
                Word::Yours
            }
        };
        Reply::SysvKey(word)
    }

    fn count(&self, node: NodeId) -> usize {
        let of = |id: &&Id| id.home() == Some(node);
        self.names.values().filter(of).count()
    }

    /// A node has got a key. Lends it the whole bucket if no other node has a key in it, and all
    /// buckets if no other node has any key.
    fn lend(&mut self, node: NodeId, bucket: Bucket, steps: &mut Steps) {
        if node == self.me {
            return;
        }
        let others = |id: &Id| id.home() != Some(node);
        let mut of_others = self.names.iter().filter(|(_, id)| others(id));
        let alone = of_others.clone().next().is_none();
        let shared = of_others.any(|((_, key), _)| Bucket::of(*key) == bucket);
        if shared {
            return;
        }
        let buckets = if alone && self.away.is_empty() {
            Buckets::ALL
        } else {
            [bucket].into_iter().collect()
        };
        for bucket in buckets.iter() {
            self.away.insert(bucket, Away::Leaving(node));
        }
        steps.lend.push((node, buckets));
    }

    /// A node has answered to the loan of `buckets`, and decides about those that it has `taken`;
    /// none if it is gone.
    pub(super) fn lent(&mut self, node: NodeId, buckets: Buckets, taken: Buckets) -> Steps {
        for bucket in buckets.iter() {
            if self.away.get(&bucket) != Some(&Away::Leaving(node)) {
                continue;
            }
            if taken.contains(bucket) {
                self.away.insert(bucket, Away::Lent(node));
                self.names.retain(|(_, key), _| Bucket::of(*key) != bucket);
            } else {
                self.away.remove(&bucket);
            }
        }
        self.go_on()
    }

    /// A node has told which objects have the keys of a bucket that it was asked to return; none if
    /// it is gone.
    pub(super) fn returned(
        &mut self,
        node: NodeId,
        bucket: Bucket,
        (entries, more): (&[Entry], bool),
    ) -> Steps {
        if self.away.get(&bucket) != Some(&Away::Returning(node)) {
            return Steps::default();
        }
        for entry in entries {
            let fits = Bucket::of(entry.key) == bucket && entry.key != IPC_PRIVATE;
            if fits && entry.id.home() == Some(node) {
                let name = (entry.family, entry.key);
                self.names.insert(name, entry.id);
            }
        }
        if let Some(last) = entries.last().filter(|_| more) {
            let after = Some((last.family, last.key));
            return Steps {
                recall: vec![(node, bucket, after)],
                ..Steps::default()
            };
        }
        self.away.remove(&bucket);
        self.go_on()
    }

    /// This node is a new coordinator: it asks these homes for the keys of their objects, and
    /// decides upon keys when all have told theirs.
    pub(crate) fn gather(&mut self, me: NodeId, homes: NodeSet) -> Vec<Step> {
        let steps = homes.iter().map(|home| ask_for_keys(home, None)).collect();
        *self = Self {
            me,
            missing: homes,
            ..Self::default()
        };
        steps
    }

    /// A home has told keys of its objects; none if it is gone.
    pub(super) fn gathered(
        &mut self,
        node: NodeId,
        (entries, more): (&[Entry], bool),
    ) -> (Steps, Option<Name>) {
        if !self.missing.contains(node) {
            return (Steps::default(), None);
        }
        for entry in entries {
            if entry.key != IPC_PRIVATE && entry.id.home() == Some(node) {
                let name = (entry.family, entry.key);
                self.names.entry(name).or_insert(entry.id);
            }
        }
        if let Some(last) = entries.last().filter(|_| more) {
            return (Steps::default(), Some((last.family, last.key)));
        }
        self.missing.remove(node);
        (self.go_on(), None)
    }

    /// Some buckets have been lent or returned: answers the questions that waited for that.
    fn go_on(&mut self) -> Steps {
        let mut steps = Steps::default();
        for one in core::mem::take(&mut self.waiting) {
            self.take(one, &mut steps);
        }
        steps
    }

    /// A caller has withdrawn its question.
    pub(super) fn cancel(&mut self, caller: Caller) {
        self.waiting.retain(|one| one.caller != caller);
    }

    /// A node is gone, with its objects: its keys are free. Loans and returns under way end with
    /// the calls about them.
    pub(crate) fn member_gone(&mut self, node: NodeId) {
        self.names.retain(|_, id| id.home() != Some(node));
        self.away.retain(|_, away| *away != Away::Lent(node));
        self.waiting.retain(|one| one.caller.node != node);
    }
}

fn ask_for_keys(home: NodeId, after: Option<Name>) -> Step {
    Step::Call(home, Call::SysvGather { after }, OnReply::Gathered)
}

#[cfg(test)]
mod tests;
